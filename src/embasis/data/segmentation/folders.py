"""Folders of pictures and label maps: `check_maps` lists all that is wrong with them, `load_maps` makes them a problem.

Both are one pass: sides are gathered, pictures decoded, label maps audited. Checking goes on after an error, loading
stops at the first. Sides are called by their roles, "labelled", "unlabelled" and "test", in this order; a side that was
not given, or could not be read, is not there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from embasis.data.class_labels import describe_alike, quote_names
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
from embasis.data.images.samples import ImageSide
from embasis.data.problem import SIDE_NAMES, Finding, collect_errors, sort_findings
from embasis.data.reader import Reader
from embasis.data.segmentation.audit import FOR_SCORES, Audit, audit_side
from embasis.data.segmentation.classes import (
    SideClasses,
    describe_difference,
    resolve_labelled_classes,
    resolve_other_classes,
)
from embasis.data.segmentation.corrections import add_corrected, audit_corrected, split_corrected
from embasis.data.segmentation.pairs import (
    CLASS_FILE,
    MapFile,
    MapSide,
    describe_mispairing,
    gather_maps,
    is_map_folder,
)
from embasis.data.segmentation.samples import MapFiles
from embasis.errors import InputDataError, require
from embasis.types import ClassTable, LabelSchema, PathLike, Problem, RejectedFile

UNUSABLE = "no label map that can be used has a labelled pixel"


@dataclass(frozen=True)
class MapFolders:
    """The folders of a problem; `classes` is a classes.toml for the labelled side, which else has its own, if any."""

    labelled: PathLike
    unlabelled: PathLike
    test: PathLike | None = None
    classes: PathLike | None = None
    corrections: PathLike | None = None
    """A folder of maps of unlabelled pictures, which are labelled ones then; loading reads it, checking does not."""


@dataclass(frozen=True)
class PairedSide:
    """Pictures that are paired with their label maps already, and the table by which these are coded."""

    name: str
    files: tuple[MapFile, ...]
    table: ClassTable
    rejected: tuple[RejectedFile, ...] = ()
    notes: tuple[str, ...] = ()


def are_map_folders(labelled: PathLike, unlabelled: PathLike, test: PathLike | None = None) -> bool:
    """Whether the sides are folders with label maps; refused when one is and another is not."""
    maps = is_map_folder(labelled)
    inside = (
        f"{printable_path(unlabelled)}: lies in {printable_path(labelled)}; give the folder of the unlabelled pictures"
    )
    require(not maps or not _is_below(unlabelled, labelled), inside)
    where = printable_path(labelled)
    for path in (labelled,) if test is None else (labelled, test):
        text = describe_mispairing(path)
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


def _is_below(path: PathLike, folder: PathLike) -> bool:
    one, two = os.path.realpath(path), os.path.realpath(folder)
    return one != two and os.path.commonpath([one, two]) == two


def check_maps(folders: MapFolders, options: ImageOptions, reader: Reader) -> list[Finding]:
    """All that is wrong, doubtful or good to know, errors first; every picture and every map is decoded."""
    findings: list[Finding] = []
    map_findings: list[Finding] = []
    sides = {
        role: drop_undecodable_maps(side, reader) for role, side in gather_sides(folders, options, findings).items()
    }
    audits = audit_sides(sides, options, map_findings, folders.classes)
    for role, side in sides.items():
        findings += _report_map_files(audits[role].side if role in audits else side, role)
    findings += map_findings
    findings += [Finding("note", audit.summary) for audit in audits.values() if audit.counts.any()]
    with collect_errors(findings):
        require_map_budget(sides.values(), audits, options)
    if "labelled" in sides and "unlabelled" in sides:
        findings += _report_shared_files(sides["labelled"].pictures, sides["unlabelled"].pictures, folders)
    return sort_findings(dict.fromkeys(findings))


def load_maps(folders: MapFolders, options: ImageOptions = DEFAULT_OPTIONS, reader: Reader | None = None) -> Problem:
    """A problem from folders of pictures and label maps; every map is decoded once, and with a reader every picture.

    What cannot be read is left out and named in the ledger.
    """
    require_other_place(folders.labelled, folders.unlabelled)
    findings: list[Finding] = []
    sides = gather_sides(folders, options, findings)
    _raise_first_error(findings)
    if folders.corrections is not None:  # what is wrong with their names is raised before minutes of reading
        stay, moved = split_corrected(sides["unlabelled"], folders.corrections, options)
        sides = {**sides, "unlabelled": stay, "corrections": moved}
    if reader is not None:
        sides = {role: drop_undecodable_maps(side, reader) for role, side in sides.items()}
    corrections = sides.pop("corrections", None)
    require_other_files(sides["labelled"].pictures, sides["unlabelled"].pictures)
    audits = audit_sides(sides, options, findings, folders.classes)
    require_map_budget(sides.values(), audits, options)
    _raise_first_error(findings)
    if corrections is not None:
        corrected = audit_corrected(corrections, audits["labelled"].table)
        audits["labelled"] = add_corrected(audits["labelled"], corrected)
        sides["labelled"] = audits["labelled"].side
        text = describe_move(len(corrections.files), "picture", corrections.name, sides["unlabelled"].name)
        findings.append(Finding("note", text))
    notes = [*dict.fromkeys(finding.text for finding in findings), *_describe_leaks(sides, options)]
    return replace(_assemble_problem(audits, notes), corrected=0 if corrections is None else len(corrections.files))


def gather_sides(folders: MapFolders, options: ImageOptions, findings: list[Finding]) -> dict[str, MapSide]:
    """The sides before a map is decoded; one that cannot be read is a finding."""
    sides: dict[str, MapSide] = {}
    for role, path in zip(SIDE_NAMES, (folders.labelled, folders.unlabelled, folders.test), strict=True):
        with collect_errors(findings):
            if path is not None:
                sides[role] = gather_maps(path, options, labelled=role != "unlabelled")
    findings += [Finding("note", text) for side in sides.values() for text in side.notes]
    return sides


def drop_undecodable_maps(side: MapSide, reader: Reader) -> MapSide:
    """The side without the pictures that cannot be decoded completely."""
    pictures = drop_undecodable(side.pictures, reader)
    names = {file.name for file in pictures.scan.files}
    return replace(side, pictures=pictures, files=tuple(file for file in side.files if file.name in names))


def audit_sides(
    sides: Mapping[str, MapSide], options: ImageOptions, findings: list[Finding], classes: PathLike | None = None
) -> dict[str, Audit]:
    """Every label map decoded once: tables by name, counts, and what is wrong."""
    audits: dict[str, Audit] = {}
    like = None
    with collect_errors(findings):
        if (first := sides.get("labelled")) is not None:
            like = resolve_labelled_classes(first, classes)
            findings += [Finding("warning", text)] if (text := describe_alike(first.name, like.table.names)) else []
            findings += [Finding("note", like.note)] if like.note else []
            audits["labelled"] = audit_side(first, like.contents, like.table, required=True)
            findings += audits["labelled"].findings
            findings += _check_labelled_classes(audits["labelled"], options, findings)
    if like is None:
        return audits
    if "unlabelled" in sides and (second := _audit_unlabelled(sides["unlabelled"], like, findings)) is not None:
        audits["unlabelled"] = second
    with collect_errors(findings):
        if "test" in sides:
            audits["test"] = _audit_test(sides["test"], like, options, findings)
    return audits


def _check_labelled_classes(audit: Audit, options: ImageOptions, findings: list[Finding]) -> list[Finding]:
    """Enough classes, each with a pixel."""
    name, lacking = audit.side.name, audit.lacking
    text = f"{name}: classes without a labelled pixel: {quote_names(lacking)}"
    if not audit.counts.any() and any(finding.level == "error" for finding in audit.findings):
        return []  # what is wrong with all of them is among the findings
    with collect_errors(findings):
        require(audit.counts.any(), f"{name}: {UNUSABLE}")
        here = [label for label in audit.table.names if label not in lacking]
        require(len(here) >= 2, f"{name}: pixels of at least 2 classes are needed, got 1 class: {quote_names(here)}")
        hint = f"remove them from {CLASS_FILE}, or data.allow_missing_class=true goes on without them"
        require(not lacking or options.allow_missing_class, f"{text}; {hint}")
    return [Finding("note", f"{text}; their scores are n/a")] if lacking and options.allow_missing_class else []


def _audit_unlabelled(side: MapSide, like: SideClasses, findings: list[Finding]) -> Audit | None:
    """The side whose maps, if it has any, are for scores only."""
    if not side.labels:
        return audit_side(side, [None] * len(side.files), like.table, required=False)
    findings.append(Finding("note", f"{side.name}: has labels/; used for scores only"))
    try:
        own = resolve_other_classes(side, like)
    except InputDataError as error:
        findings.append(Finding("error", f"{error}{FOR_SCORES}"))
        return None
    audit = audit_side(side, own.contents, own.table, required=False)
    findings += audit.findings
    if own.extra:
        text = f"{side.name}: not scored, no class of the labelled side: {quote_names(own.extra)}"
        findings.append(Finding("warning", text))
        both = describe_alike(f"the labelled side and {side.name}", like.table.names, own.extra)
        findings += [Finding("warning", both)] if both else []
    if audit.lacking:
        findings.append(Finding("note", f"{side.name}: classes without a pixel: {quote_names(audit.lacking)}"))
    return audit


def _audit_test(side: MapSide, like: SideClasses, options: ImageOptions, findings: list[Finding]) -> Audit:
    """The side to score on, which must know the classes of the labelled side and no others."""
    own = resolve_other_classes(side, like)
    audit = audit_side(side, own.contents, own.table, required=True)
    findings += audit.findings
    if own.extra:
        text = f"{side.name}: {describe_difference(own.extra, own.lacking)}"
        hint = "data.allow_missing_class=true leaves their pixels out"
        allowed = options.allow_missing_class
        findings.append(Finding("warning", f"{text}; left out") if allowed else Finding("error", f"{text}; {hint}"))
    if audit.lacking and audit.counts.any():
        text = f"{side.name}: classes without a test pixel, their scores are n/a: {quote_names(audit.lacking)}"
        findings.append(Finding("note", text))
    require(audit.counts.any() or audit.findings, f"{side.name}: {UNUSABLE}")
    return audit


def require_map_budget(sides: Iterable[MapSide], audits: Mapping[str, Audit], options: ImageOptions) -> None:
    """Not too many unreadable pictures and maps in all."""
    sides, last = list(sides), [audit.side for audit in audits.values()]
    roots = {side.root for side in last}
    last += [side for side in sides if side.root not in roots]
    rejected = [item for side in last for item in side.all_rejected]
    require_budget(rejected, sum(side.pictures.seen for side in sides), options.budget)


def _report_map_files(side: MapSide, role: str) -> list[Finding]:
    """Counts and refusals of the pictures, and of the maps whose pictures can be used."""
    lost = [Finding("warning", f"{side.name}: {item.name}: {item.reason}") for item in side.rejected[:MOST_LINES]]
    if len(side.rejected) > MOST_LINES:
        more = len(side.rejected) - MOST_LINES
        lost.append(Finding("warning", f"{side.name}: and {more:,} more unreadable label maps"))
    return report_files(side.pictures, role, (*side.rejected, *side.unlabelled)) + lost


def _report_shared_files(first: ImageSide, second: ImageSide, folders: MapFolders) -> list[Finding]:
    """Pictures on both sides."""
    errors: list[Finding] = []
    with collect_errors(errors):
        require_other_place(folders.labelled, folders.unlabelled)
        require_other_files(first, second)
    text = describe_common(first, second)
    return errors or ([Finding("warning", text)] if text else [])


def _raise_first_error(findings: Iterable[Finding]) -> None:
    errors = [finding.text for finding in findings if finding.level == "error"]
    if errors:
        more = "1 more problem" if len(errors) == 2 else f"{len(errors) - 1} more problems"
        raise InputDataError(errors[0] + (f" ({more}: `embasis check` lists all)" if len(errors) > 1 else ""))


def _describe_leaks(sides: Mapping[str, MapSide], options: ImageOptions) -> list[str]:
    """Notes on pictures that are twice on a side, or on two sides."""
    one, two = sides["labelled"].pictures, sides["unlabelled"].pictures
    texts = [text for text in (describe_repeats(one), describe_repeats(two), describe_common(one, two)) if text]
    return texts + check_test_leaks(one, two, sides["test"].pictures, options) if "test" in sides else texts


def make_map_problem(labelled: PairedSide, unlabelled: PairedSide, test: PairedSide | None = None) -> Problem:
    """A problem from sides that are paired already; they may be coded differently, but have the same classes.

    Maps of the labelled and the test side are decoded once, here; those of the unlabelled side when they are scored.
    """
    sides = {"labelled": labelled, "unlabelled": unlabelled, **({} if test is None else {"test": test})}
    names = labelled.table.names
    for side in sides.values():
        rule = f"tables must have the same classes, got {list(names)} and {list(side.table.names)}"
        require(side.table.names == names, rule)
    audits = {role: _audit_paired(role, side, decode=role != "unlabelled") for role, side in sides.items()}
    notes = [text for side in sides.values() for text in side.notes]
    for role, audit in audits.items():
        notes += [finding.text for finding in audit.findings]
        if audit.lacking and role != "unlabelled":
            notes.append(
                f"{role}: classes without a labelled pixel, their scores are n/a: {quote_names(audit.lacking)}"
            )
    problem = _assemble_problem(audits, notes)
    rejected = [replace(item, side=role) for role, side in sides.items() for item in side.rejected]
    return replace(problem, rejected=(*rejected, *problem.rejected), files_seen=None)


def _audit_paired(role: str, paired: PairedSide, *, decode: bool) -> Audit:
    files = tuple(sorted(paired.files, key=lambda file: file.name))
    missing = tuple(file.name for file in files if file.label is None)
    side = MapSide(role, ImageSide(Scan(role, tuple(file.image for file in files))), files, missing=missing)
    if not decode:
        return Audit(side, paired.table, torch.zeros(len(files), len(paired.table.names), dtype=torch.int64), ())
    audit = audit_side(side, side.count_values(paired.table.coded), paired.table, required=True)
    _raise_first_error(audit.findings)
    require(audit.counts.any(), f"{role}: {UNUSABLE}")
    return audit


def _assemble_problem(audits: Mapping[str, Audit], notes: Sequence[str]) -> Problem:
    samples = {
        role: MapFiles.of(audit.side.files, audit.table, labelled=True, counts=audit.counts)
        for role, audit in audits.items()
    }
    table = audits["labelled"].table
    unlabelled = MapFiles.of(audits["unlabelled"].side.files, table, labelled=False)
    ledger = [
        replace(item, side=role)
        for role, audit in audits.items()
        for item in (*audit.side.all_rejected, *audit.side.unlabelled)
    ]
    return Problem(
        labelled=samples["labelled"],
        unlabelled=unlabelled,
        schema=LabelSchema(table.names),
        test=samples.get("test"),
        hidden_labels=samples["unlabelled"].truth if audits["unlabelled"].side.labels else None,
        row_names=tuple(unlabelled.names),
        rejected=tuple(ledger),
        files_seen={role: audit.side.pictures.seen for role, audit in audits.items()},
        notes=tuple(notes),
    )
