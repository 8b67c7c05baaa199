"""Metrics of labels, how well uncertainty finds the errors, and the list of all metrics. Their states are counts.

| symbol | shape | meaning |
| --- | --- | --- |
| counts | c c | counts[true, predicted]: a confusion matrix |
| uncertainty | n | the ranking score, ≥ 0; high should mean wrong |
| right | n | whether the label is true |
| counts | m 2 | right and wrong labels per value of uncertainty, or per bin of values, the surest first |
| N_g, E_g | m | labels, and errors among them, up to and with the g-th value |

Sites of one value, or of one bin, are ties: they come in no order, and a figure is its mean over all orders. Bins are
the upper 17 bits of a float32, so that two values in one bin differ by less than 0.2 %, and no site has to be kept.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from embasis.functional import calibration
from embasis.functional.selection import order_key

RANKS = 1 << (31 - calibration.FINE_BITS)
"""Bins of all non-negative float32."""
SPREAD_BINS = 20
"""Equal bins of uncertainty."""
COVERAGE_PRECISIONS = (0.9, 0.95, 0.99)
"""Precisions whose coverage is recorded."""


def class_counts(label: Int64[Tensor, " n"], classes: int) -> Int64[Tensor, " c"]:
    """Sites of each class; −1 is left out."""
    return torch.bincount(label[label >= 0], minlength=classes)


def confusion_matrix(truth: Int64[Tensor, " n"], predicted: Int64[Tensor, " n"], classes: int) -> Int64[Tensor, "c c"]:
    """counts[true, predicted]; sites whose truth is −1 are left out."""
    index = (truth * classes + predicted)[truth >= 0]
    return torch.bincount(index, minlength=classes**2).view(classes, classes)


def accuracy(counts: Int64[Tensor, "c c"]) -> float:
    """Share of right labels over all sites; 0 without sites."""
    return float(counts.diagonal().sum()) / max(int(counts.sum()), 1)


def kappa(counts: Float[Tensor, "c c"]) -> float:
    """Cohen's κ of two labellings: (agreement − that of chance) / (1 − that of chance); 1 where chance agrees always.

    `counts`: sites by both labels, whole or weighted."""
    share = counts.double() / counts.double().sum().clamp_min(torch.finfo(torch.float64).tiny)
    chance = float((share.sum(0) * share.sum(1)).sum())
    return (float(share.diagonal().sum()) - chance) / (1 - chance) if chance < 1 - 1e-12 else 1.0


def class_recalls(counts: Int64[Tensor, "c c"]) -> Float[Tensor, " c"]:
    """Share of right labels of each true class; NaN for a class without sites."""
    return counts.diagonal().double() / counts.sum(1).double()


def mean_class_accuracy(counts: Int64[Tensor, "c c"]) -> float:
    """Mean over the classes that occur of the share of right labels."""
    return _mean_of_present(class_recalls(counts), counts)


def dataset_iou(counts: Int64[Tensor, "c c"]) -> Float[Tensor, " c"]:
    """Intersection over union of each class, from one confusion matrix of the whole set as in street-scene tables."""
    hits = counts.diagonal().double()
    return hits / (counts.sum(0) + counts.sum(1) - counts.diagonal()).double()


def mean_dataset_iou(counts: Int64[Tensor, "c c"]) -> float:
    """Mean of `dataset_iou` over the classes that truly occur; a class that is only predicted costs those it took."""
    return _mean_of_present(dataset_iou(counts), counts)


def _mean_of_present(values: Float[Tensor, " c"], counts: Int64[Tensor, "c c"]) -> float:
    present = counts.sum(1) > 0
    return float(values[present].mean()) if bool(present.any()) else 0.0


def rank_counts(uncertainty: Float[Tensor, " n"], right: Bool[Tensor, " n"]) -> Int64[Tensor, "m 2"]:
    """Right and wrong labels in fine bins of all floats ≥ 0."""
    index = (order_key(uncertainty) >> calibration.FINE_BITS) * 2 + ~right
    return torch.bincount(index, minlength=2 * RANKS).view(RANKS, 2)


def exact_counts(uncertainty: Float[Tensor, " n"], right: Bool[Tensor, " n"]) -> Int64[Tensor, "m 2"]:
    """Right and wrong labels for each value that occurs."""
    values, index = torch.unique(uncertainty.double(), return_inverse=True)
    return torch.bincount(index * 2 + ~right, minlength=2 * len(values)).view(-1, 2)


def spread_counts(uncertainty: Float[Tensor, " n"], right: Bool[Tensor, " n"], bins: int = 20) -> Int64[Tensor, "b 2"]:
    """Right and wrong labels in equal bins of [0, 1]; what is above 1 counts as 1."""
    return torch.bincount(calibration.bin_of(uncertainty, bins) * 2 + ~right, minlength=2 * bins).view(bins, 2)


def auroc(counts: Int64[Tensor, "m 2"]) -> float | None:
    """P(an error is less sure than a right label), ties count half; None when all are right or all wrong."""
    (right, wrong), before = counts.double().unbind(1), counts[:, 0].cumsum(0) - counts[:, 0]
    pairs = right.sum() * wrong.sum()
    return float((wrong * (before + right / 2)).sum() / pairs) if float(pairs) else None


def average_precision(counts: Int64[Tensor, "m 2"]) -> float | None:
    """Σ_g (recall_g − recall_g−1) precision_g of errors, the least sure first; None when all are right or all wrong.

    Recall is the share of all errors that are found so far, precision the share of errors among the labels so far. A
    useless uncertainty has the share of errors."""
    wrong, sites = counts[:, 1].flip(0), counts.sum(1).flip(0).cumsum(0)
    if not float(counts[:, 0].sum()) or not float(wrong.sum()):
        return None
    precision = wrong.cumsum(0).double() / sites.clamp_min(1).double()
    return float((wrong.double() * precision).sum() / wrong.sum())


def risk_area(counts: Int64[Tensor, "m 2"]) -> float:
    """(1 / n) Σ_k E(k) / k with E(k) errors among the k surest: the mean share of errors over all coverages.

    Among s ties with w errors after N labels with E: E(N+j) = E + w j / s, and Σ_j 1 / (N+j) = ψ(N+s+1) − ψ(N+1)."""
    counts = counts[counts.sum(1) > 0].double()
    sites, wrong = counts.sum(1), counts[:, 1]
    before, errors = sites.cumsum(0) - sites, wrong.cumsum(0) - wrong
    inverse = torch.digamma(before + sites + 1) - torch.digamma(before + 1)
    area = errors * inverse + wrong / sites * (sites - before * inverse)
    return float(area.sum() / sites.sum().clamp_min(1))


def risk_coverage_curve(counts: Int64[Tensor, "m 2"], points: int = 50) -> Float64[Tensor, "k 2"]:
    """(share kept, share of errors among the kept) when the surest are kept first."""
    counts = counts[counts.sum(1) > 0]
    sites, wrong = counts.sum(1), counts[:, 1]
    last, errors, total = sites.cumsum(0), wrong.cumsum(0), int(sites.sum())
    kept = torch.linspace(0, total, points + 1, dtype=torch.float64)[1:].round().long().clamp_min(1).unique()
    if not total:
        return torch.zeros(0, 2, dtype=torch.float64)
    group = torch.searchsorted(last, kept)
    # those of the last ties that are not kept take their share of its errors with them
    wrong_kept = errors[group] - (last[group] - kept).double() * wrong[group] / sites[group]
    return torch.stack([kept.double() / total, wrong_kept / kept.double()], 1)


def coverage_at(counts: Int64[Tensor, "m 2"], precision: float) -> float | None:
    """The largest share of labels, surest first, that reaches this precision; None when no share does.

    Labels are kept up to a value of the uncertainty, all ties or none of them."""
    kept, right = counts.sum(1).cumsum(0), counts[:, 0].cumsum(0)
    enough = kept[(right.double() >= (precision - 1e-12) * kept.double()) & (kept > 0)]
    return int(enough[-1]) / int(kept[-1]) if len(enough) else None


LABEL_METRICS = {"accuracy": accuracy, "mean_class_accuracy": mean_class_accuracy, "mean_dataset_iou": mean_dataset_iou}
"""Of a confusion matrix; 1 is best."""
CALIBRATION = {
    "ece": calibration.expected_calibration_error,
    "adaptive_ece": calibration.adaptive_calibration_error,
    "classwise_ece": calibration.classwise_calibration_error,
    "nll": calibration.negative_log_likelihood,
    "brier": calibration.brier_sum,
    "brier_parts": calibration.brier_parts,
}
"""How far probabilities can be believed; 0 is best."""
RANKING = {
    "auroc": auroc,
    "aupr": average_precision,
    "aurc": risk_area,
    "risk_coverage": risk_coverage_curve,
    "coverage": coverage_at,
    "spread": spread_counts,
}
"""How well uncertainty finds the errors."""
