"""Where a basis comes from: Stage I's three terms (eq. 3 to 6 of docs/method.md), and means of labelled classes.

| symbol | shape | meaning |
| --- | --- | --- |
| x | n d | features |
| w | k d | weights of the attention block, the proposed basis |
| z | n k | x wᵀ |
| y | n | classes; Y is their one-hot matrix n c |

Each Frobenius term is divided by the number of its entries, so that its weight means the same for every batch and K.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from embasis.functional.remembered import remember_calls


def orthogonality(w: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    """Eq. 3: ‖w wᵀ − I_k‖² / k². (For k < d the paper's μᵀμ = I is impossible; rows can be orthonormal.)"""
    w = w.float()
    return (w @ w.T - torch.eye(len(w), device=w.device)).square().mean()


def reconstruction(x: Float[Tensor, "n d"], w: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    """Eq. 5: ‖x − z w‖² / (n d)."""
    x, w = x.float(), w.float()
    return (x - (x @ w.T) @ w).square().mean()


def affinity(x: Float[Tensor, "n d"], w: Float[Tensor, "k d"], y: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
    """Eq. 6: ‖z zᵀ − Y Yᵀ‖² / n², through ‖zᵀz‖² − 2‖zᵀY‖² + ‖YᵀY‖²: no n × n matrix is ever made."""
    z = x.float() @ w.float().T
    classes = int(y.max()) + 1 if len(y) else 1
    onehot = torch.nn.functional.one_hot(y, classes).float()
    squares = (z.T @ z).square().sum() - 2 * (z.T @ onehot).square().sum() + (onehot.T @ onehot).square().sum()
    return squares.clamp_min(0) / max(len(x), 1) ** 2


@remember_calls
@torch.no_grad()
def class_means(
    x: Float[Tensor, "n d"], y: Int64[Tensor, " n"], classes: int, per_class: int, iterations: int = 5
) -> tuple[Float[Tensor, "k d"], Int64[Tensor, " k"]]:
    """`per_class` centres of each labelled class by k-means from farthest points, and the class of each centre.

    No draw: the first centre is the row nearest to the class mean, each next one the row farthest from those before.
    A class with fewer distinct rows than centres repeats rows; a class without rows gets the mean of all rows."""
    x = x.float()
    centres = [
        _spread_centres(x[y == c] if bool((y == c).any()) else x.mean(0, keepdim=True), per_class, iterations)
        for c in range(classes)
    ]
    return torch.cat(centres), torch.arange(classes).repeat_interleave(per_class)


def _spread_centres(rows: Tensor, count: int, iterations: int) -> Tensor:
    first = _euclidean(rows, rows.mean(0, keepdim=True)).squeeze(1).argmin()
    chosen = [int(first)]
    distance = _euclidean(rows, rows[first : first + 1]).squeeze(1)
    for _ in range(count - 1):
        chosen.append(int(distance.argmax()))
        distance = torch.minimum(distance, _euclidean(rows, rows[chosen[-1:]]).squeeze(1))
    centres = rows[chosen].clone()
    for _ in range(iterations):
        nearest = _euclidean(rows, centres).argmin(1)
        mass = torch.zeros(count).index_add_(0, nearest, torch.ones(len(rows)))
        total = torch.zeros_like(centres).index_add_(0, nearest, rows)
        centres = torch.where((mass > 0).unsqueeze(1), total / mass.clamp_min(1).unsqueeze(1), centres)
    return centres


def _euclidean(rows: Tensor, centres: Tensor) -> Tensor:
    # Through ‖a‖² − 2ab + ‖b‖² rows that lie close together far from zero would all be at distance 0.
    return torch.cdist(rows, centres, compute_mode="donot_use_mm_for_euclid_dist")
