"""The numbers in a PNG file, exactly: nothing is scaled, mixed with a background or made a colour.

| the file holds | the numbers are |
| --- | --- |
| grey of 1, 2, 4, 8 or 16 bits | (H, W) as they are stored |
| palette of 1, 2, 4 or 8 bits | (H, W), indices |
| RGB, RGBA of 8 or 16 bits | (H, W, 3 or 4) |

Pillow's decoder of compressed rows is called directly. It inflates row by row, never more than the header announces,
knows the five filters and interlacing, and lets other threads run. Of 16-bit colours it keeps one byte, the first or
the second by the mode, so that they are read twice. Rows that are not there it takes for zeros, so they are counted
before.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from embasis.data.images.header import Header, UnreadableImage, check_png, check_size, detect_format
from embasis.data.images.pixels import iter_boxes

if TYPE_CHECKING:
    from PIL import Image

GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
"""The kinds of PNG files, by the number in their header."""
_DEPTHS = {GREY: (1, 2, 4, 8, 16), RGB: (8, 16), PALETTE: (1, 2, 4, 8), GREY_ALPHA: (8, 16), RGBA: (8, 16)}
# (kind, depth) → Pillow's mode and how its rows are packed; those of 16-bit colours lack their last letter.
_MODES = {
    **{(kind, depth): ("P", f"P;{depth}") for kind in (GREY, PALETTE) for depth in (1, 2, 4)},
    **{(kind, 8): ("P", "P") for kind in (GREY, PALETTE)},
    (GREY, 16): ("I;16", "I;16B"),
    (RGB, 8): ("RGB", "RGB"),
    (RGBA, 8): ("RGBA", "RGBA"),
    (RGB, 16): ("RGB", "RGB;16"),
    (RGBA, 16): ("RGBA", "RGBA;16"),
}

_CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}
# Of each pass over an interlaced file: its first row and column, and the steps to the next ones.
_PASSES = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
_PIECE = 2**20  # bytes that are inflated at once to be counted

IntArray = np.ndarray[Any, np.dtype[Any]]


class NotPng(UnreadableImage):
    """The file has another format; `kind` is its name."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"is a {kind}")
        self.kind = kind


@dataclass(frozen=True)
class Png:
    """What the header of a PNG says; `kind` is one of GREY, RGB, PALETTE, GREY_ALPHA and RGBA."""

    width: int
    height: int
    depth: int
    kind: int
    interlaced: bool

    @property
    def name(self) -> str:
        """What it is, for the end of a sentence."""
        names = {GREY: "grey", RGB: "RGB", PALETTE: "palette", GREY_ALPHA: "grey with alpha", RGBA: "RGBA"}
        return f"{self.depth}-bit {names[self.kind]}"

    @property
    def length(self) -> int:
        """Bytes of all its rows, each with its filter."""
        bits = self.depth * _CHANNELS[self.kind]
        passes = _PASSES if self.interlaced else ((0, 0, 1, 1),)
        total = 0
        for row, column, down, right in passes:
            rows, columns = len(range(row, self.height, down)), len(range(column, self.width, right))
            total += rows * (1 + (columns * bits + 7) // 8) if columns else 0
        return total


def read_png_header(data: bytes) -> Png:
    """The header alone; UnreadableImage where there is none, or one that asks for too many pixels."""
    if (kind := detect_format(data)) != "PNG":
        raise NotPng(kind)
    if len(data) < 33:
        raise UnreadableImage("truncated PNG")
    if data[8:16] != b"\x00\x00\x00\x0dIHDR":
        raise UnreadableImage("damaged PNG: it does not begin with its header")
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    check_size(Header("PNG", width, height))
    depth, colour, squeezed, filtered, laced = data[24:29]
    if depth not in _DEPTHS.get(colour, ()) or squeezed or filtered or laced > 1:
        raise UnreadableImage("damaged PNG: its header makes no sense")
    return Png(width, height, depth, colour, laced == 1)


def read_png_numbers(data: bytes) -> IntArray:
    """All numbers of the file, uint8 or uint16, by the table above; UnreadableImage says why there are none."""
    head = read_png_header(data)
    return join_parts(head, iter_png_parts(data, head))


def join_parts(head: Png, parts: Iterable[IntArray]) -> IntArray:
    """The parts of a whole file, together."""
    whole = None
    for (left, top, right, bottom), part in zip(iter_boxes(head.width, head.height), parts, strict=True):
        whole = np.empty((head.height, head.width, *part.shape[2:]), part.dtype) if whole is None else whole
        whole[top:bottom, left:right] = part
    assert whole is not None
    return whole


def iter_png_parts(data: bytes, head: Png) -> Iterator[IntArray]:
    """The numbers part by part, in the order of `iter_boxes`: those of colours have many bytes for each pixel."""
    if (head.kind, head.depth) not in _MODES:
        raise UnreadableImage(f"a {head.name} PNG is not read")
    check_png(data)
    stream = b"".join(chunk for kind, chunk in _list_chunks(data) if kind == b"IDAT")
    _require_rows(head, stream)
    mode, packed = _MODES[head.kind, head.depth]
    ends = "BL" if packed.endswith(";16") else ("",)
    images = [_decode_rows(head, stream, mode, packed + end) for end in ends]
    for box in iter_boxes(head.width, head.height):
        high, *low = (np.asarray(image.crop(box)) for image in images)
        yield high.astype(np.uint16) << 8 | low[0] if low else high


def read_png_palette(data: bytes) -> tuple[IntArray, IntArray]:
    """Colours (256, 3) and opacities (256) of a palette; black and opaque where it says nothing."""
    check_png(data)
    chunks = dict(_list_chunks(data))
    colours, opacity = np.zeros((256, 3), np.uint8), np.full(256, 255, np.uint8)
    stored = np.frombuffer(chunks.get(b"PLTE", b""), np.uint8)[:768]
    colours[: len(stored) // 3] = stored[: len(stored) // 3 * 3].reshape(-1, 3)
    clear = np.frombuffer(chunks.get(b"tRNS", b""), np.uint8)[:256]
    opacity[: len(clear)] = clear
    return colours, opacity


def _list_chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """(kind, content) of the chunks of a file that `check_png` has passed; what follows their end is not read."""
    chunks, at = list[tuple[bytes, bytes]](), 8
    while not chunks or chunks[-1][0] != b"IEND":
        length = int.from_bytes(data[at : at + 4], "big")
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    return chunks


def _require_rows(head: Png, stream: bytes) -> None:
    """All rows are there; no more than those are inflated."""
    missing, unpacker = head.length, zlib.decompressobj()
    try:
        count = len(unpacker.decompress(stream, min(missing, _PIECE)))
        while count and (missing := missing - count):
            count = len(unpacker.decompress(unpacker.unconsumed_tail, min(missing, _PIECE)))
    except zlib.error as error:
        raise UnreadableImage("damaged PNG: its pixels") from error
    if missing:
        raise UnreadableImage("truncated PNG")


def _decode_rows(head: Png, stream: bytes, mode: str, packed: str) -> Image.Image:
    from PIL import Image

    try:
        return Image.frombytes(mode, (head.width, head.height), stream, "zip", packed, int(head.interlaced))
    except ValueError as error:
        raise UnreadableImage("truncated PNG" if "enough" in str(error) else "damaged PNG: its pixels") from error
    except MemoryError as error:
        raise UnreadableImage("the PNG needs more memory than there is") from error
