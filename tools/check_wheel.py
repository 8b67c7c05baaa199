"""Build the wheel, install it in a clean environment, and fit a table and a folder of images from there.

    python tools/check_wheel.py

What a user gets is the wheel, not this tree: a file that is missing from it, or a dependency that only `dev` brings, is
not seen by any test of the tree. Everything lies in one folder for temporary files, which goes away at the end.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
import venv
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
CONSTRAINTS = TREE / "constraints-cpu.txt"

MAKE_INPUTS = """
import csv
from pathlib import Path

import numpy as np
from PIL import Image

draw = np.random.default_rng(0)
for name, rows, shift in (("train", 60, 0.0), ("field", 60, 0.5), ("new", 10, 0.5)):
    with open(f"{name}.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["width", "height", *(["label"] if name == "train" else [])])
        for row in range(rows):
            kind = row % 2
            values = draw.normal(3.0 * kind + shift, 1.0, 2).round(4).tolist()
            table.writerow([*values, *([("left", "right")[kind]] if name == "train" else [])])

def picture(kind: int, light: int) -> Image.Image:
    stripes = (np.arange(64) // 8 % 2 * 120 + light).astype(np.uint8)
    square = np.tile(stripes, (64, 1)) if kind else np.tile(stripes[:, None], (1, 64))
    noise = draw.integers(0, 40, (64, 64, 3), dtype=np.uint8)
    return Image.fromarray(square[:, :, None] + noise)

for number in range(16):
    for kind, name in enumerate(("across", "along")):
        for place, light in ((f"photos/{name}", 20), ("paintings", 70)):
            Path(place).mkdir(parents=True, exist_ok=True)
            picture(kind, light).save(f"{place}/{name}-{number:02d}.png")
"""

CHECK_PLACE = """
import sys
from pathlib import Path

import embasis

place = Path(embasis.__file__).resolve()
assert place.is_relative_to(Path(sys.prefix).resolve()), f"embasis comes from {place}, not from the wheel"
"""

SHORT = ["plan.rounds=1", "plan.source_epochs=2", "plan.epochs=1"]


def check_wheel(folder: Path) -> None:
    """Build, install and use the wheel; all that is made lies in `folder`."""
    python = folder / "env" / "bin" / "python"
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    venv.create(folder / "env", with_pip=True, symlinks=os.name == "posix")
    run("build", [*pip, "wheel", "--no-deps", "--wheel-dir", folder / "dist", TREE], folder)
    (wheel,) = (folder / "dist").glob("embasis-*.whl")
    run("install", [*pip, "install", "-c", CONSTRAINTS, f"{wheel}[images]"], folder)
    run("find the package", [python, "-c", CHECK_PLACE], folder)
    run("make inputs", [python, "-c", MAKE_INPUTS], folder)
    fit_and_predict("table", ["train.csv", "field.csv"], "new.csv", 10, folder)
    fit_and_predict("images", ["photos", "paintings"], "paintings", 32, folder)


def fit_and_predict(kind: str, sides: list[str], new: str, rows: int, folder: Path) -> None:
    """One short run by the installed command: a model, a label for each new row, a report."""
    command = folder / "env" / "bin" / "embasis"
    run(f"fit {kind}", [command, "fit", *sides, "-o", f"run-{kind}", *SHORT], folder)
    run(f"predict {kind}", [command, "predict", f"run-{kind}", new, "-o", f"{kind}.csv"], folder)
    run(f"report {kind}", [command, "report", f"run-{kind}"], folder)
    labels = len((folder / f"{kind}.csv").read_text().splitlines()) - 1
    if labels != rows:
        raise SystemExit(f"predict {kind} must label {rows} rows, got {labels}")


def run(name: str, command: list[Path | str], folder: Path) -> None:
    """Run one step outside this tree and without its settings; its output is shown only when it fails."""
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    clean["XDG_CACHE_HOME"] = str(folder / "cache")
    start = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, check=False)
    print(f"{name:18}{time.monotonic() - start:7.1f} s", flush=True)
    if done.returncode:
        raise SystemExit(f"{name} failed with exit code {done.returncode}:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="embasis-wheel-") as place:
        check_wheel(Path(place))
    print("the wheel works")
