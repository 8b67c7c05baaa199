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
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from embasis.data.images.decode import iter_boxes
from embasis.data.images.files import ImageFile, describe_os_error
from embasis.data.images.header import UnreadableImage
from embasis.data.segmentation.png import (
    GREY,
    PALETTE,
    RGB,
    RGBA,
    NotPng,
    Numbers,
    Png,
    joined,
    png_header,
    png_palette,
    png_parts,
)
from embasis.data.workers.process import read_checked, request_for
from embasis.types.maps import ClassTable

IGNORED = 255
_STRANGER = 254  # no class has this number: at most 254 classes are possible
CLEAR = -1
"""The number of a transparent pixel of a colour-coded map."""


class BadMap(ValueError):  # noqa: N818 — what it is, not what went wrong here
    """A file is no label map that can be used; the text is the reason, part of a sentence."""


class WrongKind(BadMap):
    """A file that can be read, but whose numbers are no classes: a JPEG, colours for numbers or the reverse."""


@dataclass(frozen=True, eq=False)
class Found:
    """A label map as it was found: uint8 (H, W), and how many pixels have which number that is not allowed."""

    map: Tensor
    unknown_values: dict[int, int]


def map_header(data: bytes) -> Png:
    """The header of a label map; nothing is decoded."""
    try:
        return png_header(data)
    except NotPng as error:
        exact = ": its numbers are not exact" if error.kind == "JPEG" else ""
        raise WrongKind(f"{error}{exact}; save label maps as PNG") from error
    except UnreadableImage as error:
        raise BadMap(str(error)) from error


def header_of_map(data: bytes) -> tuple[int, int]:
    """Height and width of a label map; nothing is decoded."""
    head = map_header(data)
    return head.height, head.width


def raw_numbers(data: bytes, coded: str) -> Numbers:
    """The numbers (H, W) of a map by the table above: uint8, uint16, or int32 for colours."""
    return joined(map_header(data), raw_parts(data, coded))


def raw_parts(data: bytes, coded: str) -> Iterator[Numbers]:
    """The same part by part, in the order of `boxes`."""
    palette, parts = indexed_parts(data, coded)
    return parts if palette is None else (palette[part] for part in parts)


def indexed_parts(data: bytes, coded: str) -> tuple[Numbers | None, Iterator[Numbers]]:
    """The same, or the palette and the indices into it: there are fewer colours to look at than pixels."""
    head = map_header(data)
    _require_kind(head, coded)
    if coded != "colours" or head.kind != PALETTE:
        return None, _as_bad_map(_channels(part, coded, head) for part in png_parts(data, head))
    try:
        return _packed(*png_palette(data)), _as_bad_map(png_parts(data, head))
    except UnreadableImage as error:
        raise BadMap(str(error)) from error


def _as_bad_map(parts: Iterator[Numbers]) -> Iterator[Numbers]:
    """The parts; what cannot be read becomes a BadMap."""
    try:
        yield from parts
    except UnreadableImage as error:
        raise BadMap(str(error)) from error


def _channels(part: Numbers, coded: str, head: Png) -> Numbers:
    if coded == "colours":
        return _packed(part[..., :3], part[..., 3] if head.kind == RGBA else None)
    return np.ascontiguousarray(part[:, :, 0]) if coded == "first" else part


def raw_map(data: bytes, table: ClassTable) -> Tensor:
    """int32 (H, W): ids, or 0xRRGGBB in colour-coded maps."""
    return torch.from_numpy(raw_numbers(data, table.coded).astype(np.int32))


def look(data: bytes, table: ClassTable) -> Found:
    """The class of each pixel, and the numbers that are not allowed; those pixels are ignored."""
    head, strangers = map_header(data), Count()
    palette, parts = indexed_parts(data, table.coded)
    known = lookup_table(table) if palette is None else lookup_table(table)[palette]
    found = np.empty((head.height, head.width), np.uint8)
    for (left, top, right, bottom), numbers in zip(iter_boxes(head.width, head.height), parts, strict=True):
        classes = known[numbers]
        if (strange := classes == _STRANGER).any():
            strangers.add(numbers[strange])
            classes[strange] = IGNORED
        found[top:bottom, left:right] = classes
    values, counts = strangers.total(palette)
    return Found(torch.from_numpy(found), dict(zip(values.tolist(), counts.tolist(), strict=True)))


