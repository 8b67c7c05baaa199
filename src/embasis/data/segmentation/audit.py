"""All label maps of one side, decoded once before training: what is wrong with them, and what they count.

| finding | labelled and test side | unlabelled side, whose maps are for scores only |
| --- | --- | --- |
| number that is not allowed, other size than the picture, JPEG, wrong kind | error | error |
| picture with an EXIF orientation whose map would fit both ways | error | error |
| picture without a map, map without a picture | error | note; not scored |
| map that cannot be read | the picture is refused, on the budget | not scored, on the budget |
| map without a pixel of any class | the picture is left out | not scored |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import torch
from torch import Tensor

from embasis.data.class_labels import listed
from embasis.data.segmentation.labels import BadMap, Contents, ValueCounts, WrongKind, allowed, shown_number, unit
from embasis.data.segmentation.pairs import CURE, FILE, IMAGES, LABELS, MapFile, MapSide, stem, upright_size
from embasis.data.tables.pair import Finding
from embasis.errors import quoted
from embasis.types import ClassTable, RejectedFile

NO_PIXEL = "its label map has no labelled pixel"
FOR_SCORES = "; or rename labels/ there, which is used for scores only"

Rows = list[tuple[MapFile, ValueCounts | BadMap | None]]


@dataclass(frozen=True, eq=False)
class Audit:
    """A side of which every label map was looked at."""

    side: MapSide
    table: ClassTable
    counts: Tensor
    """(N, C) int64: pixels of each class in each file of the side."""
    findings: tuple[Finding, ...]

    @property
    def lacking(self) -> list[str]:
        """Classes without a pixel."""
        return [name for name, count in zip(self.table.names, self.counts.sum(0).tolist(), strict=True) if not count]


def audit(side: MapSide, contents: Contents, table: ClassTable, *, required: bool) -> Audit:
    """The side without what cannot be used, the pixels of each class, and everything that is wrong."""
    rows = list(zip(side.files, contents, strict=True))
    hint = "" if required else FOR_SCORES
    errors = [
        *_unpaired(side, required),
        *_wrong_kinds(side.name, rows),
        *_other_sizes(side.name, rows),
        *_doubtful(side),
        *_strangers(side.name, rows, table),
    ]
    findings = [Finding("error", text + hint) for text in errors]
    findings += [Finding("note", text) for text in _unscored(side, required)]
    kept, counts = _without_bad(side, rows, table, required)
    if kept.unlabelled:
        findings.append(Finding("warning", _empty_text(kept)))
    return Audit(kept, table, counts, tuple(findings))


def _without_bad(side: MapSide, rows: Rows, table: ClassTable, required: bool) -> tuple[MapSide, Tensor]:
    """The side without unreadable maps and without maps that say nothing, and the counts of the files that stay."""
    counts = {file.name: one.counts(table) for file, one in rows if isinstance(one, ValueCounts)}
    unreadable = ((file, one) for file, one in rows if isinstance(one, BadMap) and not isinstance(one, WrongKind))
    bad = {file.name: str(one) for file, one in unreadable}
    if not required:
        lost = [
            RejectedFile(_map_name(file), bad[file.name], "read", kind="unscored")
            for file in side.files
            if file.name in bad
        ]
        files = tuple(replace(file, label=None) if file.name in bad else file for file in side.files)
        side = replace(side, files=files, rejected=(*side.rejected, *lost))
    else:
        empty = {name for name, count in counts.items() if not count.any()}
        out = [RejectedFile(file.name, NO_PIXEL, "read", kind="refused") for file in side.files if file.name in empty]
        side = side.without({name: f"its label map: {reason}" for name, reason in bad.items()}, "read").leaving(out)
    nothing = torch.zeros(len(table.names), dtype=torch.int64)
    every = [counts.get(file.name, nothing) for file in side.files]
    return side, torch.stack(every) if every else nothing.new_zeros(0, len(nothing))


def _unpaired(side: MapSide, required: bool) -> Iterable[str]:
    """Errors about pictures and maps that do not pair up; of a side that needs maps only."""
    if required and (side.missing or side.extra):
        parts = []
        if side.missing:
            parts.append(f"{_count(side.missing, 'picture')} without a label map: {_named(side.missing, IMAGES)}")
        if side.extra:
            parts.append(f"{_count(side.extra, 'label map')} without a picture: {_named(side.extra, LABELS)}")
        like = (side.missing or ("a.jpg",))[0]
        hint = f"a map has the name of its picture, as {LABELS}/{stem(like)}.png for {IMAGES}/{like}"
        yield f"{side.name}: {'; '.join(parts)}; {hint}"
    if required and side.twins:
        yield f"{side.name}: pictures that share a name but for the ending, so one map: {_named(side.twins, IMAGES)}"


def _unscored(side: MapSide, required: bool) -> Iterable[str]:
    """Notes about pictures and maps that do not pair up where that is no error."""
    if not required and side.missing:
        what = f"{_count(side.missing, 'picture')} without a label map, not scored"
        yield f"{side.name}: {what}: {_named(side.missing, IMAGES)}"
    if not required and side.extra:
        yield f"{side.name}: {_count(side.extra, 'label map')} without a picture: {_named(side.extra, LABELS)}"


def _wrong_kinds(where: str, rows: Rows) -> Iterable[str]:
    wrong: dict[str, list[str]] = {}
    for file, one in rows:
        if isinstance(one, WrongKind):
            wrong.setdefault(str(one), []).append(_map_name(file))
    if wrong:
        named = ", ".join(f"{_few(names)} ({reason})" for reason, names in wrong.items())
        yield f"{where}: {_count([*chain(*wrong.values())], 'label map')} of the wrong kind: {named}"


def _other_sizes(where: str, rows: Rows) -> Iterable[str]:
    other = [
        f"{_map_name(file)} ({one.size[1]}×{one.size[0]}, its picture {file.size[1]}×{file.size[0]})"
        for file, one in rows
        if isinstance(one, ValueCounts) and upright_size(one.size, file.turn) != file.size
    ]
    if other:
        yield f"{where}: {_count(other, 'label map')} of another size than the picture: {_few(other)}"


def _doubtful(side: MapSide) -> Iterable[str]:
    """Pictures that are turned by their EXIF orientation, with maps that would fit either way."""
    names = {file.name for file in side.files}
    if doubtful := [name for name in side.doubtful if name in names]:
        what = f"{_count(doubtful, 'picture')} with an EXIF orientation, and the map would fit as stored and upright"
        yield f"{side.name}: {what}: {_named(doubtful, IMAGES)}; {CURE}"


MANY = 100
"""More unknown numbers than anybody would name."""


def _strangers(where: str, rows: Rows, table: ClassTable) -> Iterable[str]:
    """One sentence about all numbers that are not allowed: in how many files, how many pixels."""
    files: dict[int, int] = {}
    pixels: dict[int, int] = {}
    first = ""
    for file, one in rows:
        strange = one.unknown_values(table) if isinstance(one, ValueCounts) else {}
        first = first or (_map_name(file) if strange else "")
        for number, count in strange.items():
            files[number] = files.get(number, 0) + 1
            pixels[number] = pixels.get(number, 0) + count
    if files:
        most = sorted(files, key=lambda number: (-pixels[number], number))[:10]
        named = ", ".join(_stranger(number, files[number], pixels[number], table) for number in most)
        more = f" and {len(files) - len(most):,} more" if len(files) > len(most) else ""
        hint = f"name them in {FILE}, or ignore them there: in ignore = […], or by others = true"
        if len(files) > MANY:
            hint = "so many are a sign of maps that were saved as JPEG, smoothed or resized: save them as drawn"
        yield f"{where}: unknown {unit(table.coded)} {{{named}{more}}}; {allowed(table)}; first: {first}; {hint}"


def _stranger(number: int, files: int, pixels: int, table: ClassTable) -> str:
    count = "1 file" if files == 1 else f"{files:,} files"
    return f"{shown_number(number, table.coded)}: {count}, {pixels_text(pixels)}"


def pixels_text(pixels: int) -> str:
    """1.2 Mpx, or 345 px."""
    return f"{pixels / 1e6:,.1f} Mpx" if pixels >= 100_000 else f"{pixels:,} px"


def _empty_text(side: MapSide) -> str:
    names = [item.name for item in side.unlabelled]
    return f"{side.name}: {_count(names, 'picture')} left out, the map has no labelled pixel: {_named(names, IMAGES)}"


def classes_text(found: Audit) -> str:
    """How many pixels each class has."""
    total = found.counts.sum(0).tolist()
    parts = ", ".join(
        f"{quoted(name)} {pixels_text(count)}" for name, count in zip(found.table.names, total, strict=True)
    )
    return f"{found.side.name}: {len(total)} classes: {parts}"


def _map_name(file: MapFile) -> str:
    return f"{LABELS}/{file.name if file.label is None else file.label.name}"


def _count(items: Sequence[object], what: str) -> str:
    return f"1 {what}" if len(items) == 1 else f"{len(items):,} {what}s"


def _named(names: Sequence[str], folder: str) -> str:
    return _few([f"{folder}/{name}" for name in names])


def _few(items: Sequence[str], most: int = 3) -> str:
    return ", ".join(items[:most]) + (", …" if len(items) > most else "")


def lacking_text(found: Audit) -> str:
    """Names of the classes without a pixel, for a sentence."""
    return listed(found.lacking)
