"""Two literal recipes of the same parts: the paper's method, and our default. Arguments are the method's settings."""

from __future__ import annotations

from embasis.errors import ConfigError, quote, require
from embasis.methods.em_basis.fusion import Fusion
from embasis.methods.em_basis.head import LinearHead
from embasis.methods.em_basis.labeller import EMBasisLabeller
from embasis.methods.em_basis.mixture import Mixture
from embasis.methods.em_basis.neighbours import Neighbours
from embasis.methods.em_basis.start import ClassMeans, StageOne
from embasis.methods.losses import PseudoLabelLoss
from embasis.methods.selectors import ClassBalanced
from embasis.types import Method

RECALIBRATIONS = ("reference", "weighted", "none")
LATENT_SIGMA, LATENT_DRAWS = 0.3, 8
"""Spread and number M of the paper's latent draws. It prints Σ = I and no M: on features of unit length that drowns
every difference of the basis, so σ² is near the I/λ of the E step with λ = 10."""


def em_basis_paper(
    classes: int,
    *,
    components: int = 0,
    sharpness: float = 10.0,
    iterations: int = 10,
    variance_weight: float = 0.1,
    keep_first: float = 0.2,
    keep_step: float = 0.05,
    keep_max: float = 0.5,
) -> Method:
    """Wang et al. 2022: every part of the paper is on; the basis alone labels, and `between` ranks the labels.

    docs/method.md lists what had to be repaired, and what is done otherwise by choice.

    Parameters
    ----------
    components : K; 0 = three a class
    sharpness : the λ of the E step
    iterations : T, E and M steps of a round
    variance_weight : weight of the variance loss over unlabelled sites
    keep_first, keep_step, keep_max : share of each predicted class that is selected: first, more a round, at most
    """
    labeller = EMBasisLabeller(
        classes,
        start=StageOne(components),  # eq. 3-6: the basis-extraction network
        mixture=Mixture(sharpness, iterations),  # eq. 12-14: E and M step, features only
        head=LinearHead(variance_weight, sigma=LATENT_SIGMA, draws=LATENT_DRAWS),  # eq. 10-11: variance loss, draws
        fusion=None,  # the basis alone
        rank_by="between",
    )
    selector = ClassBalanced(keep_first, keep_step, keep_max, labels="draw", weights="inverse_variance")  # eq. 16
    return Method("em_basis_paper", labeller, selector, PseudoLabelLoss())


def em_basis(
    classes: int,
    *,
    components_per_class: int = 0,
    sharpness: float = 0.0,
    iterations: int = 10,
    recalibration: str = "reference",
    keep_first: float = 0.2,
    keep_step: float = 0.1,
    keep_max: float = 0.0,
    unlabelled_weight: float = 1.0,
) -> Method:
    """Our default: basis and network label together, the surest labels of each class are kept, all weigh the same.

    Parameters
    ----------
    components_per_class : 0 = three, more with many rows
    sharpness : the λ of the E step; 0 = by the data, so that a site spreads over one class's components
    iterations : E and M steps of a round
    recalibration : what the labels' probabilities are made to hold for: "reference" = the label of the nearest labelled
        site before self-training, "weighted" = held-out labelled rows (needs plan.holdout), "none" = they stay
    keep_first, keep_step, keep_max : share of each predicted class that is selected: first, more a round, at most;
        keep_max = 0: at most the share that is expected to be right
    unlabelled_weight : weight of pseudo-labels in training, where true labels have 1
    """
    known = ", ".join(RECALIBRATIONS)
    unknown = f"recalibration must be one of {known}, got {quote(recalibration)}"
    require(recalibration in RECALIBRATIONS, unknown, ConfigError)
    labeller = EMBasisLabeller(
        classes,
        start=ClassMeans(components_per_class),
        mixture=Mixture(sharpness, iterations, guided=True),
        head=LinearHead(),
        fusion=Fusion(unlabelled_weight=unlabelled_weight),
        neighbours=Neighbours(),
        rank_by="gini",
    )
    selector = ClassBalanced(keep_first, keep_step, keep_max)
    return Method("em_basis", labeller, selector, PseudoLabelLoss(unlabelled_weight), recalibration=recalibration)
