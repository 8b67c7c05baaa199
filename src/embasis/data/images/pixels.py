"""From the bytes of an image file to pixels, uint8 (3, H, W) RGB, the same everywhere; and from pixels of any size to a
network's input, uint8 (3, S, S): the view of evaluation and that of training.

| the file holds | the pixels are |
| --- | --- |
| 8-bit RGB | as they are |
| grey (L), 1 bit | the value in all three channels; 1 bit is 0 or 255 |
| palette | its colours |
| alpha, or a transparent colour (RGBA, LA, palette, PNG's tRNS) | laid over white: round((c·α + 255·(255 − α)) / 255) |
| 16-bit grey (PNG, TIFF, PGM) | round(v / 257); a transparent colour is ignored |
| 16-bit RGB or alpha (PNG, TIFF) | the high byte of each value, which is all that Pillow gives; PPM: rounded |
| 32-bit integers (TIFF) | as 16-bit grey; rejected when a value is not in 0..65535 |
| floating point, LAB | rejected: their range is not written in the file |
| CMYK, YCCK, YCbCr | RGB by Pillow's conversion, Adobe's inverted CMYK put right; colour profiles are ignored |
| several frames or pages (GIF, APNG, WebP, TIFF) | the first; of a HEIC the one that it names as its own |
| HEIC, HEIF | read where pillow-heif is installed; 10 and 12 bits become 8, turned as the file says |
| an EXIF orientation | turned upright; a damaged EXIF block counts as none |
| a JPEG that ends early or whose code is broken | rejected, also where the decoder would fill in grey |

JPEG goes through simplejpeg where it is installed, and all else through Pillow. Without simplejpeg a JPEG is decoded by
Pillow, to the same pixels, but a JPEG that is broken in its middle and has a proper end is then not noticed.
What has four or more bytes for each pixel is never made of a whole large picture at once, but box by box: a box is
(left, top, right, bottom) and holds at most BOX_PIXELS pixels.

| symbol | meaning |
| --- | --- |
| S, crop | size of the input; share of the resized short side that the centre crop keeps |
| strength | how much the training view is changed: a key of STRENGTHS |
| a, d, t | one map of colours, v → a·v + d·grey(v) + t, for brightness, contrast and saturation together |

Views take only integer arithmetic, and float operations on each element alone, so the number of threads changes no bit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 — its usual name

from embasis.data.images.header import (
    MOST_CHUNKS,
    Header,
    UnreadableImage,
    check_png,
    check_size,
    detect_format,
    load_simplejpeg,
    open_image,
    read_header,
)
from embasis.data.images.heif import HEIF
from embasis.errors import InputDataError, lookup, require
from embasis.types import Preparation

if TYPE_CHECKING:
    from PIL import Image

BOX_PIXELS = 2**18
"""Of one box: its working copies stay in a processor's cache."""
RgbArray = np.ndarray[Any, np.dtype[np.uint8]]
"""(H, W, 3)"""
ORIENTATION = 0x0112
_EXIF_MARKS = (b"eXIf", b"EXIF", b"Raw profile type", b"tiff:Orientation", b"XML:com.adobe.xmp")
_ORIENTATION_MARKS = {"PNG": _EXIF_MARKS, "WEBP": _EXIF_MARKS, "TIFF": (b"\x12\x01\x03\x00", b"\x01\x12\x00\x03")}
"""One of these is in every file that holds an orientation."""
_BROKEN_JPEG = re.compile("premature end|bad Huffman code|instead of RST|Inconsistent progression", re.IGNORECASE)
# Orientation → (transpose rows and columns, mirror rows, mirror columns), in this order.
_FLIPS = {
    2: (False, False, True),
    3: (False, True, True),
    4: (False, True, False),
    5: (True, False, False),
    6: (True, False, True),
    7: (True, True, True),
    8: (True, True, False),
}
LONGEST_STRIP = 4
"""Only the middle part of an image is seen, and no more of it than LONGEST_STRIP times its short side."""
CROP_RATIO = 4 / 3
"""A random crop is at most this much wider than high, or higher than wide."""
LUMA = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class Strength:
    """Ranges of the training view: least area of the crop, ± of the colours, probability of grey."""

    area: float
    colour: float = 0.0
    grey: float = 0.0


STRENGTHS: dict[str, Strength | None] = {
    "none": None,
    "light": Strength(area=0.5),
    "strong": Strength(area=0.25, colour=0.4, grey=0.1),
}


