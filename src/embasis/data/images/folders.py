"""Folders and lists of images, scanned once: `check_images` reports all that is wrong, `load_images` makes a problem.

Classes are matched by name, files by their bytes; unreadable files are tolerated up to a budget.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from embasis.data.class_labels import NO_LABEL, describe_alike, group_alike, quote_names, sort_names
from embasis.data.images.files import SMALL_SIDE, describe_first, printable_path
from embasis.data.images.samples import ImageSide, build_image_problem
from embasis.data.images.sides import scan_labelled, scan_side, top_folder
from embasis.data.problem import (
    LABELLED,
    SIDE_NAMES,
    TEST,
    UNLABELLED,
    ErrorLog,
    Finding,
    report_classes,
    require_classes,
    require_known,
    require_labels,
    sort_findings,
    to_findings,
    warn_of_leak,
)
from embasis.data.reader import Reader
from embasis.errors import ConfigError, quote, require
from embasis.types import PathLike, Preparation, Problem, RejectedFile

ALWAYS_TOLERATED = 10
"""Unreadable files that never stop a run, however few files there are."""
SAME_SHARE = 0.95
"""From this share of common files on, the unlabelled side is the labelled one by mistake."""
CHECK_BATCH = 64
MOST_LINES = 20
"""Unreadable files that are listed one by one, for each side."""


@dataclass(frozen=True)
class ImageOptions:
    """What is allowed in folders of images; everything doubtful is an error unless the user allows it."""

    follow_links: bool = False
    allow_empty_class: bool = False
    """A class folder without a readable image is no class, instead of an error."""
    allow_missing_class: bool = False
    """Labels of classes that the labelled side lacks are left out of the scores, instead of an error."""
    forbid_leakage: bool = False
    """A test file with the bytes of a labelled one is an error, not only a warning."""
    budget: float = 0.001
    """Share of unreadable files that is tolerated (ten always are); 1 = all."""

    def __post_init__(self) -> None:
        require(0 <= self.budget <= 1, f"budget must be in [0, 1], got {self.budget}", ConfigError)


DEFAULT_OPTIONS = ImageOptions()


def check_images(
    labelled: PathLike, unlabelled: PathLike, *, label: str = "label", options: ImageOptions, reader: Reader
) -> list[Finding]:
    """All that is wrong, doubtful or good to know about two sides of images, errors first; every image is decoded."""
    log, findings = ErrorLog(collects=True), list[Finding]()
    sides, empty = _inspect((labelled, unlabelled, None), label, options, log, reader)
    for role, side in sides.items():
        findings += report_files(side, role)
        if role == LABELLED:
            findings += to_findings("note", *empty)
            findings += report_classes(side.name, side.labels or (), "images", ",")
            findings += to_findings("warning", _describe_conflicts(side))
    if len(sides) == 2:
        findings += _report_both(sides[LABELLED], sides[UNLABELLED])
        shared = describe_common(sides[LABELLED], sides[UNLABELLED])
        findings += log.errors["different"] or to_findings("warning", shared)
    return sort_findings(log.gather(LABELLED, "classes", UNLABELLED, "budget", "known") + findings)


def load_images(
    labelled: PathLike,
    unlabelled: PathLike,
    *,
    test: PathLike | None = None,
    label: str = "label",
    options: ImageOptions = DEFAULT_OPTIONS,
) -> Problem:
    """A problem from two folders or lists of images (and a third to score on); nothing is decoded yet."""
    sides, empty = _inspect((labelled, unlabelled, test), label, options, ErrorLog(collects=False))
    first, second, third = sides[LABELLED], sides[UNLABELLED], sides.get(TEST)
    names = sort_names(first.named.classes)
    notes = [*empty, *describe_hidden(second, set(names))]
    notes += [describe_repeats(first), _describe_conflicts(first), describe_repeats(second)]
    notes.append(describe_common(first, second))
    if third is not None:
        third, more = _match_test(third, names, options)
        notes += [*more, *check_test_leaks(first, second, third, options)]
    return build_image_problem(first, second, names, test=third, notes=filter(None, notes))


def _inspect(
    paths: tuple[PathLike, PathLike, PathLike | None],
    label: str,
    options: ImageOptions,
    log: ErrorLog,
    reader: Reader | None = None,
) -> tuple[dict[str, ImageSide], tuple[str, ...]]:
    """Scan the labelled, the unlabelled and perhaps the test side, and apply the rules for each and for both.

    The sides that can be scanned, and a note on class folders without an image where they are allowed; with a reader
    every image is decoded."""
    sides: dict[str, ImageSide] = {}
    empty: tuple[str, ...] = ()
    with log.step("different"):
        require_other_place(paths[0], paths[1])
    for name, path in zip(SIDE_NAMES, paths, strict=True):
        if path is not None:
            with log.step(name):
                side = (scan_side if name == UNLABELLED else scan_labelled)(path, label, options.follow_links)
                sides[name] = side if reader is None else drop_undecodable(side, reader)
    with log.step("budget"):
        rejected = [item for side in sides.values() for item in side.scan.rejected]
        require_budget(rejected, sum(side.seen for side in sides.values()), options.budget)
    first, second = sides.get(LABELLED), sides.get(UNLABELLED)
    if first is not None and second is not None and not log.errors["different"]:
        with log.step("different"):
            require_other_files(first, second)
    if first is not None:
        with log.step("classes"):
            empty = _require_filled(first, options)
        for rule in (require_labels, require_classes):
            with log.step("classes"):
                rule(first.named)
    if first is not None and second is not None:
        names = first.named.classes
        second = sides[UNLABELLED] = _with_hidden_labels(second, names)
        with log.step("known"):
            if not second.is_folder and not options.allow_missing_class:
                require_known(second.named, sort_names(names))
    return sides, empty


def drop_undecodable(side: ImageSide, reader: Reader) -> ImageSide:
    """The side without the files that cannot be decoded completely; files of the same bytes are decoded once."""
    files = tuple({file.digest: file for file in reversed(side.scan.files)}.values())[::-1]
    rows = [range(first, min(first + CHECK_BATCH, len(files))) for first in range(0, len(files), CHECK_BATCH)]
    views = reader.batches(files, rows, Preparation(size=SMALL_SIDE, crop=1.0))
    broken = {
        files[batch[position]].digest: reason
        for batch, (_, reasons) in zip(rows, views, strict=True)
        for position, reason in reasons.items()
    }
    names = {file.name: broken[file.digest] for file in side.scan.files if file.digest in broken}
    return side.without(names, "read")


def _require_filled(side: ImageSide, options: ImageOptions) -> tuple[str, ...]:
    """Every class folder has an image; where it need not, a note lists those that have none."""
    empty = (set(side.scan.folders) if side.is_folder else set()) - set(side.labels or ())
    if not empty:
        return ()
    text = f"{side.name}: class folders without a readable image: {quote_names(empty)}"
    require(options.allow_empty_class, f"{text}; remove them, or data.allow_empty_class=true leaves those classes out")
    return (f"{text}; these classes do not exist",)


def _with_hidden_labels(side: ImageSide, classes: set[str]) -> ImageSide:
    """The unlabelled side with labels for scores: the list's, or its sub-folders if they are named like classes."""
    if not side.is_folder:
        return side if any(side.labels or ()) else replace(side, labels=None)
    folders = {top_folder(file) if "/" in file.name else NO_LABEL for file in side.scan.files}
    are_classes = NO_LABEL not in folders and not classes.isdisjoint(folders)
    return replace(side, labels=tuple(top_folder(file) for file in side.scan.files) if are_classes else None)


