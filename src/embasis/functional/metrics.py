"""Metrics of labels; their state is a confusion matrix, so it adds up. And the list of all metrics.

| symbol | shape | meaning |
| --- | --- | --- |
| counts | c c | counts[true, predicted] |
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from embasis.functional.calibration import (
    adaptive_calibration_error,
    brier_parts,
    brier_sum,
    classwise_calibration_error,
    expected_calibration_error,
    negative_log_likelihood,
)
from embasis.functional.ranking import (
    auroc,
    average_precision,
    coverage_at,
    risk_area,
    risk_coverage_curve,
    spread_counts,
)


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
    recalls = class_recalls(counts)
    present = ~recalls.isnan()
    return float(recalls[present].mean()) if bool(present.any()) else 0.0


def dataset_iou(counts: Int64[Tensor, "c c"]) -> Float[Tensor, " c"]:
    """Intersection over union of each class, from one confusion matrix of the whole set as in street-scene tables."""
    hits = counts.diagonal().double()
    return hits / (counts.sum(0) + counts.sum(1) - counts.diagonal()).double()


def mean_dataset_iou(counts: Int64[Tensor, "c c"]) -> float:
    """Mean of `dataset_iou` over the classes that truly occur; a class that is only predicted costs those it took."""
    present = counts.sum(1) > 0
    return float(dataset_iou(counts)[present].mean()) if bool(present.any()) else 0.0


LABEL_METRICS = {
    "accuracy": accuracy,
    "mean_class_accuracy": mean_class_accuracy,
    "mean_dataset_iou": mean_dataset_iou,
}
"""Of a confusion matrix; 1 is best."""
CALIBRATION = {
    "ece": expected_calibration_error,
    "adaptive_ece": adaptive_calibration_error,
    "classwise_ece": classwise_calibration_error,
    "nll": negative_log_likelihood,
    "brier": brier_sum,
    "brier_parts": brier_parts,
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


def class_counts(label: Int64[Tensor, " n"], classes: int) -> Int64[Tensor, " c"]:
    """Sites of each class; −1 is left out."""
    return torch.bincount(label[label >= 0], minlength=classes)
