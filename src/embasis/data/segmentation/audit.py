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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import torch
from torch import Tensor

from embasis.data.problem import Finding
from embasis.data.segmentation.labels import BadMap, MapContents, ValueCounts, WrongKind, describe_unknown
from embasis.data.segmentation.pairs import (
    CLASS_FILE,
    IMAGES,
    LABELS,
    ORIENTATION_CURE,
    MapFile,
    MapSide,
    stem,
    turned_map_size,
)
from embasis.errors import quote
from embasis.types import ClassTable, RejectedFile

NO_PIXEL = "its label map has no labelled pixel"
FOR_SCORES = "; or rename labels/ there, which is used for scores only"
MANY_UNKNOWN = 100
"""More unknown numbers than anybody would name."""
NAMED_UNKNOWN = 10
"""Unknown numbers that a sentence names."""

Rows = list[tuple[MapFile, ValueCounts | BadMap | None]]


@dataclass(frozen=True, eq=False)
class Audit:
    """A side of which every label map was decoded."""

    side: MapSide
    table: ClassTable
    counts: Tensor
    """(N, C) int64: pixels of each class in each file of the side."""
    findings: tuple[Finding, ...]

    @property
    def lacking(self) -> list[str]:
        """Classes without a pixel."""
        return [name for name, count in zip(self.table.names, self.counts.sum(0).tolist(), strict=True) if not count]

    @property
    def summary(self) -> str:
        """How many pixels each class has."""
        total = self.counts.sum(0).tolist()
        pixels = zip(self.table.names, total, strict=True)
        parts = ", ".join(f"{quote(name)} {format_pixels(count)}" for name, count in pixels)
        return f"{self.side.name}: {len(total)} classes: {parts}"


def audit_side(side: MapSide, contents: MapContents, table: ClassTable, *, required: bool) -> Audit:
    """The side without what cannot be used, the pixels of each class, and everything that is wrong."""
    rows = list(zip(side.files, contents, strict=True))
    errors = [
        *(_describe_unpaired(side) if required else ()),
        *_describe_wrong_kinds(side.name, rows),
        *_describe_other_sizes(side.name, rows),
        *_describe_ambiguous(side),
        *_describe_unknown_values(side.name, rows, table),
    ]
    findings = [Finding("error", text if required else text + FOR_SCORES) for text in errors]
    findings += [Finding("note", text) for text in (() if required else _describe_unscored(side))]
    kept, counts = _drop_unusable(side, rows, table, required)
    if kept.unlabelled:
        names = [item.name for item in kept.unlabelled]
        text = f"{count_noun(names, 'picture')} left out, the map has no labelled pixel: {_first_names(names, IMAGES)}"
        findings.append(Finding("warning", f"{side.name}: {text}"))
    return Audit(kept, table, counts, tuple(findings))


def _drop_unusable(side: MapSide, rows: Rows, table: ClassTable, required: bool) -> tuple[MapSide, Tensor]:
    """The side without unreadable maps and without maps of no class, and the counts of the files that stay."""
    counts = {file.name: content.counts(table) for file, content in rows if isinstance(content, ValueCounts)}
    bad = {
        file.name: str(content)
        for file, content in rows
        if isinstance(content, BadMap) and not isinstance(content, WrongKind)
    }
    if required:
        empty = {name for name, count in counts.items() if not count.any()}
        out = [RejectedFile(file.name, NO_PIXEL, "read", kind="refused") for file in side.files if file.name in empty]
        side = side.without_maps(bad, "read").select(lambda name: name not in empty)
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


def _describe_unpaired(side: MapSide) -> Iterable[str]:
    """Errors about pictures and maps that do not pair up."""
    parts = [f"{text}: {_first_names(side.missing, IMAGES)}" for text in _count_missing(side)]
    parts += [f"{text}: {_first_names(side.extra, LABELS)}" for text in _count_extra(side)]
    if parts:
        like = (side.missing or ("a.jpg",))[0]
        hint = f"a map has the name of its picture, as {LABELS}/{stem(like)}.png for {IMAGES}/{like}"
        yield f"{side.name}: {'; '.join(parts)}; {hint}"
    if side.twins:
        what = "pictures that share a name but for the ending, so one map"
        yield f"{side.name}: {what}: {_first_names(side.twins, IMAGES)}"


