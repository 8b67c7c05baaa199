"""AFN (Xu et al. 2019), stepwise: features of both sides are made longer, a little with every step.

    loss = CE + weight · Σ over sides of mean (‖f‖ − ⟦‖f‖⟧ − step)² + entropy_weight · mean H(softmax z_t)

⟦‖f‖⟧ is the same length without a gradient: the value is always step², and its gradient always lengthens. The noted
`length` is the mean of the unlabelled side's.

Deviations: rows that have reached the length `radius`, that of the paper's hard variant, are not lengthened further.
The published code stops after few steps of SGD instead; the steps of Adam have one size however small a gradient is,
and without a radius all digits end in one class (`embasis compare digits --methods afn --seeds 1 radius=1e30`). The
network's own dropout stays as it is (the published code scales features by √(1 − dropout) in training).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from embasis.errors import ConfigError, require
from embasis.functional.alignment import lengthening_loss
from embasis.functional.losses import prediction_entropy
from embasis.methods.alignment.parts import make_method
from embasis.types import LABELLED, UNLABELLED, Aligner, Method, Seen


@dataclass(frozen=True, kw_only=True)
class FeatureNorms(Aligner):
    """weight · what lengthens the rows of both sides; no extra module."""

    step: float = 1.0
    radius: float = 25.0
    entropy_weight: float = 0.0

    name: ClassVar[str] = "afn"

    def loss(self, phase: str, network: nn.Module, extra: nn.ModuleDict, seen: Seen, tau: float) -> Tensor:
        """Of these rows, and the entropy of the unlabelled ones where it is asked for."""
        total = self.weight * sum(
            (seen.mean(self._lengthen(seen.rows(side)), side) for side in (LABELLED, UNLABELLED)),
            seen.rows(LABELLED).new_zeros(()),
        )
        seen.note("length", seen.rows(UNLABELLED).detach().norm(dim=1).mean())
        if self.entropy_weight:
            entropy = seen.mean(prediction_entropy(seen.logits(UNLABELLED)), UNLABELLED)
            total = total + self.entropy_weight * entropy
        return total

    def _lengthen(self, rows: Tensor) -> Tensor:
        """(n) what lengthens each row, 0 for those that have reached the radius."""
        is_short = rows.detach().norm(dim=1) < self.radius
        lengthening: Tensor = lengthening_loss(rows, self.step) * is_short
        return lengthening


def afn(
    classes: int, *, weight: float = 0.05, step: float = 1.0, radius: float = 25.0, entropy_weight: float = 0.0
) -> Method:
    """AFN: features of both sides that grow longer with every step, up to one length.

    Parameters
    ----------
    weight : of the lengthening, where the labelled cross-entropy has 1; 0 drops the entropy too
    step : by how much a feature should be longer than it is
    radius : rows of this length are not lengthened further
    entropy_weight : of the unlabelled predictions' entropy; published: 0.1 for Office, else 0
    """
    require(step > 0, f"step must be positive, got {step}", ConfigError)
    require(radius > 0, f"radius must be positive, got {radius}", ConfigError)
    require(entropy_weight >= 0, f"entropy_weight must be at least 0, got {entropy_weight}", ConfigError)
    return make_method(FeatureNorms(weight=weight, step=step, radius=radius, entropy_weight=entropy_weight))
