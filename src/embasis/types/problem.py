"""Rows that can be read, and what a run is given: labelled rows here, unlabelled rows there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from embasis.errors import require
from embasis.types.maps import CropTarget, GroundTruth, View
from embasis.types.values import AugmentKey, LabelSchema, RejectedFile


class Samples(Protocol):
    """Rows that can be read in any order: arrays, image folders, pictures with label maps."""

    @property
    def ids(self) -> Tensor:
        """(N) int64, strictly increasing: the identity that all randomness hangs on."""

    @property
    def labels(self) -> Tensor:
        """(N) int64 class numbers of the rows (of a map: its commonest class), −1 where there is none."""

    @property
    def truth(self) -> GroundTruth:
        """The classes of each row in the shape they were given in."""

    @property
    def has_mixed_shapes(self) -> bool:
        """Whether rows differ in shape, so that they can only be read whole one at a time."""

    def counts(self, classes: int, rows: Tensor | None = None) -> Tensor:
        """(C) int64: how many sites of these rows, or of all, have each class."""

    def __len__(self) -> int: ...

    def inputs(self, rows: Tensor) -> Tensor:
        """The network's input for these rows, (B, …)."""

    def stream(
        self, batches: Sequence[Tensor], draw: AugmentKey | None = None, aim: CropTarget | None = None
    ) -> Iterator[View]:
        """What each batch of rows shows, in order; with `draw` as training sees it.

        That is augmented, if at all, by a function of the draw, the aim and the row's id, whatever batch it is in."""


class RowSamples(ABC):
    """Samples of which each row has one label, and all rows one shape; how a row is read is left to the subclass."""

    labels: Tensor
    ids: Tensor

    @abstractmethod
    def inputs(self, rows: Tensor) -> Tensor:
        """The network's input for these rows, (B, …)."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def truth(self) -> GroundTruth:
        """The labels."""
        return self.labels

    @property
    def has_mixed_shapes(self) -> bool:
        """All rows have one shape."""
        return False

    def counts(self, classes: int, rows: Tensor | None = None) -> Tensor:
        """(C) int64: rows of each class."""
        labels = self.labels if rows is None else self.labels[rows]
        return torch.bincount(labels[labels >= 0], minlength=classes)

    def stream(
        self, batches: Sequence[Tensor], draw: AugmentKey | None = None, aim: CropTarget | None = None
    ) -> Iterator[View]:
        """The given rows, batch by batch, never augmented."""
        return (View(self.inputs(rows), self.labels[rows]) for rows in batches)

    def require_columns(self, count: int) -> None:
        """There is a label and an id for each of so many rows, in the order of the ids."""
        for name, column in (("labels", self.labels), ("ids", self.ids)):
            require(
                column.dtype == torch.int64 and column.shape == (count,),
                f"{name} must be {count} int64 values, got {column.dtype} of shape {tuple(column.shape)}",
            )
        require(bool((self.ids[1:] > self.ids[:-1]).all()), "ids must be strictly increasing: unique and in order")


@dataclass(frozen=True, eq=False)
class Fine:
    """Columns whose differences float32 cannot hold (times, say): values (N, k) float64 of the numbers at `columns` (k)
    of a flat input, which are rising."""

    columns: Tensor
    values: Tensor

    def take(self, rows: Tensor) -> Fine:
        """Those of the given rows."""
        return Fine(self.columns, self.values[rows])


@dataclass(frozen=True, eq=False)
class Arrays(RowSamples):
    """Samples held in memory: x (N, …), labels (N), ids (N)."""

    x: Tensor
    labels: Tensor
    ids: Tensor
    fine: Fine | None = None
    """Columns of x in float64, where float32 loses them: for whoever centres x. Networks see x."""

    def __post_init__(self) -> None:
        require(self.x.ndim >= 2, f"x must have at least 2 dimensions, got shape {tuple(self.x.shape)}")
        self.require_columns(len(self.x))
        has_all_rows = self.fine is None or len(self.fine.values) == len(self.x)
        require(has_all_rows, f"fine must have {len(self.x)} rows, as x has")

    @classmethod
    def of(cls, x: Tensor, labels: Tensor | None = None, ids: Tensor | None = None, fine: Fine | None = None) -> Arrays:
        """Rows in the order of their ids (0 … N − 1 unless given); unlabelled unless labels are given."""
        labels = torch.full((len(x),), -1, dtype=torch.int64) if labels is None else labels
        if ids is None:
            return cls(x, labels, torch.arange(len(x)), fine)
        order = torch.argsort(ids)
        return cls(x[order], labels[order], ids[order], None if fine is None else fine.take(order))

    def inputs(self, rows: Tensor) -> Tensor:
        """The given rows of x."""
        return self.x[rows]


def fine_of(samples: Samples) -> Fine | None:
    """What these samples, or those they are a part of, hold finer than their inputs."""
    fine = getattr(samples, "fine", None)
    return fine if isinstance(fine, Fine) else None


@dataclass(frozen=True, eq=False)
class Problem:
    """Labelled rows here, unlabelled rows there, the classes, and what only `evaluate` may see.

    Parameters
    ----------
    labelled : rows with a class each, or with a map of classes
    unlabelled : rows of the other place; their labels are −1
    schema : the classes by name
    test : rows with labels, for evaluation only
    hidden_labels : true labels of the unlabelled rows, for evaluation only; training never reads them
    same_domain : both sides come from one place, so they share their statistics
    columns : names of the features, where the data have names
    row_names : names of the unlabelled rows (paths of images), where they have names; tables then call the rows so
    rejected : what the data sets held and could not be used: the quarantine ledger
    files_seen : files that were met on each side, where they were counted: the ledger must account for each
    notes : what was done for the user that the user should know of
    corrected : rows of the labelled side that a person has labelled on the unlabelled one
    """

    labelled: Samples
    unlabelled: Samples
    schema: LabelSchema
    test: Samples | None = None
    hidden_labels: GroundTruth | None = None
    same_domain: bool = False
    columns: tuple[str, ...] | None = None
    row_names: tuple[str, ...] | None = None
    rejected: tuple[RejectedFile, ...] = ()
    files_seen: Mapping[str, int] | None = None
    notes: tuple[str, ...] = ()
    corrected: int = 0

    def __post_init__(self) -> None:
        labels, classes = self.labelled.labels, len(self.schema)
        require(len(self.labelled) > 0, "labelled: at least one row is needed, got none")
        low, high = int(labels.min()), int(labels.max())
        require(low >= 0 and high < classes, f"labelled: labels must be in 0..{classes - 1}, got {low}..{high}")
        require(
            not len(self.unlabelled) or bool((self.unlabelled.labels == -1).all()),
            "unlabelled: labels must be hidden (−1); give the true ones as `hidden_labels`",
        )
        named = self.row_names is None or len(self.row_names) == len(self.unlabelled)
        require(named, f"row_names must be {len(self.unlabelled)} names, got {len(self.row_names or ())}")
        hidden, count = self.hidden_labels, len(self.unlabelled)
        if hidden is not None:
            shape = tuple(hidden.shape) if isinstance(hidden, Tensor) else (len(hidden),)
            require(shape == (count,), f"hidden_labels must be {count} labels, got shape {shape}")
