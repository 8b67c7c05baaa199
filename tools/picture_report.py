"""Make the picture of README.md and docs/index.md: the report page of `embasis demo` in a browser.

    python tools/picture_report.py                 # runs the demo, a minute or two on one core
    python tools/picture_report.py demo-run        # takes a demo that has been run

Needs chromium (apt-get install chromium) and playwright, which `make setup` installs. The picture shows the page from
its top to the second class of its gallery.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "assets" / "report.webp"
WIDTH, SCALE, QUALITY = 1280, 1.25, 80
LARGEST = 200_000


def find_browser() -> str:
    """The path of a chromium on this machine."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    raise SystemExit("no chromium on this machine: apt-get install chromium")


def photograph(page_file: Path) -> Image.Image:
    """The page of a run as a browser shows it, down to the second class of the gallery."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_browser(), args=["--no-sandbox", "--disable-gpu"])
        view = {"width": WIDTH, "height": 1600}
        page = browser.new_context(color_scheme="light", viewport=view, device_scale_factor=SCALE).new_page()
        page.goto(page_file.resolve().as_uri())
        last = page.locator(".shelf").nth(1).bounding_box()
        assert last is not None
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": last["y"] + last["height"] + 6}
        data = page.screenshot(clip=clip)
        browser.close()
    return Image.open(io.BytesIO(data)).convert("RGB")


def main() -> None:
    """Run the demo where none is given, and write the picture."""
    with tempfile.TemporaryDirectory() as home:
        demo = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(home) / "demo-run"
        if len(sys.argv) == 1:
            subprocess.run([Path(sys.executable).parent / "embasis", "demo", "-o", demo], check=True)
        picture = photograph(demo / "em_basis" / "report.html")
    PICTURE.parent.mkdir(exist_ok=True)
    picture.save(PICTURE, quality=QUALITY, method=6)
    size = PICTURE.stat().st_size
    if size > LARGEST:
        raise SystemExit(f"the picture has {size:,} bytes, more than {LARGEST:,}: lower QUALITY")
    print(f"wrote {PICTURE.name}: {picture.width} × {picture.height}, {size:,} bytes")


if __name__ == "__main__":
    main()
