"""RTN (Long et al. 2016): the two sides' classifiers differ by a small residual, and their rows are aligned jointly.

    loss = CE(z_s + Δ(z_s), y) + entropy_weight · λ(τ) · mean H(softmax z_t) + weight · MMD²(f ⊗ z)
    Δ: Linear(C → C), ReLU, Linear(C → C)

z is the *target's* classifier, the network's own, and predicts; the labelled rows train z + Δ(z) alone. The distance of
two products follows from two Gram matrices, ⟨f⊗z, f'⊗z'⟩ = ⟨f, f'⟩⟨z, z'⟩, so that no product is ever made.

Deviations: the product is not pooled (the released code takes maxima of 2×2 entries); entropy sets in by λ(τ)
in place of tanh(step / 400); no bottleneck of its own. Weights are the released code's (1 and 0.1); the paper, by a
summary of it, has 0.3 for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from embasis.errors import ConfigError, require
from embasis.functional.alignment import gaussian_kernel, product_distances, reversal_strength, squared_mmd
from embasis.functional.losses import prediction_entropy
from embasis.methods.alignment.parts import make_method
from embasis.methods.losses import labelled_loss
from embasis.types import LABELLED, UNLABELLED, Aligner, Method, Output, Phase, Seen, Sizes


@dataclass(frozen=True, kw_only=True)
class ResidualTransfer(Aligner):
    """Joint discrepancy of features and scores, with a residual between the classifiers of the two sides."""

    entropy_weight: float = 0.1
    softmax: bool = False

    name: ClassVar[str] = "rtn"

    def build(self, network: nn.Module, sizes: Sizes) -> nn.ModuleDict:
        """Δ, which begins near zero: both classifiers begin alike."""
        residual = nn.Sequential(
            nn.Linear(sizes.classes, sizes.classes), nn.ReLU(), nn.Linear(sizes.classes, sizes.classes)
        )
        for name, weight in residual.named_parameters():
            nn.init.zeros_(weight) if name.endswith("bias") else nn.init.normal_(weight, std=0.01)
        return nn.ModuleDict({"residual": residual})

    def phases(self, tau: float) -> Sequence[Phase]:
        """One of the whole batch, with a labelled loss of its own."""
        moves = ("network", "residual")
        return (Phase("align", moves, labelled=False, pseudo=True, stage_one=True, whole=True),)

    def loss(self, phase: str, network: nn.Module, extra: nn.ModuleDict, seen: Seen, tau: float) -> Tensor:
        """Cross-entropy of the source's classifier, entropy of the target's, and the discrepancy."""
        labelled, unlabelled = seen.logits(LABELLED), seen.logits(UNLABELLED)
        scores = labelled + extra["residual"](labelled)
        supervised = seen.labelled_share * labelled_loss(Output(scores, scores), seen.y)
        entropy = reversal_strength(tau) * seen.mean(prediction_entropy(unlabelled), UNLABELLED)
        discrepancy = self._discrepancy(seen)
        seen.note("discrepancy", discrepancy.detach())
        seen.note("residual", (scores - labelled).detach().abs().mean())
        return supervised + self.entropy_weight * entropy + self.weight * discrepancy

    def _discrepancy(self, seen: Seen) -> Tensor:
        rows = torch.cat([seen.rows(LABELLED), seen.rows(UNLABELLED)])
        outputs = torch.cat([seen.logits(LABELLED), seen.logits(UNLABELLED)])
        outputs = outputs.softmax(1) if self.softmax else outputs
        return squared_mmd(gaussian_kernel(product_distances(rows, outputs)), len(seen.rows(LABELLED)))


def rtn(classes: int, *, weight: float = 1.0, entropy_weight: float = 0.1, softmax: bool = False) -> Method:
    """RTN: classifiers that differ by a small residual, features times scores with one kernel mean.

    Parameters
    ----------
    weight : of the discrepancy, where the labelled cross-entropy has 1; 0 drops residual and entropy too
    entropy_weight : of the unlabelled predictions' entropy
    softmax : features are multiplied with probabilities in place of scores, among which large ones own the distance
    """
    require(entropy_weight >= 0, f"entropy_weight must be at least 0, got {entropy_weight}", ConfigError)
    return make_method(ResidualTransfer(weight=weight, entropy_weight=entropy_weight, softmax=softmax))
