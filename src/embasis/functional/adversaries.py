"""What adversaries of the features read, and what they lose (CDAN, MDD, SimNet).

| symbol | shape | meaning |
| --- | --- | --- |
| f | n d | features that the classifier reads |
| p | n c | predictions |
| z | n c | scores of which predictions are the softmax |
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from embasis.functional.losses import prediction_entropy


def outer_rows(f: Float[Tensor, "n d"], p: Float[Tensor, "n c"]) -> Float[Tensor, "n dc"]:
    """vec(f ⊗ p) of each row: its features once for each class, times the class's probability."""
    return torch.einsum("nd,nc->ndc", f, p).flatten(1)


def projected_outer(
    f: Float[Tensor, "n d"], p: Float[Tensor, "n c"], by_f: Float[Tensor, "d m"], by_p: Float[Tensor, "c m"]
) -> Float[Tensor, "n m"]:
    """(f A) ∘ (p B) / √m: with standard normal A and B, products of two rows are those of `outer_rows` on average."""
    return (f @ by_f) * (p @ by_p) / math.sqrt(by_f.shape[1])


def certainty_weights(z: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
    """1 + e^(−H(p)) over its mean, without a gradient: rows whose class is sure count more."""
    weight = 1 + (-prediction_entropy(z.detach())).exp()
    return weight / weight.mean()


def log_of_others(z: Float[Tensor, "n c"], label: Int64[Tensor, " n"]) -> Float[Tensor, " n"]:
    """log(1 − p_label), by the scores of the other classes: also where p_label is 1 to rounding it has a gradient."""
    wide = z.float()
    others = wide.masked_fill(torch.nn.functional.one_hot(label, z.shape[1]).bool(), -math.inf)
    return others.logsumexp(1) - wide.logsumexp(1)


def similarity(
    f: Float[Tensor, "n d"], prototypes: Float[Tensor, "c d"], u: Float[Tensor, "m d"], v: Float[Tensor, "m d"]
) -> Float[Tensor, "n c"]:
    """(u f) · (v μ) of each row f with each prototype μ."""
    return (f @ u.T) @ (prototypes @ v.T).T


def prototype_spread(prototypes: Float[Tensor, "c d"]) -> Float[Tensor, ""]:
    """‖P Pᵀ − I‖²: zero for orthonormal prototypes alone."""
    return (prototypes @ prototypes.T - torch.eye(len(prototypes), device=prototypes.device)).square().sum()
