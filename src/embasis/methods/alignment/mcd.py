"""MCD (Saito et al. 2018): two heads seek rows on which they differ, the features make them agree.

    A: CE of both heads                                   moves encoder and heads
    B: CE of both heads − weight · d(p₁(t), p₂(t))        moves the heads
    C: weight · d(p₁(t), p₂(t)), `repeats` times          moves the encoder
    d = mean |p₁ − p₂| over rows and classes

On label maps d is a mean over sites and classes, and a head that sees grids is drawn anew as a whole.
The first head is the network's own and predicts; the better of two by target labels is never taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from embasis.errors import ConfigError, require
from embasis.functional.sites import to_sites
from embasis.methods.alignment.parts import classifier_of, encoder_weights, make_head_like, make_method
from embasis.methods.losses import labelled_loss
from embasis.types import LABELLED, UNLABELLED, Aligner, Group, Method, Output, Phase, Seen, Sizes, trainable


@dataclass(frozen=True, kw_only=True)
class HeadDiscrepancy(Aligner):
    """Two heads against one encoder, in three phases."""

    repeats: int = 4

    name: ClassVar[str] = "mcd"
    takes: ClassVar[tuple[str, ...]] = ("rows", "maps")
    is_game: ClassVar[bool] = True

    def build(self, network: nn.Module, sizes: Sizes) -> nn.ModuleDict:
        """The second head."""
        return nn.ModuleDict({"head": make_head_like(classifier_of(network))})

    def groups(self, network: nn.Module, extra: nn.ModuleDict) -> Mapping[str, Group]:
        """The encoder, and both heads."""
        heads = [*trainable(classifier_of(network)), *trainable(extra["head"])]
        return {"encoder": Group(encoder_weights(network)), "heads": Group(heads)}

    def phases(self, tau: float) -> Sequence[Phase]:
        """A, B and C."""
        return (
            Phase("A", ("encoder", "heads")),
            Phase("B", ("heads",)),
            Phase("C", ("encoder",), labelled=False, times=self.repeats),
        )

    def loss(self, phase: str, network: nn.Module, extra: nn.ModuleDict, seen: Seen, tau: float) -> Tensor:
        """The second head's cross-entropy in A and B, and how far the heads differ in B and C."""
        if phase == "A":
            return self._second_loss(extra, seen)
        difference = seen.mean(self._difference(extra, seen), UNLABELLED)
        if phase == "B":
            return self._second_loss(extra, seen) - self.weight * difference
        seen.note("head_discrepancy", difference.detach())
        return self.weight * difference

    def _second_loss(self, extra: nn.ModuleDict, seen: Seen) -> Tensor:
        scores = self._second(extra, seen, LABELLED)
        return seen.labelled_share * labelled_loss(Output(scores, scores), seen.y)

    def _difference(self, extra: nn.ModuleDict, seen: Seen) -> Tensor:
        second = self._second(extra, seen, UNLABELLED).softmax(1)
        return (seen.logits(UNLABELLED).softmax(1) - second).abs().mean(1)

    def _second(self, extra: nn.ModuleDict, seen: Seen, side: int) -> Tensor:
        """(n, C) scores of the second head; one that sees grids gets grids."""
        head = extra["head"]
        if isinstance(head, nn.Linear):
            scores: Tensor = head(seen.rows(side))
            return scores
        features = (seen.labelled if side == LABELLED else seen.other).features
        return to_sites(head(features.float()))


def mcd(classes: int, *, weight: float = 1.0, repeats: int = 4) -> Method:
    """MCD: two heads that differ where the source says little, and features on which they agree.

    Parameters
    ----------
    weight : of the heads' difference, where the labelled cross-entropy has 1
    repeats : steps of the features for each step of the heads
    """
    require(repeats >= 1, f"repeats must be at least 1, got {repeats}", ConfigError)
    return make_method(HeadDiscrepancy(weight=weight, repeats=repeats))
