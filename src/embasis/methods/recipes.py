"""Every method as a recipe: labeller, selector, loss. A recipe's arguments are the method's settings."""

from __future__ import annotations

from embasis.errors import ConfigError, require
from embasis.methods.em_basis import EMBasisLabeller
from embasis.methods.retraining import MinimumEntropy, TrustedLabels
from embasis.methods.selectors import ClassBalanced, OneThreshold, TrustNothing
from embasis.methods.softmax import SoftmaxLabeller
from embasis.types import BasisTerms, Method

RECALIBRATIONS = ("witness", "weighted", "none")


def check_recalibration(name: str) -> None:
    """Refuse what is not known."""
    known = ", ".join(RECALIBRATIONS)
    require(name in RECALIBRATIONS, f"recalibration must be one of {known}, got {name!r}", ConfigError)


def em_basis(
    classes: int,
    *,
    per_class: int = 0,
    sharpness: float = 0.0,
    perplexity: float = 0.0,
    iterations: int = 10,
    kernel: str = "dot",
    centring: str = "domain",
    start: str = "class_means",
    head: str = "linear",
    head_penalty: float = 1e-3,
    variance_weight: float = 0.0,
    balance_weight: float = 1.0,
    sigma: float = 0.0,
    draws: int = 0,
    evidence: float = 1.0,
    temper: bool = True,
    joint: bool = True,
    least_agreement: float = 0.35,
    uncertainty: str = "total_sum",
    carry: bool = False,
    prior: str = "auto",
    prior_strength: float = 1.0,
    recalibration: str = "witness",
    keep: float = 0.2,
    step: float = 0.1,
    cap: float = 0.0,
    select: str = "class",
    labels: str = "mode",
    temperature: float = 1.0,
    weights: str = "equal",
    floor: float = 0.05,
    weight: float = 1.0,
    orthogonal: float = 1.0,
    reconstruction: float = 1.0,
    affinity: float = 1.0,
) -> Method:
    """EM-basis self-training: label distributions from a learned basis, kept and weighted by their variance."""
    labeller = EMBasisLabeller(
        classes, per_class, sharpness, perplexity, iterations, kernel, centring, start, head, head_penalty,
        variance_weight, balance_weight, sigma, draws, evidence, temper, joint, least_agreement, uncertainty,
        carry, prior, prior_strength, weight,
    )  # fmt: skip
    selector = ClassBalanced(keep, step, cap, labels, weights, temperature, floor=floor, selects=select)
    terms = BasisTerms((per_class or 3) * classes, orthogonal, reconstruction, affinity) if start == "stage1" else None
    check_recalibration(recalibration)
    return Method("em_basis", labeller, selector, TrustedLabels(weight), terms, recalibration=recalibration)


def source_only(classes: int) -> Method:
    """No adaptation: the network as the labelled side made it."""
    return Method("source_only", SoftmaxLabeller(), TrustNothing(), TrustedLabels(0.0), rounds=0)


def pseudo_label(classes: int, *, threshold: float = 0.9, weight: float = 1.0) -> Method:
    """Pseudo-labels over one confidence threshold for all classes."""
    return Method("pseudo_label", SoftmaxLabeller(), OneThreshold(threshold), TrustedLabels(weight))


def entropy(classes: int, *, weight: float = 0.1) -> Method:
    """ENT: minimum entropy of the predictions on all unlabelled rows."""
    return Method("entropy", SoftmaxLabeller(), TrustNothing(), MinimumEntropy(weight))


def cbst(classes: int, *, keep: float = 0.2, step: float = 0.05, cap: float = 0.5, weight: float = 1.0) -> Method:
    """Class-balanced self-training: the most confident share of each predicted class."""
    return Method("cbst", SoftmaxLabeller(), ClassBalanced(keep, step, cap), TrustedLabels(weight))


def mrkld(
    classes: int, *, alpha: float = 0.1, keep: float = 0.2, step: float = 0.05, cap: float = 0.5, weight: float = 1.0
) -> Method:
    """CBST with the model regulariser KL(uniform ‖ prediction)."""
    return Method("mrkld", SoftmaxLabeller(), ClassBalanced(keep, step, cap), TrustedLabels(weight, "kld", alpha))


def mrent(
    classes: int, *, alpha: float = 0.1, keep: float = 0.2, step: float = 0.05, cap: float = 0.5, weight: float = 1.0
) -> Method:
    """CBST with the model regulariser negative entropy."""
    return Method("mrent", SoftmaxLabeller(), ClassBalanced(keep, step, cap), TrustedLabels(weight, "entropy", alpha))


def mrl2(
    classes: int, *, alpha: float = 0.1, keep: float = 0.2, step: float = 0.05, cap: float = 0.5, weight: float = 1.0
) -> Method:
    """CBST with the model regulariser Σ p²."""
    return Method("mrl2", SoftmaxLabeller(), ClassBalanced(keep, step, cap), TrustedLabels(weight, "l2", alpha))


def lrent(
    classes: int, *, alpha: float = 0.25, keep: float = 0.2, step: float = 0.05, cap: float = 0.5, weight: float = 1.0
) -> Method:
    """CBST with soft labels from the entropy label regulariser."""
    selector = ClassBalanced(keep, step, cap, labels="entropy", alpha=alpha)
    return Method("lrent", SoftmaxLabeller(), selector, TrustedLabels(weight))


def lrl2(
    classes: int, *, alpha: float = 0.25, keep: float = 0.2, step: float = 0.05, cap: float = 0.5, weight: float = 1.0
) -> Method:
    """CBST with soft labels from the L2 label regulariser."""
    selector = ClassBalanced(keep, step, cap, labels="l2", alpha=alpha)
    return Method("lrl2", SoftmaxLabeller(), selector, TrustedLabels(weight))


def mrkld_lrent(
    classes: int,
    *,
    alpha: float = 0.1,
    label_alpha: float = 0.25,
    keep: float = 0.2,
    step: float = 0.05,
    cap: float = 0.5,
    weight: float = 1.0,
) -> Method:
    """Both regularisers: KL on the model, entropy on the labels."""
    selector = ClassBalanced(keep, step, cap, labels="entropy", alpha=label_alpha)
    return Method("mrkld_lrent", SoftmaxLabeller(), selector, TrustedLabels(weight, "kld", alpha))


METHODS = {
    "em_basis": em_basis,
    "source_only": source_only,
    "pseudo_label": pseudo_label,
    "entropy": entropy,
    "cbst": cbst,
    "mrkld": mrkld,
    "mrent": mrent,
    "mrl2": mrl2,
    "lrent": lrent,
    "lrl2": lrl2,
    "mrkld_lrent": mrkld_lrent,
}
