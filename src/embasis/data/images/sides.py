"""The sides of a problem of images: what a folder or list says of each file, before anything is decoded.

A class is the name of the first-level sub-folder, or what the list's label column says. Classes are matched by name.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import NamedTuple

import torch
from torch import Tensor

from embasis.data.images.files import ImageFile, PathLike, Scan, first_of, shown
from embasis.data.images.samples import Images
from embasis.data.images.scan import scan_folder, scan_list
from embasis.data.problem import NO_LABEL, Side, listed
from embasis.errors import ConfigError, quoted, require
from embasis.types import LabelSchema, Problem, RejectedFile

ALWAYS_TOLERATED = 10
"""Unreadable files that never stop a run, however few files there are."""
SIDES = ("labelled", "unlabelled", "test")
SAME_SHARE = 0.95
"""From this share of common files on, the unlabelled side is the labelled one by mistake."""


@dataclass(frozen=True)
class ImageOptions:
    """What is allowed in folders of images; everything doubtful is refused unless the user says otherwise."""

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


@dataclass(frozen=True)
class ImageSide:
    """A scan with the class of each file; `labels` is None where nothing is said, "" where one is unknown."""

    scan: Scan
    labels: tuple[str, ...] | None = None
    is_folder: bool = True

    @property
    def name(self) -> str:
        """How messages call this side."""
        return shown(self.scan.root)

    @property
    def seen(self) -> int:
        """Files that were found, usable or not."""
        return self.scan.seen if self.scan.seen >= 0 else len(self.scan.files) + len(self.scan.refused)

    @property
    def named(self) -> Side:
        """The labels without the images, for the rules that tables have too."""
        return Side(self.name, torch.empty(len(self.scan.files), 0), None if self.labels is None else [*self.labels])

    def without(self, reasons: Mapping[str, str], phase: str, kind: str = "quarantined") -> ImageSide:
        """The side when the named files are refused."""
        if not reasons:
            return self
        stays = bytearray(file.name not in reasons for file in self.scan.files)
        gone = (file.name for file in self.scan.files if file.name in reasons)
        refused = [RejectedFile(name, reasons[name], phase, kind=kind) for name in gone]
        files = tuple(compress(self.scan.files, stays))
        labels = None if self.labels is None else tuple(compress(self.labels, stays))
        return replace(
            self, scan=replace(self.scan, files=files, refused=(*self.scan.refused, *refused)), labels=labels
        )


def gather(path: PathLike, label: str, options: ImageOptions) -> ImageSide:
    """The images of a folder or of a list file, with the labels that a list has."""
    if os.path.splitext(os.fspath(path))[1].lower() in (".csv", ".parquet") and not os.path.isdir(path):
        scan, labels = scan_list(path, label=label, follow_links=options.follow_links)
        return ImageSide(scan, None if labels is None else tuple(labels), is_folder=False)
    return ImageSide(scan_folder(path, follow_links=options.follow_links))


def gather_labelled(path: PathLike, label: str, options: ImageOptions) -> ImageSide:
    """A side that must be labelled, by class folders or by a list's column of labels."""
    side = gather(path, label, options)
    if not side.is_folder:
        require(
            side.labels is not None,
            f"{side.name}: no label column {quoted(label)}; a list of labelled images needs one",
        )
        return side
    loose = {file.name: "lies in no class folder" for file in side.scan.files if "/" not in file.name}
    hint = "expected is <folder>/<class>/<image>, or a list with a column of labels"
    require(len(loose) < len(side.scan.files), f"{side.name}: no image lies in a class folder; {hint}")
    inside = side.without(loose, "scan", "refused")
    return replace(inside, labels=tuple(top_folder(file) for file in inside.scan.files))


def top_folder(file: ImageFile) -> str:
    """The first-level sub-folder of a file: its class."""
    return sys.intern(file.name.partition("/")[0])  # a million files share a few


