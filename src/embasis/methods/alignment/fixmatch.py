"""FixMatch (Sohn et al. 2020): a row's label in the training view is what a stronger view of it is trained on.

    loss = CE + weight · mean_t [max p(weak) ≥ threshold] · CE(z(strong), argmax p(weak))

The mean is over all rows, not over those that are kept: with few sure rows the term is small. The weak view is the one
that training has anyway, the strong one is twice as far from the row: a warp, other light, or noise on vectors.

Deviations: no RandAugment and no cut-out, both sides have batches of one size, the optimiser is the plan's and no
average of the weights predicts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from embasis.errors import ConfigError, require
from embasis.functional.consistency import confident_cross_entropy
from embasis.functional.sites import to_sites
from embasis.methods.alignment.parts import make_method
from embasis.types import UNLABELLED, Aligner, Method, Seen


@dataclass(frozen=True, kw_only=True)
class StrongViewLabels(Aligner):
    """weight · the cross-entropy of strong views with the sure labels of weak ones; no extra module."""

    threshold: float = 0.9

    name: ClassVar[str] = "fixmatch"
    takes: ClassVar[tuple[str, ...]] = ("rows", "maps")
    trains_features: ClassVar[bool] = False
    is_game: ClassVar[bool] = True
    second_view: ClassVar[float] = 2.0

    def loss(self, phase: str, network: nn.Module, extra: nn.ModuleDict, seen: Seen, tau: float) -> Tensor:
        """The mean over all sites of these rows."""
        weak = seen.logits(UNLABELLED).detach()
        strong = to_sites(seen.run(network, seen.view, UNLABELLED).logits).float()
        seen.note("sure_share", (weak.softmax(1).amax(1) >= self.threshold).float().mean())
        return self.weight * seen.mean(confident_cross_entropy(weak, strong, self.threshold), UNLABELLED)


def fixmatch(classes: int, *, weight: float = 1.0, threshold: float = 0.9) -> Method:
    """FixMatch: sure labels of a row are trained on in a stronger view of it.

    Parameters
    ----------
    weight : of the strong views' cross-entropy, where the labelled one has 1
    threshold : probability from which on a label is sure
    """
    require(0 < threshold <= 1, f"threshold must be in (0, 1], got {threshold}", ConfigError)
    return make_method(StrongViewLabels(weight=weight, threshold=threshold))
