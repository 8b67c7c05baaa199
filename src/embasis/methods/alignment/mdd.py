"""MDD (Zhang et al. 2019): a second head that agrees with the first on one side and differs on the other.

    loss = CE + weight · {margin · CE(F'(rev f_s), ŷ_s) − mean log(1 − p'_ŷ(rev f_t))},  ŷ = argmax of the first head

F' minimises that: it follows the first head on the labelled side and leaves it on the unlabelled one, as far as it can.
The features, whose gradients are reversed times `strength` · λ(τ), take that away from it. ŷ has no gradient. The first
head is the network's own and predicts.

Deviations: F' has the published hidden layer, and the network's own head is linear, so that F' is of a richer class
(chosen on the two moons: benchmarks/README.md, "Trials of single choices"); log(1 − p') is taken from the scores: of
1 − p' it is −∞ where F' is sure (the authors' code), and with 1e-6 added such rows have no gradient
(Transfer-Learning-Library); the strength follows the part of training that is done, not the number of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from embasis.errors import ConfigError, require
from embasis.functional.adversaries import log_of_others
from embasis.functional.alignment import reversal_strength, reverse_gradient
from embasis.methods.alignment.parts import hidden_width, make_method
from embasis.types import LABELLED, UNLABELLED, Aligner, Method, Phase, Seen, Sizes


@dataclass(frozen=True, kw_only=True)
class MarginDisparity(Aligner):
    """The network and a second head in one phase; between them gradients are reversed."""

    margin: float = 4.0
    strength: float = 0.1

    name: ClassVar[str] = "mdd"
    is_game: ClassVar[bool] = True

    def build(self, network: nn.Module, sizes: Sizes) -> nn.ModuleDict:
        """The second head."""
        hidden = hidden_width(sizes)
        head = nn.Sequential(
            nn.Linear(sizes.features, hidden), nn.ReLU(), nn.Dropout(0.5), nn.Linear(hidden, sizes.classes)
        )
        return nn.ModuleDict({"head": head})

    def phases(self, tau: float) -> Sequence[Phase]:
        """One that moves both."""
        return (Phase("align", ("network", "head")),)

    def loss(self, phase: str, network: nn.Module, extra: nn.ModuleDict, seen: Seen, tau: float) -> Tensor:
        """The second head's own loss; what comes back to the features is reversed."""
        strength = self.strength * reversal_strength(tau)
        labelled, unlabelled = (
            extra["head"](reverse_gradient(seen.rows(side), strength)) for side in (LABELLED, UNLABELLED)
        )
        here, there = (seen.logits(side).detach().argmax(1) for side in (LABELLED, UNLABELLED))
        seen.note("head_disagreement", (unlabelled.argmax(1) != there).float().mean())
        follows = seen.mean(cross_entropy(labelled, here, reduction="none"), LABELLED)
        return self.weight * (self.margin * follows - seen.mean(log_of_others(unlabelled, there), UNLABELLED))


def mdd(classes: int, *, weight: float = 1.0, margin: float = 4.0, strength: float = 0.1) -> Method:
    """MDD: features on which a second head that agrees on the labelled side cannot differ on the other.

    Parameters
    ----------
    weight : of the second head's loss, where the labelled cross-entropy has 1
    margin : how much more agreement on the labelled side counts than difference on the other
    strength : how strongly the second head's gradients are reversed for the features, at the end of training
    """
    require(classes >= 2, f"mdd needs at least 2 classes, got {classes}", ConfigError)
    require(margin > 0, f"margin must be positive, got {margin}", ConfigError)
    require(strength > 0, f"strength must be positive, got {strength}", ConfigError)
    return make_method(MarginDisparity(weight=weight, margin=margin, strength=strength))