def require_other_place(labelled: PathLike, unlabelled: PathLike) -> None:
    """Two different folders or lists; compared before hours of reading."""
    both = os.path.exists(labelled) and os.path.exists(unlabelled)
    shown = printable_path(unlabelled)
    text = f"{shown}: is the labelled side itself; give the folder or list of the unlabelled images"
    require(not both or not os.path.samefile(labelled, unlabelled), text)


def require_other_files(labelled: ImageSide, unlabelled: ImageSide) -> None:
    """An unlabelled side that is not a copy of the labelled one."""
    rows, pairs = len(unlabelled.scan.files), sum(1 for _ in _common_files(labelled, unlabelled))
    is_copy = rows >= 2 and pairs >= SAME_SHARE * rows
    what = f"{pairs:,} of {rows:,} files are byte for byte in {labelled.name} too"
    require(not is_copy, f"{unlabelled.name}: {what}: this is the labelled side again; give the unlabelled images")


def tolerated_count(seen: int, budget: float) -> int:
    """How many of the files may be unreadable."""
    return max(ALWAYS_TOLERATED, math.floor(budget * seen + 1e-9))


def require_budget(rejected: Sequence[RejectedFile], seen: int, budget: float) -> None:
    """Refuse the data when more files are unreadable than the budget allows."""
    most, share = tolerated_count(seen, budget), len(rejected) / max(seen, 1)
    enough = math.ceil(share * 10_000) / 10_000
    require(
        len(rejected) <= most,
        f"{len(rejected):,} of {seen:,} files unreadable ({100 * share:.1f} %), {most:,} are tolerated; "
        f"first: {describe_first(rejected)}; `embasis check -o FILE` lists all, "
        f"data.budget={enough:g} (check: --budget) allows more",
    )


