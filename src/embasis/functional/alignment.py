"""How far two sides are apart, and games in which one part of a network is trained against another (comparators).

| symbol | shape | meaning |
| --- | --- | --- |
| x | n d | rows of the labelled side first, then of the unlabelled one |
| z | n c | scores, or probabilities |
| k | n n | kernel of all pairs of rows |
| first | () | how many rows are of the labelled side |
| score | n | a domain classifier's: positive = of the labelled side |
| tau | () | part of training that is done |
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, kl_div

from embasis.functional.losses import one_hot

KERNEL_WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Widths of the kernel, in units of the mean squared distance."""


def squared_distances(x: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    """‖a − b‖² of all pairs, in float32; never negative."""
    wide = x.float()
    square = wide.square().sum(1)
    return (square.unsqueeze(1) + square - 2 * wide @ wide.T).clamp_min(0)


def product_distances(x: Float[Tensor, "n d"], z: Float[Tensor, "n c"]) -> Float[Tensor, "n n"]:
    """‖x⊗z − x'⊗z'‖² of all pairs, by ⟨x⊗z, x'⊗z'⟩ = ⟨x, x'⟩⟨z, z'⟩: no product is made; never negative."""
    gram = (x.float() @ x.float().T) * (z.float() @ z.float().T)
    square = gram.diagonal()
    return (square.unsqueeze(1) + square - 2 * gram).clamp_min(0)


def gaussian_kernel(distance: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """The mean of five Gaussian kernels with widths by the mean distance of two rows, which has no gradient."""
    count = len(distance)
    width = (distance.detach().sum() / max(count * (count - 1), 1)).clamp_min(torch.finfo(torch.float32).tiny)
    return torch.stack([(-distance / (scale * width)).exp() for scale in KERNEL_WIDTHS]).mean(0)


def fixed_kernel(distance: Float[Tensor, "n n"], width: float) -> Float[Tensor, "n n"]:
    """exp(−‖a − b‖² / width): a Gaussian kernel whose width does not follow the rows."""
    return (-distance / width).exp()


def squared_mmd(k: Float[Tensor, "n n"], first: int) -> Float[Tensor, ""]:
    """The squared maximum mean discrepancy of the two sides, unbiased: pairs of a row with itself are left out."""
    last = len(k) - first
    own, other, across = k[:first, :first], k[first:, first:], k[:first, first:]
    within = (own.sum() - own.diagonal().sum()) / max(first * (first - 1), 1)
    beyond = (other.sum() - other.diagonal().sum()) / max(last * (last - 1), 1)
    return within + beyond - 2 * across.mean()


def squared_top_value(x: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
    """σ₁²: the largest eigenvalue of the smaller Gram matrix of the rows; not finite where the rows are not."""
    wide = x.float()
    gram = wide @ wide.T if len(x) <= x.shape[1] else wide.T @ wide
    if not bool(torch.isfinite(gram).all()):
        return gram.trace()
    top: Tensor = torch.linalg.eigvalsh(gram)[-1]
    return top


def lengthening_loss(x: Float[Tensor, "n d"], step: float) -> Float[Tensor, " n"]:
    """(‖x‖ − ⟦‖x‖⟧ − step)², ⟦·⟧ without gradient: always step², with a gradient that lengthens every row."""
    length: Tensor = torch.linalg.vector_norm(x.float(), dim=1)
    return (length - length.detach() - step).square()


class _Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -ctx.strength * gradients[0], None


def reverse_gradient(x: Tensor, strength: float) -> Tensor:
    """x itself; its gradient comes back times −strength."""
    reversed_x: Tensor = _Reversal.apply(x, strength)
    return reversed_x


def reversal_strength(tau: float) -> float:
    """λ(τ) = 2 / (1 + e^(−10 τ)) − 1: from 0 to nearly 1."""
    return 2 / (1 + math.exp(-10 * tau)) - 1


def domain_loss(score: Float[Tensor, " n"], labelled: bool) -> Float[Tensor, " n"]:
    """Binary cross-entropy of a domain classifier's scores with the side that the rows are, or pass for."""
    return binary_cross_entropy_with_logits(score, torch.full_like(score, float(labelled)), reduction="none")


def domain_accuracy(labelled: Float[Tensor, " n"], unlabelled: Float[Tensor, " m"]) -> Float[Tensor, ""]:
    """The share of rows whose side a domain classifier gets right, each side counted equally."""
    return ((labelled.detach() > 0).float().mean() + (unlabelled.detach() <= 0).float().mean()) / 2


def class_confusion(logits: Float[Tensor, "n c"], temperature: float) -> Float[Tensor, ""]:
    """MCC: how much classes are confused with each other on average, rows of low entropy counting more."""
    logs = (logits.float() / temperature).log_softmax(1)
    p = logs.exp()
    weight = 1 + (-(-(p * logs).sum(1)).detach()).exp()
    weight = len(p) * weight / weight.sum()
    pairs = (p * weight.unsqueeze(1)).T @ p
    pairs = pairs / pairs.sum(1, keepdim=True).clamp_min(1e-8)
    return (pairs.sum() - pairs.diagonal().sum()) / p.shape[1]


def symmetric_divergence(first: Float[Tensor, "n c"], second: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
    """ADR: ½ [KL(p₂ ‖ p₁) + KL(p₁ ‖ p₂)] of the softmax of two scores; the first of each pair has no gradient."""
    left, right = first.float().log_softmax(1), second.float().log_softmax(1)
    kept_left, kept_right = left.detach(), right.detach()
    forth = (kept_right.exp() * (kept_right - left)).sum(1)
    back = (kept_left.exp() * (kept_left - right)).sum(1)
    return (forth + back) / 2


def released_divergence(first: Float[Tensor, "n c"], second: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
    """ADR's code: ½ [KL(p₂ ‖ softmax p₁) + KL(p₁ ‖ softmax p₂)] / C; the first of each pair has no gradient.

    Its gradient at p₁, (softmax p₁ − p₂) / 2C, is not zero where the draws agree: a descent makes them sharper too."""
    left, right = first.float().softmax(1), second.float().softmax(1)
    forth = kl_div(left.log_softmax(1), right.detach(), reduction="none").sum(1)
    back = kl_div(right.log_softmax(1), left.detach(), reduction="none").sum(1)
    return (forth + back) / (2 * first.shape[1])


def generator_input(
    label: Int64[Tensor, " n"], x: Float[Tensor, "n d"], noise: Float[Tensor, "n k"], classes: int
) -> Float[Tensor, "n e"]:
    """GTA: [onehot(label), x, noise], where the label `classes` means that there is none."""
    return torch.cat([one_hot(label, classes + 1), x.float(), noise], 1)
