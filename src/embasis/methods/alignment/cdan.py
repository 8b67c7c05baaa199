"""CDAN (Long et al. 2018): a domain classifier sees features together with what they are predicted to be.

    loss = CE + weight · ½ [BCE(D(rev f_s ⊗ ⟦p_s⟧), 1) + BCE(D(rev f_t ⊗ ⟦p_t⟧), 0)],  rev as in DANN

With one class that is DANN. Where f ⊗ p has more than 4,096 entries, D sees (A f) ∘ (B p) / √1024 with fixed normal
matrices A and B. CDAN+E (`by_entropy`) counts a row as 1 + e^(−H(p)), with a mean of 1 on each side.

Deviations: those weights have no gradient, as in TLlib (the authors' code reverses one through the entropy), and the
strength of the reversal follows the part of training that is done, not the number of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from embasis.functional.adversaries import certainty_weights, outer_rows, projected_outer
from embasis.functional.alignment import domain_accuracy, domain_loss, reversal_strength, reverse_gradient
from embasis.methods.alignment.parts import make_domain_classifier, make_method
from embasis.types import LABELLED, UNLABELLED, Aligner, Method, Phase, Seen, Sizes

MOST_ENTRIES, PROJECTED = 4096, 1024
"""The widest f ⊗ p that D sees as it is, and the entries that it sees of a wider one."""


class ConditionalClassifier(nn.Module):
    """Features (n, d) with predictions (n, C) → scores (n): positive for the labelled side."""

    by_features: Tensor
    by_predictions: Tensor

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        entries = sizes.features * sizes.classes
        self.is_projected = entries > MOST_ENTRIES
        if self.is_projected:
            self.register_buffer("by_features", torch.randn(sizes.features, PROJECTED))
            self.register_buffer("by_predictions", torch.randn(sizes.classes, PROJECTED))
        self.domain = make_domain_classifier(PROJECTED if self.is_projected else entries, sizes)

    def forward(self, features: Tensor, predictions: Tensor) -> Tensor:
        """(n)."""
        if self.is_projected:
            joint = projected_outer(features, predictions, self.by_features, self.by_predictions)
        else:
            joint = outer_rows(features, predictions)
        score: Tensor = self.domain(joint)
        return score


@dataclass(frozen=True, kw_only=True)
class ConditionalAdversary(Aligner):
    """DANN's game, by features and predictions together."""

    by_entropy: bool = False

    name: ClassVar[str] = "cdan"
    is_game: ClassVar[bool] = True

    def build(self, network: nn.Module, sizes: Sizes) -> nn.ModuleDict:
        """The domain classifier of features and predictions."""
        return nn.ModuleDict({"domain": ConditionalClassifier(sizes)})

    def phases(self, tau: float) -> Sequence[Phase]:
        """One that moves both; weights by entropy have a mean of 1 over the whole batch."""
        return (Phase("align", ("network", "domain"), whole=self.by_entropy),)

    def loss(self, phase: str, network: nn.Module, extra: nn.ModuleDict, seen: Seen, tau: float) -> Tensor:
        """The domain classifier's own loss; what comes back to the features is reversed."""
        labelled, unlabelled = (judge_pair(extra["domain"], seen, side, tau) for side in (LABELLED, UNLABELLED))
        seen.note("domain_accuracy", domain_accuracy(labelled, unlabelled))
        left = self._mean(domain_loss(labelled, True), seen, LABELLED)
        right = self._mean(domain_loss(unlabelled, False), seen, UNLABELLED)
        return self.weight * (left + right) / 2

    def _mean(self, losses: Tensor, seen: Seen, side: int) -> Tensor:
        return seen.mean(certainty_weights(seen.logits(side)) * losses if self.by_entropy else losses, side)


def judge_pair(domain: nn.Module, seen: Seen, side: int, tau: float) -> Tensor:
    """The domain classifier's score of each row of a side; predictions have no gradient."""
    predictions = seen.logits(side).detach().softmax(1)
    score: Tensor = domain(reverse_gradient(seen.rows(side), reversal_strength(tau)), predictions)
    return score


def cdan(classes: int, *, weight: float = 1.0, by_entropy: bool = False) -> Method:
    """CDAN: features that a domain classifier cannot tell apart even when it knows the predicted class.

    Parameters
    ----------
    weight : of the domain classifier's loss, where the labelled cross-entropy has 1
    by_entropy : CDAN+E: rows whose class is sure count more
    """
    return make_method(ConditionalAdversary(weight=weight, by_entropy=by_entropy))
