"""The header of an image file: format, width and height by its content, before any pixel is decoded; and the limits.

| limit | why |
| --- | --- |
| FORMATS | these decoders and no others are ever run, whatever the file is called |
| LARGEST_PIXELS | checked from the header, so that a few bytes cannot take gigabytes |
| MOST_MEMORY, MOST_STEPS | what a file of up to 64 kB may take to decode, computed from its header (below) |
| MOST_READS, MOST_CHUNKS | steps a file may take, so that no header takes minutes: the scan needs no clock for that |

| kind | bytes of memory for each pixel |
| --- | --- |
| PNG, GIF, BMP, PPM | those that Pillow holds (1, 2 or 4), and 3 for the RGB that becomes of them |
| TIFF | those that Pillow holds, and the most of: as many again (a picture on its side), all samples (one strip), 3 |
| WebP | 16: Pillow's decoder has two canvases, the bytes and the picture |
| JPEG | 15: coefficients of four channels (2 each), the picture, and RGB |
| HEIF | 16: planes of tiles and of the whole (2 each), the bytes, the picture, and RGB |

Slow are JPEGs of very many scans, each of which goes over all blocks (a TIFF may hold one), and rows of a BMP that are
packed by runs, which Pillow unpacks in Python.
"""

from __future__ import annotations

import io
import math
import re
import struct
import threading
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from embasis.data.images.heif import HEIF, HEIF_SUFFIXES, BadBoxes, HeifSizes, has_heif, open_heif, read_heif_sizes

if TYPE_CHECKING:
    from PIL import Image

FORMATS: tuple[str, ...] = ("JPEG", "PNG", "BMP", "WEBP", "TIFF", "GIF", "PPM", *((HEIF,) if has_heif() else ()))
"""Names, as Pillow has them, of all formats that are read here: HEIF with pillow-heif alone."""
SUFFIXES = frozenset((
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm", ".pgm", ".pbm", ".pnm",
    *(HEIF_SUFFIXES if has_heif() else ()),
))  # fmt: skip
"""Endings of files of those formats, in lower case."""
LARGEST_PIXELS = 64 * 2**20
"""Width × height of the largest image that is read."""
LARGEST_SIZE = f"{LARGEST_PIXELS // 2**20} Mpx"
MOST_READS, MOST_PASSES = 300_000, 4
"""How often Pillow may read from a file, and how often all of it: a 256 MiB PNG in chunks of 8 KiB takes 130,000."""
MOST_CHUNKS = 100_000
"""Chunks of a PNG and segments of a JPEG that are walked over; a 256 MiB PNG in chunks of 8 KiB has 33,000."""
SMALL_FILE = 2**16
"""Bytes of a file whose cost is computed: no photo of so many pixels is so small."""
MOST_MEMORY = 480
"""Megabytes that a small file may take. 512 are promised; something goes to what is not counted here."""
MOST_STEPS = {"JPEG": 2**29, "TIFF": 2**29, "BMP": 2**23}
"""Pixels × scans, or pixels of packed rows, of a small file: half a second or so, and one."""
FIXED_COST = {"JPEG": 15, "WEBP": 16, HEIF: 16}
"""Bytes for each pixel where they are the same for all files of a format."""
_MODE_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2}
_TIFF_BITS, _TIFF_TILE_WIDTH, _TIFF_TILE_HEIGHT = 258, 322, 323

_READ_FORMATS = (
    (rb"\xff\xd8\xff", "JPEG"), (rb"\x89PNG\r\n\x1a\n", "PNG"), (rb"BM", "BMP"), (rb"RIFF....WEBP", "WEBP"),
    (rb"II[*+]\x00|MM\x00[*+]", "TIFF"), (rb"GIF8[79]a", "GIF"), (rb"P[1-6][\s#]", "PPM"),
)  # fmt: skip
# Named for the message alone; a file that matches none of these is rejected as well.
_OTHER_FORMATS = (
    (rb"8BPS", "PSD"), (rb"%!PS|\xc5\xd0\xd3\xc6", "EPS"), (rb"%PDF-", "PDF"), (rb"SIMPLE  =", "FITS"),
    (rb"\x00\x00\x00\x0cjP  |\xff\x4f\xff\x51", "JPEG2000"), (rb"\x00\x00\x01\x00", "ICO"),
    (rb"\x00\x00\x02\x00[^\x00]", "CUR"), (rb"icns", "ICNS"), (rb"DDS ", "DDS"), (rb"\x01\xda", "SGI"),
    (rb"\x0a[\x00-\x05]\x01", "PCX"), (rb"\xb1\x68\xde\x3a", "DCX"), (rb"\x59\xa6\x6a\x95", "SUN"), (rb"qoif", "QOI"),
    (rb"gimp xcf", "XCF"), (rb"....ftyp(avif|avis)", "AVIF"), (rb"....ftyp(hei[cxms]|hev[cxms]|mif1|msf1)", HEIF),
    (rb"....ftyp", "MP4"), (rb"\xff\x0a|\x00\x00\x00\x0cJXL ", "JPEG XL"), (rb"\x89HDF", "HDF5"), (rb"GRIB", "GRIB"),
    (rb"BUFR", "BUFR"), (rb"BLP[12]", "BLP"), (rb"FTEX|FTC\x00", "FTEX"),
    (rb"\xd7\xcd\xc6\x9a|\x01\x00\x00\x00.{36} EMF", "WMF"), (rb"P[Ff]\s", "PFM"), (rb"P7\s", "PAM"),
    (rb"/\* XPM \*/", "XPM"), (rb"\s*#define", "XBM"), (rb"(?i)\s*(<\?xml[^>]*>\s*)?<svg", "SVG"),
    (rb"(?i)\s*<(!doctype\s+html|html)", "HTML"), (rb"\xd0\xcf\x11\xe0", "FPX"), (rb"PK\x03\x04", "ZIP"),
    (rb"\x1f\x8b", "GZIP"),
)  # fmt: skip
_PILLOW_LOCK = threading.Lock()