def class_map(data: bytes, table: ClassTable) -> Tensor:
    """uint8 (H, W): class numbers, 255 = ignored; a BadMap where there are numbers that are not allowed."""
    found = look(data, table)
    if found.unknown_values:
        named = ", ".join(f"{shown_number(value, table.coded)}: {n:,} px" for value, n in found.unknown_values.items())
        raise BadMap(f"{unit(table.coded)} {{{named}}}; {allowed(table)}")
    return found.map


def unknown_values(data: bytes, table: ClassTable) -> dict[int, int]:
    """How many pixels have which number that is not allowed."""
    return look(data, table).unknown_values


@lru_cache(maxsize=4)
def lookup_table(table: ClassTable) -> Numbers:
    """The class of every possible number: 2¹⁶ of them, or 2²⁴ + 1 for colours, where the last is CLEAR."""
    size = 2**24 + 1 if table.coded == "colours" else 2**16
    classes = np.full(size, IGNORED if table.others else _STRANGER, np.uint8)
    for number in table.ignore:
        if 0 <= number < size:
            classes[number] = IGNORED
    for name, numbers in enumerate(numbers_of(table)):
        classes[list(numbers)] = name
    if table.coded == "colours":
        classes[CLEAR] = IGNORED
    classes.flags.writeable = False
    return classes


def numbers_of(table: ClassTable) -> tuple[tuple[int, ...], ...]:
    """The numbers of each class in a map: its ids, or its colour as 0xRRGGBB; none where a class has none."""
    if table.coded != "colours":
        return table.ids
    return tuple((red << 16 | green << 8 | blue,) if red >= 0 else () for red, green, blue in table.colours)


def unit(coded: str) -> str:
    """What the numbers of a map are called."""
    return "colours" if coded == "colours" else "ids"


def shown_number(number: int, coded: str) -> str:
    """An id, or a colour as #rrggbb."""
    return f"#{number:06x}" if coded == "colours" else str(number)


def allowed(table: ClassTable) -> str:
    """Which numbers a map may hold, for a sentence: `allowed 0–18, ignore 255`."""
    known = sorted(number for numbers in numbers_of(table) for number in numbers)
    ignored = f", ignore {spans(table.ignore, table.coded)}" if table.ignore else ""
    return f"allowed {spans(known, table.coded)}{ignored}"


def spans(numbers: tuple[int, ...] | list[int], coded: str, most: int = 10) -> str:
    """Numbers for a sentence; neighbours among ids become one span, 0–18."""
    numbers = sorted(numbers)
    if coded == "colours":
        parts = [shown_number(number, coded) for number in numbers]
    else:
        starts = [0, *(place for place, (a, b) in enumerate(pairwise(numbers), 1) if b != a + 1), len(numbers)]
        spans = [(numbers[start], numbers[end - 1]) for start, end in pairwise(starts)] if numbers else []
        parts = [str(low) if low == high else f"{low}–{high}" for low, high in spans]
    return ", ".join(parts[:most]) + (f" and {len(parts) - most} more" if len(parts) > most else "")


def _require_kind(head: Png, coded: str) -> None:
    """The file is of a kind that can hold such numbers."""
    colour = head.kind in (RGB, RGBA)
    if coded == "first" and not (colour and head.depth == 16):
        raise WrongKind(f"is {head.name}: 16-bit RGB is expected, with the class in its first channel")
    if coded == "ids" and head.kind not in (GREY, PALETTE):
        first = '; if its first channel is the class, write coded = "first" in classes.toml' if head.depth == 16 else ""
        raise WrongKind(f"is {head.name}: numbers are expected, as 8-bit grey or palette{first}")
    if coded == "colours" and head.kind != PALETTE and not (colour and head.depth == 8):
        raise WrongKind(f"is {head.name}: colours are expected, as 8-bit RGB or palette")


