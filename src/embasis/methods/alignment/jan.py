"""JAN (Long et al. 2017): the joint law of features and predictions is the same on both sides.

    loss = CE + weight · MMD²,  with the kernel of a pair of rows  k = k_f(f, f') · k_p(p, p')
    k_f: DAN's;  k_p = exp(−‖p − p'‖² / 1.68);  gradients flow through f and p

JAN-A (`adversarial`): the kernels read θ_f(f) and θ_p(p), linear maps that begin as the identity and are trained to
*maximise* the discrepancy, by reversed gradients; the network still minimises it.

Deviations: the quadratic unbiased estimate of one pair of layers, as the re-implementations have it (the authors' code
for residual networks has two terms and weight 0.3); θ plays with full strength from the first step on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from embasis.functional.alignment import (
    fixed_kernel,
    gaussian_kernel,
    reverse_gradient,
    squared_distances,
    squared_mmd,
)
from embasis.methods.alignment.parts import make_method
from embasis.types import LABELLED, UNLABELLED, Aligner, Method, Phase, Seen, Sizes

PREDICTION_WIDTH = 1.68
"""Of the kernel of predictions, as published."""


@dataclass(frozen=True, kw_only=True)
class JointDiscrepancy(Aligner):
    """weight · MMD² between the pairs (features, predictions) of both sides."""

    name: ClassVar[str] = "jan"

    def phases(self, tau: float) -> Sequence[Phase]:
        """One, of the whole batch."""
        return (Phase("align", ("network",), whole=True),)

    def loss(self, phase: str, network: nn.Module, extra: nn.ModuleDict, seen: Seen, tau: float) -> Tensor:
        """The discrepancy of these rows."""
        features = torch.cat([seen.rows(LABELLED), seen.rows(UNLABELLED)])
        predictions = torch.cat([seen.logits(LABELLED), seen.logits(UNLABELLED)]).softmax(1)
        features, predictions = self.transform(extra, features, predictions)
        kernel = gaussian_kernel(squared_distances(features))
        kernel = kernel * fixed_kernel(squared_distances(predictions), PREDICTION_WIDTH)
        discrepancy = squared_mmd(kernel, len(seen.rows(LABELLED)))
        seen.note("discrepancy", discrepancy.detach())
        return self.weight * discrepancy

    def transform(self, extra: nn.ModuleDict, features: Tensor, predictions: Tensor) -> tuple[Tensor, Tensor]:
        """What the kernels read: the rows as they are."""
        return features, predictions


@dataclass(frozen=True, kw_only=True)
class AdversarialDiscrepancy(JointDiscrepancy):
    """As `JointDiscrepancy`, of rows behind two linear maps that try to make it large."""

    is_game: ClassVar[bool] = True

    def build(self, network: nn.Module, sizes: Sizes) -> nn.ModuleDict:
        """θ_f and θ_p."""
        maps = {"features": make_identity(sizes.features), "predictions": make_identity(sizes.classes)}
        return nn.ModuleDict({"theta": nn.ModuleDict(maps)})

    def phases(self, tau: float) -> Sequence[Phase]:
        """One of the whole batch, which moves both."""
        return (Phase("align", ("network", "theta"), whole=True),)

    def transform(self, extra: nn.ModuleDict, features: Tensor, predictions: Tensor) -> tuple[Tensor, Tensor]:
        """θ_f(f) and θ_p(p): reversed behind the maps, and once more before them."""
        theta = extra["theta"]
        assert isinstance(theta, nn.ModuleDict)
        mapped = (
            reverse_gradient(theta[name](reverse_gradient(x, 1.0)), 1.0)
            for name, x in (("features", features), ("predictions", predictions))
        )
        return next(mapped), next(mapped)


def make_identity(width: int) -> nn.Linear:
    """A linear map that begins as the identity."""
    layer = nn.Linear(width, width)
    nn.init.eye_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def jan(classes: int, *, weight: float = 1.0, adversarial: bool = False) -> Method:
    """JAN: features and predictions together have one mean in the space of a kernel.

    Parameters
    ----------
    weight : of the discrepancy, where the labelled cross-entropy has 1
    adversarial : JAN-A: the kernels read rows behind linear maps that are trained to make the discrepancy large
    """
    return make_method((AdversarialDiscrepancy if adversarial else JointDiscrepancy)(weight=weight))