class UnreadableImage(ValueError):  # noqa: N818 — the reason is its whole point
    """A file cannot be used as an image; the text is the reason, part of a sentence."""


@dataclass(frozen=True)
class Header:
    """What is known of an image before its pixels: format, and width and height as they are stored."""

    format: str
    width: int
    height: int


def read_header(data: bytes) -> Header:
    """Format and size of an image that would be read; nothing is decoded."""
    kind = detect_format(data)
    if kind == "JPEG" and (jpeg := load_simplejpeg()) is not None:
        try:
            height, width, _, _ = jpeg.decode_jpeg_header(data, strict=False)
        except (ValueError, KeyError):
            pass  # Pillow may know better, or knows why not
        else:
            return check_size(Header(kind, int(width), int(height)), data)
    if kind == HEIF:
        check_size(Header(kind, *_heif_sizes(data).stored), data)
        return check_size(Header(kind, *_heif_sizes(data).shown))
    with open_image(data, kind) as image:
        return Header(kind, *image.size)


def check_size(header: Header, data: bytes | None = None) -> Header:
    """The header as it is; UnreadableImage for no pixel, too many, or too many for so small a file."""
    kind, width, height = header.format, header.width, header.height
    if width < 1 or height < 1:
        raise UnreadableImage(f"damaged {kind}: {width}×{height} pixels")
    if width * height > LARGEST_PIXELS:
        raise UnreadableImage(f"{width}×{height} exceeds {LARGEST_SIZE}")
    if data is not None and len(data) <= SMALL_FILE:
        scans = data.count(b"\xff\xda") if kind in ("JPEG", "TIFF") else 0
        _check_cost(header, FIXED_COST.get(kind, 0) * width * height, scans)
    return header


def _check_cost(header: Header, memory: int, scans: int) -> None:
    """UnreadableImage for a small file that takes too much memory (bytes) or too many steps."""
    size, small = f"{header.width}×{header.height} pixels", f"a file of up to {SMALL_FILE // 1024} kB"
    if memory > MOST_MEMORY * 2**20:
        rule = f"{small} may take {MOST_MEMORY} MB"
        raise UnreadableImage(f"{size} take {memory // 2**20:,} MB to decode, {rule}; make it smaller")
    if scans * header.width * header.height > MOST_STEPS.get(header.format, math.inf):
        what = f"{scans:,} scans of {size}" if scans > 1 else f"{size} in packed rows"
        raise UnreadableImage(f"{what} take too long to decode for {small}; save it as PNG")


