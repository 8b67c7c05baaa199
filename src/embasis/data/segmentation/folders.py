"""Folders of pictures and label maps as a problem; and which of the two kinds of folders was given."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import torch

from embasis.data.corrections import moved_note
from embasis.data.images.files import PathLike, Scan, shown
from embasis.data.images.folders import DEFAULTS, test_leaks
from embasis.data.images.sides import (
    ImageOptions,
    ImageSide,
    common_text,
    repeats_text,
    require_other_files,
    require_other_place,
)
from embasis.data.problem import listed
from embasis.data.segmentation.audit import Audit, audit
from embasis.data.segmentation.check import (
    AuditedSides,
    decoded_side,
    gathered,
    maps_check,
    refusals,
    require_map_budget,
    surveyed,
)
from embasis.data.segmentation.corrections import joined, split_corrected, survey_corrected
from embasis.data.segmentation.files import MapFile
from embasis.data.segmentation.pairs import MapSide, is_map_folder, mispaired
from embasis.data.segmentation.samples import MapFiles
from embasis.data.segmentation.value_counts import tallies
from embasis.data.tables.pair import Finding
from embasis.data.workers.loading import Reader
from embasis.errors import InputDataError, require
from embasis.types import ClassTable, LabelSchema, Problem, RejectedFile

__all__ = ["are_map_folders", "is_map_folder", "load_maps", "map_problem", "maps_check"]


def are_map_folders(labelled: PathLike, unlabelled: PathLike, test: PathLike | None = None) -> bool:
    """Whether the sides are folders with label maps; refused when one is and another is not."""
    maps = is_map_folder(labelled)
    inside = f"{shown(unlabelled)}: lies in {shown(labelled)}; give the folder of the unlabelled pictures"
    require(not maps or not _is_below(unlabelled, labelled), inside)
    where = shown(labelled)
    for path in (labelled,) if test is None else (labelled, test):
        text = mispaired(path)
        require(not text, text)
    if maps and test is not None:
        kind = "has label maps in labels/, so the test side needs images/ and labels/, too"
        require(is_map_folder(test), f"{shown(test)}: no label maps of the pictures in images/; {where} {kind}")
    if not maps:
        for path in (unlabelled,) if test is None else (unlabelled, test):
            kind = f"{where} has none: a folder with label maps cannot be used with one of class folders; swapped?"
            text = f"{shown(path)}: has pictures in images/ and label maps in labels/, but {kind}"
            require(not is_map_folder(path), text)
    return maps


def load_maps(
    labelled: PathLike,
    unlabelled: PathLike,
    *,
    test: PathLike | None = None,
    classes: PathLike | None = None,
    corrections: PathLike | None = None,
    options: ImageOptions = DEFAULTS,
    reader: Reader | None = None,
) -> Problem:
    """A problem from folders of pictures and label maps; every map is decoded once, and with a reader every picture.

    What cannot be read is left out and named in the ledger. `corrections` is a folder of maps of unlabelled pictures,
    which are labelled ones then."""
    require_other_place(labelled, unlabelled)
    findings: list[Finding] = []
    sides = gathered(labelled, unlabelled, test, options, findings)
    _raise_first(findings)
    sides.append(None)
    if corrections is not None and sides[1] is not None:  # what is wrong with them is said before minutes of reading
        sides[1], sides[3] = split_corrected(sides[1], corrections, options)
    first, second, third, moved = (
        side if side is None or reader is None else decoded_side(side, reader) for side in sides
    )
    assert first is not None
    assert second is not None
    require_other_files(first.pictures, second.pictures)
    looked = surveyed(first, second, third, options, findings, classes)
    require_map_budget([side for side in (first, second, third) if side is not None], looked, options)
    _raise_first(findings)
    if moved is not None and looked.labelled is not None:
        found = survey_corrected(moved, looked.labelled.table)
        looked = replace(looked, labelled=(more := joined(looked.labelled, found)))
        first, findings = more.side, [*findings, _moved(moved, second.name)]
    notes = [*dict.fromkeys(finding.text for finding in findings), *_leaks(first, second, third, options)]
    return replace(_assembled(looked, notes), corrected=0 if moved is None else len(moved.files))


def _moved(side: MapSide, unlabelled: str) -> Finding:
    return Finding("note", moved_note(len(side.files), "picture", side.name, unlabelled))


def _is_below(path: PathLike, folder: PathLike) -> bool:
    one, two = os.path.realpath(path), os.path.realpath(folder)
    return one != two and os.path.commonpath([one, two]) == two


def _raise_first(findings: list[Finding]) -> None:
    errors = [finding.text for finding in findings if finding.level == "error"]
    if errors:
        more = "1 more problem" if len(errors) == 2 else f"{len(errors) - 1} more problems"
        raise InputDataError(errors[0] + (f" ({more}: `embasis check` lists all)" if len(errors) > 1 else ""))


def _leaks(first: MapSide, second: MapSide, third: MapSide | None, options: ImageOptions) -> list[str]:
    """Notes on pictures that are twice on a side, or on two sides."""
    one, two = first.pictures, second.pictures
    texts = [text for text in (repeats_text(one), repeats_text(two), common_text(one, two)) if text]
    return texts if third is None else texts + test_leaks(one, two, third.pictures, options)


def map_problem(
    labelled: Sequence[MapFile],
    unlabelled: Sequence[MapFile],
    table: ClassTable,
    *,
    test: Sequence[MapFile] | None = None,
    unlabelled_table: ClassTable | None = None,
    test_table: ClassTable | None = None,
    refused: Sequence[RejectedFile] = (),
    notes: Sequence[str] = (),
) -> Problem:
    """A problem from files that are paired already; other sides may be coded otherwise, but have the same names.

    Maps of the labelled and the test side are decoded once, here; those of the unlabelled side when they are scored.
    """
    for other in (unlabelled_table, test_table):
        rule = f"tables must have the same classes, got {list(table.names)} and {list(other.names if other else ())}"
        require(other is None or other.names == table.names, rule)
    first = _looked_at("labelled", labelled, table)
    third = None if test is None else _looked_at("test", test, test_table or table)
    nothing = torch.zeros(len(unlabelled), len(table.names), dtype=torch.int64)
    second = Audit(_side("unlabelled", unlabelled), unlabelled_table or table, nothing, ())
    problem = _assembled(
        AuditedSides(first, second, third), [*notes, *_lacking("labelled", first), *_lacking("test", third)]
    )
    return replace(problem, refused=(*refused, *problem.refused), files_seen=None)


def _lacking(name: str, found: Audit | None) -> list[str]:
    """Notes of a side of a published set."""
    if found is None:
        return []
    texts = [finding.text for finding in found.findings]
    lacking = f"{name}: classes without a labelled pixel, their scores are n/a: {listed(found.lacking)}"
    return [*texts, lacking] if found.lacking else texts


def _looked_at(name: str, files: Sequence[MapFile], table: ClassTable) -> Audit:
    side = _side(name, files)
    found = audit(side, tallies([file.label for file in side.files], table.coded), table, required=True)
    _raise_first(list(found.findings))
    require(found.counts.any(), f"{name}: no label map that can be used has a labelled pixel")
    return found


def _side(name: str, files: Sequence[MapFile]) -> MapSide:
    files = tuple(sorted(files, key=lambda file: file.name))
    missing = tuple(file.name for file in files if file.label is None)
    return MapSide(name, ImageSide(Scan(name, tuple(file.image for file in files))), files, missing=missing)


def _assembled(looked: AuditedSides, notes: Sequence[str]) -> Problem:
    first, second, third = looked.labelled, looked.unlabelled, looked.test
    assert first is not None
    assert second is not None
    unlabelled = MapFiles.of(second.side.files, first.table, labelled=False)
    return Problem(
        labelled=_samples(first),
        unlabelled=unlabelled,
        schema=LabelSchema(first.table.names),
        test=None if third is None else _samples(third),
        hidden_labels=_samples(second).truth if second.side.has_maps else None,
        row_names=tuple(unlabelled.names),
        refused=tuple(_ledger(looked)),
        files_seen={name: found.side.pictures.seen for name, found in _sides(looked).items()},
        notes=tuple(notes),
    )


def _samples(found: Audit) -> MapFiles:
    return MapFiles.of(found.side.files, found.table, labelled=True, counts=found.counts)


def _ledger(looked: AuditedSides) -> list[RejectedFile]:
    """What the three sides refused, with the name of the side."""
    return [
        replace(item, side=name)
        for name, found in _sides(looked).items()
        for item in (*refusals(found.side), *found.side.unlabelled)
    ]


def _sides(looked: AuditedSides) -> dict[str, Audit]:
    sides = {"labelled": looked.labelled, "unlabelled": looked.unlabelled, "test": looked.test}
    return {name: found for name, found in sides.items() if found is not None}