def require_filled(side: ImageSide, options: ImageOptions) -> tuple[str, ...]:
    """Every class folder has an image; when that is not asked for, a note says which have none."""
    empty = (set(side.scan.folders) if side.is_folder else set()) - set(side.labels or ())
    if not empty:
        return ()
    text = f"{side.name}: class folders without a readable image: {listed(empty)}"
    require(options.allow_empty_class, f"{text}; remove them, or data.allow_empty_class=true leaves those classes out")
    return (f"{text}; these classes do not exist",)


def with_hidden(side: ImageSide, classes: set[str]) -> ImageSide:
    """The unlabelled side with labels for scores: the list's, or its sub-folders if they are named like classes."""
    if not side.is_folder:
        return side if any(side.labels or ()) else replace(side, labels=None)
    folders = {top_folder(file) if "/" in file.name else NO_LABEL for file in side.scan.files}
    like_classes = NO_LABEL not in folders and not classes.isdisjoint(folders)
    return replace(side, labels=tuple(top_folder(file) for file in side.scan.files) if like_classes else None)


def hidden_notes(side: ImageSide, classes: set[str]) -> tuple[str, ...]:
    """What is said of labels on the unlabelled side, and how its classes differ."""
    if side.labels is None:
        return ()
    here = set(side.labels) - {NO_LABEL}
    what = "sub-folders are named like classes" if side.is_folder else "has labels"
    notes = [f"{side.name}: {what}; used for scores only"]
    if extra := here - classes:
        notes.append(f"{side.name}: not scored, no class of the labelled side: {listed(extra)}")
    if lacking := classes - here:
        notes.append(f"{side.name}: classes without an image: {listed(lacking)}")
    return tuple(notes)


class Twins(NamedTuple):
    """How many pairs of files have the same bytes, and the first pair. Pairs of a million files are not kept."""

    number: int = 0
    first: tuple[str, str] = ("", "")

    def text(self, start: str, one: str, more: str, end: str) -> str:
        """A sentence about them, or nothing."""
        files = f"1 file {one}" if self.number == 1 else f"{self.number:,} files {more}"
        return f"{start}{files} {end}; first: {' = '.join(self.first)}" if self.number else ""


def _counted(pairs: Iterable[tuple[str, str]]) -> Twins:
    found = Twins()
    for pair in pairs:
        found = Twins(found.number + 1, found.first if found.number else pair)
    return found


def _repeats(side: ImageSide) -> Iterator[tuple[int, int]]:
    """(row, earlier row) of the files whose bytes an earlier file of the same side has."""
    first: dict[bytes, int] = {}
    pairs = ((row, first.setdefault(file.digest, row)) for row, file in enumerate(side.scan.files))
    return ((row, earlier) for row, earlier in pairs if row != earlier)


def common(one: ImageSide, two: ImageSide) -> Twins:
    """(name in two, name in one) of the files of `two` whose bytes are in `one` as well."""
    held = {file.digest: file.name for file in reversed(one.scan.files)}
    return _counted((file.name, held[file.digest]) for file in two.scan.files if file.digest in held)


def two_classes_text(side: ImageSide) -> str:
    """A sentence about files of one content that have two labels, or nothing."""
    files, labels = side.scan.files, side.labels or ()
    found = _counted((files[a].name, files[b].name) for a, b in _repeats(side) if labels[a] != labels[b])
    return found.text(f"{side.name}: ", "is", "are", "in two classes at once")


def repeats_text(side: ImageSide) -> str:
    """A sentence about files that are twice on one side, or nothing."""
    files = side.scan.files
    found = _counted((files[a].name, files[b].name) for a, b in _repeats(side))
    return found.text(f"{side.name}: ", "repeats", "repeat", "the bytes of another")


def common_text(one: ImageSide, two: ImageSide) -> str:
    """A sentence about files that are on both sides, or nothing."""
    return common(one, two).text("", "is", "are", f"byte for byte in {one.name} and in {two.name}")


