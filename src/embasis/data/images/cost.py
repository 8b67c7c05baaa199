"""What it takes to decode a picture, told from its header: a few kilobytes may take neither gigabytes nor minutes.

| kind | bytes of memory for each pixel |
| --- | --- |
| PNG, GIF, BMP, PPM | those that Pillow holds (1, 2 or 4), and 3 for the RGB that becomes of them |
| TIFF | those that Pillow holds, and the most of: as many again (a picture on its side), all samples (one strip), 3 |
| WebP | 16: Pillow's decoder has two canvases, the bytes and the picture |
| JPEG | 15: coefficients of four channels (2 each), the picture, and RGB |

Slow are JPEGs of very many scans, each of which goes over all blocks (a TIFF may hold one), and rows of a BMP that are
packed by runs, which Pillow unpacks in Python.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL import Image

SMALL_FILE = 2**16
"""Bytes of a file that is asked what it costs: no photo of so many pixels is so small."""
MOST_MEMORY = 480
"""Megabytes that a small file may take. 512 are promised; something goes to what is not counted here."""
MOST_STEPS = {"JPEG": 2**29, "TIFF": 2**29, "BMP": 2**23}
"""Pixels × scans, or pixels of packed rows, of a small file: half a second or so, and one."""
FIXED = {"JPEG": 15, "WEBP": 16}
"""Bytes for each pixel where they are the same for all files of a format."""
_HELD = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2}
_BITS, _TILE_WIDTH, _TILE_HEIGHT = 258, 322, 323


def too_costly(data: bytes, kind: str, width: int, height: int) -> str:
    """Why a small file of this format and size is not read, or nothing."""
    if len(data) > SMALL_FILE:
        return ""
    reason = _too_large(width, height, FIXED.get(kind, 0) * width * height)
    return reason or _too_slow(kind, width, height, data.count(b"\xff\xda") if kind in ("JPEG", "TIFF") else 0)


def too_costly_image(data: bytes, kind: str, image: Image.Image) -> str:
    """The same of an image that Pillow has opened and not decoded yet."""
    if len(data) > SMALL_FILE:
        return ""
    width, height = image.size
    packed = any(tile[0] == "bmp_rle" for tile in image.tile) if hasattr(image, "tile") else False
    return _too_large(width, height, _memory(image, kind)) or _too_slow(kind, width, height, int(packed))


def _too_large(width: int, height: int, memory: int) -> str:
    if memory <= MOST_MEMORY * 2**20:
        return ""
    rule = f"a file of up to {SMALL_FILE // 1024} kB may take {MOST_MEMORY} MB"
    return f"{width}×{height} pixels take {memory // 2**20:,} MB to decode, {rule}; make it smaller"


def _too_slow(kind: str, width: int, height: int, scans: int) -> str:
    if scans * width * height <= MOST_STEPS.get(kind, math.inf):
        return ""
    what = f"{scans:,} scans of {width}×{height} pixels" if scans > 1 else f"{width}×{height} pixels in packed rows"
    return f"{what} take too long to decode for a file of up to {SMALL_FILE // 1024} kB; save it as PNG"


def _memory(image: Image.Image, kind: str) -> int:
    """Bytes that Pillow and we take for all pixels."""
    held, pixels = _HELD.get(image.mode, 4), image.width * image.height
    if kind != "TIFF":
        return max(held + 3, FIXED.get(kind, 0)) * pixels
    tags: Any = getattr(image, "tag_v2", {})
    samples = sum(_whole(bits) for bits in tags.get(_BITS, (8,)))
    tile = _whole(tags.get(_TILE_WIDTH)) * _whole(tags.get(_TILE_HEIGHT))
    return held * pixels + max(3 * pixels, held * pixels, samples * max(pixels, tile) // 8)


def _whole(value: object) -> int:
    """A tag may be anything."""
    return value if isinstance(value, int) and value > 0 else 0
