"""Runs on folders of small generated scenes with label maps and a tiny network: about a second each."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cli_tables import embasis
from image_trees import plant
from map_trees import saved

NAMES = ("sky", "road", "car")
IDS = (7, 11, 26)
"""Of the classes in label maps."""
TOML = "".join(f'[[class]]\nname = "{name}"\nid = {number}\n' for name, number in zip(NAMES, IDS, strict=True))
WORDS = ("--backbone", "small_fcn", "network.width=16", "maps.size=32", "maps.crop_height=32", "maps.crop_width=48",
         "rounds=2", "source_epochs=2", "epochs=2", "batch_size=6", "workers=0")  # fmt: skip
"""On the command line: 2 steps an epoch for 12 pictures."""


def scene(number: int, shift: int = 0, size: tuple[int, int] = (32, 48)) -> tuple[np.ndarray, np.ndarray]:
    """A picture of sky, road and a car, and its map of class numbers; `shift` is the other domain."""
    draw, (height, width) = np.random.default_rng((number, shift)), size
    classes = np.zeros(size, np.uint8)
    classes[int(draw.integers(height // 4, height // 2)) :] = 1
    top, left = int(draw.integers(0, height // 2)), int(draw.integers(0, width // 2))
    classes[top : top + height // 2, left : left + width // 3] = 2
    colours = np.array([(90, 140, 200), (110, 100, 90), (200, 60, 50)]) + shift
    pixels = (colours[classes] + draw.normal(0, 12, (*size, 3))).clip(0, 255).astype(np.uint8)
    return pixels, classes


def pair(number: int, shift: int = 0, name: str | None = None) -> dict[str, bytes]:
    """A picture in images/ and its map in labels/."""
    pixels, classes = scene(number, shift)
    name = name or f"{number}.png"
    return {f"images/{name}": saved(pixels), f"labels/{name}": saved(np.array(IDS, np.uint8)[classes])}


def sides(root: Path, count: int = 12) -> Path:
    """`drawn` with images/, labels/ and classes.toml; `streets` with pictures only, some of them in a folder below."""
    for number in range(count):
        plant(root / "drawn", pair(number))
        below = "" if number % 3 else "unten/"
        plant(root / "streets", {f"{below}{number} ü.png": saved(scene(number, 25)[0])})
    (root / "drawn" / "classes.toml").write_text(TOML)
    return root


def command(home: Path, run: Path, *words: str) -> tuple[str, ...]:
    """The fit of both sides."""
    return ("fit", str(home / "drawn"), str(home / "streets"), "-o", str(run), *WORDS, *words)


def fitted(home: Path, run: Path, *words: str) -> Path:
    """A finished run."""
    result = embasis(*command(home, run, *words))
    assert result.exit_code == 0, result.output
    return run
