"""The methods that em_basis is compared with: labels are the network's own softmax, the selection or the loss differs.

| setting | meaning |
| --- | --- |
| threshold | `pseudo_label`: probability from which on a label is trusted |
| keep_first, keep_step, keep_max | trusted share of each predicted class: in the first round, more a round, at most |
| unlabelled_weight | weight of the unlabelled rows' loss, where the labelled rows' has 1 |
| alpha | strength of the regulariser: of the prediction (mr…) or of the labels (lr…) |
| label_alpha | `mrkld_lrent`: strength of the label regulariser |

The last six recipes are CBST with one or two regularisers; they name the settings of `cbst` again, because the
arguments of a recipe are the settings that `embasis list methods` shows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from embasis.functional.sites import softmax_by_class
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
        mean = softmax_by_class(scores if inverse_temperature is None else inverse_temperature * scores)
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
    selector = ClassBalanced(keep_first, keep_step, keep_max)
    return Method("mrkld", SoftmaxLabeller(), selector, PseudoLabelLoss(unlabelled_weight, "kld", alpha))


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
    selector = ClassBalanced(keep_first, keep_step, keep_max)
    return Method("mrent", SoftmaxLabeller(), selector, PseudoLabelLoss(unlabelled_weight, "entropy", alpha))


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
    selector = ClassBalanced(keep_first, keep_step, keep_max)
    return Method("mrl2", SoftmaxLabeller(), selector, PseudoLabelLoss(unlabelled_weight, "l2", alpha))


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
    selector = ClassBalanced(keep_first, keep_step, keep_max, labels="entropy", alpha=alpha)
    return Method("lrent", SoftmaxLabeller(), selector, PseudoLabelLoss(unlabelled_weight))


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
    selector = ClassBalanced(keep_first, keep_step, keep_max, labels="l2", alpha=alpha)
    return Method("lrl2", SoftmaxLabeller(), selector, PseudoLabelLoss(unlabelled_weight))


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
    selector = ClassBalanced(keep_first, keep_step, keep_max, labels="entropy", alpha=label_alpha)
    return Method("mrkld_lrent", SoftmaxLabeller(), selector, PseudoLabelLoss(unlabelled_weight, "kld", alpha))
