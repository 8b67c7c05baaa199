"""Restyling: the labelled side is shown in the style of the unlabelled one before any network is trained on it.

A restyler learns from both sides how they differ to the eye (colours, textures), never from hidden labels. What it has
learned is a state, kept in every checkpoint; each row of the labelled side then goes through `restyle`, and its labels
stay where they are. It composes with every labeller and every aligner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from embasis.errors import ConfigError, require
from embasis.types.problem import Samples
from embasis.types.values import State


@dataclass(frozen=True, kw_only=True)
class Restyler:
    """Fit on both sides, applied to rows of the labelled one.

    Parameters
    ----------
    weight : share of the new style, 0 … 1, the rest is the old one; 0 = rows as they are, to the bit: nothing is fitted
    """

    weight: float = 1.0

    name: ClassVar[str] = ""
    takes_vectors: ClassVar[bool] = False
    """Whether rows may be vectors, which have no neighbouring pixels."""

    def __post_init__(self) -> None:
        rule = f"{self.name}: the share of the new style must be in 0 … 1, got {self.weight}"
        require(0 <= self.weight <= 1, rule, ConfigError)

    def fit(self, labelled: Samples, unlabelled: Samples, start: State, seed: int) -> State:
        """What is learned: all of it, or a part of it after which the run can be stopped.

        `start` is what the last call returned, empty at first; it is called again until `is_fitted`."""
        raise NotImplementedError

    def is_fitted(self, state: State) -> bool:
        """Whether nothing is left to be learned."""
        return bool(state)

    def restyle(self, pictures: Tensor, state: State, ids: Tensor) -> Tensor:
        """Rows (B, …) in the other side's style: float32 of the same shape, in the units that they came in."""
        raise NotImplementedError