def _repeats(side: ImageSide) -> Iterator[tuple[int, int]]:
    """(row, earlier row) of the files whose bytes an earlier file of the same side has."""
    first: dict[bytes, int] = {}
    pairs = ((row, first.setdefault(file.digest, row)) for row, file in enumerate(side.scan.files))
    return ((row, earlier) for row, earlier in pairs if row != earlier)


def _common_files(one: ImageSide, two: ImageSide) -> Iterator[tuple[str, str]]:
    """(name in two, name in one) of the files of `two` whose bytes are in `one` as well."""
    held = {file.digest: file.name for file in reversed(one.scan.files)}
    return ((file.name, held[file.digest]) for file in two.scan.files if file.digest in held)


def _describe_pairs(pairs: Iterable[tuple[str, str]], start: str, one: str, more: str, end: str) -> str:
    """A sentence about pairs of files, or nothing. Pairs of a million files are counted and not kept."""
    number, first = 0, ("", "")
    for number, pair in enumerate(pairs, 1):
        first = pair if number == 1 else first
    files = f"1 file {one}" if number == 1 else f"{number:,} files {more}"
    return f"{start}{files} {end}; first: {' = '.join(first)}" if number else ""


def describe_repeats(side: ImageSide) -> str:
    """A sentence about files that are twice on one side, or nothing."""
    files = side.scan.files
    names = ((files[row].name, files[earlier].name) for row, earlier in _repeats(side))
    return _describe_pairs(names, f"{side.name}: ", "repeats", "repeat", "the bytes of another")


def _describe_conflicts(side: ImageSide) -> str:
    """A sentence about files of one content that have two labels, or nothing."""
    files, labels = side.scan.files, side.labels or ()
    names = (
        (files[row].name, files[earlier].name) for row, earlier in _repeats(side) if labels[row] != labels[earlier]
    )
    return _describe_pairs(names, f"{side.name}: ", "is", "are", "in two classes at once")


def describe_common(one: ImageSide, two: ImageSide) -> str:
    """A sentence about files that are on both sides, or nothing."""
    end = f"byte for byte in {one.name} and in {two.name}"
    return _describe_pairs(_common_files(one, two), "", "is", "are", end)


def describe_hidden(side: ImageSide, classes: set[str]) -> list[str]:
    """Notes on labels of the unlabelled side, and on how its classes differ."""
    if side.labels is None:
        return []
    here = set(side.labels) - {NO_LABEL}
    what = "sub-folders are named like classes" if side.is_folder else "has labels"
    notes = [f"{side.name}: {what}; used for scores only"]
    if extra := here - classes:
        notes.append(f"{side.name}: not scored, no class of the labelled side: {quote_names(extra)}")
    if lacking := classes - here:
        notes.append(f"{side.name}: classes without an image: {quote_names(lacking)}")
    return notes


