"""AdvEnt (Vu et al. 2019): maps of how unsure predictions are must look alike on both sides.

    as AdaptSegNet (adaptsegnet.py), with D's input I_c = −p_c log p_c / log C in place of p_c

Deviations are AdaptSegNet's. Figures of some tables (45.5 on GTA5) are of two models, AdvEnt and MinEnt, together; this
is AdvEnt alone (43.8 by a summary of its paper).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from embasis.functional.map_alignment import self_information
from embasis.methods.alignment.adaptsegnet import PredictionAdversary
from embasis.methods.alignment.parts import make_method
from embasis.types import Method


@dataclass(frozen=True, kw_only=True)
class EntropyAdversary(PredictionAdversary):
    """The network against a discriminator of self-information maps."""

    name: ClassVar[str] = "advent"

    def describe(self, logits: Tensor) -> Tensor:
        """What the discriminator sees of scores (B, C, h, w), in as many maps: weighted self-information."""
        return self_information(logits)


def advent(classes: int, *, weight: float = 1e-3, rate: float = 0.4, width: int = 64) -> Method:
    """AdvEnt: predictions that are unsure in the same places on both sides, by a discriminator.

    Parameters
    ----------
    weight : of the discriminator's answer, where the labelled cross-entropy has 1
    rate : learning rate of the discriminator, in units of the network's
    width : channels of the discriminator's first layer
    """
    return make_method(EntropyAdversary(weight=weight, rate=rate, width=width))
