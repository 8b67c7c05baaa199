"""ADR (Saito et al. 2018, "Adversarial Dropout Regularization"): one head, drawn twice, in the place of MCD's two.

    A: CE of a draw                            moves encoder and head
    B: CE of a draw − weight · d(p₁(t), p₂(t)) moves the head
    C: weight · d(p₁(t), p₂(t)), `repeats` ×   moves the encoder
    p₁, p₂: two draws of dropout in the head; the first of each pair below has no gradient
    d = ½ [KL(p₂ ‖ softmax p₁) + KL(p₁ ‖ softmax p₂)] / C     divergence = "released", the authors' code
    d = ½ [KL(p₂ ‖ p₁) + KL(p₁ ‖ p₂)]                         divergence = "formula", the paper's

The published figures are of the code, whose second softmax is more than a scale: its gradient, (softmax p₁ − p₂) / 2C,
sharpens draws that agree. The formula's is zero there, and features of zero make all draws agree: without the authors'
batch norm the encoder goes that way (on digits the unlabelled predictions have an entropy of 2.24 of at most 2.30).

The dropout is the aligner's own, on what the head reads: the network that predicts has none of it. A row of one site
drops features (0.5), a grid drops whole channels (0.1), as the authors' code does. Beside a method that labels, its
pseudo-labels are learnt in A and B as that method says, by scores without the aligner's dropout. Deviation: the
authors' head has one more hidden layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from embasis.errors import ConfigError, check_choice, require
from embasis.functional.alignment import released_divergence, symmetric_divergence
from embasis.functional.sites import to_sites
from embasis.methods.alignment.parts import classifier_of, encoder_weights, make_method
from embasis.methods.losses import labelled_loss
from embasis.types import LABELLED, UNLABELLED, Aligner, Group, Method, Output, Phase, Seen, Sizes, trainable

ROW_DROPOUT, GRID_DROPOUT = 0.5, 0.1
"""Of the head: of features of one site, and of channels of a grid."""


@dataclass(frozen=True, kw_only=True)
class DropoutDiscrepancy(Aligner):
    """Two draws of one head against one encoder, in three phases."""

    repeats: int = 4
    divergence: str = "released"

    name: ClassVar[str] = "adr"
    takes: ClassVar[tuple[str, ...]] = ("rows", "maps")
    is_game: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.repeats >= 1, f"repeats must be at least 1, got {self.repeats}", ConfigError)
        check_choice(self, "divergence", ("released", "formula"))

    def build(self, network: nn.Module, sizes: Sizes) -> nn.ModuleDict:
        """The dropout of the head, which has no weights."""
        return nn.ModuleDict({"dropout": nn.Dropout(GRID_DROPOUT if sizes.sites else ROW_DROPOUT)})

    def groups(self, network: nn.Module, extra: nn.ModuleDict) -> Mapping[str, Group]:
        """The encoder, and the head."""
        return {
            "encoder": Group(encoder_weights(network)),
            "head": Group(trainable(classifier_of(network))),
        }

    def phases(self, tau: float) -> Sequence[Phase]:
        """A, B and C; the labelled cross-entropy is the aligner's own, of a draw."""
        return (
            Phase("A", ("encoder", "head"), labelled=False, pseudo=True, stage_one=True),
            Phase("B", ("head",), labelled=False, pseudo=True),
            Phase("C", ("encoder",), labelled=False, times=self.repeats),
        )

    def loss(self, phase: str, network: nn.Module, extra: nn.ModuleDict, seen: Seen, tau: float) -> Tensor:
        """The cross-entropy of a draw in A; how far two draws differ in B, beside such a cross-entropy, and in C."""
        if phase == "A":
            return draw_labelled_loss(network, extra["dropout"], seen)
        first, second = (draw_scores(network, extra["dropout"], seen, UNLABELLED) for _ in range(2))
        difference = seen.mean(self._difference(first, second), UNLABELLED)
        if phase == "B":
            return draw_labelled_loss(network, extra["dropout"], seen) - self.weight * difference
        seen.note("draw_discrepancy", difference.detach())
        return self.weight * difference

    def _difference(self, first: Tensor, second: Tensor) -> Tensor:
        return (
            symmetric_divergence(first, second) if self.divergence == "formula" else released_divergence(first, second)
        )


def draw_scores(network: nn.Module, dropout: nn.Module, seen: Seen, side: int) -> Tensor:
    """(n, C) scores of the head, with some of the channels dropped that it reads; others at every call."""
    head, features = classifier_of(network), (seen.labelled if side == LABELLED else seen.other).features
    kept: Tensor = dropout(torch.ones_like(features.flatten(2)[:, :, 0] if features.ndim > 2 else features))
    if isinstance(head, nn.Linear):
        rows = seen.rows(side)
        scores: Tensor = head(rows * kept.repeat_interleave(len(rows) // max(len(kept), 1), 0))
        return scores
    return to_sites(head(features.float() * kept.reshape(*kept.shape, *(1,) * (features.ndim - 2))))


def draw_labelled_loss(network: nn.Module, dropout: nn.Module, seen: Seen) -> Tensor:
    """The labelled cross-entropy of a draw of the head, as these rows' share of the batch's."""
    scores = draw_scores(network, dropout, seen, LABELLED)
    return seen.labelled_share * labelled_loss(Output(scores, scores), seen.y)


def adr(classes: int, *, weight: float = 1.0, repeats: int = 4, divergence: str = "released") -> Method:
    """ADR: features on which one head says the same, whichever of them dropout hides from it.

    Parameters
    ----------
    weight : of the difference of two draws, where the labelled cross-entropy has 1
    repeats : steps of the features for each step of the head
    divergence : how far two draws differ: "released" = as in the authors' code; "formula" = as in the paper
    """
    return make_method(DropoutDiscrepancy(weight=weight, repeats=repeats, divergence=divergence))
