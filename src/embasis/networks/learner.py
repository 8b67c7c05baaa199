"""A learner in the place of a network: a classifier that is fitted to weighted rows at once, not trained by gradients.

Its features are the rows as they come (standardised, so the basis lives there), its logits the log of its
probabilities. It has no weights that an optimiser moves; `fit_rows` is all of its training (engine/learner.py).

| symbol | shape | meaning |
| --- | --- | --- |
| x | n d | rows, flat |
| y | n | their classes |
| weight | n | how much each counts |
| p | n C | class probabilities |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import prod

from torch import Tensor, nn

from embasis.errors import NumericalError, require
from embasis.types import Output

LEAST_PROBABILITY = 1e-7
"""What a probability of 0 counts as, so that its log is a number."""


@dataclass(frozen=True, eq=False)
class WeightedRows:
    """What a learner is fitted to."""

    x: Tensor
    y: Tensor
    weight: Tensor


@dataclass(frozen=True)
class FitKey:
    """Which fit of a run this is.

    Parameters
    ----------
    round : of self-training
    seed : of everything that is drawn in this fit
    best : an earlier round whose fit may be asked for again
    """

    round: int
    seed: int
    best: int = 0


class LearnerNetwork(nn.Module, ABC):
    """Gives features and logits as a network does; what it has learned is in its buffers, or in numbered fits."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.features, self.classes = prod(shape), classes

    def forward(self, x: Tensor) -> Output:
        """Features (B, d) and logits (B, C)."""
        rows = x.flatten(1)
        p = self.probability(rows)
        require(tuple(p.shape) == (len(rows), self.classes), f"the learner's answer has shape {tuple(p.shape)}")
        finite = bool(p.isfinite().all())
        require(finite, "the learner's probabilities are not finite numbers", NumericalError)
        return Output(rows, p.clamp_min(LEAST_PROBABILITY).log().float())

    @abstractmethod
    def probability(self, x: Tensor) -> Tensor:
        """(n, C) float64 class probabilities of rows."""

    @abstractmethod
    def fit_rows(self, rows: WeightedRows, key: FitKey) -> None:
        """Learn from these rows alone; what was learned before is forgotten, but for the fit of round `key.best`."""
