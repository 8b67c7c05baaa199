"""Rows that can be read, and what a run is given: labelled rows here, unlabelled rows there.

| symbol | meaning |
| --- | --- |
| N, B | rows: samples; B those of a batch |
| *S, grid | the shape of the sites of one sample: () for a row with one label, (h, w) for a picture with a label map |
| y, label | class number, −1 = unlabelled |
| place | (row, column) of a site's centre in its picture, both in [0, 1]; NaN = outside of it |
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from embasis.errors import ConfigError, check_choice, quote, require
from embasis.types.encoding import TableEncoding

if TYPE_CHECKING:
    from embasis.types.restyling import RestyledStore

PathLike = str | os.PathLike[str]
AugmentKey = tuple[int, int, int]
"""Seed, round and epoch: with a row's id, all that an augmentation depends on."""


@dataclass(frozen=True)
class LabelSchema:
    """The classes by name; a class number is a position in `names`.

    Parameters
    ----------
    names : of the classes, each once
    ignore : the number that stands for no class
    """

    names: tuple[str, ...]
    ignore: int = -1

    def __post_init__(self) -> None:
        require(len(self.names) >= 1, "schema: at least one class is needed, got none")
        require(len(set(self.names)) == len(self.names), f"schema: class names must be unique, got {list(self.names)}")

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class ClassTable:
    """How label maps on disk say which class a pixel has, and how they are written.

    `ids[c]` are the numbers of class c in a map, the first one is written; `colours[c]` its colour, in colour-coded
    maps and in pictures of labels. Numbers in `ignore` say nothing; any other number is an error, unless `others`."""

    names: tuple[str, ...]
    ids: tuple[tuple[int, ...], ...]
    colours: tuple[tuple[int, int, int], ...] = ()
    ignore: tuple[int, ...] = (255,)
    others: bool = False
    """Whether numbers that are not named are ignored, too."""
    coded: str = "ids"
    """"ids": 8- or 16-bit numbers, or a palette's indices; "colours": RGB; "first": first channel of 16-bit RGB."""

    def __post_init__(self) -> None:
        count = len(self.names)
        require(count >= 2, f"classes: at least 2 are needed, got {count}")
        require(count <= 254, f"classes: at most 254 are possible, got {count}")
        require(len(set(self.names)) == count, f"classes: names must be unique, got {list(self.names)}")
        require(len(self.ids) == count, f"classes: {count} names, but ids of {len(self.ids)}")
        require(not self.colours or len(self.colours) == count, f"classes: {count} names, {len(self.colours)} colours")
        known = ("ids", "colours", "first")
        require(self.coded in known, f"classes: coded must be one of {', '.join(known)}, got {quote(self.coded)}")
        require(self.coded != "colours" or bool(self.colours), "classes: colour-coded maps need the colours of classes")

    @property
    def numbers(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of each class in a map: its ids, or its colour as 0xRRGGBB; none where a class has none."""
        if self.coded != "colours":
            return self.ids
        return tuple((red << 16 | green << 8 | blue,) if red >= 0 else () for red, green, blue in self.colours)


@dataclass(frozen=True)
class Preparation:
    """How an image becomes a network's input, uint8 (3, size, size); pixels are scaled by the network itself."""

    size: int = 224
    crop: float = 0.875
    """Share of the resized short side that the crop in the centre keeps."""
    interpolation: str = "bicubic"

    def __post_init__(self) -> None:
        require(self.size >= 1, f"size must be at least 1, got {self.size}", ConfigError)
        require(0 < self.crop <= 1, f"crop must be in (0, 1], got {self.crop}", ConfigError)
        check_choice(self, "interpolation", ("bicubic", "bilinear"))


@dataclass(frozen=True)
class RejectedFile:
    """An item of the data that cannot be used, why, and when that was found: "scan", "read" or "train"."""

    name: str
    reason: str
    phase: str
    side: str = ""
    """"labelled", "unlabelled" or "test"."""
    kind: str = field(default="quarantined", compare=False)
    """"quarantined": it is damaged or gone; "refused": a rule leaves it out; "unscored": a label map without which its
    picture is used all the same."""


@dataclass(frozen=True, eq=False)
class View:
    """What a batch of samples shows: inputs (B, …), y (B, *S) with −1 = unknown, places (B, *S, 2) of grids."""

    inputs: Tensor
    y: Tensor
    places: Tensor | None = None

    @property
    def grid(self) -> tuple[int, ...]:
        """*S."""
        return tuple(self.y.shape[1:])


@dataclass(frozen=True, eq=False)
class CropTarget:
    """What training views are to show more often: classes (C) by how much they are wanted, and places if known.

    `places` has for each batch (B, 2): the place that a view of the row is to contain, NaN = any. Without it the reader
    looks for a wanted class in the row's own label map, if it has one."""

    classes: Tensor
    places: Sequence[Tensor] | None = None


class GroundTruth(Protocol):
    """True classes of each row, −1 = unknown, in the shape they were given in: () or a map (H, W)."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int) -> Tensor: ...


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
            fits = column.dtype == torch.int64 and column.shape == (count,)
            require(fits, f"{name} must be {count} int64 values, got {column.dtype} of shape {tuple(column.shape)}")
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

    def change_rows(self, change: Callable[[Tensor], Tensor]) -> Arrays:
        """The same labels and ids with other rows: a function of x."""
        return Arrays(change(self.x), self.labels, self.ids)


def stream_shared(samples: Samples, batches: Sequence[Tensor]) -> Iterator[View]:
    """What each batch of rows shows, as `stream` says without a draw; rows of arrays that follow each other are the
    arrays' own memory, for whoever never writes into them."""
    if not isinstance(samples, Arrays):
        return samples.stream(batches)
    return (View(share_rows(samples.x, rows), samples.labels[rows]) for rows in batches)


def share_rows(x: Tensor, rows: Tensor) -> Tensor:
    """x[rows], without a copy where they follow each other."""
    count = len(rows)
    first = int(rows[0]) if count else 0
    if count and int(rows[-1]) == first + count - 1 and torch.equal(rows, torch.arange(first, first + count)):
        return x[first : first + count]
    return x[rows]


def fine_of(samples: Samples) -> Fine | None:
    """What these samples, or those they are a part of, hold finer than their inputs."""
    fine = getattr(samples, "fine", None)
    return fine if isinstance(fine, Fine) else None


@dataclass(frozen=True)
class ShardRecord:
    """One of the files that a side came in: its bytes and rows, the number of its first row, and its sha256."""

    name: str
    bytes: int
    rows: int
    first: int
    sha256: str


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
    encoding : how a table's own columns become the features, where they have names
    row_names : names of the unlabelled rows (paths of images), where they have names; tables then call the rows so
    other_names : names of the rows of the labelled and the test side, where they were files
    rejected : what the data sets held and could not be used: the quarantine ledger
    files_seen : files that were met on each side, where they were counted: the ledger must account for each
    notes : what was done for the user that the user should know of
    corrected : rows of the labelled side that a person has labelled on the unlabelled one
    read_seconds : how long it took to read the data
    shards : the shards of each side that came in shards
    restyled : keeps labelled rows in their new style; None = they are restyled in memory, or whenever they are read
    """

    labelled: Samples
    unlabelled: Samples
    schema: LabelSchema
    test: Samples | None = None
    hidden_labels: GroundTruth | None = None
    same_domain: bool = False
    columns: tuple[str, ...] | None = None
    encoding: TableEncoding | None = None
    row_names: tuple[str, ...] | None = None
    other_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rejected: tuple[RejectedFile, ...] = ()
    files_seen: Mapping[str, int] | None = None
    notes: tuple[str, ...] = ()
    corrected: int = 0
    read_seconds: float = 0.0
    shards: Mapping[str, tuple[ShardRecord, ...]] = field(default_factory=dict)
    restyled: RestyledStore | None = None

    def __post_init__(self) -> None:
        labels, classes = self.labelled.labels, len(self.schema)
        require(len(self.labelled) > 0, "labelled: at least one row is needed, got none")
        low, high = int(labels.min()), int(labels.max())
        require(low >= 0 and high < classes, f"labelled: labels must be in 0..{classes - 1}, got {low}..{high}")
        is_hidden, count = bool((self.unlabelled.labels == -1).all()), len(self.unlabelled)
        require(is_hidden, "unlabelled: labels must be hidden (−1); give the true ones as `hidden_labels`")
        names = count if self.row_names is None else len(self.row_names)
        require(names == count, f"row_names must be {count} names, got {names}")
        hidden = self.hidden_labels
        if hidden is not None:
            shape = tuple(hidden.shape) if isinstance(hidden, Tensor) else (len(hidden),)
            require(shape == (count,), f"hidden_labels must be {count} labels, got shape {shape}")