def decode(data: bytes) -> Tensor:
    """The pixels of an image by the table above; UnreadableImage has the reason why there are none."""
    kind = detect_format(data)
    if kind == "JPEG" and (jpeg := load_simplejpeg()) is not None:
        pixels = _decode_fast_jpeg(jpeg, data)
        if pixels is not None:
            return _orient_array(pixels, _jpeg_orientation(data))
    if kind == "PNG":
        check_png(data)
    if kind == HEIF:
        return _decode_heif(data)
    with open_image(data, kind) as image:
        # A JPEG is turned as by the other decoder; a TIFF is turned by Pillow as it is loaded, and not once more.
        return _load_upright(image, lambda: _jpeg_orientation(data) if kind == "JPEG" else _pillow_orientation(image))


def _decode_heif(data: bytes) -> Tensor:
    """The pixels of a HEIF, of which the decoder knows no other size than our own reader of its boxes."""
    header = read_header(data)
    with open_image(data, HEIF) as image:
        pixels = _load_upright(image, lambda: 1)
    if tuple(pixels.shape[1:]) != (header.height, header.width):
        says = f"its header says {header.width}×{header.height}"
        raise UnreadableImage(f"damaged {HEIF}: {pixels.shape[2]}×{pixels.shape[1]} pixels, {says}")
    return pixels


def oriented_size(header: Header, orientation: int) -> tuple[int, int]:
    """Height and width of an image once it is upright; Pillow turns a TIFF itself, so its header has them already."""
    is_sideways = header.format != "TIFF" and is_swapped(orientation)
    return (header.width, header.height) if is_sideways else (header.height, header.width)


def is_swapped(orientation: int) -> bool:
    """Whether rows become columns."""
    return _FLIPS.get(orientation, (False,))[0]


def read_orientation(data: bytes, header: Header) -> int:
    """How the pixels that are stored are turned by `decode`: 1 … 8 as EXIF has it, 1 = not at all."""
    orientation = 1
    if header.format == "JPEG":
        orientation = _jpeg_orientation(data)
    elif any(mark in data for mark in _ORIENTATION_MARKS.get(header.format, ())):
        try:
            with open_image(data, header.format) as image:
                orientation = _pillow_orientation(image)
        except UnreadableImage:
            orientation = 1  # decoding it will give the reason
    return orientation if orientation in _FLIPS else 1


