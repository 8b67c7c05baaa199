"""From the bytes of a label map file to the class of each pixel, and to how often each number occurs.

| `coded` | the file must be | the numbers are |
| --- | --- | --- |
| ids | PNG, grey or palette of up to 8 bits, or 16-bit grey | the grey value or index |
| colours | PNG, 8-bit RGB or RGBA, or a palette | 0xRRGGBB; −1 where it is fully transparent, which is ignored |
| first | PNG, 16-bit RGB or RGBA | the first channel |

Class maps in memory are uint8 (H, W): the class number, IGNORED = nothing is known. In colour-coded maps the numbers
that a table ignores are 0xRRGGBB, too. Numbers are counted before the classes are known, so that a map is decoded once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from embasis.data.images.files import ImageFile, describe_os_error
from embasis.data.images.header import UnreadableImage
from embasis.data.images.pixels import iter_boxes
from embasis.data.segmentation import png
from embasis.data.segmentation.png import IntArray, Png
from embasis.data.worker_process import read_checked, request_for
from embasis.types import ClassTable

IGNORED = 255
_UNKNOWN = 254  # no class has this number: at most 254 classes are possible
CLEAR = -1
"""The number of a transparent pixel of a colour-coded map."""
COUNTING_THREADS = 2
_MOST_RUNS = 2**18
"""Runs of equal neighbours that are kept and sorted; beyond that each possible number has a place of its own."""
_POSSIBLE_VALUES = 2**24 + 1  # −1, and all colours


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


def read_map_header(data: bytes) -> Png:
    """The header of a label map; nothing is decoded."""
    with _raising_bad_map():
        try:
            return png.read_png_header(data)
        except png.NotPng as error:
            exact = ": its numbers are not exact" if error.kind == "JPEG" else ""
            raise WrongKind(f"{error}{exact}; save label maps as PNG") from error


def iter_numbers(data: bytes, coded: str) -> Iterator[IntArray]:
    """The numbers of a map by the table above, part by part as in `iter_boxes`: uint8, uint16, or int32 for colours."""
    palette, parts = open_numbers(data, coded)
    return parts if palette is None else (palette[part] for part in parts)


def open_numbers(data: bytes, coded: str) -> tuple[IntArray | None, Iterator[IntArray]]:
    """None and the same; or a palette of colours and the indices into it, of which there are fewer than of colours."""
    head = read_map_header(data)
    _require_kind(head, coded)
    if coded != "colours" or head.kind != png.PALETTE:
        return None, _iter_parts(data, head, coded)
    with _raising_bad_map():
        return _pack_colours(*png.read_png_palette(data)), _iter_parts(data, head, "ids")


def _iter_parts(data: bytes, head: Png, coded: str) -> Iterator[IntArray]:
    with _raising_bad_map():
        for part in png.iter_png_parts(data, head):
            if coded == "colours":
                yield _pack_colours(part[..., :3], part[..., 3] if head.kind == png.RGBA else None)
            else:
                yield np.ascontiguousarray(part[:, :, 0]) if coded == "first" else part


def _require_kind(head: Png, coded: str) -> None:
    """The file is of a kind that can hold such numbers."""
    is_colour = head.kind in (png.RGB, png.RGBA)
    if coded == "first" and not (is_colour and head.depth == 16):
        raise WrongKind(f"is {head.name}: 16-bit RGB is expected, with the class in its first channel")
    if coded == "ids" and head.kind not in (png.GREY, png.PALETTE):
        first = '; if its first channel is the class, write coded = "first" in classes.toml' if head.depth == 16 else ""
        raise WrongKind(f"is {head.name}: numbers are expected, as 8-bit grey or palette{first}")
    if coded == "colours" and head.kind != png.PALETTE and not (is_colour and head.depth == 8):
        raise WrongKind(f"is {head.name}: colours are expected, as 8-bit RGB or palette")


def _pack_colours(colours: IntArray, opacity: IntArray | None) -> IntArray:
    """int32: 0xRRGGBB of colours (…, 3), CLEAR where they are transparent."""
    packed = colours[..., 0].astype(np.int32) << 16
    packed |= colours[..., 1].astype(np.int32) << 8
    packed |= colours[..., 2]
    if opacity is not None:
        packed[opacity == 0] = CLEAR
    return packed


@dataclass(frozen=True, eq=False)
class DecodedMap:
    """A class map, uint8 (H, W), and how many pixels of the file have which number that is not allowed."""

    classes: Tensor
    unknown_values: dict[int, int]


def decode_map(data: bytes, table: ClassTable) -> DecodedMap:
    """The class of each pixel, and the numbers that are not allowed; those pixels are ignored."""
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
    return DecodedMap(torch.from_numpy(class_map), dict(zip(values.tolist(), counts.tolist(), strict=True)))


def decode_classes(data: bytes, table: ClassTable) -> Tensor:
    """uint8 (H, W): class numbers, 255 = ignored; a BadMap where there are numbers that are not allowed."""
    decoded = decode_map(data, table)
    if unknown := decoded.unknown_values:
        raise BadMap(describe_unknown({value: f"{pixels:,} px" for value, pixels in unknown.items()}, table))
    return decoded.classes


@lru_cache(maxsize=4)
def class_lookup(table: ClassTable) -> IntArray:
    """The class of every possible number: 2¹⁶ of them, or 2²⁴ + 1 for colours, where the last is CLEAR."""
    size = 2**24 + 1 if table.coded == "colours" else 2**16
    classes = np.full(size, IGNORED if table.others else _UNKNOWN, np.uint8)
    for number in table.ignore:
        if 0 <= number < size:
            classes[number] = IGNORED
    for name, numbers in enumerate(table.numbers):
        classes[list(numbers)] = name
    if table.coded == "colours":
        classes[CLEAR] = IGNORED
    classes.flags.writeable = False
    return classes


def describe_unknown(values: dict[int, str], table: ClassTable, more: str = "") -> str:
    """Numbers that are not allowed, each with how often it occurs, and those that are: `ids {7: 2 px}; allowed 0–1`."""
    named = ", ".join(f"{format_value(value, table.coded)}: {pixels}" for value, pixels in values.items())
    known = sorted(number for numbers in table.numbers for number in numbers)
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
            return self._keep(values, counts[values])
        starts = np.flatnonzero(np.concatenate([[True], flat[1:] != flat[:-1]]))
        return self._keep(flat[starts].astype(np.int64), np.diff(np.concatenate([starts, [len(flat)]])))

    def _keep(self, values: IntArray, pixels: IntArray) -> None:
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


@dataclass(frozen=True, eq=False)
class ValueCounts:
    """Height and width of one map, its numbers in increasing order, and how many pixels have each."""

    size: tuple[int, int]
    values: IntArray
    pixels: IntArray

    def counts(self, table: ClassTable) -> Tensor:
        """(C) int64: pixels of each class."""
        classes = class_lookup(table)[self.values]
        known = classes < len(table.names)
        totals = np.zeros(len(table.names), np.int64)
        np.add.at(totals, classes[known], self.pixels[known])
        return torch.from_numpy(totals)

    def unknown_values(self, table: ClassTable) -> dict[int, int]:
        """Pixels of each number that is not allowed."""
        classes = class_lookup(table)[self.values]
        unknown = (classes >= len(table.names)) & (classes != IGNORED)
        return dict(zip(self.values[unknown].tolist(), self.pixels[unknown].tolist(), strict=True))


MapContents = Sequence[ValueCounts | BadMap | None]
"""What the map of each file of a side holds, or why it holds nothing; None where there is no map."""


def count_values(data: bytes, coded: str) -> ValueCounts:
    """The numbers of one map."""
    head, counter = read_map_header(data), ValueCounter()
    palette, parts = open_numbers(data, coded)
    for numbers in parts:
        counter.add(numbers)
    return ValueCounts((head.height, head.width), *counter.total(palette))


def count_all_values(files: Sequence[ImageFile | None], coded: str) -> MapContents:
    """The numbers of each map, or why there are none; None where there is no file."""

    def read(file: ImageFile | None) -> ValueCounts | BadMap | None:
        try:
            return None if file is None else count_values(read_checked(request_for(file)), coded)
        except OSError as error:
            return BadMap(describe_os_error(error))
        except UnreadableImage as error:
            return BadMap(str(error))
        except BadMap as error:
            return error

    with ThreadPoolExecutor(COUNTING_THREADS) as pool:
        return list(pool.map(read, files))


def sum_values(contents: MapContents) -> dict[int, int]:
    """Pixels of each number in all maps; transparent ones are left out."""
    total: dict[int, int] = {}
    for content in contents:
        if isinstance(content, ValueCounts):
            for value, pixels in zip(content.values.tolist(), content.pixels.tolist(), strict=True):
                total[value] = total.get(value, 0) + pixels
    total.pop(CLEAR, None)
    return total
