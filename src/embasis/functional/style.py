"""How a picture looks, apart from what it shows: statistics of channels, Gram matrices of features, games of pictures.

| symbol | shape | meaning |
| --- | --- | --- |
| x | n c … | rows: pictures with c channels, or vectors with c numbers |
| centre, scale | 2 c | mean and deviation of each channel, of the labelled (0) and the unlabelled side (1) |
| m | n c h w | maps of features of pictures |
| g | n c c | Gram matrices of maps: which features occur together, wherever that is |
| score | n … | a discriminator's, at each patch: 1 = a picture of the other side, 0 = a picture that was made |
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Shaped
from torch import Tensor


def move_statistics(
    x: Shaped[Tensor, "n c ..."], centre: Float[Tensor, "2 c"], scale: Float[Tensor, "2 c"]
) -> Float[Tensor, "n c ..."]:
    """(x − centre₀) / scale₀ · scale₁ + centre₁: each channel of the labelled side with the other's mean and spread."""
    shape = (1, -1, *(1,) * (x.ndim - 2))
    (old, new), (spread, wanted) = (pair.float().view(2, *shape) for pair in (centre, scale))
    moved: Tensor = (x.float() - old) * (wanted / spread) + new
    return moved


def gram_matrix(m: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c c"]:
    """Means over pixels of all products of two features."""
    flat = m.flatten(2)
    return flat @ flat.transpose(1, 2) / flat.shape[2]


def relative_distance(x: Float[Tensor, "n ..."], target: Float[Tensor, "*shape"]) -> Float[Tensor, " n"]:
    """‖x_n − target_n‖² / ‖target_n‖²; one target may stand for all rows."""
    wanted = target.expand_as(x).flatten(1)
    return (x.flatten(1) - wanted).square().sum(1) / wanted.square().sum(1).clamp_min(1e-12)


def even_step(gradient: Float[Tensor, "n ..."], size: float) -> Float[Tensor, "n ..."]:
    """The gradient of each row, as long as a mean change of `size` a number."""
    mean = gradient.abs().flatten(1).mean(1).clamp_min(torch.finfo(torch.float32).tiny)
    return size * gradient / mean.view(-1, *(1,) * (gradient.ndim - 1))


def least_squares_loss(score: Float[Tensor, "n ..."], real: bool) -> Float[Tensor, ""]:
    """Least-squares GAN: mean (score − 1)² for pictures that are, or pass for, real; mean score² for others."""
    return (score - float(real)).square().mean()


def absolute_difference(x: Float[Tensor, "n ..."], other: Float[Tensor, "n ..."]) -> Float[Tensor, ""]:
    """The mean |x − other| over all numbers."""
    return (x - other).abs().mean()
