"""The values that travel between the floors: frozen, checked once, at birth.

| symbol | meaning |
| --- | --- |
| N, B | rows: samples, or sites (an image has one site, a segmentation has H'·W'); B those of a batch |
| d, C, K | features, classes, components of the basis |
| *S | the shape of the sites of one sample; empty for vectors |
| y, label | class number, −1 = unlabelled or not trusted |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from embasis.errors import ConfigError, require

State = Mapping[str, Tensor]
"""What a labeller or selector has learned: named tensors, so that it can be stored without a pickle."""


@dataclass(frozen=True)
class LabelSchema:
    """The classes by name; a class number is a position in `names`."""

    names: tuple[str, ...]
    ignore: int = -1

    def __post_init__(self) -> None:
        require(len(self.names) >= 1, "schema: at least one class is needed, got none")
        require(len(set(self.names)) == len(self.names), f"schema: class names must be unique, got {list(self.names)}")

    def __len__(self) -> int:
        return len(self.names)


Draw = tuple[int, int, int]
"""Seed, round and epoch: with a row's id, all that an augmentation depends on."""


class Samples(Protocol):
    """Rows that can be read in any order: arrays now, image folders beside them."""

    @property
    def ids(self) -> Tensor:
        """(N) int64, strictly increasing: the identity that all randomness hangs on."""

    @property
    def labels(self) -> Tensor:
        """(N) int64 class numbers, −1 where there is none."""

    def __len__(self) -> int: ...

    def inputs(self, rows: Tensor) -> Tensor:
        """The network's input for these rows, (B, …)."""

    def stream(self, batches: Sequence[Tensor], draw: Draw | None = None) -> Iterator[Tensor]:
        """The inputs of each batch of rows, in order; with `draw` as training sees them.

        Those are augmented, if at all, by a function of the draw and the row's id, whatever batch the row is in."""


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
        known = ("bicubic", "bilinear")
        rule = f"interpolation must be one of {', '.join(known)}, got {self.interpolation!r}"
        require(self.interpolation in known, rule, ConfigError)


@dataclass(frozen=True)
class Refusal:
    """An item of the data that cannot be used, why, and when that was found: "scan", "read" or "train"."""

    name: str
    reason: str
    phase: str
    side: str = ""
    """"labelled", "unlabelled" or "test"."""


@dataclass(frozen=True, eq=False)
class Arrays:
    """Samples held in memory: x (N, …), labels (N), ids (N)."""

    x: Tensor
    labels: Tensor
    ids: Tensor

    def __post_init__(self) -> None:
        require(self.x.ndim >= 2, f"x must have at least 2 dimensions, got shape {tuple(self.x.shape)}")
        for name in ("labels", "ids"):
            column = getattr(self, name)
            require(
                column.dtype == torch.int64 and column.shape == (len(self.x),),
                f"{name} must be {len(self.x)} int64 values, got {column.dtype} of shape {tuple(column.shape)}",
            )
        require(bool((self.ids[1:] > self.ids[:-1]).all()), "ids must be strictly increasing: unique and in order")

    @classmethod
    def of(cls, x: Tensor, labels: Tensor | None = None, ids: Tensor | None = None) -> Arrays:
        """Rows in the order of their ids (0 … N − 1 unless given); unlabelled unless labels are given."""
        labels = torch.full((len(x),), -1, dtype=torch.int64) if labels is None else labels
        if ids is None:
            return cls(x, labels, torch.arange(len(x)))
        order = torch.argsort(ids)
        return cls(x[order], labels[order], ids[order])

    def __len__(self) -> int:
        return len(self.x)

    def inputs(self, rows: Tensor) -> Tensor:
        """The given rows of x."""
        return self.x[rows]

    def stream(self, batches: Sequence[Tensor], draw: Draw | None = None) -> Iterator[Tensor]:
        """The given rows of x, batch by batch: arrays are not augmented."""
        return (self.x[rows] for rows in batches)


