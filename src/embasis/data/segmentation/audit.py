"""All label maps of one side, decoded once before training: what is wrong with them, and what they count.

| finding | labelled and test side | unlabelled side, whose maps are for scores only |
| --- | --- | --- |
| number that is not allowed, other size than the picture, JPEG, wrong kind | error | error |
| picture with an EXIF orientation whose map would fit both ways | error | error |
| picture without a map, map without a picture | error | note; not scored |
| map that cannot be read | the picture is rejected, on the budget | not scored, on the budget |
| map without a pixel of any class | the picture is left out | not scored |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from embasis.data.images.files import describe_os_error
from embasis.data.images.header import UnreadableImage
from embasis.data.problem import Finding
from embasis.data.segmentation import labels
from embasis.data.segmentation.labels import CLEAR, IGNORED, BadMap, IntArray, WrongKind
from embasis.data.segmentation.pairs import CLASS_FILE, IMAGES, LABELS, MapFile, MapSide, stem, turned_map_size
from embasis.data.worker_process import read_checked, request_for
from embasis.errors import quote
from embasis.types import ClassTable, RejectedFile

NO_PIXEL = "its label map has no labelled pixel"
FOR_SCORES = "; or rename labels/ there, which is used for scores only"
MANY_UNKNOWN = 100
"""More unknown numbers than anybody would name."""
NAMED_UNKNOWN = 10
"""Unknown numbers that a sentence names."""
ORIENTATION_CURE = (
    "save these pictures upright, without the orientation, or give each map the orientation of its picture"
)
COUNTING_THREADS = 2


@dataclass(frozen=True, eq=False)
class ValueCounts:
    """Height and width of one map, its numbers in increasing order, and how many pixels have each."""

    size: tuple[int, int]
    values: IntArray
    pixels: IntArray

    def counts(self, table: ClassTable) -> Tensor:
        """(C) int64: pixels of each class."""
        classes = labels.class_lookup(table)[self.values]
        known = classes < len(table.names)
        totals = np.zeros(len(table.names), np.int64)
        np.add.at(totals, classes[known], self.pixels[known])
        return torch.from_numpy(totals)

    def unknown_values(self, table: ClassTable) -> dict[int, int]:
        """Pixels of each number that is not allowed."""
        classes = labels.class_lookup(table)[self.values]
        unknown = (classes >= len(table.names)) & (classes != IGNORED)
        return dict(zip(self.values[unknown].tolist(), self.pixels[unknown].tolist(), strict=True))


MapContents = Sequence[ValueCounts | BadMap | None]
"""What the map of each file of a side holds, or why it holds nothing; None where there is no map."""
Rows = list[tuple[MapFile, ValueCounts | BadMap | None]]


def count_values(data: bytes, coded: str) -> ValueCounts:
    """The numbers of one map; they are counted before the classes are known, so that a map is decoded once."""
    head, counter = labels.read_map_header(data), labels.ValueCounter()
    palette, parts = labels.open_numbers(data, coded)
    for numbers in parts:
        counter.add(numbers)
    return ValueCounts((head.height, head.width), *counter.total(palette))


def count_side_values(side: MapSide, coded: str) -> MapContents:
    """The numbers in the map of each file, for which every map is decoded."""

    def read(file: MapFile) -> ValueCounts | BadMap | None:
        try:
            return None if file.label is None else count_values(read_checked(request_for(file.label)), coded)
        except OSError as error:
            return BadMap(describe_os_error(error))
        except UnreadableImage as error:
            return BadMap(str(error))
        except BadMap as error:
            return error

    with ThreadPoolExecutor(COUNTING_THREADS) as pool:
        return list(pool.map(read, side.files))


def sum_values(contents: MapContents) -> dict[int, int]:
    """Pixels of each number in all maps; transparent ones are left out."""
    total = Counter[int]()
    for content in contents:
        if isinstance(content, ValueCounts):
            total.update(dict(zip(content.values.tolist(), content.pixels.tolist(), strict=True)))
    total.pop(CLEAR, None)
    return total


@dataclass(frozen=True, eq=False)
class Audit:
    """A side of which every label map was decoded."""

    side: MapSide
    table: ClassTable
    counts: Tensor
    """(N, C) int64: pixels of each class in each file of the side."""
    findings: tuple[Finding, ...]

    @property
    def pixels(self) -> dict[str, int]:
        """Pixels of each class in all files."""
        return dict(zip(self.table.names, self.counts.sum(0).tolist(), strict=True))

    @property
    def lacking(self) -> list[str]:
        """Classes without a pixel."""
        return [name for name, count in self.pixels.items() if not count]

    @property
    def summary(self) -> str:
        """How many pixels each class has."""
        parts = ", ".join(f"{quote(name)} {format_pixels(count)}" for name, count in self.pixels.items())
        return f"{self.side.name}: {len(self.table.names)} classes: {parts}"


def audit_side(side: MapSide, contents: MapContents, table: ClassTable, *, required: bool) -> Audit:
    """The side without what cannot be used, the pixels of each class, and everything that is wrong."""
    rows = list(zip(side.files, contents, strict=True))
    errors = [
        *(_describe_unpaired(side) if required else ()),
        *_describe_misfits(side, rows),
        *_describe_unknown_values(side.name, rows, table),
    ]
    findings = [Finding("error", text if required else text + FOR_SCORES) for text in errors]
    if not required:
        findings += [Finding("note", f"{side.name}: {text}") for text in _list_unpaired(side, ", not scored")]
    kept, counts = _drop_unusable(side, rows, table, required)
    if kept.unlabelled:
        names = [item.name for item in kept.unlabelled]
        text = f"{count_noun(names, 'picture')} left out, the map has no labelled pixel: {first_few(names, IMAGES)}"
        findings.append(Finding("warning", f"{side.name}: {text}"))
    return Audit(kept, table, counts, tuple(findings))


def _drop_unusable(side: MapSide, rows: Rows, table: ClassTable, required: bool) -> tuple[MapSide, Tensor]:
    """The side without unreadable maps and without maps of no class, and the counts of the files that stay."""
    counts = {file.name: content.counts(table) for file, content in rows if isinstance(content, ValueCounts)}
    bad = {file.name: str(content) for file, content in rows if type(content) is BadMap}  # a WrongKind is an error
    if required:
        empty = {name for name, count in counts.items() if not count.any()}
        out = [RejectedFile(file.name, NO_PIXEL, "read", kind="refused") for file in side.files if file.name in empty]
        side = side.without_maps(bad, "read").without(empty)
        side = replace(side, unlabelled=tuple(out))
    else:
        lost = [
            RejectedFile(_map_name(file), bad[file.name], "read", kind="unscored")
            for file in side.files
            if file.name in bad
        ]
        files = tuple(replace(file, label=None) if file.name in bad else file for file in side.files)
        side = replace(side, files=files, rejected=(*side.rejected, *lost))
    nothing = torch.zeros(len(table.names), dtype=torch.int64)
    kept = [counts.get(file.name, nothing) for file in side.files]
    return side, torch.stack(kept) if kept else nothing.new_zeros(0, len(nothing))


def _describe_unpaired(side: MapSide) -> Iterator[str]:
    """Errors about pictures and maps that do not pair up."""
    if parts := _list_unpaired(side):
        like = (side.missing or ("a.jpg",))[0]
        hint = f"a map has the name of its picture, as {LABELS}/{stem(like)}.png for {IMAGES}/{like}"
        yield f"{side.name}: {'; '.join(parts)}; {hint}"
    if side.twins:
        what = "pictures that share a name but for the ending, so one map"
        yield f"{side.name}: {what}: {first_few(side.twins, IMAGES)}"


def _list_unpaired(side: MapSide, note: str = "") -> list[str]:
    """Pictures without a map, of which the note is true, and maps without a picture; each part of a sentence."""
    parts = (
        (side.missing, "picture", f"without a label map{note}", IMAGES),
        (side.extra, "label map", "without a picture", LABELS),
    )
    return [
        f"{count_noun(names, what)} {lack}: {first_few(names, folder)}" for names, what, lack, folder in parts if names
    ]


def _describe_misfits(side: MapSide, rows: Rows) -> Iterator[str]:
    """Errors about maps of the wrong kind or size, and of pictures whose EXIF orientation makes two ways possible."""
    wrong: dict[str, list[str]] = {}
    for file, content in rows:
        if isinstance(content, WrongKind):
            wrong.setdefault(str(content), []).append(_map_name(file))
    if wrong:
        named = ", ".join(f"{first_few(names)} ({reason})" for reason, names in wrong.items())
        yield f"{side.name}: {count_noun([*chain(*wrong.values())], 'label map')} of the wrong kind: {named}"
    other = [
        f"{_map_name(file)} ({content.size[1]}×{content.size[0]}, its picture {file.size[1]}×{file.size[0]})"
        for file, content in rows
        if isinstance(content, ValueCounts) and turned_map_size(content.size, file.turn) != file.size
    ]
    if other:
        yield f"{side.name}: {count_noun(other, 'label map')} of another size than the picture: {first_few(other)}"
    names = {file.name for file in side.files}
    if ambiguous := [name for name in side.ambiguous if name in names]:
        what = "with an EXIF orientation, and the map would fit as stored and upright"
        named = f"{count_noun(ambiguous, 'picture')} {what}: {first_few(ambiguous, IMAGES)}"
        yield f"{side.name}: {named}; {ORIENTATION_CURE}"


def _describe_unknown_values(where: str, rows: Rows, table: ClassTable) -> Iterator[str]:
    """One sentence about all numbers that are not allowed: in how many files, how many pixels."""
    files, pixels, first = Counter[int](), Counter[int](), ""
    for file, content in rows:
        if isinstance(content, ValueCounts) and (unknown := content.unknown_values(table)):
            first = first or _map_name(file)
            files.update(unknown.keys())
            pixels.update(unknown)
    if files:
        most = sorted(files, key=lambda number: (-pixels[number], number))[:NAMED_UNKNOWN]
        often = {
            number: f"{'1 file' if files[number] == 1 else f'{files[number]:,} files'}, {format_pixels(pixels[number])}"
            for number in most
        }
        more = f" and {len(files) - len(most):,} more" if len(files) > len(most) else ""
        hint = f"name them in {CLASS_FILE}, or ignore them there: in ignore = […], or by others = true"
        if len(files) > MANY_UNKNOWN:
            hint = "so many are a sign of maps that were saved as JPEG, smoothed or resized: save them as drawn"
        yield f"{where}: unknown {labels.describe_unknown(often, table, more)}; first: {first}; {hint}"


def format_pixels(pixels: int) -> str:
    """1.2 Mpx, or 345 px."""
    return f"{pixels / 1e6:,.1f} Mpx" if pixels >= 100_000 else f"{pixels:,} px"


def _map_name(file: MapFile) -> str:
    return f"{LABELS}/{file.name if file.label is None else file.label.name}"


def count_noun(items: Sequence[object], what: str) -> str:
    """`1 picture`, or `2 pictures`."""
    return f"1 {what}" if len(items) == 1 else f"{len(items):,} {what}s"


def first_few(names: Sequence[str], folder: str = "") -> str:
    """The first three names for a sentence, below the folder if one is given, and … for the rest."""
    shown = [f"{folder}/{name}" if folder else name for name in names[:3]]
    return ", ".join(shown) + (", …" if len(names) > 3 else "")
