"""Everything that could go wrong with two folders or lists of images, found by decoding every one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from embasis.data.alike import describe_alike, group_alike
from embasis.data.images.files import SMALL_SIDE, PathLike
from embasis.data.images.sides import (
    ImageOptions,
    ImageSide,
    common_text,
    gather,
    gather_labelled,
    hidden_notes,
    repeats_text,
    require_budget,
    require_filled,
    require_other_files,
    require_other_place,
    two_classes_text,
    with_hidden,
)
from embasis.data.problem import listed, require_classes, require_known, require_labels, sort_names
from embasis.data.tables.pair import Finding, collect_errors
from embasis.data.workers.loading import Reader
from embasis.errors import quoted
from embasis.types import Preparation, RejectedFile

BATCH = 64
MOST_LINES = 20
"""Unreadable files that are listed one by one, for each side."""


def check_images(
    labelled: PathLike, unlabelled: PathLike, *, label: str = "label", options: ImageOptions, reader: Reader
) -> list[Finding]:
    """All that is wrong, doubtful or good to know about two sides of images, errors first; every image is decoded."""
    findings: list[Finding] = []
    first = second = None
    with collect_errors(findings):
        first = decoded(gather_labelled(labelled, label, options), reader)
        findings += about_files(first, "labelled") + _about_classes(first, options, findings)
    with collect_errors(findings):
        second = decoded(gather(unlabelled, label, options), reader)
        findings += about_files(second, "unlabelled")
    sides = [side for side in (first, second) if side is not None]
    with collect_errors(findings):
        refused = [item for side in sides for item in side.scan.refused]
        require_budget(refused, sum(side.seen for side in sides), options.budget)
    if first is not None and second is not None:
        findings += _about_both(first, second, labelled, unlabelled, options, findings)
    rank = ("error", "warning", "note")
    return sorted(findings, key=lambda finding: rank.index(finding.level))


def decoded(side: ImageSide, reader: Reader) -> ImageSide:
    """The side without the files that cannot be decoded completely; files of the same bytes are decoded once."""
    files = tuple({file.digest: file for file in reversed(side.scan.files)}.values())[::-1]
    rows = [range(first, min(first + BATCH, len(files))) for first in range(0, len(files), BATCH)]
    views = reader.batches(files, rows, Preparation(size=SMALL_SIDE, crop=1.0))
    broken = {
        files[batch[position]].digest: reason
        for batch, (_, reasons) in zip(rows, views, strict=True)
        for position, reason in reasons.items()
    }
    names = {file.name: broken[file.digest] for file in side.scan.files if file.digest in broken}
    return side.without(names, "read")


def about_files(side: ImageSide, role: str, more: Sequence[RejectedFile] = ()) -> list[Finding]:
    """Counts, what was ignored, unreadable files, repeated files and tiny pictures of one side.

    `more` are other files of the side that cannot be used."""
    refused = tuple(replace(item, side=role) for item in (*side.scan.refused, *more))
    found = [Finding("note", f"{side.name}: {len(side.scan.files):,} of {side.seen:,} images can be used", refused)]
    found += [Finding("note", text) for text in side.scan.notes]
    found += [Finding("warning", text) for text in _refused_lines(side)]
    if side.scan.small:
        count = "1 image has" if len(side.scan.small) == 1 else f"{len(side.scan.small):,} images have"
        text = f"{side.name}: {count} a short side under {SMALL_SIDE} pixels; first: {side.scan.small[0]}"
        found.append(Finding("note", text))
    if text := repeats_text(side):
        found.append(Finding("note", text))
    return found


def _refused_lines(side: ImageSide) -> Iterator[str]:
    refused = side.scan.refused
    for item in islice(refused, MOST_LINES):
        yield f"{side.name}: {item.name}: {item.reason}"
    if len(refused) > MOST_LINES:
        yield f"{side.name}: and {len(refused) - MOST_LINES:,} more unreadable files"


def _about_classes(side: ImageSide, options: ImageOptions, findings: list[Finding]) -> list[Finding]:
    """How many images each class has, and which have none or hardly any."""
    found = []
    with collect_errors(findings):
        found += [Finding("note", text) for text in require_filled(side, options)]
    for rule in (require_labels, require_classes):
        with collect_errors(findings):
            rule(side.named)
    counts = Counter(label for label in side.labels or () if label)
    text = ", ".join(f"{quoted(name)} {counts[name]:,}" for name in sort_names(counts))
    found.append(Finding("note", f"{side.name}: {len(counts)} classes: {text}"))
    if few := [name for name in counts if counts[name] < 2]:
        found.append(Finding("warning", f"{side.name}: classes with under 2 images: {listed(few)}"))
    if text := describe_alike(side.name, counts):
        found.append(Finding("warning", text))
    if text := two_classes_text(side):
        found.append(Finding("warning", text))
    return found


def _about_folders(side: ImageSide, classes: set[str]) -> list[Finding]:
    """Sub-folders of the unlabelled side that look like classes and are named like none."""
    folders = side.scan.folders
    if (
        side.labels is not None
        or not side.is_folder
        or not folders
        or any("/" not in file.name for file in side.scan.files)
    ):
        return []
    text = f"{side.name}: sub-folders are named like no class of the labelled side, so are no labels: {listed(folders)}"
    case = {name.casefold() for name in folders} & {name.casefold() for name in classes}
    matters = "upper and lower case matter" if case else "the Unicode form of letters matters"
    doubtful = bool(case or group_alike(classes, folders))
    return [Finding("warning" if doubtful else "note", text + (f"; {matters}" if doubtful else ""))]


def _about_both(
    first: ImageSide,
    second: ImageSide,
    labelled: PathLike,
    unlabelled: PathLike,
    options: ImageOptions,
    findings: list[Finding],
) -> list[Finding]:
    """Labels on the unlabelled side, class sets that differ, and files on both sides."""
    names = first.named.classes
    second = with_hidden(second, names)
    with collect_errors(findings):
        if not second.is_folder and not options.allow_missing_class:
            require_known(second.named, sort_names(names))
    found = [Finding("warning" if " no class of " in text else "note", text) for text in hidden_notes(second, names)]
    found += _about_folders(second, names)
    if second.labels is not None:
        both = describe_alike(f"{first.name} and {second.name}", names, second.named.classes)
        found += [Finding("warning", both)] if both else []
        counts = Counter(label for label in second.labels if label in names)
        text = ", ".join(f"{quoted(name)} {counts[name]:,}" for name in sort_names(names))
        found.append(Finding("note", f"{second.name}: {text}"))
    try_same = len(findings)
    with collect_errors(findings):
        require_other_place(labelled, unlabelled)
        require_other_files(first, second)
    if len(findings) == try_same and (text := common_text(first, second)):
        found.append(Finding("warning", text))
    return found
