"""Everything that could go wrong with folders of pictures and label maps, found before training."""

from __future__ import annotations

from dataclasses import dataclass, replace

from embasis.data.alike import alike_text
from embasis.data.images.check import MOST_LINES, about_files, decoded
from embasis.data.images.files import PathLike
from embasis.data.images.sides import (
    SIDES,
    ImageOptions,
    common_text,
    require_budget,
    require_other_files,
    require_other_place,
)
from embasis.data.problem import listed
from embasis.data.segmentation.audit import FOR_SCORES, Audit, audit, classes_text, lacking_text
from embasis.data.segmentation.class_match import SideClasses, difference, name_labelled, name_other
from embasis.data.segmentation.classes import FILE
from embasis.data.segmentation.pairs import MapSide, gather_maps
from embasis.data.tables.pair import Finding, noting
from embasis.data.workers.loading import Reader
from embasis.errors import InputDataError, require
from embasis.types import RejectedFile

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
    for role, found, side in zip(SIDES, founds, (first, second, third), strict=True):
        findings += [] if side is None else _about_files(side if found is None else found.side, role)
    findings += later
    findings += [Finding("note", classes_text(found)) for found in _known(looked) if found.counts.any()]
    with noting(findings):
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
        with noting(findings):
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
    with noting(findings):
        if first is not None:
            like = name_labelled(first, classes)
            findings += [Finding("warning", text)] if (text := alike_text(first.name, like.table.names)) else []
            findings += [Finding("note", like.note)] if like.note else []
            one = audit(first, like.found, like.table, required=True)
            findings += one.findings
            findings += _about_labelled(one, options, findings)
    if second is not None and like is not None:
        two = _unlabelled(second, like, findings)
    with noting(findings):
        if third is not None and like is not None:
            three = _test(third, like, options, findings)
    return AuditedSides(one, two, three)


def _about_labelled(found: Audit, options: ImageOptions, findings: list[Finding]) -> list[Finding]:
    """Enough classes, each with a pixel."""
    name, lacking = found.side.name, found.lacking
    text = f"{name}: classes without a labelled pixel: {lacking_text(found)}"
    if not found.counts.any() and any(finding.level == "error" for finding in found.findings):
        return []  # what is wrong with all of them has been said
    with noting(findings):
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
    found = audit(side, named.found, named.table, required=False)
    findings += found.findings
    if named.extra:
        text = f"{side.name}: not scored, no class of the labelled side: {listed(named.extra)}"
        findings.append(Finding("warning", text))
        both = alike_text(f"the labelled side and {side.name}", like.table.names, named.extra)
        findings += [Finding("warning", both)] if both else []
    if found.lacking:
        findings.append(Finding("note", f"{side.name}: classes without a pixel: {lacking_text(found)}"))
    return found


def _test(side: MapSide, like: SideClasses, options: ImageOptions, findings: list[Finding]) -> Audit:
    """The side to score on, which must know the classes of the labelled side and no others."""
    named = name_other(side, like)
    found = audit(side, named.found, named.table, required=True)
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
    refused = [item for side in last for item in refusals(side)]
    require_budget(refused, sum(side.pictures.seen for side in sides), options.budget)


def refusals(side: MapSide) -> list[RejectedFile]:
    """Pictures and maps of a side that cannot be read, the pictures first."""
    return [*side.pictures.scan.refused, *side.refused]


def _known(looked: AuditedSides) -> list[Audit]:
    return [found for found in (looked.labelled, looked.unlabelled, looked.test) if found is not None]


def _about_files(side: MapSide, role: str) -> list[Finding]:
    """Counts and refusals of the pictures, and of the maps whose pictures can be used."""
    lost = [Finding("warning", f"{side.name}: {item.name}: {item.reason}") for item in side.refused[:MOST_LINES]]
    if len(side.refused) > MOST_LINES:
        more = len(side.refused) - MOST_LINES
        lost.append(Finding("warning", f"{side.name}: and {more:,} more unreadable label maps"))
    return about_files(side.pictures, role, (*side.refused, *side.unlabelled)) + lost


def decoded_side(side: MapSide, reader: Reader) -> MapSide:
    """The side without the pictures that cannot be decoded completely."""
    pictures = decoded(side.pictures, reader)
    names = {file.name for file in pictures.scan.files}
    return replace(side, pictures=pictures, files=tuple(file for file in side.files if file.name in names))


def _about_both(first: MapSide, second: MapSide, labelled: PathLike, unlabelled: PathLike) -> list[Finding]:
    """Files on both sides."""
    found: list[Finding] = []
    with noting(found):
        require_other_place(labelled, unlabelled)
        require_other_files(first.pictures, second.pictures)
    text = common_text(first.pictures, second.pictures)
    return found or ([Finding("warning", text)] if text else [])
