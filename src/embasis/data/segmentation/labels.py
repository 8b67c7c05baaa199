"""From the bytes of a label map file to its numbers, exactly, and to the class of each pixel.

| the PNG holds | its numbers are |
| --- | --- |
| grey of 1, 2, 4, 8 or 16 bits | (H, W) as they are stored |
| palette of 1, 2, 4 or 8 bits | (H, W), indices |
| RGB, RGBA of 8 or 16 bits | (H, W, 3 or 4) |

| `coded` | the file must be | the numbers are |
| --- | --- | --- |
| ids | PNG, grey or palette of up to 8 bits, or 16-bit grey | the grey value or index |
| colours | PNG, 8-bit RGB or RGBA, or a palette | 0xRRGGBB; −1 where it is fully transparent, which is ignored |
| first | PNG, 16-bit RGB or RGBA | the first channel |

Nothing is scaled, mixed with a background or made a colour. Pillow's decoder of compressed rows is called directly. It
inflates row by row, never more than the header announces, knows the five filters and interlacing, and lets other
threads run. Of 16-bit colours it keeps one byte, the first or the second by the mode, so that they are read twice. Rows
that are not there it takes for zeros, so they are counted before.

Class maps in memory are uint8 (H, W): the class number, IGNORED = nothing is known. In colour-coded maps the numbers
that a table ignores are 0xRRGGBB, too.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from embasis.data.images.header import Header, UnreadableImage, check_png, check_size, detect_format
from embasis.data.images.pixels import iter_boxes
from embasis.types import ClassTable

if TYPE_CHECKING:
    from PIL import Image

IGNORED = 255
_UNKNOWN = 254  # no class has this number: at most 254 classes are possible
CLEAR = -1
"""The number of a transparent pixel of a colour-coded map."""
_MOST_RUNS = 2**18
"""Runs of equal neighbours that are kept and sorted; beyond that each possible number has a place of its own."""
_POSSIBLE_VALUES = 2**24 + 1  # −1, and all colours
_PIECE = 2**20  # bytes that are inflated at once to be counted

GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
"""The kinds of PNG files, by the number in their header."""
_KIND_NAMES = {GREY: "grey", RGB: "RGB", PALETTE: "palette", GREY_ALPHA: "grey with alpha", RGBA: "RGBA"}
_DEPTHS = {GREY: (1, 2, 4, 8, 16), RGB: (8, 16), PALETTE: (1, 2, 4, 8), GREY_ALPHA: (8, 16), RGBA: (8, 16)}
_CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}
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
# Of each pass over an interlaced file: its first row and column, and the steps to the next ones.
_PASSES = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))

IntArray = np.ndarray[Any, np.dtype[Any]]


class BadMap(ValueError):  # noqa: N818 — what it is, not what went wrong here
    """A file is no label map that can be used; the text is the reason, part of a sentence."""


class WrongKind(BadMap):
    """A file that can be read, but whose numbers are no classes: a JPEG, colours for numbers or the reverse."""


@contextmanager
def _raising_bad_map() -> Iterator[None]:
    """What cannot be read becomes a BadMap."""
    try:
        yield
    except UnreadableImage as error:
        raise BadMap(str(error)) from error


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
        return f"{self.depth}-bit {_KIND_NAMES[self.kind]}"

    @property
    def is_coloured(self) -> bool:
        """Whether its numbers are colours of 8 bits."""
        return self.kind in (RGB, RGBA) and self.depth == 8

    @property
    def length(self) -> int:
        """Bytes of all its rows, each with its filter."""
        bits, total = self.depth * _CHANNELS[self.kind], 0
        for row, column, down, right in _PASSES if self.interlaced else ((0, 0, 1, 1),):
            rows, columns = len(range(row, self.height, down)), len(range(column, self.width, right))
            total += rows * (1 + (columns * bits + 7) // 8) if columns else 0
        return total


def read_map_header(data: bytes) -> Png:
    """The header of a label map; a BadMap where there is none, or one that asks for too many pixels."""
    with _raising_bad_map():
        if (kind := detect_format(data)) != "PNG":
            exact = ": its numbers are not exact" if kind == "JPEG" else ""
            raise WrongKind(f"is a {kind}{exact}; save label maps as PNG")
        if len(data) < 33:
            raise BadMap("truncated PNG")
        if data[8:16] != b"\x00\x00\x00\x0dIHDR":
            raise BadMap("damaged PNG: it does not begin with its header")
        width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
        check_size(Header("PNG", width, height))
    depth, colour, squeezed, filtered, laced = data[24:29]
    if depth not in _DEPTHS.get(colour, ()) or squeezed or filtered or laced > 1:
        raise BadMap("damaged PNG: its header makes no sense")
    return Png(width, height, depth, colour, laced == 1)


def read_png_numbers(data: bytes) -> IntArray:
    """All numbers of a PNG, uint8 or uint16, by the first table above; a BadMap says why there are none."""
    head, whole = read_map_header(data), None
    for (left, top, right, bottom), part in zip(
        iter_boxes(head.width, head.height), _iter_png_parts(data, head), strict=True
    ):
        whole = np.empty((head.height, head.width, *part.shape[2:]), part.dtype) if whole is None else whole
        whole[top:bottom, left:right] = part
    assert whole is not None
    return whole


def _iter_png_parts(data: bytes, head: Png) -> Iterator[IntArray]:
    """The numbers part by part, in the order of `iter_boxes`: those of colours have many bytes for each pixel."""
    if (head.kind, head.depth) not in _MODES:
        raise BadMap(f"a {head.name} PNG is not read")
    stream = b"".join(chunk for kind, chunk in _list_chunks(data) if kind == b"IDAT")
    _require_rows(head, stream)
    mode, packed = _MODES[head.kind, head.depth]
    ends = "BL" if packed.endswith(";16") else ("",)
    images = [_decode_rows(head, stream, mode, packed + end) for end in ends]
    for box in iter_boxes(head.width, head.height):
        high, *low = (np.asarray(image.crop(box)) for image in images)
        yield high.astype(np.uint16) << 8 | low[0] if low else high


def _list_chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """(kind, content) of the chunks of a PNG, whose checksums are right; what follows their end is not read."""
    with _raising_bad_map():
        check_png(data)
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
        raise BadMap("damaged PNG: its pixels") from error
    if missing:
        raise BadMap("truncated PNG")


def _decode_rows(head: Png, stream: bytes, mode: str, packed: str) -> Image.Image:
    from PIL import Image

    try:
        return Image.frombytes(mode, (head.width, head.height), stream, "zip", packed, int(head.interlaced))
    except ValueError as error:
        raise BadMap("truncated PNG" if "enough" in str(error) else "damaged PNG: its pixels") from error
    except MemoryError as error:
        raise BadMap("the PNG needs more memory than there is") from error


def read_png_palette(data: bytes) -> tuple[IntArray, IntArray]:
    """Colours (256, 3) and opacities (256) of a palette; black and opaque where it says nothing."""
    chunks = dict(_list_chunks(data))
    colours, opacity = np.zeros((256, 3), np.uint8), np.full(256, 255, np.uint8)
    stored = np.frombuffer(chunks.get(b"PLTE", b""), np.uint8)[:768]
    colours[: len(stored) // 3] = stored[: len(stored) // 3 * 3].reshape(-1, 3)
    clear = np.frombuffer(chunks.get(b"tRNS", b""), np.uint8)[:256]
    opacity[: len(clear)] = clear
    return colours, opacity


def iter_numbers(data: bytes, coded: str) -> Iterator[IntArray]:
    """The numbers of a map by the second table, part by part as in `iter_boxes`: uint8, uint16, int32 for colours."""
    palette, parts = open_numbers(data, coded)
    return parts if palette is None else (palette[part] for part in parts)


def open_numbers(data: bytes, coded: str) -> tuple[IntArray | None, Iterator[IntArray]]:
    """None and the same; or a palette of colours and the indices into it, of which there are fewer than of colours."""
    head = read_map_header(data)
    if coded == "first" and not (head.kind in (RGB, RGBA) and head.depth == 16):
        raise WrongKind(f"is {head.name}: 16-bit RGB is expected, with the class in its first channel")
    if coded == "ids" and head.kind not in (GREY, PALETTE):
        first = '; if its first channel is the class, write coded = "first" in classes.toml' if head.depth == 16 else ""
        raise WrongKind(f"is {head.name}: numbers are expected, as 8-bit grey or palette{first}")
    if coded == "colours" and not (head.is_coloured or head.kind == PALETTE):
        raise WrongKind(f"is {head.name}: colours are expected, as 8-bit RGB or palette")
    parts = _iter_png_parts(data, head)
    if coded == "ids":
        return None, parts
    if coded == "first":
        return None, (np.ascontiguousarray(part[:, :, 0]) for part in parts)
    if head.kind == PALETTE:
        return _pack_colours(*read_png_palette(data)), parts
    return None, (_pack_colours(part[..., :3], part[..., 3] if head.kind == RGBA else None) for part in parts)


def _pack_colours(colours: IntArray, opacity: IntArray | None) -> IntArray:
    """int32: 0xRRGGBB of colours (…, 3), CLEAR where they are transparent."""
    packed = colours[..., 0].astype(np.int32) << 16
    packed |= colours[..., 1].astype(np.int32) << 8
    packed |= colours[..., 2]
    if opacity is not None:
        packed[opacity == 0] = CLEAR
    return packed


def decode_map(data: bytes, table: ClassTable) -> tuple[Tensor, dict[int, int]]:
    """uint8 (H, W): the class of each pixel; and how many pixels have which number that is not allowed, so ignored."""
    head, unknown = read_map_header(data), ValueCounter()
    palette, parts = open_numbers(data, table.coded)
    known = class_lookup(table) if palette is None else class_lookup(table)[palette]
    class_map = np.empty((head.height, head.width), np.uint8)
    for (left, top, right, bottom), numbers in zip(iter_boxes(head.width, head.height), parts, strict=True):
        classes = known[numbers]
        if (outside := classes == _UNKNOWN).any():
            unknown.add(numbers[outside])
            classes[outside] = IGNORED
        class_map[top:bottom, left:right] = classes
    values, counts = unknown.total(palette)
    return torch.from_numpy(class_map), dict(zip(values.tolist(), counts.tolist(), strict=True))


def decode_classes(data: bytes, table: ClassTable) -> Tensor:
    """uint8 (H, W): class numbers, 255 = ignored; a BadMap where there are numbers that are not allowed."""
    classes, unknown = decode_map(data, table)
    if unknown:
        raise BadMap(describe_unknown({value: f"{pixels:,} px" for value, pixels in unknown.items()}, table))
    return classes


@lru_cache(maxsize=4)
def class_lookup(table: ClassTable) -> IntArray:
    """The class of every possible number: 2¹⁶ of them, or 2²⁴ + 1 for colours, where the last is CLEAR."""
    size = _POSSIBLE_VALUES if table.coded == "colours" else 2**16
    classes = np.full(size, IGNORED if table.others else _UNKNOWN, np.uint8)
    classes[[number for number in table.ignore if 0 <= number < size]] = IGNORED
    for name, numbers in enumerate(table.numbers):
        classes[list(numbers)] = name
    if table.coded == "colours":
        classes[CLEAR] = IGNORED
    classes.flags.writeable = False
    return classes


def describe_unknown(values: dict[int, str], table: ClassTable, more: str = "") -> str:
    """Numbers that are not allowed, each with how often it occurs, and those that are: `ids {7: 2 px}; allowed 0–1`."""
    named = ", ".join(f"{format_value(value, table.coded)}: {pixels}" for value, pixels in values.items())
    known = [number for numbers in table.numbers for number in numbers]
    ignored = f", ignore {format_ranges(table.ignore, table.coded)}" if table.ignore else ""
    unit = "colours" if table.coded == "colours" else "ids"
    return f"{unit} {{{named}{more}}}; allowed {format_ranges(known, table.coded)}{ignored}"


def format_value(number: int, coded: str) -> str:
    """An id, or a colour as #rrggbb."""
    return f"#{number:06x}" if coded == "colours" else str(number)


