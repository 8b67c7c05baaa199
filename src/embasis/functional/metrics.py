"""Metrics of labels; their state is a confusion matrix, so it adds up.

| symbol | shape | meaning |
| --- | --- | --- |
| counts | c c | counts[true, predicted] |
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor


def confusion(truth: Int64[Tensor, " n"], predicted: Int64[Tensor, " n"], classes: int) -> Int64[Tensor, "c c"]:
    """counts[true, predicted]; sites whose truth is −1 are left out."""
    known = truth >= 0
    return torch.bincount(truth[known] * classes + predicted[known], minlength=classes**2).view(classes, classes)


def accuracy(counts: Int64[Tensor, "c c"]) -> float:
    """Share of right labels over all sites; 0 without sites."""
    return float(counts.diagonal().sum()) / max(int(counts.sum()), 1)


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


METRICS = {
    "accuracy": accuracy,
    "mean_class_accuracy": mean_class_accuracy,
    "mean_dataset_iou": mean_dataset_iou,
}


def class_counts(label: Int64[Tensor, " n"], classes: int) -> Int64[Tensor, " c"]:
    """Sites of each class; −1 is left out."""
    return torch.bincount(label[label >= 0], minlength=classes)
