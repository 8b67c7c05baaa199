"""Image files as samples: read when they are asked for, in the order of their ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import torch
from torch import Tensor

from embasis.data.images.scan import ImageFile
from embasis.data.workers.loading import Reader
from embasis.errors import require
from embasis.randomness import derive
from embasis.types import AugmentKey, CropTarget, Preparation, RejectedFile, RowSamples, View


@dataclass(frozen=True, eq=False)
class Images(RowSamples):
    """Samples on disk: files, labels (N) and ids (N); a file that cannot be read is grey and written down."""

    files: tuple[ImageFile, ...]
    labels: Tensor
    ids: Tensor
    preparation: Preparation | None = None
    reader: Reader = Reader(0)  # noqa: RUF009 — without workers it holds nothing but what it refused
    strength: str = "light"
    refused: list[RejectedFile] = field(default_factory=list)
    """Rows that could not be read when they were asked for, each once."""

    def __post_init__(self) -> None:
        self.require_columns(len(self.files))

    @classmethod
    def of(cls, files: Sequence[ImageFile], labels: Tensor | None = None) -> Images:
        """Files in the order of their ids; unlabelled unless labels are given."""
        labels = torch.full((len(files),), -1, dtype=torch.int64) if labels is None else labels
        ids = [file.id for file in files]
        order = sorted(range(len(files)), key=ids.__getitem__)
        for first, second in pairwise(order):
            twins = f"{files[first].name} and {files[second].name} have the same id {ids[first]}"
            require(ids[first] != ids[second], f"images: {twins}; leave one of them out or give it another name")
        where = torch.tensor(order, dtype=torch.int64)
        return cls(tuple(files[row] for row in order), labels[where], torch.tensor(ids, dtype=torch.int64)[where])

    @property
    def names(self) -> list[str]:
        """The rows' names in every table: their paths below the root."""
        return [file.name for file in self.files]

    def prepared(self, preparation: Preparation, reader: Reader, strength: str = "light") -> Images:
        """The same rows, made ready for a network; refusals go to the same list."""
        return replace(self, preparation=preparation, reader=reader, strength=strength)

    def take(self, rows: Tensor) -> Images:
        """Some of the rows, in increasing order, with a list of refusals of their own."""
        files = tuple(self.files[row] for row in rows.tolist())
        return replace(self, files=files, labels=self.labels[rows], ids=self.ids[rows], refused=[])

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
            draws = [
                [derive(draw[0], "augmentation", *draw[1:], self.files[row].id) for row in batch] for batch in rows
            ]
        found = self.reader.batches(self.files, rows, self.preparation, draws, self.strength)
        for numbers, (pixels, refused) in zip(rows, found, strict=True):
            note(self.refused, [self.files[row].name for row in numbers], refused)
            labels = self.labels[torch.tensor(numbers, dtype=torch.int64)]
            labels[[*refused]] = -1  # a row that could not be read is grey, and grey has no class
            yield View(pixels, labels)


def note(ledger: list[RejectedFile], names: Sequence[str], refused: dict[int, str]) -> None:
    """Write down what could not be read of rows with these names, by its place among them; each name once."""
    known = {refusal.name for refusal in ledger} if refused else set()
    for place, reason in refused.items():
        if names[place] not in known:
            known.add(names[place])
            ledger.append(RejectedFile(names[place], reason, "train"))
