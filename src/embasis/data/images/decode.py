"""From the bytes of an image file to pixels, uint8 (3, H, W) RGB, the same everywhere.

| the file holds | the pixels are |
| --- | --- |
| 8-bit RGB | as they are |
| grey (L), 1 bit | the value in all three channels; 1 bit is 0 or 255 |
| palette | its colours |
| alpha, or a transparent colour (RGBA, LA, palette, PNG's tRNS) | laid over white: round((c·α + 255·(255 − α)) / 255) |
| 16-bit grey (PNG, TIFF, PGM) | round(v / 257); a transparent colour is ignored |
| 16-bit RGB or alpha (PNG, TIFF) | the high byte of each value, which is all that Pillow gives; PPM: rounded |
| 32-bit integers (TIFF) | as 16-bit grey; refused when a value is not in 0..65535 |
| floating point, LAB | refused: their range is not written in the file |
| CMYK, YCCK, YCbCr | RGB by Pillow's conversion, Adobe's inverted CMYK put right; colour profiles are ignored |
| several frames or pages (GIF, APNG, WebP, TIFF) | the first |
| an EXIF orientation | turned upright; a damaged EXIF block counts as none |
| a JPEG that ends early or whose code is broken | refused, also where the decoder would fill in grey |

JPEG goes through simplejpeg where it is installed, and all else through Pillow. Without simplejpeg a JPEG is decoded by
Pillow, to the same pixels, but a JPEG that is broken in its middle and has a proper end is then not noticed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from embasis.data.images.header import (
    FORMATS,
    LARGEST_PIXELS,
    MOST_PARTS,
    SUFFIXES,
    Header,
    UnreadableImage,
    check_png,
    check_size,
    format_of,
    header,
    open_image,
    simplejpeg,
)
from embasis.data.images.parts import Pixels, over_white, refuse_mode, rgb_into
from embasis.data.images.transforms import STRENGTHS, centre_view, random_view
from embasis.errors import require

if TYPE_CHECKING:
    from PIL import Image

__all__ = [
    "FORMATS",
    "LARGEST_PIXELS",
    "STRENGTHS",
    "SUFFIXES",
    "Header",
    "UnreadableImage",
    "centre_view",
    "decode",
    "header",
    "is_swapped",
    "orientation_of",
    "oriented_size",
    "random_view",
    "turned",
    "turned_size",
]

ORIENTATION = 0x0112
_MARKS = (b"eXIf", b"EXIF", b"Raw profile type", b"tiff:Orientation", b"XML:com.adobe.xmp")
_EXIF = {"PNG": _MARKS, "WEBP": _MARKS, "TIFF": (b"\x12\x01\x03\x00", b"\x01\x12\x00\x03")}
"""One of these is in a file that says how to turn it."""
_BROKEN = re.compile("premature end|bad Huffman code|instead of RST|Inconsistent progression", re.IGNORECASE)
# Orientation → (transpose rows and columns, mirror rows, mirror columns), in this order.
_TURNS = {
    2: (False, False, True),
    3: (False, True, True),
    4: (False, True, False),
    5: (True, False, False),
    6: (True, False, True),
    7: (True, True, True),
    8: (True, True, False),
}


def decode(data: bytes) -> Tensor:
    """The pixels of an image by the table above; UnreadableImage says why there are none."""
    kind = format_of(data)
    if kind == "JPEG" and (jpeg := simplejpeg()) is not None:
        pixels = _fast_jpeg(jpeg, data)
        if pixels is not None:
            return _turned(pixels, _jpeg_orientation(data))
    if kind == "PNG":
        check_png(data)
    with open_image(data, kind) as image:
        # A JPEG is turned as by the other decoder; a TIFF is turned by Pillow as it is loaded, and not once more.
        return _upright_rgb(image, lambda: _jpeg_orientation(data) if kind == "JPEG" else _orientation(image))


def oriented_size(data: bytes, found: Header) -> tuple[int, int]:
    """Height and width of the pixels that `decode` would give; nothing is decoded unless the file may be turned."""
    return turned_size(found, orientation_of(data, found))


def turned_size(found: Header, orientation: int) -> tuple[int, int]:
    """Height and width of an image that is turned so; that of a TIFF is said as turned already."""
    swapped = found.format != "TIFF" and is_swapped(orientation)
    return (found.width, found.height) if swapped else (found.height, found.width)


def is_swapped(orientation: int) -> bool:
    """Whether rows become columns."""
    return _TURNS.get(orientation, (False,))[0]


def orientation_of(data: bytes, found: Header) -> int:
    """How the pixels that are stored are turned by `decode`: 1 … 8 as EXIF has it, 1 = not at all."""
    orientation = 1
    if found.format == "JPEG":
        orientation = _jpeg_orientation(data)
    elif any(mark in data for mark in _EXIF.get(found.format, ())):
        try:
            with open_image(data, found.format) as image:
                orientation = _orientation(image)
        except UnreadableImage:
            orientation = 1  # whoever decodes it will say so
    return orientation if orientation in _TURNS else 1


def pixels_of(picture: object) -> Tensor:
    """uint8 (3, H, W) of a PIL image, an array (H, W), (H, W, 3) or (H, W, 4), or a tensor (3, H, W), all uint8."""
    if isinstance(picture, Tensor):
        fits = picture.dtype == torch.uint8 and picture.ndim == 3 and len(picture) == 3 and picture.numel() > 0
        require(fits, f"a tensor must be uint8 (3, H, W), got {picture.dtype} of shape {tuple(picture.shape)}")
        return picture.detach().cpu()
    if not isinstance(picture, np.ndarray):
        from PIL import Image

        require(
            isinstance(picture, Image.Image), f"a path, array, tensor or PIL image is expected, got {type(picture)}"
        )
        assert isinstance(picture, Image.Image)
        return _upright_rgb(picture, lambda: _orientation(picture))
    unmasked = (
        "an array must have no masked pixels, which would count as what lies below the mask: fill them with a colour"
    )
    require(not np.ma.is_masked(picture), unmasked)
    channels = picture.shape[2] if picture.ndim == 3 else 1
    fits = picture.dtype == np.uint8 and picture.ndim in (2, 3) and channels in (1, 3, 4) and picture.size > 0
    require(
        fits, f"an array must be uint8 (H, W), (H, W, 3) or (H, W, 4), got {picture.dtype} of shape {picture.shape}"
    )
    grid = picture.reshape(*picture.shape[:2], channels)
    pixels = over_white(grid) if channels == 4 else np.repeat(grid, 3 // channels, axis=2)
    return _turned(np.ascontiguousarray(pixels), 1)


def _fast_jpeg(jpeg: Any, data: bytes) -> Pixels | None:
    """The pixels, or None when Pillow shall judge."""
    try:
        height, width, colours, _ = jpeg.decode_jpeg_header(data, strict=False)
        check_size(Header("JPEG", width, height), data)
        if colours not in ("RGB", "YCbCr", "Gray"):
            return None
        pixels: Pixels = jpeg.decode_jpeg(data, "RGB", strict=True)
    except UnreadableImage:
        raise
    except (ValueError, KeyError) as error:
        if found := _BROKEN.search(str(error)):
            cut = found[0].lower() == "premature end"
            raise UnreadableImage("truncated JPEG" if cut else f"damaged JPEG: {error}") from error
        return None
    return pixels


def _jpeg_orientation(data: bytes) -> int:
    """Read from the first APP1 segment that holds it, whichever decoder is there."""
    block = _jpeg_exif(data)
    if not block:
        return 1
    from PIL import Image

    exif = Image.Exif()
    try:
        exif.load(block)
        return int(exif.get(ORIENTATION, 1))
    except Exception:  # whatever a damaged block leads to
        return 1


def _jpeg_exif(data: bytes) -> bytes:
    """Go from segment to segment up to the pixels: the mark alone may stand anywhere, in a comment too."""
    at = 2
    for _ in range(MOST_PARTS):
        if not (at + 10 <= len(data) and data[at] == 0xFF and data[at + 1] != 0xDA):
            break
        if data[at + 1] == 0xFF:  # a byte that only fills
            at += 1
            continue
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at + 1] == 0xE1 and data[at + 4 : at + 10] == b"Exif\x00\x00":
            return data[at + 4 : end]
        at = end
    return b""


def _orientation(image: Image.Image) -> int:
    if image.format in ("GIF", "BMP", "PPM"):
        return 1  # they have no such block; what Pillow takes for one is a comment
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except Exception:  # as above
        return 1


def turned(pixels: Tensor, orientation: int) -> Tensor:
    """(…, H, W) as stored, upright."""
    transpose, rows, columns = _TURNS.get(orientation, (False, False, False))
    pixels = pixels.transpose(-2, -1) if transpose else pixels
    mirrored = [side for side, mirror in ((-2, rows), (-1, columns)) if mirror]
    return pixels.flip(mirrored) if mirrored else pixels


def _turned(pixels: Pixels, orientation: int) -> Tensor:
    """(3, H, W), upright."""
    return turned(torch.from_numpy(pixels).permute(2, 0, 1), orientation)


def _upright_rgb(image: Image.Image, orientation: Callable[[], int]) -> Tensor:
    """(3, H, W) of the first frame by the table above, upright; it is turned part by part, without a second copy."""
    refuse_mode(image.mode)
    image.load()  # a TIFF has its size and a PNG its EXIF block only then
    pixels: Pixels = np.empty((image.height, image.width, 3), np.uint8)
    transpose, rows, columns = _TURNS.get(orientation(), (False, False, False))
    # What is mirrored is said of the transposed picture.
    rows, columns = (columns, rows) if transpose else (rows, columns)
    rgb_into(image, pixels[:: -1 if rows else 1, :: -1 if columns else 1])
    found = torch.from_numpy(pixels).permute(2, 0, 1)
    return found.transpose(1, 2) if transpose else found