def _decoding_memory(image: Image.Image, kind: str) -> int:
    """Bytes that Pillow and we take for all pixels."""
    held, pixels = _MODE_BYTES.get(image.mode, 4), image.width * image.height
    if kind != "TIFF":
        return max(held + 3, FIXED_COST.get(kind, 0)) * pixels
    tags: Any = getattr(image, "tag_v2", {})
    samples = sum(_positive_int(bits) for bits in tags.get(_TIFF_BITS, (8,)))
    tile = _positive_int(tags.get(_TIFF_TILE_WIDTH)) * _positive_int(tags.get(_TIFF_TILE_HEIGHT))
    return held * pixels + max(3 * pixels, held * pixels, samples * max(pixels, tile) // 8)


def _positive_int(value: object) -> int:
    """The value of a tag, which may be anything; 0 for what is no number above 0."""
    return value if isinstance(value, int) and value > 0 else 0


def detect_format(data: bytes) -> str:
    """The format by the first bytes, one of FORMATS."""
    if not data:
        raise UnreadableImage("the file is empty")
    start, table = data[:512], (*_READ_FORMATS, *_OTHER_FORMATS)
    kind = next((name for magic, name in table if re.match(magic, start, re.DOTALL)), None)
    if kind is None or kind not in FORMATS:
        raise UnreadableImage(f"format {kind} is not read" if kind else "not an image that is read")
    return kind


def _stored_size(data: bytes, kind: str) -> tuple[int, int]:
    """Width and height where they lie at a fixed place; (1, 1) where they have to be searched for."""
    if kind == HEIF:
        return _heif_sizes(data).stored
    if len(data) < 32:
        return 1, 1
    if kind == "PNG" and data[12:16] == b"IHDR":
        return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    if kind == "BMP" and data[14] >= 40:
        width, height = struct.unpack("<ii", data[18:26])
        return width, abs(height)
    if kind == "GIF":
        return int.from_bytes(data[6:8], "little") or 1, int.from_bytes(data[8:10], "little") or 1
    if kind == "WEBP":
        return _webp_size(data)
    return 1, 1


def _heif_sizes(data: bytes) -> HeifSizes:
    try:
        return read_heif_sizes(data)
    except BadBoxes as error:
        raise UnreadableImage(f"damaged {HEIF}: {error}") from error


def _webp_size(data: bytes) -> tuple[int, int]:
    if data[12:16] == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if data[12:16] == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return int.from_bytes(data[26:28], "little") & 0x3FFF or 1, int.from_bytes(data[28:30], "little") & 0x3FFF or 1


def load_simplejpeg() -> Any:
    """The fast JPEG decoder, or None where it is not installed: Pillow then does its work."""
    try:
        import simplejpeg
    except ImportError:
        return None
    return simplejpeg


class LimitedReader(io.BytesIO):
    """The bytes of a file for Pillow, whose loops over a header all read from it: one that never ends is noticed."""

    def __init__(self, data: bytes, kind: str) -> None:
        super().__init__(data)
        self._kind, self._reads, self._bytes = kind, MOST_READS, MOST_PASSES * len(data) + 2**20

    def read(self, size: int | None = -1) -> bytes:
        """As usual, up to the limits."""
        data = super().read(size)
        self._reads -= 1
        self._bytes -= len(data)
        if self._reads < 0 or self._bytes < 0:
            raise UnreadableImage(f"damaged {self._kind}: reading it takes too many steps")
        return data


@contextmanager
def open_image(data: bytes, kind: str) -> Iterator[Image.Image]:
    """The image as Pillow sees it, not yet decoded; whatever goes wrong inside becomes UnreadableImage.

    Pillow's warnings (a corrupt EXIF block, more pixels than its own limit) are kept from the user; filters of
    warnings belong to the whole process, so one thread at a time is in here.
    """
    from PIL import Image

    check_size(Header(kind, *_stored_size(data, kind)), data)  # a bomb is rejected before a plug-in is started
    with _PILLOW_LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            stream = LimitedReader(data, kind)
            with open_heif(stream) if kind == HEIF else Image.open(stream, formats=(kind,)) as image:
                header = check_size(Header(kind, *image.size), data)
                if len(data) <= SMALL_FILE:
                    is_packed = any(tile[0] == "bmp_rle" for tile in getattr(image, "tile", ()))
                    _check_cost(header, _decoding_memory(image, kind), int(is_packed))
                yield image
        except UnreadableImage:
            raise
        except Exception as error:  # plug-ins raise whatever their arithmetic runs into
            raise UnreadableImage(_damage_reason(error, kind)) from error


def check_png(data: bytes) -> None:
    """Every chunk must have the checksum that is stored with it: Pillow decodes damaged pixels without an error."""
    at = 8
    for _ in range(MOST_CHUNKS):
        if at + 12 > len(data):
            raise UnreadableImage("truncated PNG")
        length = int.from_bytes(data[at : at + 4], "big")
        kind, end = data[at + 4 : at + 8], at + 8 + length
        if end + 4 > len(data):
            raise UnreadableImage("truncated PNG")
        if zlib.crc32(data[at + 4 : end]) != int.from_bytes(data[end : end + 4], "big"):
            raise UnreadableImage(f"damaged PNG: wrong checksum of its {kind.decode('latin-1')} chunk")
        if kind == b"IEND":
            return
        at = end + 4
    raise UnreadableImage(f"damaged PNG: it has more than {MOST_CHUNKS:,} chunks")


def _damage_reason(error: Exception, kind: str) -> str:
    from PIL import Image, UnidentifiedImageError

    text = " ".join(str(error).split())
    if isinstance(error, Image.DecompressionBombError):
        pixels = re.search(r"\d+", text)
        return f"{int(pixels[0]) if pixels else 0:,} pixels exceed {LARGEST_SIZE}"
    if isinstance(error, MemoryError):
        return f"the {kind} needs more memory than there is"
    if re.search("truncated|EOF|not enough image data|unexpected end", text, re.IGNORECASE):
        return f"truncated {kind}"
    if isinstance(error, UnidentifiedImageError) or not text.isprintable() or not text:
        return f"damaged {kind}"
    return f"damaged {kind}: {text[:80]}"
