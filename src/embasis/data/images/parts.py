"""Large pictures part by part: what has four or more bytes for each pixel is never made of a whole picture at once.

| symbol | meaning |
| --- | --- |
| box | left, top, right, bottom: a part of a picture of at most PIXELS pixels |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from embasis.data.images.header import UnreadableImage

if TYPE_CHECKING:
    from PIL import Image

PIXELS = 2**18
"""Of one part: its working copies stay in a processor's cache."""

Pixels = np.ndarray[Any, np.dtype[np.uint8]]
"""(H, W, 3)"""
Box = tuple[int, int, int, int]


def boxes(width: int, height: int) -> Iterator[Box]:
    """Parts that cover a picture, in the order of its pixels: some rows, or a piece of one row."""
    rows, columns = max(1, PIXELS // width), min(width, PIXELS)
    for top in range(0, height, rows):
        for left in range(0, width, columns):
            yield left, top, min(left + columns, width), min(top + rows, height)


def rgb_into(image: Image.Image, target: Pixels) -> None:
    """The pixels of an image, converted by the table in decode.py, into (H, W, 3)."""
    refuse_mode(image.mode)
    image.load()
    if image.mode == "I":
        _require_grey(image)
    table = _table(image) if image.mode in ("1", "L", "P") and "transparency" in image.info else None
    for left, top, right, bottom in boxes(*image.size):
        part = image.crop((left, top, right, bottom))
        target[top:bottom, left:right] = _rgb(part) if table is None else table[_bytes_of(part)]


def refuse_mode(mode: str) -> None:
    """UnreadableImage for pixels whose range is not written in the file."""
    if mode in ("F", "LAB"):
        raise UnreadableImage("floating-point pixels are not read" if mode == "F" else "LAB colours are not read")


def _rgb(part: Image.Image) -> Pixels:
    if part.mode.startswith("I"):
        grey = ((np.asarray(part).astype(np.uint32) + 128) // 257).astype(np.uint8)
        return np.broadcast_to(grey[:, :, None], (*grey.shape, 3))
    if part.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in part.info:
        return over_white(np.asarray(part.convert("RGBA")))
    return np.asarray(part.convert("RGB"))


def _table(image: Image.Image) -> Pixels:
    """(256, 3): what becomes of each value of an image of one byte a pixel, which is faster than to mix each pixel."""
    ramp = image.crop((0, 0, 256, 1))  # beyond its rim, too; with its palette and its transparent colours
    ramp.putdata(range(256))
    table: Pixels = _rgb(ramp)[0]
    return table


def _bytes_of(part: Image.Image) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer(part.tobytes("raw", "L" if part.mode == "1" else part.mode), np.uint8).reshape(part.size[::-1])


def _require_grey(image: Image.Image) -> None:
    """Integers are grey values of 16 bits."""
    extremes: Any = image.getextrema()
    low, high = map(int, extremes)
    if low < 0 or high > 65535:
        raise UnreadableImage(f"grey values {low}..{high} are not in 0..65535")


def over_white(pixels: Pixels) -> Pixels:
    """RGB of RGBA (…, 4): round((c·α + 255·(255 − α)) / 255), whose sums fit into 16 bits."""
    colour, alpha = pixels[..., :3].astype(np.uint16), pixels[..., 3:].astype(np.uint16)
    colour *= alpha
    colour += 255 * (255 - alpha) + np.uint16(127)
    colour //= np.uint16(255)
    return colour.astype(np.uint8)
