"""BSP (Chen et al. 2019): DANN whose features may not live along one direction alone.

    loss = DANN's + penalty · [σ₁²(f_s) + σ₁²(f_t)],  σ₁ the largest singular value of a side's rows

A domain classifier that is fooled leaves transferable directions large and the others, which tell classes apart,
small; the penalty weakens the first of them.

Deviations: σ₁² grows with the number of rows, so it is taken per row and times 36, the rows of a published batch: the
penalty means the same for batches of any size. DANN's λ(τ), which begins at 0, stands for the epochs of source training
before the game that re-implementations add. 2e-4 is their penalty; the authors' code for VisDA has 1e-4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from embasis.errors import ConfigError, require
from embasis.functional.alignment import squared_top_value
from embasis.methods.alignment.dann import DomainAdversary
from embasis.methods.alignment.parts import make_method
from embasis.types import LABELLED, UNLABELLED, Method, Phase, Seen

BATCH = 36
"""Rows of a side in a published batch."""


@dataclass(frozen=True, kw_only=True)
class SpectralAdversary(DomainAdversary):
    """The game of `DomainAdversary`, and penalty · σ₁² of each side."""

    penalty: float = 2e-4

    name: ClassVar[str] = "bsp"

    def phases(self, tau: float) -> Sequence[Phase]:
        """One of the whole batch, which moves both."""
        return (Phase("align", ("network", "domain"), whole=True),)

    def loss(self, phase: str, network: nn.Module, extra: nn.ModuleDict, seen: Seen, tau: float) -> Tensor:
        """The domain classifier's loss with reversed gradients, and the penalty with plain ones."""
        game = super().loss(phase, network, extra, seen, tau)
        spectral = sum(
            (BATCH / len(rows) * squared_top_value(rows) for rows in (seen.rows(LABELLED), seen.rows(UNLABELLED))),
            game.new_zeros(()),
        )
        seen.note("squared_top_values", spectral.detach())
        return game + self.penalty * spectral


def bsp(classes: int, *, weight: float = 1.0, penalty: float = 2e-4) -> Method:
    """BSP: DANN, with a penalty for features that lie along one direction.

    Parameters
    ----------
    weight : of the domain classifier's loss, where the labelled cross-entropy has 1; 0 drops the penalty too
    penalty : of the largest squared singular value of each side's rows, as of a batch of 36
    """
    require(penalty >= 0, f"penalty must be at least 0, got {penalty}", ConfigError)
    return make_method(SpectralAdversary(weight=weight, penalty=penalty))
