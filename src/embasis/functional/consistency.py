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
from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn.functional import cross_entropy

from embasis.functional.losses import prediction_entropy


def negative_information(logits: Float[Tensor, "n c"]) -> Float[Tensor, ""]:
    """mean H(p) − H(mean p): least where each row is sure and all classes are equally many (SHOT)."""
    mean = logits.float().softmax(1).mean(0)
    information: Tensor = prediction_entropy(logits).mean() - torch.special.entr(mean).sum()
    return information


def class_sums(
    x: Float[Tensor, "n d"], p: Float[Tensor, "n c"], weight: Float[Tensor, " n"]
) -> tuple[Float64[Tensor, " c"], Float64[Tensor, "c d"]]:
    """mass and total of these rows, of which each belongs to each class by its probability."""
    share = p.double() * weight.double().unsqueeze(1)
    return share.sum(0), share.T @ x.double()


def confident_cross_entropy(
    weak: Float[Tensor, "n c"], strong: Float[Tensor, "n c"], threshold: float
) -> Float[Tensor, " n"]:
    """FixMatch: CE of the strong view's scores with the weak view's class, 0 where that is less probable than the
    threshold; the weak view has no gradient."""
    most, label = weak.detach().float().softmax(1).max(1)
    return (most >= threshold).float() * cross_entropy(strong.float(), label, reduction="none")