def _describe_unscored(side: MapSide) -> Iterable[str]:
    """Notes about pictures and maps that do not pair up where that is no error."""
    for text in _count_missing(side):
        yield f"{side.name}: {text}, not scored: {_first_names(side.missing, IMAGES)}"
    for text in _count_extra(side):
        yield f"{side.name}: {text}: {_first_names(side.extra, LABELS)}"


def _count_missing(side: MapSide) -> list[str]:
    return [f"{count_noun(side.missing, 'picture')} without a label map"] if side.missing else []


def _count_extra(side: MapSide) -> list[str]:
    return [f"{count_noun(side.extra, 'label map')} without a picture"] if side.extra else []


def _describe_wrong_kinds(where: str, rows: Rows) -> Iterable[str]:
    wrong: dict[str, list[str]] = {}
    for file, content in rows:
        if isinstance(content, WrongKind):
            wrong.setdefault(str(content), []).append(_map_name(file))
    if wrong:
        named = ", ".join(f"{first_few(names)} ({reason})" for reason, names in wrong.items())
        yield f"{where}: {count_noun([*chain(*wrong.values())], 'label map')} of the wrong kind: {named}"


def _describe_other_sizes(where: str, rows: Rows) -> Iterable[str]:
    other = [
        f"{_map_name(file)} ({content.size[1]}×{content.size[0]}, its picture {file.size[1]}×{file.size[0]})"
        for file, content in rows
        if isinstance(content, ValueCounts) and turned_map_size(content.size, file.turn) != file.size
    ]
    if other:
        yield f"{where}: {count_noun(other, 'label map')} of another size than the picture: {first_few(other)}"


def _describe_ambiguous(side: MapSide) -> Iterable[str]:
    """Pictures that are turned by their EXIF orientation, with maps that would fit either way."""
    names = {file.name for file in side.files}
    if ambiguous := [name for name in side.ambiguous if name in names]:
        what = (
            f"{count_noun(ambiguous, 'picture')} with an EXIF orientation, and the map would fit as stored and upright"
        )
        yield f"{side.name}: {what}: {_first_names(ambiguous, IMAGES)}; {ORIENTATION_CURE}"


def _describe_unknown_values(where: str, rows: Rows, table: ClassTable) -> Iterable[str]:
    """One sentence about all numbers that are not allowed: in how many files, how many pixels."""
    files: dict[int, int] = {}
    pixels: dict[int, int] = {}
    first = ""
    for file, content in rows:
        unknown = content.unknown_values(table) if isinstance(content, ValueCounts) else {}
        first = first or (_map_name(file) if unknown else "")
        for number, count in unknown.items():
            files[number] = files.get(number, 0) + 1
            pixels[number] = pixels.get(number, 0) + count
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
        yield f"{where}: unknown {describe_unknown(often, table, more)}; first: {first}; {hint}"


def format_pixels(pixels: int) -> str:
    """1.2 Mpx, or 345 px."""
    return f"{pixels / 1e6:,.1f} Mpx" if pixels >= 100_000 else f"{pixels:,} px"


def _map_name(file: MapFile) -> str:
    return f"{LABELS}/{file.name if file.label is None else file.label.name}"


def count_noun(items: Sequence[object], what: str) -> str:
    """`1 picture`, or `2 pictures`."""
    return f"1 {what}" if len(items) == 1 else f"{len(items):,} {what}s"


def _first_names(names: Sequence[str], folder: str) -> str:
    return first_few([f"{folder}/{name}" for name in names])


def first_few(items: Sequence[str], most: int = 3) -> str:
    """The first ones for a sentence, and … for the rest."""
    return ", ".join(items[:most]) + (", …" if len(items) > most else "")
