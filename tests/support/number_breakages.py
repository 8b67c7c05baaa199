"""What tests share: breakages that tests of numbers must see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from embasis.functional import em, losses, moments, selection, sites
from embasis.types import EMStats


def plain_softmax(x: Tensor, mu: Tensor, sharpness: float, kernel: str = "dot") -> Tensor:
    z = em.kernel_scores(x, mu, sharpness, kernel).exp()
    return z / z.sum(1, keepdim=True)


def plain_norm(x: Tensor) -> Tensor:
    return x.float() / x.float().norm(dim=1, keepdim=True)


def careless_m_step(stats: EMStats, mu: Tensor, sphere: bool = False) -> tuple[Tensor, Tensor]:
    return stats.total / stats.mass.unsqueeze(1), torch.ones(len(mu))


def last_row_only(x: Tensor, mu: Tensor, sharpness: float, weight: Any = None, kernel: str = "dot") -> EMStats:
    z = em.responsibilities(x, mu, sharpness, kernel)  # the M step as printed has no sum over n
    return EMStats(z[-1], z[-1].unsqueeze(1) * x[-1], torch.zeros(()))


def half_precision(x: Tensor, mu: Tensor, sharpness: float, kernel: str = "dot") -> Tensor:
    return (sharpness * (x @ mu.T)).bfloat16().softmax(1).float()


def no_floor(z: Tensor, p: Tensor, q: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    mean = z @ p if q is None else (z @ p) * q
    mean = mean / mean.sum(1, keepdim=True)
    return mean, torch.zeros_like(mean), mean * (1 - mean)


def one_over_variance(variance: Tensor, *_: object) -> Tensor:
    return 1 / variance


def ties_by_place(label: Tensor, score: Tensor, threshold: Tensor, share: Tensor, uniform: Tensor) -> Tensor:
    place = torch.arange(len(score)) / max(len(score), 1)
    return (score < threshold[label]) | ((score == threshold[label]) & (place < share[label]))


BREAKAGES: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "the softmax overflows": (em, "responsibilities", plain_softmax),
    "lengths overflow, and zero rows are divided by zero": (sites, "unit_rows", plain_norm),
    "an empty component is divided by zero": (em, "m_step", careless_m_step),
    "the M step has no sum over rows": (em, "em_statistics", last_row_only),
    "responsibilities are rounded to half precision": (em, "responsibilities", half_precision),
    "two sure and opposed sources give 0 / 0": (moments, "label_moments", no_floor),
    "weights are 1 / variance": (losses, "inverse_variance", one_over_variance),
    "ties are broken by the order of rows": (selection, "is_trusted", ties_by_place),
}
