"""The part `head`: which class each component is of, and how surely (eq. 10 and 11 of docs/method.md).

| symbol | shape | meaning |
| --- | --- | --- |
| z, y | n K, n | responsibilities and labels of labelled sites |
| others | m K | responsibilities of unlabelled sites |
| p | K C | class probabilities of each component: p_k = E_ε softmax f(mu_k + σ ε) |

The basis does not depend on the head, so training the head once on the final basis has the same fixed point as a step
in every EM iteration, and costs less (decision 0005).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from embasis.errors import check_not_negative
from embasis.functional import losses, moments
from embasis.functional.linear_model import BasisHeadLoss
from embasis.functional.minimise import PlainObjective, minimise_smooth
from embasis.randomness import generator

HEAD_STEPS = 30
"""The most steps of L-BFGS."""
HEAD_TOLERANCE = 1e-5
"""The head is found where no entry of its gradient is above this."""

FittedHead = tuple[Tensor, Tensor, Tensor]
"""weight (C, d), bias (C) and p (K, C)"""


@dataclass(frozen=True, eq=False)
class HeadData:
    """Responsibilities of both sides, labels of one, and how much each site counts (None: all alike)."""

    z: Tensor
    y: Tensor
    weight: Tensor | None
    others: Tensor
    others_weight: Tensor | None
    classes: int

    @classmethod
    def of(cls, parts: Iterable[Tensor], y: Tensor, weight: Tensor | None, classes: int, even: bool) -> HeadData:
        """All sites by their labels, −1 where there is none; `even`: each class counts as much as any other.

        `parts` of z are read once and not kept: of many components they are the largest thing of a round."""
        z, known = torch.cat(list(parts)), y >= 0
        mine, theirs = (None, None) if weight is None else (weight[known], weight[~known])
        if even:
            mine = (1 / torch.bincount(y[known], minlength=classes).clamp_min(1))[y[known]]
        return cls(z[known], y[known], mine, z[~known], theirs, classes)


class Head(Protocol):
    """From the basis to class probabilities."""

    @property
    def draws_noise(self) -> bool:
        """Whether a fit depends on a draw."""

    def fit(self, data: HeadData, mu: Tensor, seed: int, round_number: int) -> FittedHead:
        """The head on the final basis."""


@dataclass(frozen=True)
class CountHead:
    """p_k by the labelled mass of each class in component k; there is no linear head, so its weights are 0."""

    @property
    def draws_noise(self) -> bool:
        """Never."""
        return False

    def fit(self, data: HeadData, mu: Tensor, seed: int, round_number: int) -> FittedHead:
        """p_kc = (Σ_n z_nk [y_n = c] + 1/(2C)) / Σ_c of the same."""
        known = losses.one_hot(data.y, data.classes)
        known = known if data.weight is None else known * data.weight.unsqueeze(1)
        counts = data.z.T @ known + 0.5 / data.classes
        weight, bias = torch.zeros(data.classes, mu.shape[1]), torch.zeros(data.classes)
        return weight, bias, counts / counts.sum(1, keepdim=True)


@dataclass(frozen=True)
class LinearHead:
    """f, a linear classifier of the latent space, by back-propagation on labelled and unlabelled sites (eq. 10, 11):

        NLL(Σ_k z_nk p_k, y_n) + v · (variance + balance) over unlabelled sites + penalty · ‖weight‖².

    The balance term keeps the variance from being minimised by one class for everything.

    Parameters
    ----------
    variance_weight : v; 0 = labels alone
    balance_weight : weight of the balance term, in units of variance_weight
    penalty : weight of ‖weight‖², which keeps the minimum finite
    sigma : σ, the spread of a component in latent space; 0 = a component is a point
    draws : sigma > 0: draws of ε for p; 0 = closed form
    """

    variance_weight: float = 0.0
    balance_weight: float = 1.0
    penalty: float = 1e-3
    sigma: float = 0.0
    draws: int = 0

    def __post_init__(self) -> None:
        check_not_negative(self, "draws", "variance_weight", "balance_weight", "penalty", "sigma")

    @property
    def draws_noise(self) -> bool:
        """Whether p is a mean over draws."""
        return self.sigma > 0 and self.draws > 0

    def fit(self, data: HeadData, mu: Tensor, seed: int, round_number: int) -> FittedHead:
        """Weight, bias and p at the minimum of the loss."""
        noise = None
        if self.draws_noise:
            noise = torch.randn(self.draws, mu.shape[1], generator=generator(seed, "head", round_number))
        # Without noise the head sees directions of the basis only, so it is sought there: the same steps, K² for K·d.
        axes = torch.linalg.qr(mu.double().T)[0].float() if noise is None and len(mu) < mu.shape[1] else None
        seen = mu if axes is None else mu @ axes
        if self.sigma == 0 and self.variance_weight == 0:
            weight, bias = self._fit_labels(data, seen)
            p = moments.component_probabilities(seen, weight, bias)
            return weight if axes is None else weight @ axes.T, bias, p
        prior = losses.average(losses.one_hot(data.y, data.classes), data.weight)

        def objective(weight: Tensor, bias: Tensor) -> Tensor:
            p = moments.component_probabilities(seen, weight, bias, self.sigma, noise)
            return self._loss(data, p, prior, weight)

        weight, bias = minimise(objective, torch.zeros(data.classes, seen.shape[1]), torch.zeros(data.classes))
        p = moments.component_probabilities(seen, weight, bias, self.sigma, noise)
        return weight if axes is None else weight @ axes.T, bias, p

    def _fit_labels(self, data: HeadData, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Weight and bias where labels alone decide and components are points: their gradient is written out."""
        each = torch.full((len(data.y),), 1.0) if data.weight is None else data.weight.float()
        each = each / each.sum()
        arrays = (data.z.numpy(), data.y.numpy(), each.numpy(), seen.numpy())
        start = np.zeros(data.classes * (seen.shape[1] + 1))
        objective = PlainObjective(BasisHeadLoss(*arrays, decay=2 * self.penalty))
        solution = torch.from_numpy(minimise_smooth(objective, start, HEAD_STEPS, HEAD_TOLERANCE)[0]).float()
        return solution[: -data.classes].view(data.classes, -1), solution[-data.classes :]

    def _loss(self, data: HeadData, p: Tensor, prior: Tensor, weight: Tensor) -> Tensor:
        """Labelled NLL of the mixture's mean + v · (variance + balance) over unlabelled sites, all by their weights."""
        likelihood = (data.z @ p).gather(1, data.y.unsqueeze(1)).squeeze(1)
        loss = -losses.average(likelihood.clamp_min(1e-12).log(), data.weight)
        loss = loss + self.penalty * weight.square().sum()
        if self.variance_weight > 0 and len(data.others):
            mean, between, within = moments.label_moments(data.others, p)
            spread = losses.mean_variance(between, within, data.others_weight)
            spread = spread + self.balance_weight * losses.class_balance(mean, prior, data.others_weight)
            loss = loss + self.variance_weight * spread
        return loss


def minimise(objective: Callable[[Tensor, Tensor], Tensor], weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The smooth objective's minimum by L-BFGS from the given start."""
    weight, bias = weight.clone().requires_grad_(True), bias.clone().requires_grad_(True)
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=HEAD_STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = objective(weight, bias)
        torch.autograd.backward(loss)
        return loss

    optimiser.step(closure)
    return weight.detach(), bias.detach()
