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
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from embasis.data.image.sniff import (
    FORMATS,
    LARGEST_PIXELS,
    MOST_PARTS,
    SUFFIXES,
    Header,
    Unreadable,
    check_png,
    check_size,
    format_of,
    header,
    opened,
    simplejpeg,
)
from embasis.data.image.views import STRENGTHS, centre, drawn
from embasis.errors import require

if TYPE_CHECKING:
    from PIL import Image

__all__ = [
    "FORMATS",
    "LARGEST_PIXELS",
    "STRENGTHS",
    "SUFFIXES",
    "Header",
    "Unreadable",
    "centre",
    "decode",
    "drawn",
    "header",
    "upright",
]

ORIENTATION = 0x0112
_EXIF = (b"eXIf", b"EXIF", b"Raw profile type", b"tiff:Orientation", b"XML:com.adobe.xmp")
"""One of these is in a PNG or WebP file that says how to turn it."""
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

Pixels = np.ndarray[Any, np.dtype[np.uint8]]
"""(H, W, 3)"""


def decode(data: bytes) -> Tensor:
    """The pixels of an image by the table above; Unreadable says why there are none."""
    kind = format_of(data)
    if kind == "JPEG" and (jpeg := simplejpeg()) is not None:
        pixels = _fast_jpeg(jpeg, data)
        if pixels is not None:
            return _turned(pixels, _jpeg_orientation(data))
    if kind == "PNG":
        check_png(data)
    with opened(data, kind) as image:
        pixels = _rgb(image)
        # A JPEG is turned as by the other decoder; a TIFF is turned by Pillow as it is loaded, and not once more.
        return _turned(pixels, _jpeg_orientation(data) if kind == "JPEG" else _orientation(image))


def upright(data: bytes, found: Header) -> tuple[int, int]:
    """Height and width of the pixels that `decode` would give; nothing is decoded unless the file may be turned."""
    orientation = 1
    if found.format == "JPEG":
        orientation = _jpeg_orientation(data)
    elif found.format in ("PNG", "WEBP") and any(mark in data for mark in _EXIF):
        try:
            with opened(data, found.format) as image:
                orientation = _orientation(image)
        except Unreadable:
            orientation = 1  # whoever decodes it will say so
    turned = _TURNS.get(orientation, (False,))[0]
    return (found.width, found.height) if turned else (found.height, found.width)


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
        return _turned(_rgb(picture), _orientation(picture))
    channels = picture.shape[2] if picture.ndim == 3 else 1
    fits = picture.dtype == np.uint8 and picture.ndim in (2, 3) and channels in (1, 3, 4) and picture.size > 0
    require(
        fits, f"an array must be uint8 (H, W), (H, W, 3) or (H, W, 4), got {picture.dtype} of shape {picture.shape}"
    )
    grid = picture.reshape(*picture.shape[:2], channels)
    pixels = _over_white(grid) if channels == 4 else np.repeat(grid, 3 // channels, axis=2)
    return _turned(np.ascontiguousarray(pixels), 1)


def _fast_jpeg(jpeg: Any, data: bytes) -> Pixels | None:
    """The pixels, or None when Pillow shall judge."""
    try:
        height, width, colours, _ = jpeg.decode_jpeg_header(data, strict=False)
        check_size(Header("JPEG", width, height))
        if colours not in ("RGB", "YCbCr", "Gray"):
            return None
        pixels: Pixels = jpeg.decode_jpeg(data, "RGB", strict=True)
    except Unreadable:
        raise
    except (ValueError, KeyError) as error:
        if found := _BROKEN.search(str(error)):
            cut = found[0].lower() == "premature end"
            raise Unreadable("truncated JPEG" if cut else f"damaged JPEG: {error}") from error
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


def _turned(pixels: Pixels, orientation: int) -> Tensor:
    """(3, H, W), upright."""
    image = torch.from_numpy(pixels).permute(2, 0, 1)
    transpose, rows, columns = _TURNS.get(orientation, (False, False, False))
    image = image.transpose(1, 2) if transpose else image
    mirrored = [side for side, mirror in ((1, rows), (2, columns)) if mirror]
    return image.flip(mirrored) if mirrored else image


def _rgb(image: Image.Image) -> Pixels:
    """The first frame by the table above."""
    image.load()
    if image.mode in ("F", "LAB"):
        raise Unreadable("floating-point pixels are not read" if image.mode == "F" else "LAB colours are not read")
    if image.mode.startswith("I"):
        return _from_integers(np.asarray(image))
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        return _over_white(np.asarray(image.convert("RGBA")))
    return np.array(image.convert("RGB"))


def _from_integers(values: np.ndarray[Any, Any]) -> Pixels:
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 65535:
        raise Unreadable(f"grey values {low}..{high} are not in 0..65535")
    grey = ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)
    return np.repeat(grey[:, :, None], 3, axis=2)


def _over_white(pixels: Pixels) -> Pixels:
    colour, alpha = pixels[:, :, :3].astype(np.uint32), pixels[:, :, 3:].astype(np.uint32)
    over: Pixels = ((colour * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)
    return over