def _match_test(side: ImageSide, names: list[str], options: ImageOptions) -> tuple[ImageSide, list[str]]:
    """The test images of known classes, and notes on classes that differ."""
    require_labels(side.named)
    if not options.allow_missing_class:
        require_known(side.named, names)
    notes = []
    extra, lacking = side.named.classes - set(names), set(names) - side.named.classes
    if extra:
        reason = "its class is not on the labelled side"
        marked = zip(side.scan.files, side.labels or (), strict=True)
        outside = {file.name: reason for file, label in marked if label in extra}
        require(len(outside) < len(side.scan.files), f"{side.name}: no image has a class of the labelled side")
        side = side.without(outside, "scan", "refused")
        notes.append(f"{side.name}: left out, no class of the labelled side: {quote_names(extra)}")
    if lacking:
        notes.append(f"{side.name}: classes without a test image, their scores are n/a: {quote_names(lacking)}")
    return side, notes


def check_test_leaks(first: ImageSide, second: ImageSide, third: ImageSide, options: ImageOptions) -> list[str]:
    """Notes on test files that training sees; a warning, or an error, for those with labels."""
    leak = describe_common(first, third)
    warn_of_leak(leak, "images", options.forbid_leakage)
    return [text for text in (describe_repeats(third), leak, describe_common(second, third)) if text]


def report_files(side: ImageSide, role: str, more: Sequence[RejectedFile] = ()) -> list[Finding]:
    """Counts, what was ignored, unreadable files, repeated files and tiny pictures of one side.

    `more` are other files of the side that cannot be used."""
    rejected, small = side.scan.rejected, side.scan.small
    all_rejected = tuple(replace(item, side=role) for item in (*rejected, *more))
    count = f"{side.name}: {len(side.scan.files):,} of {side.seen:,} images can be used"
    bad = [f"{side.name}: {item.name}: {item.reason}" for item in rejected[:MOST_LINES]]
    if len(rejected) > MOST_LINES:
        bad.append(f"{side.name}: and {len(rejected) - MOST_LINES:,} more unreadable files")
    notes = [*side.scan.notes]
    if small:
        number = "1 image has" if len(small) == 1 else f"{len(small):,} images have"
        notes.append(f"{side.name}: {number} a short side under {SMALL_SIDE} pixels; first: {small[0]}")
    notes.append(describe_repeats(side))
    return [Finding("note", count, all_rejected), *to_findings("warning", *bad), *to_findings("note", *notes)]


def _report_both(first: ImageSide, second: ImageSide) -> list[Finding]:
    """Labels on the unlabelled side, and class sets that differ."""
    names = first.named.classes
    texts = describe_hidden(second, names)
    findings = [Finding("warning" if " no class of " in text else "note", text) for text in texts]
    if second.labels is None:
        return findings + _report_unmatched_folders(second, names)
    findings += to_findings("warning", describe_alike(f"{first.name} and {second.name}", names, second.named.classes))
    counts = Counter(label for label in second.labels if label in names)
    text = ", ".join(f"{quote(name)} {counts[name]:,}" for name in sort_names(names))
    return [*findings, Finding("note", f"{second.name}: {text}")]


def _report_unmatched_folders(side: ImageSide, classes: set[str]) -> list[Finding]:
    """Sub-folders of the unlabelled side that look like classes and are named like none."""
    folders = side.scan.folders
    if not side.is_folder or not folders or any("/" not in file.name for file in side.scan.files):
        return []
    text = f"{side.name}: sub-folders are named like no class of the labelled side, so are no labels"
    case = {name.casefold() for name in folders} & {name.casefold() for name in classes}
    matters = "upper and lower case matter" if case else "the Unicode form of letters matters"
    doubt = f"; {matters}" if case or group_alike(classes, folders) else ""
    return [Finding("warning" if doubt else "note", f"{text}: {quote_names(folders)}{doubt}")]


def strip_folders(problem: Problem, *paths: PathLike | None) -> Problem:
    """The problem with notes that name folders by their last part: no path of this machine goes into a run."""
    notes = problem.notes
    for path in sorted((printable_path(os.fspath(path)) for path in paths if path is not None), key=len, reverse=True):
        last = os.path.basename(os.path.abspath(path)) or path
        notes = tuple(note.replace(path, last) for note in notes)
    return replace(problem, notes=notes)
