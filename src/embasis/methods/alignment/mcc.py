"""MCC (Jin et al. 2020): predictions on the unlabelled side confuse no two classes.

    loss = CE + weight · (ΣQ − tr Q) / C,  Q = Pᵀ W P with rows normalised, P = softmax(z_t / T)

One class for all rows also scores 0, so that the collapse guard is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from embasis.errors import ConfigError, require
from embasis.functional.alignment import class_confusion
from embasis.methods.alignment.parts import make_method
from embasis.types import UNLABELLED, Aligner, Method, Phase, Seen


@dataclass(frozen=True, kw_only=True)
class MinimumConfusion(Aligner):
    """weight · the confusion of classes on the unlabelled side; no extra module."""

    temperature: float = 2.5

    name: ClassVar[str] = "mcc"
    trains_features: ClassVar[bool] = False

    def phases(self, tau: float) -> Sequence[Phase]:
        """One, of the whole batch."""
        return (Phase("align", ("network",), whole=True),)

    def loss(self, phase: str, network: nn.Module, extra: nn.ModuleDict, seen: Seen, tau: float) -> Tensor:
        """The confusion of these rows."""
        confusion = class_confusion(seen.logits(UNLABELLED), self.temperature)
        seen.note("confusion", confusion.detach())
        return self.weight * confusion


def mcc(classes: int, *, weight: float = 1.0, temperature: float = 2.5) -> Method:
    """MCC: predictions on the unlabelled side that confuse no two classes.

    Parameters
    ----------
    weight : of the confusion, where the labelled cross-entropy has 1
    temperature : predictions are softened by it before they are compared
    """
    require(temperature > 0, f"temperature must be positive, got {temperature}", ConfigError)
    return make_method(MinimumConfusion(weight=weight, temperature=temperature))
