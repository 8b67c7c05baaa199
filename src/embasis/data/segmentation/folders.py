"""Folders of pictures and label maps: `check` lists all that is wrong with them, `load` makes them a problem."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from embasis.data.class_labels import describe_alike, listed
from embasis.data.corrections import describe_move
from embasis.data.images.files import Scan, printable_path
from embasis.data.images.folders import (
    DEFAULT_OPTIONS,
    MOST_LINES,
    ImageOptions,
    check_test_leaks,
    describe_common,
    describe_repeats,
    drop_undecodable,
    report_files,
    require_budget,
    require_other_files,
    require_other_place,
)
from embasis.data.images.samples import SIDE_NAMES, ImageSide
from embasis.data.segmentation.audit import FOR_SCORES, Audit, audit, classes_text, lacking_text
from embasis.data.segmentation.classes import SideClasses, difference, name_labelled, name_other
from embasis.data.segmentation.corrections import joined, split_corrected, survey_corrected
from embasis.data.segmentation.labels import tallies
from embasis.data.segmentation.pairs import FILE, MapFile, MapSide, gather_maps, is_map_folder, mispaired
from embasis.data.segmentation.samples import MapFiles
from embasis.data.tables.pair import Finding, collect_errors
from embasis.data.workers.reader import Reader
from embasis.errors import InputDataError, require
from embasis.types import ClassTable, LabelSchema, PathLike, Problem, RejectedFile

RANK = ("error", "warning", "note")


@dataclass(frozen=True, eq=False)
class AuditedSides:
    """What was seen of the three sides; a side is None where it was not given or could not be looked at."""

    labelled: Audit | None
    unlabelled: Audit | None
    test: Audit | None


def maps_check(
    labelled: PathLike,
    unlabelled: PathLike,
    test: PathLike | None = None,
    *,
    options: ImageOptions,
    reader: Reader,
    classes: PathLike | None = None,
) -> list[Finding]:
    """All that is wrong, doubtful or good to know, errors first; every picture and every map is decoded."""
    findings: list[Finding] = []
    sides = gathered(labelled, unlabelled, test, options, findings)
    first, second, third = (None if side is None else decoded_side(side, reader) for side in sides)
    later: list[Finding] = []
    looked = surveyed(first, second, third, options, later, classes)
    founds = (looked.labelled, looked.unlabelled, looked.test)
    for role, found, side in zip(SIDE_NAMES, founds, (first, second, third), strict=True):
        findings += [] if side is None else _about_files(side if found is None else found.side, role)
    findings += later
    findings += [Finding("note", classes_text(found)) for found in _known(looked) if found.counts.any()]
    with collect_errors(findings):
        require_map_budget([side for side in (first, second, third) if side is not None], looked, options)
    if first is not None and second is not None:
        findings += _about_both(first, second, labelled, unlabelled)
    unique = dict.fromkeys(findings)
    return sorted(unique, key=lambda finding: RANK.index(finding.level))


def gathered(
    labelled: PathLike, unlabelled: PathLike, test: PathLike | None, options: ImageOptions, findings: list[Finding]
) -> list[MapSide | None]:
    """The three sides before a map is decoded; what cannot be had is None and a finding."""
    sides: list[MapSide | None] = [None, None, None]
    for place, path in enumerate((labelled, unlabelled, test)):
        with collect_errors(findings):
            sides[place] = None if path is None else gather_maps(path, options, labelled=place != 1)
    for side in sides:
        findings += [] if side is None else [Finding("note", text) for text in side.notes]
    return sides


def surveyed(
    first: MapSide | None,
    second: MapSide | None,
    third: MapSide | None,
    options: ImageOptions,
    findings: list[Finding],
    classes: PathLike | None = None,
) -> AuditedSides:
    """Every label map decoded once: tables by name, counts, and what is wrong."""
    like = one = two = three = None
    with collect_errors(findings):
        if first is not None:
            like = name_labelled(first, classes)
            findings += [Finding("warning", text)] if (text := describe_alike(first.name, like.table.names)) else []
            findings += [Finding("note", like.note)] if like.note else []
            one = audit(first, like.contents, like.table, required=True)
            findings += one.findings
            findings += _about_labelled(one, options, findings)
    if second is not None and like is not None:
        two = _unlabelled(second, like, findings)
    with collect_errors(findings):
        if third is not None and like is not None:
            three = _test(third, like, options, findings)
    return AuditedSides(one, two, three)


def _about_labelled(found: Audit, options: ImageOptions, findings: list[Finding]) -> list[Finding]:
    """Enough classes, each with a pixel."""
    name, lacking = found.side.name, found.lacking
    text = f"{name}: classes without a labelled pixel: {lacking_text(found)}"
    if not found.counts.any() and any(finding.level == "error" for finding in found.findings):
        return []  # what is wrong with all of them has been said
    with collect_errors(findings):
        require(found.counts.any(), f"{name}: no label map that can be used has a labelled pixel")
        here = [label for label in found.table.names if label not in lacking]
        require(len(here) >= 2, f"{name}: pixels of at least 2 classes are needed, got 1 class: {listed(here)}")
        hint = f"remove them from {FILE}, or data.allow_missing_class=true goes on without them"
        require(not lacking or options.allow_missing_class, f"{text}; {hint}")
    return [Finding("note", f"{text}; their scores are n/a")] if lacking and options.allow_missing_class else []


def _unlabelled(side: MapSide, like: SideClasses, findings: list[Finding]) -> Audit | None:
    """The side whose maps, if it has any, are for scores only."""
    if not side.has_maps:
        return audit(side, [None] * len(side.files), like.table, required=False)
    findings.append(Finding("note", f"{side.name}: has labels/; used for scores only"))
    try:
        named = name_other(side, like)
    except InputDataError as error:
        findings.append(Finding("error", f"{error}{FOR_SCORES}"))
        return None
    found = audit(side, named.contents, named.table, required=False)
    findings += found.findings
    if named.extra:
        text = f"{side.name}: not scored, no class of the labelled side: {listed(named.extra)}"
        findings.append(Finding("warning", text))
        both = describe_alike(f"the labelled side and {side.name}", like.table.names, named.extra)
        findings += [Finding("warning", both)] if both else []
    if found.lacking:
        findings.append(Finding("note", f"{side.name}: classes without a pixel: {lacking_text(found)}"))
    return found


def _test(side: MapSide, like: SideClasses, options: ImageOptions, findings: list[Finding]) -> Audit:
    """The side to score on, which must know the classes of the labelled side and no others."""
    named = name_other(side, like)
    found = audit(side, named.contents, named.table, required=True)
    findings += found.findings
    if named.extra:
        text = f"{side.name}: {difference(named.extra, named.lacking)}"
        hint = "data.allow_missing_class=true leaves their pixels out"
        level, end = ("warning", "left out") if options.allow_missing_class else ("error", hint)
        findings.append(Finding("error" if level == "error" else "warning", f"{text}; {end}"))
    if found.lacking and found.counts.any():
        text = f"{side.name}: classes without a test pixel, their scores are n/a: {lacking_text(found)}"
        findings.append(Finding("note", text))
    require(found.counts.any() or found.findings, f"{side.name}: no label map that can be used has a labelled pixel")
    return found


def require_map_budget(sides: list[MapSide], looked: AuditedSides, options: ImageOptions) -> None:
    """Not too many unreadable pictures and maps in all."""
    last = [found.side for found in _known(looked)]
    roots = {side.root for side in last}
    last += [side for side in sides if side.root not in roots]
    rejected = [item for side in last for item in refusals(side)]
    require_budget(rejected, sum(side.pictures.seen for side in sides), options.budget)


def refusals(side: MapSide) -> list[RejectedFile]:
    """Pictures and maps of a side that cannot be read, the pictures first."""
    return [*side.pictures.scan.rejected, *side.rejected]


def _known(looked: AuditedSides) -> list[Audit]:
    return [found for found in (looked.labelled, looked.unlabelled, looked.test) if found is not None]


def _about_files(side: MapSide, role: str) -> list[Finding]:
    """Counts and refusals of the pictures, and of the maps whose pictures can be used."""
    lost = [Finding("warning", f"{side.name}: {item.name}: {item.reason}") for item in side.rejected[:MOST_LINES]]
    if len(side.rejected) > MOST_LINES:
        more = len(side.rejected) - MOST_LINES
        lost.append(Finding("warning", f"{side.name}: and {more:,} more unreadable label maps"))
    return report_files(side.pictures, role, (*side.rejected, *side.unlabelled)) + lost


def decoded_side(side: MapSide, reader: Reader) -> MapSide:
    """The side without the pictures that cannot be decoded completely."""
    pictures = drop_undecodable(side.pictures, reader)
    names = {file.name for file in pictures.scan.files}
    return replace(side, pictures=pictures, files=tuple(file for file in side.files if file.name in names))


def _about_both(first: MapSide, second: MapSide, labelled: PathLike, unlabelled: PathLike) -> list[Finding]:
    """Files on both sides."""
    found: list[Finding] = []
    with collect_errors(found):
        require_other_place(labelled, unlabelled)
        require_other_files(first.pictures, second.pictures)
    text = describe_common(first.pictures, second.pictures)
    return found or ([Finding("warning", text)] if text else [])


def are_map_folders(labelled: PathLike, unlabelled: PathLike, test: PathLike | None = None) -> bool:
    """Whether the sides are folders with label maps; refused when one is and another is not."""
    maps = is_map_folder(labelled)
    inside = (
        f"{printable_path(unlabelled)}: lies in {printable_path(labelled)}; give the folder of the unlabelled pictures"
    )
    require(not maps or not _is_below(unlabelled, labelled), inside)
    where = printable_path(labelled)
    for path in (labelled,) if test is None else (labelled, test):
        text = mispaired(path)
        require(not text, text)
    if maps and test is not None:
        kind = "has label maps in labels/, so the test side needs images/ and labels/, too"
        require(
            is_map_folder(test), f"{printable_path(test)}: no label maps of the pictures in images/; {where} {kind}"
        )
    if not maps:
        for path in (unlabelled,) if test is None else (unlabelled, test):
            kind = f"{where} has none: a folder with label maps cannot be used with one of class folders; swapped?"
            text = f"{printable_path(path)}: has pictures in images/ and label maps in labels/, but {kind}"
            require(not is_map_folder(path), text)
    return maps


def load_maps(
    labelled: PathLike,
    unlabelled: PathLike,
    *,
    test: PathLike | None = None,
    classes: PathLike | None = None,
    corrections: PathLike | None = None,
    options: ImageOptions = DEFAULT_OPTIONS,
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
    return Finding("note", describe_move(len(side.files), "picture", side.name, unlabelled))


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
    texts = [text for text in (describe_repeats(one), describe_repeats(two), describe_common(one, two)) if text]
    return texts if third is None else texts + check_test_leaks(one, two, third.pictures, options)


def map_problem(
    labelled: Sequence[MapFile],
    unlabelled: Sequence[MapFile],
    table: ClassTable,
    *,
    test: Sequence[MapFile] | None = None,
    unlabelled_table: ClassTable | None = None,
    test_table: ClassTable | None = None,
    rejected: Sequence[RejectedFile] = (),
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
    return replace(problem, rejected=(*rejected, *problem.rejected), files_seen=None)


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
        rejected=tuple(_ledger(looked)),
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