def _packed(colours: Numbers, opacity: Numbers | None) -> Numbers:
    packed = colours[..., 0].astype(np.int32) << 16
    packed |= colours[..., 1].astype(np.int32) << 8
    packed |= colours[..., 2]
    if opacity is not None:
        packed[opacity == 0] = CLEAR
    return packed


FEW = 2**18
"""Runs of equal neighbours that are kept and sorted; beyond that each possible number has a place of its own."""
_PLACES = 2**24 + 1  # −1, and all colours


class Count:
    """The numbers −1 … 2²⁴ − 1 of some parts; `total` is what they were."""

    def __init__(self) -> None:
        self._runs: list[tuple[Numbers, Numbers]] = []
        self._kept = 0
        self._places: Numbers | None = None

    def add(self, numbers: Numbers) -> None:
        """Count one more part."""
        flat = numbers.reshape(-1)
        if flat.dtype.itemsize < 4:
            counts = np.bincount(flat)
            values = np.flatnonzero(counts)
            return self._keep(values, counts[values])
        starts = np.flatnonzero(np.concatenate([[True], flat[1:] != flat[:-1]]))
        return self._keep(flat[starts].astype(np.int64), np.diff(np.concatenate([starts, [len(flat)]])))

    def _keep(self, values: Numbers, pixels: Numbers) -> None:
        self._runs.append((values, pixels))
        self._kept += len(values)
        if self._kept > FEW:
            if self._places is None:
                self._places = np.zeros(_PLACES, np.int64)
            for kept, lengths in self._runs:
                np.add.at(self._places, kept + 1, lengths)
            self._runs, self._kept = [], 0

    def total(self, palette: Numbers | None = None) -> tuple[Numbers, Numbers]:
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


THREADS = 2


@dataclass(frozen=True, eq=False)
class ValueCounts:
    """Height and width of one map, and its numbers."""

    size: tuple[int, int]
    values: Numbers
    pixels: Numbers

    def counts(self, table: ClassTable) -> Tensor:
        """(C) int64: pixels of each class."""
        classes = lookup_table(table)[self.values]
        known = classes < len(table.names)
        found = np.zeros(len(table.names), np.int64)
        np.add.at(found, classes[known], self.pixels[known])
        return torch.from_numpy(found)

    def unknown_values(self, table: ClassTable) -> dict[int, int]:
        """Pixels of each number that is not allowed."""
        classes = lookup_table(table)[self.values]
        strange = (classes >= len(table.names)) & (classes != IGNORED)
        return dict(zip(self.values[strange].tolist(), self.pixels[strange].tolist(), strict=True))


Contents = Sequence[ValueCounts | BadMap | None]
"""What the map of each file of a side holds; None where there is no map."""


def value_counts(data: bytes, coded: str) -> ValueCounts:
    """The numbers of one map."""
    head, count = map_header(data), Count()
    palette, parts = indexed_parts(data, coded)
    for numbers in parts:
        count.add(numbers)
    return ValueCounts((head.height, head.width), *count.total(palette))


def tallies(files: Sequence[ImageFile | None], coded: str) -> list[ValueCounts | BadMap | None]:
    """The numbers of each map, or why there are none; None where there is no file."""

    def read(file: ImageFile | None) -> ValueCounts | BadMap | None:
        try:
            return None if file is None else value_counts(read_checked(request_for(file)), coded)
        except OSError as error:
            return BadMap(describe_os_error(error))
        except UnreadableImage as error:
            return BadMap(str(error))
        except BadMap as error:
            return error

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(read, files))


def together(found: Sequence[ValueCounts | BadMap | None]) -> dict[int, int]:
    """Pixels of each number in all maps; transparent ones are left out."""
    total: dict[int, int] = {}
    for one in found:
        if isinstance(one, ValueCounts):
            for value, count in zip(one.values.tolist(), one.pixels.tolist(), strict=True):
                total[value] = total.get(value, 0) + count
    total.pop(CLEAR, None)
    return total