def format_ranges(numbers: Sequence[int], coded: str, most: int = 10) -> str:
    """Numbers for a sentence; neighbours among ids become one range, 0–18."""
    numbers = sorted(numbers)
    if coded == "colours":
        parts = [format_value(number, coded) for number in numbers]
    else:
        starts = [0, *(place for place, (a, b) in enumerate(pairwise(numbers), 1) if b != a + 1), len(numbers)]
        ranges = [(numbers[start], numbers[end - 1]) for start, end in pairwise(starts)] if numbers else []
        parts = [str(low) if low == high else f"{low}–{high}" for low, high in ranges]
    return ", ".join(parts[:most]) + (f" and {len(parts) - most} more" if len(parts) > most else "")


class ValueCounter:
    """Counts the numbers −1 … 2²⁴ − 1 part by part in little memory: ids by 2¹⁶ places, colours by 2²⁴ if need be."""

    def __init__(self) -> None:
        self._runs: list[tuple[IntArray, IntArray]] = []
        self._kept = 0
        self._places: IntArray | None = None

    def add(self, numbers: IntArray) -> None:
        """Count one more part."""
        flat = numbers.reshape(-1)
        if flat.dtype.itemsize < 4:
            counts = np.bincount(flat)
            values = np.flatnonzero(counts)
            pixels = counts[values]
        else:
            starts = np.flatnonzero(np.concatenate([[True], flat[1:] != flat[:-1]]))
            values, pixels = flat[starts].astype(np.int64), np.diff(np.concatenate([starts, [len(flat)]]))
        self._runs.append((values, pixels))
        self._kept += len(values)
        if self._kept > _MOST_RUNS:
            if self._places is None:
                self._places = np.zeros(_POSSIBLE_VALUES, np.int64)
            for kept, lengths in self._runs:
                np.add.at(self._places, kept + 1, lengths)
            self._runs, self._kept = [], 0

    def total(self, palette: IntArray | None = None) -> tuple[IntArray, IntArray]:
        """The numbers that occurred, in increasing order, and how often; with a palette those that they stand for."""
        runs = [*self._runs]
        if self._places is not None:
            there = np.flatnonzero(self._places)
            runs.append((there - 1, self._places[there]))
        if not runs:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        numbers = np.concatenate([values for values, _ in runs])
        values, which = np.unique(numbers if palette is None else palette[numbers], return_inverse=True)
        pixels = np.zeros(len(values), np.int64)
        np.add.at(pixels, which, np.concatenate([lengths for _, lengths in runs]))
        return values.astype(np.int64), pixels
