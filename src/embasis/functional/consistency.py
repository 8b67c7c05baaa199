"""What a network can learn of its own predictions on rows without labels (SHOT, FixMatch, mean teacher).

| symbol | shape | meaning |
| --- | --- | --- |
| logits | n c | scores of the network |
| p | n c | class probabilities |
| x | n d | features |
| weight | n | how many sites a row stands for |
| mass, total | c, c d | Σ w p, Σ w p x: sums, so they add up |
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor
from torch.nn.functional import cross_entropy

from embasis.functional.losses import one_hot, prediction_entropy
from embasis.functional.sites import times, unit_rows


def negative_information(logits: Float[Tensor, "n c"]) -> Float[Tensor, ""]:
    """mean H(p) − H(mean p): least where each row is sure and all classes are equally many (SHOT)."""
    mean = logits.float().softmax(1).mean(0)
    mean = torch.where(mean > 0, mean, 1.0)  # 0 and 1 have no entropy, and that of 0 no finite gradient
    information: Tensor = prediction_entropy(logits).mean() - torch.special.entr(mean).sum()
    return information


def class_sums(
    x: Float[Tensor, "n d"], p: Float[Tensor, "n c"], weight: Float[Tensor, " n"]
) -> tuple[Float64[Tensor, " c"], Float64[Tensor, "c d"]]:
    """mass and total of these rows, of which each belongs to each class by its probability."""
    share = p.double() * weight.double().unsqueeze(1)
    return share.sum(0), share.T @ x.double()


def nearest_centroids(x: Float[Tensor, "n d"], p: Float[Tensor, "n c"]) -> Int64[Tensor, " n"]:
    """SHOT's labels: the class whose centroid has the largest cosine with a row.

    Centroids are means of unit rows, first weighted by p, then once more of the rows that each class has got; a class
    without a row keeps its first one."""
    rows, every = unit_rows(x), p.new_ones(len(p))
    centroid = unit_rows(class_sums(rows, p, every)[1])
    label = times(rows, centroid.T).argmax(1)
    mass, total = class_sums(rows, one_hot(label, p.shape[1]), every)
    centroid = torch.where(mass.unsqueeze(1) > 0, unit_rows(total), centroid)
    nearest: Tensor = times(rows, centroid.T).argmax(1)
    return nearest


def confident_cross_entropy(
    weak: Float[Tensor, "n c"], strong: Float[Tensor, "n c"], threshold: float
) -> Float[Tensor, " n"]:
    """FixMatch: CE of the strong view's scores with the weak view's class, 0 where that is less probable than the
    threshold; the weak view has no gradient."""
    most, label = weak.detach().float().softmax(1).max(1)
    return (most >= threshold).float() * cross_entropy(strong.float(), label, reduction="none")


def confident_distance(
    student: Float[Tensor, "n c"], teacher: Float[Tensor, "n c"], threshold: float
) -> Float[Tensor, " n"]:
    """Mean teacher: ‖p − p_T‖² / C of two views' predictions, 0 where the teacher is not surer than the threshold; the
    teacher has no gradient."""
    target = teacher.detach().float().softmax(1)
    distance = (student.float().softmax(1) - target).square().mean(1)
    return (target.amax(1) > threshold).float() * distance


def class_imbalance(logits: Float[Tensor, "n c"]) -> Float[Tensor, ""]:
    """Σ_c BCE(mean p_c, 1/C): least where all classes are equally probable on average."""
    mean = logits.float().softmax(1).mean(0).clamp(1e-6, 1 - 1e-6)
    share = 1 / len(mean)
    return -(share * mean.log() + (1 - share) * (1 - mean).log()).sum()
