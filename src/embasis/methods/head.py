"""The head on the basis: which class each component is of, and how surely (method, section 4).

| symbol | shape | meaning |
| --- | --- | --- |
| z, y | n k, n | responsibilities and labels of labelled sites |
| others | m k | responsibilities of unlabelled sites |
| p | k c | class probabilities of each component |

The basis does not depend on the head, so training the head once on the final basis has the same fixed point as a step
in every EM iteration, and costs less (decision 0005).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from embasis.functional import losses, moments
from embasis.methods.fitting import minimise


@dataclass(frozen=True, eq=False)
class Sides:
    """Responsibilities of both sides, labels of one, and how much each site counts (None: all alike)."""

    z: Tensor
    y: Tensor
    weight: Tensor | None
    others: Tensor
    others_weight: Tensor | None
    classes: int

    @classmethod
    def of(cls, z: Tensor, y: Tensor, weight: Tensor | None, classes: int, even: bool) -> Sides:
        """All sites by their labels, −1 where there is none; `even`: each class counts as much as any other."""
        known = y >= 0
        mine, theirs = (None, None) if weight is None else (weight[known], weight[~known])
        if even:
            mine = (1 / torch.bincount(y[known], minlength=classes).clamp_min(1))[y[known]]
        return cls(z[known], y[known], mine, z[~known], theirs, classes)


def counted(sides: Sides, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """p_k by the labelled mass of each class in component k; there is no linear head, so its weights are 0."""
    known = losses.one_hot(sides.y, sides.classes)
    known = known if sides.weight is None else known * sides.weight.unsqueeze(1)
    counts = sides.z.T @ known + 0.5 / sides.classes
    return torch.zeros(sides.classes, width), torch.zeros(sides.classes), counts / counts.sum(1, keepdim=True)


def learned(
    sides: Sides,
    mu: Tensor,
    sigma: float,
    noise: Tensor | None,
    penalty: float,
    variance_weight: float,
    balance_weight: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Labelled NLL of the mixture's mean + v · (variance + balance) over unlabelled sites, all by their weights."""
    z, y, zu = sides.z, sides.y.unsqueeze(1), sides.others
    prior = losses.average(losses.one_hot(sides.y, sides.classes), sides.weight)
    # Without noise the head sees directions of the basis only, so it is sought there: the same steps, K² for K·d.
    axes = torch.linalg.qr(mu.double().T)[0].float() if noise is None and len(mu) < mu.shape[1] else None
    seen = mu if axes is None else mu @ axes

    def objective(weight: Tensor, bias: Tensor) -> Tensor:
        p = moments.component_probabilities(seen, weight, bias, sigma, noise)
        loss = -losses.average((z @ p).gather(1, y).squeeze(1).clamp_min(1e-12).log(), sides.weight)
        loss = loss + penalty * weight.square().sum()
        if variance_weight > 0 and len(zu):
            mean, between, within = moments.label_moments(zu, p)
            spread = losses.mean_variance(between, within, sides.others_weight)
            spread = spread + balance_weight * losses.balance(mean, prior, sides.others_weight)
            loss = loss + variance_weight * spread
        return loss

    weight, bias = minimise(objective, torch.zeros(sides.classes, seen.shape[1]), torch.zeros(sides.classes))
    p = moments.component_probabilities(seen, weight, bias, sigma, noise)
    return weight if axes is None else weight @ axes.T, bias, p
