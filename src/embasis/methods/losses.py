"""The losses of a round: labelled cross-entropy, and what a method makes of the unlabelled rows beside it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from embasis.errors import check_choice, check_not_negative
from embasis.functional import losses, sites
from embasis.types import Output, PseudoLabels

REGULARISERS = {
    "none": lambda logits: logits.new_zeros(len(logits)),
    "kld": losses.kld_regulariser,
    "entropy": losses.entropy_regulariser,
    "l2": losses.l2_regulariser,
}
"""Regularisers r of a prediction, by name: (n, C) logits → (n) penalties."""


def labelled_loss(output: Output, y: Tensor) -> Tensor:
    """Mean cross-entropy of labelled rows; rows of label −1 (ignored sites) are left out."""
    logits = sites.to_sites(output.logits)
    return losses.weighted_cross_entropy(logits, losses.one_hot(y, logits.shape[1]), (y >= 0).float())


@dataclass(frozen=True)
class PseudoLabelLoss:
    """unlabelled_weight · Σ w (CE + α · r) / Σ w over trusted rows (eq. 16, where w is 1 / Var).

    Parameters
    ----------
    unlabelled_weight : weight of this loss, where the labelled rows' cross-entropy has 1
    regulariser : r of the prediction: "none", "kld", "entropy" or "l2"
    alpha : α
    uses_all_rows : False: rows that are not trusted take no part
    """

    unlabelled_weight: float = 1.0
    regulariser: str = "none"
    alpha: float = 0.1
    uses_all_rows: bool = False

    def __post_init__(self) -> None:
        check_not_negative(self, "unlabelled_weight", "alpha")
        check_choice(self, "regulariser", REGULARISERS)

    def __call__(self, unlabelled: Output, pseudo: PseudoLabels) -> Tensor:
        """A scalar to minimise."""
        logits = sites.to_sites(unlabelled.logits)
        target = losses.one_hot(pseudo.label, logits.shape[1]) if pseudo.target is None else pseudo.target
        loss = losses.weighted_cross_entropy(logits, target, pseudo.weight)
        if self.regulariser != "none":
            extra = REGULARISERS[self.regulariser](logits)
            loss = loss + self.alpha * (pseudo.weight * extra).sum() / pseudo.weight.sum().clamp_min(1e-12)
        return self.unlabelled_weight * loss

    def mass(self, pseudo: PseudoLabels) -> float:
        """Σ w."""
        return float(pseudo.weight.double().sum())


@dataclass(frozen=True)
class MinimumEntropy:
    """unlabelled_weight · mean entropy of all unlabelled rows.

    Parameters
    ----------
    unlabelled_weight : weight of this loss, where the labelled rows' cross-entropy has 1
    uses_all_rows : True: the entropy needs no label
    """

    unlabelled_weight: float = 0.1
    uses_all_rows: bool = True

    def __post_init__(self) -> None:
        check_not_negative(self, "unlabelled_weight")

    def __call__(self, unlabelled: Output, pseudo: PseudoLabels) -> Tensor:
        """A scalar to minimise."""
        return self.unlabelled_weight * losses.prediction_entropy(sites.to_sites(unlabelled.logits)).mean()

    def mass(self, pseudo: PseudoLabels) -> float:
        """The number of rows."""
        return float(len(pseudo))
