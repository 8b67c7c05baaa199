"""The methods that em_basis is compared with: the network's own softmax labels, the selection or the loss differs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from embasis.methods.em_basis.state import read_inverse_temperature
from embasis.methods.losses import MinimumEntropy, PseudoLabelLoss
from embasis.methods.selectors import ClassBalanced, ConfidenceThreshold, SelectNone
from embasis.types import Features, LabelDistribution, Labeller, Method, State, Stream


@dataclass(frozen=True)
class SoftmaxLabeller(Labeller):
    """mean = softmax(scores); all of the variance is within, since there is no basis that could disagree."""

    def fit(self, stream: Stream, start: State, seed: int, round_number: int) -> State:
        """Nothing to learn."""
        return {}

    def label(self, features: Features, state: State) -> LabelDistribution:
        """The softmax; uncertainty is one minus the largest probability."""
        scores = features.scores.float()
        inverse_temperature = read_inverse_temperature(state)
        mean = (scores if inverse_temperature is None else inverse_temperature * scores).softmax(1)
        return LabelDistribution(mean, torch.zeros_like(mean), mean * (1 - mean), 1 - mean.amax(1))


def source_only(classes: int) -> Method:
    """No adaptation: the network as the labelled side made it."""
    return Method("source_only", SoftmaxLabeller(), SelectNone(), PseudoLabelLoss(0.0), rounds=0)


def pseudo_label(classes: int, *, threshold: float = 0.9, unlabelled_weight: float = 1.0) -> Method:
    """Pseudo-labels over one confidence threshold for all classes."""
    return Method("pseudo_label", SoftmaxLabeller(), ConfidenceThreshold(threshold), PseudoLabelLoss(unlabelled_weight))


def entropy(classes: int, *, unlabelled_weight: float = 0.1) -> Method:
    """ENT: minimum entropy of the predictions on all unlabelled rows."""
    return Method("entropy", SoftmaxLabeller(), SelectNone(), MinimumEntropy(unlabelled_weight))


def cbst(
    classes: int,
    *,
    keep_first: float = 0.2,
    keep_step: float = 0.05,
    keep_max: float = 0.5,
    unlabelled_weight: float = 1.0,
) -> Method:
    """Class-balanced self-training: the most confident share of each predicted class."""
    selector = ClassBalanced(keep_first, keep_step, keep_max)
    return Method("cbst", SoftmaxLabeller(), selector, PseudoLabelLoss(unlabelled_weight))


def regularise_model(method: Method, name: str, regulariser: str, alpha: float) -> Method:
    """The method with alpha · regulariser of the prediction in its loss, under another name."""
    assert isinstance(method.loss, PseudoLabelLoss)
    return replace(method, name=name, loss=replace(method.loss, regulariser=regulariser, alpha=alpha))


def regularise_labels(method: Method, name: str, regulariser: str, alpha: float) -> Method:
    """The method with soft labels in place of hard ones, under another name."""
    assert isinstance(method.selector, ClassBalanced)
    return replace(method, name=name, selector=replace(method.selector, labels=regulariser, alpha=alpha))


def mrkld(
    classes: int,
    *,
    alpha: float = 0.1,
    keep_first: float = 0.2,
    keep_step: float = 0.05,
    keep_max: float = 0.5,
    unlabelled_weight: float = 1.0,
) -> Method:
    """CBST with the model regulariser KL(uniform ‖ prediction)."""
    plain = cbst(
        classes, keep_first=keep_first, keep_step=keep_step, keep_max=keep_max, unlabelled_weight=unlabelled_weight
    )
    return regularise_model(plain, "mrkld", "kld", alpha)


def mrent(
    classes: int,
    *,
    alpha: float = 0.1,
    keep_first: float = 0.2,
    keep_step: float = 0.05,
    keep_max: float = 0.5,
    unlabelled_weight: float = 1.0,
) -> Method:
    """CBST with the model regulariser negative entropy."""
    plain = cbst(
        classes, keep_first=keep_first, keep_step=keep_step, keep_max=keep_max, unlabelled_weight=unlabelled_weight
    )
    return regularise_model(plain, "mrent", "entropy", alpha)


def mrl2(
    classes: int,
    *,
    alpha: float = 0.1,
    keep_first: float = 0.2,
    keep_step: float = 0.05,
    keep_max: float = 0.5,
    unlabelled_weight: float = 1.0,
) -> Method:
    """CBST with the model regulariser Σ p²."""
    plain = cbst(
        classes, keep_first=keep_first, keep_step=keep_step, keep_max=keep_max, unlabelled_weight=unlabelled_weight
    )
    return regularise_model(plain, "mrl2", "l2", alpha)


def lrent(
    classes: int,
    *,
    alpha: float = 0.25,
    keep_first: float = 0.2,
    keep_step: float = 0.05,
    keep_max: float = 0.5,
    unlabelled_weight: float = 1.0,
) -> Method:
    """CBST with soft labels from the entropy label regulariser."""
    plain = cbst(
        classes, keep_first=keep_first, keep_step=keep_step, keep_max=keep_max, unlabelled_weight=unlabelled_weight
    )
    return regularise_labels(plain, "lrent", "entropy", alpha)


def lrl2(
    classes: int,
    *,
    alpha: float = 0.25,
    keep_first: float = 0.2,
    keep_step: float = 0.05,
    keep_max: float = 0.5,
    unlabelled_weight: float = 1.0,
) -> Method:
    """CBST with soft labels from the L2 label regulariser."""
    plain = cbst(
        classes, keep_first=keep_first, keep_step=keep_step, keep_max=keep_max, unlabelled_weight=unlabelled_weight
    )
    return regularise_labels(plain, "lrl2", "l2", alpha)


def mrkld_lrent(
    classes: int,
    *,
    alpha: float = 0.1,
    label_alpha: float = 0.25,
    keep_first: float = 0.2,
    keep_step: float = 0.05,
    keep_max: float = 0.5,
    unlabelled_weight: float = 1.0,
) -> Method:
    """Both regularisers: KL on the model, entropy on the labels."""
    plain = cbst(
        classes, keep_first=keep_first, keep_step=keep_step, keep_max=keep_max, unlabelled_weight=unlabelled_weight
    )
    return regularise_model(regularise_labels(plain, "lrent", "entropy", label_alpha), "mrkld_lrent", "kld", alpha)
