"""DANN (Ganin et al. 2016): a domain classifier that the features are trained to fool.

loss = CE + weight · ½ [BCE(D(rev f_s), 1) + BCE(D(rev f_t), 0)],  rev reverses gradients times λ(τ)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from embasis.functional.alignment import domain_accuracy, domain_loss, reversal_strength, reverse_gradient
from embasis.methods.alignment.parts import make_domain_classifier, make_method
from embasis.types import LABELLED, UNLABELLED, Aligner, Method, Phase, Seen, Sizes


@dataclass(frozen=True, kw_only=True)
class DomainAdversary(Aligner):
    """The network and a domain classifier in one phase; between them gradients are reversed."""

    name: ClassVar[str] = "dann"
    is_game: ClassVar[bool] = True

    def build(self, network: nn.Module, sizes: Sizes) -> nn.ModuleDict:
        """The domain classifier of rows."""
        return nn.ModuleDict({"domain": make_domain_classifier(sizes.features, sizes)})

    def phases(self, tau: float) -> Sequence[Phase]:
        """One that moves both."""
        return (Phase("align", ("network", "domain")),)

    def loss(self, phase: str, network: nn.Module, extra: nn.ModuleDict, seen: Seen, tau: float) -> Tensor:
        """The domain classifier's own loss; what comes back to the features is reversed."""
        strength = reversal_strength(tau)
        labelled = extra["domain"](reverse_gradient(seen.rows(LABELLED), strength))
        unlabelled = extra["domain"](reverse_gradient(seen.rows(UNLABELLED), strength))
        seen.note("domain_accuracy", domain_accuracy(labelled, unlabelled))
        left = seen.mean(domain_loss(labelled, True), LABELLED)
        right = seen.mean(domain_loss(unlabelled, False), UNLABELLED)
        return self.weight * (left + right) / 2


def dann(classes: int, *, weight: float = 1.0) -> Method:
    """DANN: features that a domain classifier cannot tell apart, by reversed gradients.

    Parameters
    ----------
    weight : of the domain classifier's loss, where the labelled cross-entropy has 1
    """
    return make_method(DomainAdversary(weight=weight))