@dataclass(frozen=True, eq=False)
class Problem:
    """Labelled rows here, unlabelled rows there, the classes, and what only `evaluate` may see."""

    labelled: Samples
    unlabelled: Samples
    schema: LabelSchema
    test: Samples | None = None
    hidden: Tensor | None = None
    """True labels of the unlabelled rows, for evaluation only; training never reads them."""
    shared: bool = False
    """Both sides come from one place, so they share their statistics."""
    columns: tuple[str, ...] | None = None
    """Names of the features, where the data have names."""
    row_names: tuple[str, ...] | None = None
    """Names of the unlabelled rows (paths of images), where they have names; tables then call the rows so."""
    refused: tuple[Refusal, ...] = ()
    """What the data sets held and could not be used: the quarantine ledger."""
    notes: tuple[str, ...] = ()
    """What was done for the user that the user should know of."""

    def __post_init__(self) -> None:
        labels, classes = self.labelled.labels, len(self.schema)
        require(len(self.labelled) > 0, "labelled: at least one row is needed, got none")
        low, high = int(labels.min()), int(labels.max())
        require(low >= 0 and high < classes, f"labelled: labels must be in 0..{classes - 1}, got {low}..{high}")
        require(
            not len(self.unlabelled) or bool((self.unlabelled.labels == -1).all()),
            "unlabelled: labels must be hidden (−1); give the true ones as `hidden`",
        )
        named = self.row_names is None or len(self.row_names) == len(self.unlabelled)
        require(named, f"row_names must be {len(self.unlabelled)} names, got {len(self.row_names or ())}")
        if self.hidden is not None:
            shape = tuple(self.hidden.shape)
            require(
                shape == (len(self.unlabelled),), f"hidden must be {len(self.unlabelled)} labels, got shape {shape}"
            )


@dataclass(frozen=True, eq=False)
class Output:
    """What a network says of a batch: features (B, d, *S) and logits (B, C, *S)."""

    features: Tensor
    logits: Tensor


@dataclass(frozen=True, eq=False)
class Features:
    """Rows of sites: x (N, d), scores (N, C) before the softmax, y (N) with −1 = unlabelled, ids (N)."""

    x: Tensor
    scores: Tensor
    y: Tensor
    ids: Tensor

    def __post_init__(self) -> None:
        rows = {len(self.x), len(self.scores), len(self.y), len(self.ids)}
        require(len(rows) == 1, f"features: x, scores, y and ids must have one length, got {sorted(rows)}")

    def __len__(self) -> int:
        return len(self.x)


Stream = Sequence[Features]
"""Features in chunks that can be read again and again; never all of them at once."""


@dataclass(frozen=True, eq=False)
class EMStats:
    """The sufficient statistics of one EM iteration; they add up over batches, shards and processes."""

    mass: Tensor
    """(K) Σ_n w_n z_nk"""
    total: Tensor
    """(K, d) Σ_n w_n z_nk x_n"""
    objective: Tensor
    """() Σ_n w_n log Σ_k exp(kernel): the log likelihood up to a constant"""

    def __add__(self, other: EMStats) -> EMStats:
        return EMStats(self.mass + other.mass, self.total + other.total, self.objective + other.objective)


@dataclass(frozen=True, eq=False)
class LabelDistribution:
    """The label of each site as a distribution: mean, and its variance in two parts, all (N, C)."""

    mean: Tensor
    between: Tensor
    within: Tensor
    uncertainty: Tensor
    """(N) the one number by which sites are ranked; see docs/decisions/0004."""

    @property
    def label(self) -> Tensor:
        """(N) the most probable class."""
        return self.mean.argmax(1)

    @property
    def variance(self) -> Tensor:
        """(N, C) between + within."""
        return self.between + self.within

    def __len__(self) -> int:
        return len(self.mean)


@dataclass(frozen=True, eq=False)
class PseudoLabels:
    """Dense over sites: label (N), weight (N), soft target (N, C) or None; −1 and 0 where nothing is trusted."""

    label: Tensor
    weight: Tensor
    target: Tensor | None = None

    def __post_init__(self) -> None:
        require(
            bool(((self.label >= 0) == (self.weight > 0)).all()),
            "pseudo-labels: weight must be positive exactly where the label is not −1",
        )

    @property
    def trusted(self) -> Tensor:
        """(N) bool."""
        return self.label >= 0

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, rows: Tensor) -> PseudoLabels:
        return PseudoLabels(self.label[rows], self.weight[rows], None if self.target is None else self.target[rows])
