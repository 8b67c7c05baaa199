"""100,000 unlabelled images: how long the scan takes, and the peak memory of a whole `embasis fit` on them.

    python -m benchmarks.image_scale [--images 100000] [--keep DIR]

Small JPEGs (48×48, ten classes of coloured gratings, two styles) are made here. The backbone is the default one at
32×32 pixels: its features have the full width (1,280), and two cores need minutes instead of hours for them.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import simplejpeg

from embasis.data.images.scan import scan_folder

CLASSES = 10


def grating(draw: np.random.Generator, label: int, style: int) -> bytes:
    """A picture whose direction and colour say its class; the style changes contrast and noise."""
    y, x = np.mgrid[0:48, 0:48]
    angle = np.pi * label / CLASSES + draw.normal(0, 0.08)
    wave = np.sin((np.cos(angle) * x + np.sin(angle) * y) * (0.5 + 0.1 * style) + draw.uniform(0, 6.3))
    tint = np.array([np.cos(label), np.sin(label), np.cos(2 * label)]) * 40 + 128
    pixels = tint + wave[:, :, None] * (70 - 30 * style) + draw.normal(0, 10 + 15 * style, (48, 48, 3))
    return simplejpeg.encode_jpeg(np.ascontiguousarray(pixels.clip(0, 255).astype(np.uint8)), quality=85)


def make(home: Path, images: int) -> None:
    draw = np.random.default_rng(0)
    for number in range(2000):
        folder = home / "labelled" / f"class{number % CLASSES}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:06d}.jpg").write_bytes(grating(draw, number % CLASSES, 0))
    for number in range(images):
        folder = home / "unlabelled" / f"{number // 1000:03d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:06d}.jpg").write_bytes(grating(draw, number % CLASSES, 1))


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    words.add_argument("--images", type=int, default=100_000)
    words.add_argument("--keep", help="folder to make and use; made before, it is used as it is")
    given = words.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(given.keep or temporary)
        if not (home / "unlabelled").exists():
            start = time.perf_counter()
            make(home, given.images)
            print(f"made {given.images:,} images in {time.perf_counter() - start:.0f} s", flush=True)
        start = time.perf_counter()
        found = scan_folder(home / "unlabelled")
        seconds = time.perf_counter() - start
        print(
            f"scan of {len(found.files):,} files: {seconds:.1f} s, {len(found.files) / seconds:,.0f} a second",
            flush=True,
        )
        del found
        command = [sys.executable, "-m", "embasis", "fit", str(home / "labelled"), str(home / "unlabelled")]
        command += ["-o", str(home / "run"), "network.size=32", f"images.cache={home / 'cache'}"]
        for words_ in ("first run, features computed", "second run, features from the cache"):
            start = time.perf_counter()
            subprocess.run(command, check=True)
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
            print(f"{words_}: {time.perf_counter() - start:.0f} s, peak memory so far {peak:.2f} GB", flush=True)
            command[command.index("-o") + 1] = str(home / "again")


if __name__ == "__main__":
    main()
