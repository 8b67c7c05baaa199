"""The part `mixture`: the E step and the M step (eq. 12 to 14 of docs/method.md).

| symbol | shape | meaning |
| --- | --- | --- |
| x | n d | sites, centred and of unit length |
| mu | K d | the basis |
| z | n K | responsibilities; rows sum to one |
| sharpness | () | the λ of the E step |
| log_prior | n C | what is known of the class of a site beside its features |

    E:  z_nk ∝ exp(sharpness · x_n·mu_k)                 M:  mu_k = Σ_n w_n z_nk x_n / Σ_n w_n z_nk, of unit length
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from embasis.errors import ConfigError, check_choice, check_not_negative, require
from embasis.functional import em
from embasis.functional.em import ClassPrior
from embasis.functional.losses import one_hot
from embasis.methods.em_basis.features import PreparedSites, first_rows, rows_of_side
from embasis.types import EMStats

CENTRINGS = ("domain", "joint", "none")
KERNELS = ("dot", "gaussian")
SHARPNESS_ROWS = 4096
"""Unlabelled rows by which the sharpness is set."""


@dataclass(frozen=True)
class Mixture:
    """EM of a mixture of components of one sharpness, over both sides, each with half of the mass.

    Parameters
    ----------
    sharpness : the λ of the E step; 0 = so that a site spreads over `perplexity` components on average (decision 0002)
    iterations : T, E and M steps of a round
    perplexity : 0 = as many components as one class has, at least 2
    kernel : "dot" = x·mu (the paper); "gaussian" = x·mu − ‖mu‖²/2
    centring : features are centred and scaled by their own side ("domain"), by both together ("joint"), or not ("none")
    guided : labels and the network guide EM: a component has the sites that are likely of its class (decision 0024);
        False = features only (the paper)
    """

    sharpness: float = 0.0
    iterations: int = 10
    perplexity: float = 0.0
    kernel: str = "dot"
    centring: str = "domain"
    guided: bool = False

    def __post_init__(self) -> None:
        check_not_negative(self, "iterations", "sharpness")
        spread = f"perplexity must be over 1, or 0 for one class's components, got {self.perplexity}"
        require(self.perplexity == 0 or self.perplexity > 1, spread, ConfigError)
        check_choice(self, "kernel", KERNELS)
        check_choice(self, "centring", CENTRINGS)

    def find_sharpness(self, data: PreparedSites, mu: Tensor, per_class: int) -> float:
        """λ as given, or the one at which unlabelled sites spread over as many components as they are to."""
        if self.sharpness > 0:
            return self.sharpness
        target = self.perplexity or max(float(per_class), 2.0)
        unlabelled = (rows_of_side(row, part.y, True) for row, part in zip(data.rows, data.stream, strict=True))
        sample = first_rows(unlabelled, SHARPNESS_ROWS)
        sample = sample if len(sample) else first_rows(data.rows, SHARPNESS_ROWS)
        return em.sharpness_for_perplexity(em.kernel_scores(sample, mu, 1.0), min(target, len(mu) * 0.9))

    def component_scores(self, x: Tensor, mu: Tensor, sharpness: float) -> Tensor:
        """(N, K) log z, up to a constant of the row."""
        return em.kernel_scores(x, mu, sharpness, self.kernel)

    def e_step(self, x: Tensor, mu: Tensor, sharpness: float) -> Tensor:
        """(N, K) z_nk ∝ exp(λ · x_n·mu_k) (eq. 12)."""
        return em.responsibilities(x, mu, sharpness, self.kernel)

    def run_em(
        self, data: PreparedSites, mu: Tensor, sharpness: float, priors: Sequence[ClassPrior] | None = None
    ) -> tuple[Tensor, EMStats, Tensor]:
        """The basis after T times E step and M step (eq. 12 to 14), the last statistics, which components have mass.

        `priors`: what is known of the classes of each chunk beside its features."""
        each = em.domain_weights(torch.cat(data.labelled)).split([len(row) for row in data.rows])
        if self.kernel == "dot" and self.iterations:
            done = em.iterate_in_span(data.rows, mu, sharpness, each, priors, self.iterations)
            if done is not None:
                return done[1], done[0], torch.ones(len(mu))
        rows, weights, priors = em.merge_chunks(data.rows, each, priors)
        for _ in range(max(self.iterations, 1)):
            stats = em.sum_em_statistics(rows, mu, sharpness, weights, self.kernel, priors)
            moved, alive = em.m_step(stats, mu, sphere=self.kernel == "dot")
            mu = moved if self.iterations else mu
        return mu, stats, alive

    def assign_component_classes(self, data: PreparedSites, mu: Tensor, sharpness: float) -> Tensor:
        """(K) the class that each component of an unnamed basis is of: the one with most of its labelled mass."""
        counts = torch.zeros(len(mu), data.classes)
        for row, part in zip(data.rows, data.stream, strict=True):
            known = part.y >= 0
            z = self.e_step(row[known], mu, sharpness)
            counts += z.T @ one_hot(part.y[known], data.classes)
        return counts.argmax(1)
