"""Small pictures with label maps, and PNG files of every kind written by hand."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from image_trees import picture, plant

NAMES = ("road", "tree", "sky")
"""Classes 0, 1 and 2 of `scene`."""


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_bytes(width: int, height: int, depth: int, kind: int, rows: bytes, laced: int = 0, extra: bytes = b"") -> bytes:
    """A PNG file: header, extra chunks, the rows in two parts."""
    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, laced)
    squeezed = zlib.compress(rows)
    half = len(squeezed) // 2
    parts = chunk(b"IDAT", squeezed[:half]) + chunk(b"IDAT", squeezed[half:])
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + parts + chunk(b"IEND", b"")


def filtered(rows: np.ndarray, step: int, kinds: list[int]) -> bytes:
    """Rows of bytes as PNG stores them, each by its filter from none to Paeth; pixels have `step` bytes."""
    out, above = [], [0] * rows.shape[1]
    for row, kind in zip(rows.tolist(), kinds, strict=True):
        line = [kind]
        for place, value in enumerate(row):
            left, corner = (row[place - step], above[place - step]) if place >= step else (0, 0)
            line.append((value - _guess(kind, left, above[place], corner)) % 256)
        out.append(bytes(line))
        above = row
    return b"".join(out)


def _guess(kind: int, left: int, up: int, corner: int) -> int:
    if kind == 4:
        near = left + up - corner
        return min((abs(near - left), 0, left), (abs(near - up), 1, up), (abs(near - corner), 2, corner))[2]
    return (0, left, up, (left + up) // 2)[kind]


def saved(pixels: np.ndarray, kind: str = "PNG", palette: list[int] | None = None) -> bytes:
    """An array as an image file."""
    image = Image.fromarray(pixels)
    if palette is not None:
        image = image.convert("P")
        image.putdata(pixels.reshape(-1).tolist())
        image.putpalette(palette)
    stream = io.BytesIO()
    image.save(stream, kind)
    return stream.getvalue()


def ids(*rows: str) -> np.ndarray:
    """Numbers from words: ids("0 0 1", "0 1 255")."""
    return np.array([[int(word) for word in row.split()] for row in rows], dtype=np.uint8)


def grid(number: int, side: int = 40, classes: int = 3) -> np.ndarray:
    """A map of its own for each number that has all classes, and a corner of 255."""
    small = np.random.default_rng(number).integers(0, classes, (4, 4), dtype=np.uint8)
    small[0, : classes + 1] = [*range(classes), 255][: classes + 1]
    return small.repeat(side // 4, 0).repeat(side // 4, 1)


def scenes(count: int, start: int = 0, maps: bool = True, below: str = "") -> dict[str, bytes]:
    """Pictures in images/ and their maps in labels/."""
    names = [f"{below}{number}" for number in range(start, start + count)]
    files = {f"images/{name}.png": picture(number) for number, name in enumerate(names, start)}
    if maps:
        files |= {f"labels/{name}.png": saved(grid(number)) for number, name in enumerate(names, start)}
    return files


TOML = """
[[class]]
name = "road"
id = 0
[[class]]
name = "tree"
id = 1
[[class]]
name = "sky"
id = 2
"""


def folder(root: Path, content: Mapping[str, bytes], toml: str | None = TOML) -> Path:
    """A folder of scenes with its classes.toml."""
    plant(root, content)
    if toml is not None:
        (root / "classes.toml").write_text(toml)
    return root
