"""Folders of pictures and label maps: `check_maps` lists all that is wrong with them, `load_maps` makes them a problem.

Both are one pass: sides are gathered, pictures decoded, label maps audited. Checking goes on after an error, loading
stops at the first. Sides are called by their roles, "labelled", "unlabelled" and "test", in this order; a side that was
not given, or could not be read, is not there.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from embasis.data import corrections
from embasis.data.class_labels import describe_alike, quote_names
from embasis.data.images import folders as image_folders
from embasis.data.images.files import ImageFile, Scan, describe_first, printable_path
from embasis.data.images.folders import DEFAULT_OPTIONS, ImageOptions, describe_common, describe_repeats
from embasis.data.images.samples import ImageSide
from embasis.data.images.scan import scan_folder
from embasis.data.problem import SIDE_NAMES, Finding, collect_errors, sort_findings
from embasis.data.reader import Reader
from embasis.data.segmentation import classes as map_classes
from embasis.data.segmentation.audit import FOR_SCORES, Audit, audit_side, count_side_values
from embasis.data.segmentation.pairs import CLASS_FILE, LABELS, MapFile, MapSide, gather_maps, orient_maps, stem
from embasis.data.segmentation.samples import MapFiles
from embasis.errors import InputDataError, quote, require
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
        first, second, errors = sides["labelled"].pictures, sides["unlabelled"].pictures, list[Finding]()
        with collect_errors(errors):
            image_folders.require_other_place(folders.labelled, folders.unlabelled)
            image_folders.require_other_files(first, second)
        text = describe_common(first, second)
        findings += errors or ([Finding("warning", text)] if text else [])
    return sort_findings(dict.fromkeys(findings))


def load_maps(folders: MapFolders, options: ImageOptions = DEFAULT_OPTIONS, reader: Reader | None = None) -> Problem:
    """A problem from folders of pictures and label maps; every map is decoded once, and with a reader every picture.

    What cannot be read is left out and named in the ledger.
    """
    image_folders.require_other_place(folders.labelled, folders.unlabelled)
    findings: list[Finding] = []
    sides = gather_sides(folders, options, findings)
    _raise_first_error(findings)
    if folders.corrections is not None:  # what is wrong with their names is raised before minutes of reading
        stay, corrected = split_corrected(sides["unlabelled"], folders.corrections, options)
        sides = {**sides, "unlabelled": stay, "corrections": corrected}
    if reader is not None:
        sides = {role: drop_undecodable_maps(side, reader) for role, side in sides.items()}
    moved = sides.pop("corrections", None)
    image_folders.require_other_files(sides["labelled"].pictures, sides["unlabelled"].pictures)
    audits = audit_sides(sides, options, findings, folders.classes)
    require_map_budget(sides.values(), audits, options)
    _raise_first_error(findings)
    if moved is not None:
        audits["labelled"] = add_corrected(audits["labelled"], audit_corrected(moved, audits["labelled"].table))
        sides["labelled"] = audits["labelled"].side
        text = corrections.describe_move(len(moved.files), "picture", moved.name, sides["unlabelled"].name)
        findings.append(Finding("note", text))
    notes = [*dict.fromkeys(finding.text for finding in findings), *_describe_leaks(sides, options)]
    return replace(_assemble_problem(audits, notes), corrected=0 if moved is None else len(moved.files))


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
    return side.with_pictures(image_folders.drop_undecodable(side.pictures, reader))


def audit_sides(
    sides: Mapping[str, MapSide], options: ImageOptions, findings: list[Finding], classes: PathLike | None = None
) -> dict[str, Audit]:
    """Every label map decoded once: tables by name, counts, and what is wrong."""
    audits: dict[str, Audit] = {}
    like = None
    with collect_errors(findings):
        if (first := sides.get("labelled")) is not None:
            like = map_classes.resolve_labelled_classes(first, classes)
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


def _audit_unlabelled(side: MapSide, like: map_classes.SideClasses, findings: list[Finding]) -> Audit | None:
    """The side whose maps, if it has any, are for scores only."""
    if not side.labels:
        return audit_side(side, [None] * len(side.files), like.table, required=False)
    findings.append(Finding("note", f"{side.name}: has labels/; used for scores only"))
    try:
        own = map_classes.resolve_other_classes(side, like)
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


def _audit_test(side: MapSide, like: map_classes.SideClasses, options: ImageOptions, findings: list[Finding]) -> Audit:
    """The side to score on, which must know the classes of the labelled side and no others."""
    own = map_classes.resolve_other_classes(side, like)
    audit = audit_side(side, own.contents, own.table, required=True)
    findings += audit.findings
    if own.extra:
        text = f"{side.name}: classes that the labelled side lacks: {quote_names(own.extra)}"
        text += f"; classes only on the labelled side: {quote_names(own.lacking)}" if own.lacking else ""
        hint = "data.allow_missing_class=true leaves their pixels out"
        allowed = options.allow_missing_class
        findings.append(Finding("warning", f"{text}; left out") if allowed else Finding("error", f"{text}; {hint}"))
    if audit.lacking and audit.counts.any():
        text = f"{side.name}: classes without a test pixel, their scores are n/a: {quote_names(audit.lacking)}"
        findings.append(Finding("note", text))
    require(audit.counts.any() or audit.findings, f"{side.name}: {UNUSABLE}")
    return audit


def split_corrected(side: MapSide, place: PathLike, options: ImageOptions) -> tuple[MapSide, MapSide]:
    """The unlabelled side without the pictures that have a corrected map in the folder `place`, and those with it.

    A map has the path of its picture but for the ending, a/1.png for a/1.jpg, or its whole path and an ending of its
    own, a/1.jpg.png. It is coded as those of the labelled side.
    """
    where = printable_path(place)
    rule = f"{where}: a folder of label maps is expected, a PNG with the name of each corrected picture"
    require(os.path.isdir(place), rule)
    below = os.path.join(place, LABELS)
    maps = scan_folder(below if os.path.isdir(below) else place, follow_links=options.follow_links)
    require(not maps.rejected, f"{where}: a label map cannot be read: {describe_first(maps.rejected)}")
    pairs = _match_maps(side, maps, where)
    files, _, _ = orient_maps([replace(file, label=pairs[file.name]) for file in side.files if file.name in pairs])
    corrections.require_rest(len(files), len(side.files), where, side.name)
    stay = replace(side.without(pairs), missing=tuple(name for name in side.missing if name not in pairs))
    return stay, MapSide(os.fspath(place), ImageSide(Scan(os.fspath(place), tuple(f.image for f in files))), files)


def _match_maps(side: MapSide, maps: Scan, where: str) -> dict[str, ImageFile]:
    """The map of each picture that has one."""
    stems = defaultdict[str, list[str]](list)
    for file in side.files:
        stems[stem(file.name)].append(file.name)
    names, pairs, strays = {file.name for file in side.files}, dict[str, ImageFile](), list[str]()
    for map_ in maps.files:
        mark = stem(map_.name)
        meant = [mark] if mark in names else stems.get(mark, [])
        whole = f"give it the whole name, as {''.join(meant[:1])}.png"
        require(len(meant) < 2, f"{where}: {map_.name} may belong to {quote_names(meant)}; {whole}")
        if not meant:
            strays.append(map_.name)
            continue
        first = pairs.setdefault(meant[0], map_)
        require(first is map_, f"{where}: two label maps of one picture: {quote(first.name)} and {quote(map_.name)}")
    corrections.require_known_ids(strays, where, side.name)
    return pairs


def audit_corrected(moved: MapSide, table: ClassTable) -> Audit:
    """The moved pictures with the pixels of each class; one that cannot be used, or its map, is an error here."""
    lost = moved.pictures.scan.rejected
    require(not lost, f"{moved.name}: a corrected picture cannot be read: {describe_first(lost)}")
    own = map_classes.find_class_file(moved.root)
    rule = f"{moved.name}: its {CLASS_FILE} differs from that of the labelled side; corrections are coded as that says"
    require(own is None or own.table(map_classes.read_first_header(moved)) == table, rule)
    audit = audit_side(moved, count_side_values(moved, table.coded), table, required=True)
    errors = [finding.text for finding in audit.findings if finding.level == "error"]
    require(not errors, "".join(errors[:1]))
    rejected = audit.side.pictures.scan.rejected
    require(not rejected, f"{moved.name}: a label map cannot be read: {describe_first(rejected)}")
    empty = [item.name for item in audit.side.unlabelled]
    require(not empty, f"{moved.name}: label maps without a labelled pixel: {quote_names(empty)}")
    return audit


def add_corrected(first: Audit, moved: Audit) -> Audit:
    """The labelled side with the moved pictures."""
    scan = first.side.pictures.scan
    images = corrections.rename_taken([file.image for file in moved.side.files], [file.name for file in scan.files])
    files = [replace(file, image=image) for file, image in zip(moved.side.files, images, strict=True)]
    pictures = replace(first.side.pictures, scan=replace(scan, files=(*scan.files, *images)))
    side = replace(first.side, pictures=pictures, files=(*first.side.files, *files))
    return replace(first, side=side, counts=torch.cat([first.counts, moved.counts]))


def require_map_budget(sides: Iterable[MapSide], audits: Mapping[str, Audit], options: ImageOptions) -> None:
    """Not too many unreadable pictures and maps in all."""
    sides, last = list(sides), [audit.side for audit in audits.values()]
    roots = {side.root for side in last}
    last += [side for side in sides if side.root not in roots]
    rejected = [item for side in last for item in side.all_rejected]
    image_folders.require_budget(rejected, sum(side.pictures.seen for side in sides), options.budget)


def _report_map_files(side: MapSide, role: str) -> list[Finding]:
    """Counts and refusals of the pictures, and of the maps whose pictures can be used."""
    lost = [
        Finding("warning", f"{side.name}: {item.name}: {item.reason}")
        for item in side.rejected[: image_folders.MOST_LINES]
    ]
    if len(side.rejected) > image_folders.MOST_LINES:
        more = len(side.rejected) - image_folders.MOST_LINES
        lost.append(Finding("warning", f"{side.name}: and {more:,} more unreadable label maps"))
    return image_folders.report_files(side.pictures, role, (*side.rejected, *side.unlabelled)) + lost


def _raise_first_error(findings: Iterable[Finding]) -> None:
    errors = [finding.text for finding in findings if finding.level == "error"]
    if errors:
        more = "1 more problem" if len(errors) == 2 else f"{len(errors) - 1} more problems"
        raise InputDataError(errors[0] + (f" ({more}: `embasis check` lists all)" if len(errors) > 1 else ""))


def _describe_leaks(sides: Mapping[str, MapSide], options: ImageOptions) -> list[str]:
    """Notes on pictures that are twice on a side, or on two sides."""
    one, two = sides["labelled"].pictures, sides["unlabelled"].pictures
    texts = [describe_repeats(one), describe_repeats(two), describe_common(one, two)]
    if "test" in sides:
        texts += image_folders.check_test_leaks(one, two, sides["test"].pictures, options)
    return [text for text in texts if text]


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
    audit = audit_side(side, count_side_values(side, paired.table.coded), paired.table, required=True)
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
