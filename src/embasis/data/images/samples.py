"""One side of a problem of images: the files as they were scanned, and as samples that are read when they are needed.

A class is the name of the first-level sub-folder, or the text of the list's label column. Classes are matched by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, pairwise

import torch
from torch import Tensor

from embasis.data.images.files import ImageFile, Scan, printable_path
from embasis.data.problem import SIDE_NAMES, Side
from embasis.data.reader import Reader
from embasis.errors import require
from embasis.randomness import derive
from embasis.types import AugmentKey, CropTarget, LabelSchema, Preparation, Problem, RejectedFile, RowSamples, View


@dataclass(frozen=True)
class ImageSide:
    """A scan with the class of each file; `labels` is None where there are none, "" where one is unknown."""

    scan: Scan
    labels: tuple[str, ...] | None = None
    is_folder: bool = True

    @property
    def name(self) -> str:
        """How messages call this side."""
        return printable_path(self.scan.root)

    @property
    def seen(self) -> int:
        """Files that were met, usable or not."""
        return self.scan.seen if self.scan.seen >= 0 else len(self.scan.files) + len(self.scan.rejected)

    @property
    def named(self) -> Side:
        """The labels without the images, for the rules that tables have too."""
        return Side(self.name, torch.empty(len(self.scan.files), 0), None if self.labels is None else [*self.labels])

    def without(self, reasons: Mapping[str, str], phase: str, kind: str = "quarantined") -> ImageSide:
        """The side when the named files are rejected."""
        if not reasons:
            return self
        stays = bytearray(file.name not in reasons for file in self.scan.files)
        gone = (file.name for file in self.scan.files if file.name in reasons)
        rejected = [RejectedFile(name, reasons[name], phase, kind=kind) for name in gone]
        files = tuple(compress(self.scan.files, stays))
        scan = replace(self.scan, files=files, rejected=(*self.scan.rejected, *rejected))
        return replace(self, scan=scan, labels=None if self.labels is None else tuple(compress(self.labels, stays)))


@dataclass(frozen=True, eq=False)
class Images(RowSamples):
    """Samples on disk: files, labels (N) and ids (N); a file that cannot be read is grey and written down."""

    files: tuple[ImageFile, ...]
    labels: Tensor
    ids: Tensor
    preparation: Preparation | None = None
    reader: Reader = Reader(0)  # noqa: RUF009 — without workers it holds nothing but what it rejected
    strength: str = "light"
    rejected: list[RejectedFile] = field(default_factory=list)
    """Rows that could not be read when they were needed, each once."""

    def __post_init__(self) -> None:
        self.require_columns(len(self.files))

    @classmethod
    def of(cls, files: Sequence[ImageFile], labels: Tensor | None = None) -> Images:
        """Files in the order of their ids; unlabelled unless labels are given."""
        labels = torch.full((len(files),), -1, dtype=torch.int64) if labels is None else labels
        rows, ids = order_by_id(files)
        return cls(tuple(files[row] for row in rows.tolist()), labels[rows], ids)

    @property
    def names(self) -> list[str]:
        """The rows' names in every table: their paths below the root."""
        return [file.name for file in self.files]

    def prepared(self, preparation: Preparation, reader: Reader, strength: str = "light") -> Images:
        """The same rows, made ready for a network; rejected files go to the same list."""
        return replace(self, preparation=preparation, reader=reader, strength=strength)

    def take(self, rows: Tensor) -> Images:
        """Some of the rows, in increasing order, with a list of rejected files of their own."""
        files = tuple(self.files[row] for row in rows.tolist())
        return replace(self, files=files, labels=self.labels[rows], ids=self.ids[rows], rejected=[])

    def inputs(self, rows: Tensor) -> Tensor:
        """The evaluation view of these rows, uint8 (B, 3, S, S)."""
        return next(self.stream([rows])).inputs

    def stream(
        self, batches: Sequence[Tensor], draw: AugmentKey | None = None, aim: CropTarget | None = None
    ) -> Iterator[View]:
        """The views of each batch, read ahead; with `draw` those of training, functions of it and each row's id."""
        require(self.preparation is not None, "images must be prepared for a network before they are read")
        assert self.preparation is not None
        rows: list[list[int]] = [batch.tolist() for batch in batches]
        draws = None
        if draw is not None and self.strength != "none":
            seeds = (draw[0], "augmentation", *draw[1:])
            draws = [[derive(*seeds, self.files[row].id) for row in batch] for batch in rows]
        batches_read = self.reader.batches(self.files, rows, self.preparation, draws, self.strength)
        for numbers, (pixels, rejected) in zip(rows, batches_read, strict=True):
            record_rejected(self.rejected, [self.files[row].name for row in numbers], rejected)
            labels = self.labels[torch.tensor(numbers, dtype=torch.int64)]
            labels[[*rejected]] = -1  # a row that could not be read is grey, and grey has no class
            yield View(pixels, labels)


def order_by_id(files: Sequence[ImageFile]) -> tuple[Tensor, Tensor]:
    """The rows in the order of their ids, which must be unique, and the ids in that order; both int64 (N)."""
    ids = [file.id for file in files]
    order = sorted(range(len(files)), key=ids.__getitem__)
    for first, second in pairwise(order):
        both = f"{files[first].name} and {files[second].name} have the same id {ids[first]}"
        require(ids[first] != ids[second], f"images: {both}; leave one of them out or give it another name")
    rows = torch.tensor(order, dtype=torch.int64)
    return rows, torch.tensor(ids, dtype=torch.int64)[rows]


def record_rejected(ledger: list[RejectedFile], names: Sequence[str], rejected: Mapping[int, str]) -> None:
    """Write down what could not be read of rows with these names, by its place among them; each name once."""
    known = {item.name for item in ledger} if rejected else set()
    for place, reason in rejected.items():
        if names[place] not in known:
            known.add(names[place])
            ledger.append(RejectedFile(names[place], reason, "train"))


def build_image_problem(
    labelled: ImageSide,
    unlabelled: ImageSide,
    names: Sequence[str],
    *,
    test: ImageSide | None = None,
    notes: Iterable[str] = (),
) -> Problem:
    """The sides as one problem; labels of the unlabelled side are hidden."""
    scanned = zip(SIDE_NAMES, (labelled, unlabelled, test), strict=True)
    sides = {name: side for name, side in scanned if side is not None}
    images, (by_id, _) = Images.of(unlabelled.scan.files), order_by_id(unlabelled.scan.files)
    return Problem(
        labelled=Images.of(labelled.scan.files, _number_labels(labelled, names)),
        unlabelled=images,
        schema=LabelSchema(tuple(names)),
        test=None if test is None else Images.of(test.scan.files, _number_labels(test, names)),
        hidden_labels=None if unlabelled.labels is None else _number_labels(unlabelled, names)[by_id],
        row_names=tuple(images.names),
        rejected=tuple(replace(item, side=name) for name, side in sides.items() for item in side.scan.rejected),
        files_seen={name: side.seen for name, side in sides.items()},
        shards={name: side.scan.shards for name, side in sides.items() if side.scan.shards},
        notes=(*(note for side in sides.values() for note in side.scan.notes), *notes),
    )


def _number_labels(side: ImageSide, names: Sequence[str]) -> Tensor:
    """Class numbers; −1 for labels that are unknown or no class."""
    number = {name: index for index, name in enumerate(names)}
    return torch.tensor([number.get(label, -1) for label in side.labels or ()], dtype=torch.int64)
