"""Losses of retraining (eq. 10, 11 and 16), and the regularisers of the methods we compare with (sections 4 and 6).

| symbol | shape | meaning |
| --- | --- | --- |
| logits | n c | scores of the network |
| target | n c | label distribution to learn |
| weight | n | weight of a site, 0 = left out |
| p | n c | class probabilities |
| variance | n | Var(y) of a site |
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

WEIGHT_RATIO = 10.0
"""The most that a weight by variance may differ from the mean one."""


def one_hot(label: Int64[Tensor, " n"], classes: int, smoothing: float = 0.0) -> Float[Tensor, "n c"]:
    """Target distribution of a hard label; rows of label −1 are class 0 and need weight 0."""
    hard = torch.nn.functional.one_hot(label.clamp_min(0), classes).float()
    return hard * (1 - smoothing) + smoothing / classes


def weighted_cross_entropy(
    logits: Float[Tensor, "n c"], target: Float[Tensor, "n c"], weight: Float[Tensor, " n"]
) -> Float[Tensor, ""]:
    """L_U and L_L of eq. 16: Σ w CE(target, softmax logits) / Σ w; 0 when nothing has weight."""
    each = -(target * logits.float().log_softmax(1)).sum(1)
    return (weight * each).sum() / weight.sum().clamp_min(torch.finfo(torch.float32).tiny)


def inverse_variance(
    variance: Float[Tensor, " n"],
    floor: float = 0.05,
    ratio: float = WEIGHT_RATIO,
    mean: Float[Tensor, ""] | None = None,
) -> Float[Tensor, " n"]:
    """Eq. 16: w = 1 / (Var + floor), scaled by its mean and capped to [1/ratio, ratio]: 1/Var alone is unbounded.

    `mean` is that of a whole stream, so that a weight does not depend on the batch; else that of these sites."""
    weight = 1 / (variance.float().clamp_min(0) + floor).clamp_min(1e-12)
    scale = weight.mean() if mean is None else mean
    return (weight / scale.clamp_min(torch.finfo(torch.float32).tiny)).clamp(1 / ratio, ratio)


def kld_regulariser(logits: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
    """KL(uniform ‖ p) up to a constant: −(1/C) Σ_c log p_c  (MRKLD)."""
    return -logits.float().log_softmax(1).mean(1)


def entropy_regulariser(logits: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
    """Negative entropy Σ_c p log p  (MRENT)."""
    return -prediction_entropy(logits)


def l2_regulariser(logits: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
    """Σ_c p²  (MRL2)."""
    return logits.float().softmax(1).square().sum(1)


def prediction_entropy(logits: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
    """−Σ_c p log p."""
    logs = logits.float().log_softmax(1)
    return -(logs.exp() * logs).sum(1)


def entropy_smoothed(p: Float[Tensor, "n c"], ceiling: Float[Tensor, " c"], alpha: float) -> Float[Tensor, "n c"]:
    """argmin over the simplex of −Σ y log(p/ceiling) + α Σ y log y:  y ∝ (p / ceiling)^(1/α)  (LRENT)."""
    ratio = p.double().clamp_min(1e-30).log() - ceiling.double().clamp_min(1e-30).log()
    return (ratio / alpha).softmax(1).float()


def l2_smoothed(p: Float[Tensor, "n c"], ceiling: Float[Tensor, " c"], alpha: float) -> Float[Tensor, "n c"]:
    """argmin over the simplex of −Σ y log(p/ceiling) + α/2 Σ y²: the projection of log(p/ceiling)/α  (LRL2)."""
    ratio = p.double().clamp_min(1e-30).log() - ceiling.double().clamp_min(1e-30).log()
    return simplex_projection(ratio / alpha).float()


def simplex_projection(v: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
    """The nearest point of the probability simplex, row by row."""
    # A shift changes no projection, and beside large entries the 1 of the simplex would be lost to rounding.
    v = v - v.amax(1, keepdim=True)
    ordered = v.sort(1, descending=True).values
    excess = ordered.cumsum(1) - 1
    counts = torch.arange(1, v.shape[1] + 1, dtype=v.dtype)
    size = (ordered * counts > excess).sum(1, keepdim=True).clamp_min(1)
    level = excess.gather(1, size - 1) / size
    return (v - level).clamp_min(0)


def average(values: Float[Tensor, "n ..."], weight: Float[Tensor, " n"] | None = None) -> Tensor:
    """The mean over sites; with `weight` (≥ 0, some > 0) the weighted one."""
    return values.mean(0) if weight is None else (weight / weight.sum()) @ values


def mean_variance(
    between: Float[Tensor, "n c"], within: Float[Tensor, "n c"], weight: Float[Tensor, " n"] | None = None
) -> Float[Tensor, ""]:
    """The head's variance term of eq. 11: Var(y) summed over classes, mean over unlabelled sites."""
    return average((between + within).sum(1), weight)


def class_balance(
    mean: Float[Tensor, "n c"], prior: Float[Tensor, " c"], weight: Float[Tensor, " n"] | None = None
) -> Float[Tensor, ""]:
    """KL(prior ‖ mean prediction): what keeps the variance term from predicting one class for everything."""
    predicted = average(mean, weight).clamp_min(1e-12)
    return (prior * (prior.clamp_min(1e-12).log() - predicted.log())).sum()
