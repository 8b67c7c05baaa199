"""What is computed of rows: features, label distributions, and the labels that the next round trains on.

| symbol | meaning |
| --- | --- |
| N, B | rows: samples, or sites (an image has one site, a segmentation has H'·W'); B those of a batch |
| d, C, K | features, classes, components of the basis |
| *S | the shape of the sites of one sample; empty for vectors |
| y, label | class number, −1 = unlabelled or not trusted |
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from embasis.errors import require
from embasis.types.problem import AugmentKey, View

State = Mapping[str, Tensor]
"""What a labeller or selector has learned: named tensors, so that it can be stored without a pickle."""


@dataclass(frozen=True, eq=False)
class Output:
    """What a network says of a batch: features (B, d, *S) and logits (B, C, *S)."""

    features: Tensor
    logits: Tensor


@dataclass(frozen=True, eq=False)
class Features:
    """Rows of sites: x (N, d), scores (N, C) before the softmax, y (N) with −1 = unlabelled, ids (N).

    `rows` and `grid` say which samples they are of, where all of their sites are there, row after row.
    `weight` (N) says how many sites of its side each stands for, where they are a sample in other shares than the
    side's; None = each for itself."""

    x: Tensor
    scores: Tensor
    y: Tensor
    ids: Tensor
    rows: Tensor | None = None
    grid: tuple[int, ...] = ()
    weight: Tensor | None = None

    def __post_init__(self) -> None:
        lengths = {len(column) for column in (self.x, self.scores, self.y, self.ids, self.weight) if column is not None}
        require(
            len(lengths) == 1, f"features: x, scores, y, ids and weight must have one length, got {sorted(lengths)}"
        )

    def __len__(self) -> int:
        return len(self.x)

    @property
    def site_weight(self) -> Tensor:
        """(N) the weights, ones where there are none."""
        return torch.ones(len(self.x)) if self.weight is None else self.weight


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
    """The label of each site as a distribution: its mean, and its variance in two parts.

    Parameters
    ----------
    mean : (N, C) class probabilities; rows sum to one
    between : (N, C) variance by which the components of a basis disagree
    within : (N, C) variance within each component; between + within = mean (1 − mean)
    uncertainty : (N) the one number by which sites are ranked (decision 0004)
    """

    mean: Tensor
    between: Tensor
    within: Tensor
    uncertainty: Tensor

    @cached_property
    def label(self) -> Tensor:
        """(N) the most probable class, the first one where several are."""
        is_class_by_class = self.mean.stride(0) == 1 and 1 < self.mean.shape[1] < 256
        return first_largest(self.mean.T) if is_class_by_class else self.mean.argmax(1)

    @property
    def variance(self) -> Tensor:
        """(N, C) between + within."""
        return self.between + self.within

    @classmethod
    def joined(cls, parts: Sequence[LabelDistribution]) -> LabelDistribution:
        """Parts as one, site after site; a single one is not copied."""
        if len(parts) == 1:
            return parts[0]
        columns = ((part.mean, part.between, part.within, part.uncertainty) for part in parts)
        return LabelDistribution(*(torch.cat(column) for column in zip(*columns, strict=True)))

    def __len__(self) -> int:
        return len(self.mean)

    def __getitem__(self, sites: Tensor | slice) -> LabelDistribution:
        return LabelDistribution(self.mean[sites], self.between[sites], self.within[sites], self.uncertainty[sites])


def first_largest(rows: Tensor) -> Tensor:
    """argmax over the first of two dimensions of fewer than 256 rows, class by class: ten times as fast for maps."""
    best, count = rows.amax(0), len(rows)
    rank = torch.zeros(rows.shape[1], dtype=torch.uint8)
    for number, row in enumerate(rows):
        torch.maximum(rank, torch.eq(row, best).view(torch.uint8).mul_(count - number), out=rank)
    return count - rank.long()


@dataclass(frozen=True, eq=False)
class PackedLabels:
    """The label distribution of all sites of one row, small enough to keep: 3·C + 5 bytes a site."""

    row: int
    grid: tuple[int, ...]
    mean: Tensor
    """(S, C) float16"""
    between: Tensor
    """(S, C) uint8: 255 stands for ¼, the largest there is"""
    uncertainty: Tensor
    """(S) float32"""
    network: Tensor
    """(S) uint8: the network's own label"""


class LabelStore(Protocol):
    """Where the label distributions of a round lie until the next one is done."""

    def write(self, number: int, parts: Iterator[PackedLabels]) -> Sequence[PackedLabels]:
        """Keep the parts of a round, row after row; they are taken as they come and can be read again from here on."""

    def read(self, number: int) -> Sequence[PackedLabels]:
        """The parts of a round."""

    def keep(self, numbers: Collection[int]) -> None:
        """Forget all other rounds."""


class TrainingTargets(Protocol):
    """What a round trains on: `PseudoLabels` of rows with one site each, or labels of grids in a label store."""

    @property
    def useful(self) -> Tensor:
        """Numbers of the rows with something that is trusted."""

    @property
    def packed_rows(self) -> Sequence[PackedLabels] | None:
        """The labels of all sites as a label store keeps them; None where rows have one site each."""

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps."""

    def seen(self, rows: Tensor, view: View) -> PseudoLabels:
        """Pseudo-labels of all sites of a view of these rows."""

    def crop_targets(self, rows: Tensor, classes: Tensor, key: AugmentKey) -> Tensor | None:
        """(B, 2) the place in each row that a view is to show, by how much each class is wanted; None = anywhere."""


@dataclass(frozen=True, eq=False)
class PseudoLabels:
    """What the next round trains on, of all sites.

    Parameters
    ----------
    label : (N) class number; −1 where nothing is trusted
    weight : (N) weight in the loss; 0 where nothing is trusted, positive elsewhere
    target : (N, C) soft labels in place of the hard ones; None = hard ones
    """

    label: Tensor
    weight: Tensor
    target: Tensor | None = None

    def __post_init__(self) -> None:
        fits = bool(((self.label >= 0) == (self.weight > 0)).all())
        require(fits, "pseudo-labels: weight must be positive exactly where the label is not −1")

    @property
    def trusted(self) -> Tensor:
        """(N) bool."""
        return self.label >= 0

    @property
    def useful(self) -> Tensor:
        """Numbers of the trusted rows."""
        return torch.nonzero(self.trusted).squeeze(1)

    @property
    def packed_rows(self) -> None:
        """Rows with one site each are not packed."""
        return None

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps."""
        kept = {"label": self.label, "weight": self.weight}
        return kept if self.target is None else {**kept, "target": self.target}

    def seen(self, rows: Tensor, view: View) -> PseudoLabels:
        """What is trusted in a view of these rows: a row with one site always shows all of it."""
        return self[rows]

    def crop_targets(self, rows: Tensor, classes: Tensor, key: AugmentKey) -> Tensor | None:
        """Where classes lie in these rows: nowhere, with one site each."""
        return None

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, rows: Tensor) -> PseudoLabels:
        return PseudoLabels(self.label[rows], self.weight[rows], None if self.target is None else self.target[rows])