def require_other_place(labelled: PathLike, unlabelled: PathLike) -> None:
    """Two different folders or lists; found before hours of reading."""
    both = os.path.exists(labelled) and os.path.exists(unlabelled)
    text = f"{shown(unlabelled)}: is the labelled side itself; give the folder or list of the unlabelled images"
    require(not both or not os.path.samefile(labelled, unlabelled), text)


def require_other_files(labelled: ImageSide, unlabelled: ImageSide) -> None:
    """An unlabelled side that is not a copy of the labelled one."""
    rows, pairs = len(unlabelled.scan.files), common(labelled, unlabelled).number
    copied = rows >= 2 and pairs >= SAME_SHARE * rows
    what = f"{pairs:,} of {rows:,} files are byte for byte in {labelled.name} too"
    require(not copied, f"{unlabelled.name}: {what}: this is the labelled side again; give the unlabelled images")


def tolerated(seen: int, budget: float) -> int:
    """How many of the files may be unreadable."""
    return max(ALWAYS_TOLERATED, math.floor(budget * seen + 1e-9))


def require_budget(refused: Sequence[RejectedFile], seen: int, budget: float) -> None:
    """Refuse the data when more files are unreadable than the budget allows."""
    most, share = tolerated(seen, budget), len(refused) / max(seen, 1)
    enough = math.ceil(share * 10_000) / 10_000
    require(
        len(refused) <= most,
        f"{len(refused):,} of {seen:,} files unreadable ({100 * share:.1f} %), {most:,} are tolerated; "
        f"first: {first_of(tuple(refused))}; `embasis check -o FILE` lists all, "
        f"data.budget={enough:g} (check: --budget) allows more",
    )


def assemble(
    labelled: ImageSide,
    unlabelled: ImageSide,
    names: Sequence[str],
    *,
    test: ImageSide | None = None,
    notes: Iterable[str] = (),
) -> Problem:
    """The sides as one problem; labels of the unlabelled side are hidden."""
    sides = [side for side in (labelled, unlabelled, test) if side is not None]
    images = Images.of(unlabelled.scan.files, None)
    return Problem(
        labelled=Images.of(labelled.scan.files, _numbers(labelled, names)),
        unlabelled=images,
        schema=LabelSchema(tuple(names)),
        test=None if test is None else Images.of(test.scan.files, _numbers(test, names)),
        hidden_labels=None if unlabelled.labels is None else _numbers(unlabelled, names)[_by_id(unlabelled)],
        row_names=tuple(images.names),
        refused=tuple(ledger(labelled, unlabelled, test)),
        files_seen={name: side.seen for name, side in zip(SIDES, (labelled, unlabelled, test), strict=True) if side},
        notes=(*(note for side in sides for note in side.scan.notes), *notes),
    )


def ledger(*sides: ImageSide | None) -> Iterator[RejectedFile]:
    """What the three sides refused, with the name of the side."""
    for name, side in zip(SIDES, sides, strict=True):
        if side is not None:
            yield from (replace(item, side=name) for item in side.scan.refused)


def without_folders(problem: Problem, *paths: PathLike | None) -> Problem:
    """The problem with notes that name folders by their last part: no path of this machine goes into a run."""
    notes = problem.notes
    for path in sorted((shown(os.fspath(path)) for path in paths if path is not None), key=len, reverse=True):
        last = os.path.basename(os.path.abspath(path)) or path
        notes = tuple(note.replace(path, last) for note in notes)
    return replace(problem, notes=notes)


def _by_id(side: ImageSide) -> Tensor:
    return torch.argsort(torch.tensor([file.id for file in side.scan.files], dtype=torch.int64))


def _numbers(side: ImageSide, names: Sequence[str]) -> Tensor:
    """Class numbers; −1 for labels that are unknown or no class."""
    number = {name: index for index, name in enumerate(names)}
    return torch.tensor([number.get(label, -1) for label in side.labels or ()], dtype=torch.int64)