def convert_picture(picture: object) -> Tensor:
    """uint8 (3, H, W) of a PIL image, an array (H, W), (H, W, 3) or (H, W, 4), or a tensor (3, H, W), all uint8."""
    if isinstance(picture, Tensor):
        fits = picture.dtype == torch.uint8 and picture.ndim == 3 and len(picture) == 3 and picture.numel() > 0
        require(fits, f"a tensor must be uint8 (3, H, W), got {picture.dtype} of shape {tuple(picture.shape)}")
        return picture.detach().cpu()
    if not isinstance(picture, np.ndarray):
        from PIL import Image

        if not isinstance(picture, Image.Image):
            raise InputDataError(f"a path, array, tensor or PIL image is expected, got {type(picture)}")
        return _load_upright(picture, lambda: _pillow_orientation(picture))
    unmasked = "an array must have no masked pixels, which would count as what lies below the mask"
    require(not np.ma.is_masked(picture), f"{unmasked}: fill them with a colour")
    channels = picture.shape[2] if picture.ndim == 3 else 1
    fits = picture.dtype == np.uint8 and picture.ndim in (2, 3) and channels in (1, 3, 4) and picture.size > 0
    got = f"{picture.dtype} of shape {picture.shape}"
    require(fits, f"an array must be uint8 (H, W), (H, W, 3) or (H, W, 4), got {got}")
    grid = picture.reshape(*picture.shape[:2], channels)
    pixels = blend_over_white(grid) if channels == 4 else np.repeat(grid, 3 // channels, axis=2)
    return _orient_array(np.ascontiguousarray(pixels), 1)


def _decode_fast_jpeg(jpeg: Any, data: bytes) -> RgbArray | None:
    """The pixels, or None where Pillow has to decode."""
    try:
        height, width, colours, _ = jpeg.decode_jpeg_header(data, strict=False)
        check_size(Header("JPEG", width, height), data)
        pixels: RgbArray | None = None
        if colours in ("RGB", "YCbCr", "Gray"):
            pixels = jpeg.decode_jpeg(data, "RGB", strict=True)
        return pixels
    except UnreadableImage:
        raise
    except (ValueError, KeyError) as error:
        if damage := _BROKEN_JPEG.search(str(error)):
            is_cut = damage[0].lower() == "premature end"
            raise UnreadableImage("truncated JPEG" if is_cut else f"damaged JPEG: {error}") from error
        return None


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
    for _ in range(MOST_CHUNKS):
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


def _pillow_orientation(image: Image.Image) -> int:
    if image.format in ("GIF", "BMP", "PPM", HEIF):
        return 1  # they have no such block, or it does not count; what Pillow takes for one is a comment
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except Exception:  # as above
        return 1


def orient(pixels: Tensor, orientation: int) -> Tensor:
    """(…, H, W) as stored, turned upright."""
    transpose, rows, columns = _FLIPS.get(orientation, (False, False, False))
    pixels = pixels.transpose(-2, -1) if transpose else pixels
    mirrored = [side for side, mirror in ((-2, rows), (-1, columns)) if mirror]
    return pixels.flip(mirrored) if mirrored else pixels


def _orient_array(pixels: RgbArray, orientation: int) -> Tensor:
    """(3, H, W), upright."""
    return orient(torch.from_numpy(pixels).permute(2, 0, 1), orientation)


def _load_upright(image: Image.Image, orientation: Callable[[], int]) -> Tensor:
    """(3, H, W) of the first frame by the table above, upright; it is turned part by part, without a second copy."""
    _check_mode(image.mode)
    image.load()  # a TIFF has its size and a PNG its EXIF block only then
    pixels: RgbArray = np.empty((image.height, image.width, 3), np.uint8)
    transpose, rows, columns = _FLIPS.get(orientation(), (False, False, False))
    # _FLIPS mirrors the transposed picture, and here it is not transposed yet.
    rows, columns = (columns, rows) if transpose else (rows, columns)
    _write_rgb(image, pixels[:: -1 if rows else 1, :: -1 if columns else 1])
    upright = torch.from_numpy(pixels).permute(2, 0, 1)
    return upright.transpose(1, 2) if transpose else upright


def iter_boxes(width: int, height: int) -> Iterator[tuple[int, int, int, int]]:
    """Boxes that cover a picture, in the order of its pixels: some rows, or a piece of one row."""
    rows, columns = max(1, BOX_PIXELS // width), min(width, BOX_PIXELS)
    for top in range(0, height, rows):
        for left in range(0, width, columns):
            yield left, top, min(left + columns, width), min(top + rows, height)


def _write_rgb(image: Image.Image, target: RgbArray) -> None:
    """Write the pixels of a loaded image, converted by the table above, into (H, W, 3)."""
    _check_mode(image.mode)  # once more: loading may have changed it
    if image.mode == "I":
        extremes: Any = image.getextrema()
        low, high = map(int, extremes)
        if low < 0 or high > 65535:
            raise UnreadableImage(f"grey values {low}..{high} are not in 0..65535")
    colours = _value_colours(image) if image.mode in ("1", "L", "P") and "transparency" in image.info else None
    for left, top, right, bottom in iter_boxes(*image.size):
        part = image.crop((left, top, right, bottom))
        target[top:bottom, left:right] = _convert_rgb(part) if colours is None else colours[_pixel_bytes(part)]


def _check_mode(mode: str) -> None:
    """UnreadableImage for pixels whose range is not written in the file."""
    if mode in ("F", "LAB"):
        raise UnreadableImage("floating-point pixels are not read" if mode == "F" else "LAB colours are not read")


def _convert_rgb(part: Image.Image) -> RgbArray:
    if part.mode.startswith("I"):
        grey = ((np.asarray(part).astype(np.uint32) + 128) // 257).astype(np.uint8)
        return np.broadcast_to(grey[:, :, None], (*grey.shape, 3))
    if part.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in part.info:
        return blend_over_white(np.asarray(part.convert("RGBA")))
    return np.asarray(part.convert("RGB"))


def _value_colours(image: Image.Image) -> RgbArray:
    """(256, 3): what becomes of each value of an image of one byte a pixel, which is faster than to mix each pixel."""
    ramp = image.crop((0, 0, 256, 1))  # beyond its rim, too; with its palette and its transparent colours
    ramp.putdata(range(256))
    colours: RgbArray = _convert_rgb(ramp)[0]
    return colours


def _pixel_bytes(part: Image.Image) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer(part.tobytes("raw", "L" if part.mode == "1" else part.mode), np.uint8).reshape(part.size[::-1])


def blend_over_white(pixels: RgbArray) -> RgbArray:
    """RGB of RGBA (…, 4): round((c·α + 255·(255 − α)) / 255), whose sums fit into 16 bits."""
    colour, alpha = pixels[..., :3].astype(np.uint16), pixels[..., 3:].astype(np.uint16)
    colour *= alpha
    colour += 255 * (255 - alpha) + np.uint16(127)
    colour //= np.uint16(255)
    return colour.astype(np.uint8)


def centre_view(image: Tensor, preparation: Preparation) -> Tensor:
    """The evaluation view: short side resized to S / crop, then the S×S in the middle."""
    return _crop_middle(scale_image(image, preparation), preparation.size, preparation.size).contiguous()


def scale_image(image: Tensor, preparation: Preparation) -> Tensor:
    """The image with a short side of S / crop; of a long strip the middle. Its evaluation view is the image's own."""
    short, least = round(preparation.size / preparation.crop), min(image.shape[1:])
    # Resizing a strip of 1×5000 as a whole would take a gigabyte for pixels that the crop throws away.
    image = _crop_middle(image, min(image.shape[1], LONGEST_STRIP * least), min(image.shape[2], LONGEST_STRIP * least))
    height, width = (max(short, round(side * short / least)) for side in image.shape[1:])
    return _resize_image(image, height, width, preparation.interpolation)


def _crop_middle(image: Tensor, height: int, width: int) -> Tensor:
    top, left = (image.shape[1] - height) // 2, (image.shape[2] - width) // 2
    return image[:, top : top + height, left : left + width]


def _resize_image(image: Tensor, height: int, width: int, interpolation: str) -> Tensor:
    if image.shape[1:] == (height, width):
        return image
    return F.interpolate(image.unsqueeze(0), (height, width), mode=interpolation, antialias=True).squeeze(0)


def random_view(image: Tensor, preparation: Preparation, strength: str, draw: torch.Generator) -> Tensor:
    """The training view: a random part, resized to S×S, perhaps mirrored, its colours perhaps changed."""
    ranges = lookup(STRENGTHS, strength, "strength of augmentation")
    if ranges is None:
        return centre_view(image, preparation)
    u: list[float] = torch.rand(10, generator=draw, dtype=torch.float64).tolist()
    top, left, height, width = crop_box(image.shape[1], image.shape[2], ranges.area, u[:4])
    part = image[:, top : top + height, left : left + width]
    view = _resize_image(part, preparation.size, preparation.size, preparation.interpolation)
    view = view.flip(-1) if u[4] < 0.5 else view
    if ranges.colour:
        brightness, contrast, saturation = (1 + ranges.colour * (2 * value - 1) for value in u[5:8])
        view = change_colours(view, brightness, contrast, 0.0 if u[8] < ranges.grey else saturation)
    return view.contiguous()


def crop_box(rows: int, columns: int, least: float, u: list[float]) -> tuple[int, int, int, int]:
    """Top, left, height and width of a random part: area `least` to 1 of the image where its shape allows."""
    area = (least + (1 - least) * u[0]) * rows * columns
    shape = CROP_RATIO ** (2 * u[1] - 1)
    height, width = min(rows, math.sqrt(area / shape)), min(columns, math.sqrt(area * shape))
    high, wide = max(1, round(min(height, width * CROP_RATIO))), max(1, round(min(width, height * CROP_RATIO)))
    return int(u[2] * (rows - high + 1)), int(u[3] * (columns - wide + 1)), high, wide


def change_colours(view: Tensor, b: float, c: float, s: float) -> Tensor:
    """Brightness b, contrast c about the mean grey and saturation s: a = b·c·s, d = b·c·(1 − s), t = b·(1 − c)·mean."""
    view = view.contiguous()
    sums = view.sum(2, dtype=torch.int32).sum(1, dtype=torch.int64).tolist()
    mean = sum(weight * total for weight, total in zip(LUMA, sums, strict=True)) / view[0].numel()
    x = view.float()
    grey = x[0] * LUMA[0] + x[1] * LUMA[1] + x[2] * LUMA[2]
    x.mul_(b * c * s).add_(grey.mul_(b * c * (1 - s)).add_(b * (1 - c) * mean))
    return x.round_().clamp_(0, 255).byte()
