"""MinEnt (Vu et al. 2019): predictions on the unlabelled side become sure.

    loss = CE + weight · mean over sites of H(p_t) / log C

Rare classes starve if the weight is large; the paper's priors of class ratios, in some of its rows on SYNTHIA, are left
out. It differs from the method `entropy` in that it acts from the first step of source training on, and that the number
of classes does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from embasis.functional.map_alignment import normalised_entropy
from embasis.methods.alignment.parts import make_method
from embasis.types import UNLABELLED, Aligner, Method, Seen


@dataclass(frozen=True, kw_only=True)
class LeastEntropy(Aligner):
    """weight · the mean entropy of the unlabelled side's sites; no extra module."""

    name: ClassVar[str] = "minent"
    takes: ClassVar[tuple[str, ...]] = ("rows", "maps")
    trains_features: ClassVar[bool] = False

    def loss(self, phase: str, network: nn.Module, extra: nn.ModuleDict, seen: Seen, tau: float) -> Tensor:
        """The entropy of these sites."""
        entropy = seen.mean(normalised_entropy(seen.logits(UNLABELLED)), UNLABELLED)
        seen.note("entropy", entropy.detach())
        return self.weight * entropy


def minent(classes: int, *, weight: float = 1e-3) -> Method:
    """MinEnt: predictions on the unlabelled side that are sure, by their entropy.

    Parameters
    ----------
    weight : of the mean entropy (1 = uniform), where the labelled cross-entropy has 1; published for label maps
    """
    return make_method(LeastEntropy(weight=weight))
