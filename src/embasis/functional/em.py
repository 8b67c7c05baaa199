"""Expectation-maximisation of the basis (eq. 1, 2 and 12 to 14 of docs/method.md).

| symbol | shape | meaning |
| --- | --- | --- |
| x | n d | features of n sites, centred and of unit length |
| w | n | weight of a site; gives both domains equal mass |
| mu | k d | the basis |
| z | n k | responsibilities; rows sum to one |
| sharpness | () | concentration of the components, the λ of the E step |
| log_prior | n c | log of how likely each class of a site is before its features: by its label, or by the network |
| component_class | k | the class of each component |

Kernels: "dot" is sharpness · x·mu, the paper's eq. 13; "gaussian" is sharpness · (x·mu − ‖mu‖²/2), the posterior of a
mixture with covariance I/sharpness (eq. 1 and 2). They agree when all mu have one norm. Only the second is a likelihood
ascent for free mu; with unit x and mu renormalised after each M step the first is EM of a von-Mises–Fisher mixture.

With a prior the components have other shares at each site, those of their classes there:
z_nk ∝ exp(kernel(x_n, mu_k) + log_prior_n at component_class(k)), the posterior given both (decision 0024). The M step
is the same, and so is the objective that rises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from embasis.functional.remembered import remember_calls
from embasis.functional.roots import solve_falling
from embasis.functional.sites import times
from embasis.threads import map_in_threads
from embasis.types import EMStats

EM_CHUNK = 2048
"""Rows per chunk: the responsibilities stay in the cache between the two products, and the threads meet seldom."""


@dataclass(frozen=True, eq=False)
class ClassPrior:
    """What is known of the classes of n sites beside their features, and the class of each component."""

    log_prior: Float[Tensor, "n c"]
    component_class: Int64[Tensor, " k"]


def kernel_scores(
    x: Float[Tensor, "n d"], mu: Float[Tensor, "k d"], sharpness: float, kernel: str = "dot"
) -> Float[Tensor, "n k"]:
    """log z up to a constant of the row: kernel "dot" of eq. 13, or "gaussian" of eq. 2."""
    wide = mu.float()
    scores = times(x.float(), wide.T)
    return sharpness * (scores - wide.square().sum(1) / 2 if kernel == "gaussian" else scores)


def responsibilities(
    x: Float[Tensor, "n d"], mu: Float[Tensor, "k d"], sharpness: float, kernel: str = "dot"
) -> Float[Tensor, "n k"]:
    """E step, eq. 12 and 13: z_nk ∝ exp(kernel(x_n, mu_k))."""
    return kernel_scores(x, mu, sharpness, kernel).softmax(1)


@torch.no_grad()
def em_statistics(
    x: Float[Tensor, "n d"],
    mu: Float[Tensor, "k d"],
    sharpness: float,
    weight: Float[Tensor, " n"] | None = None,
    kernel: str = "dot",
    prior: ClassPrior | None = None,
) -> EMStats:
    """E step and the sums of the M step in one pass (eq. 13 and 14): mass, total and the objective, the logarithm of
    eq. 1 up to a constant, Σ w log Σ_k exp(kernel + log prior)."""
    mu = mu.float()
    directions = (sharpness * mu).T.contiguous()
    offset = -sharpness * mu.square().sum(1) / 2 if kernel == "gaussian" else torch.zeros(len(mu))
    mass, total = torch.zeros(len(mu)), torch.zeros_like(mu)
    objective = torch.zeros((), dtype=torch.float64)
    scores = torch.empty(min(EM_CHUNK, len(x)), len(mu))
    shares = torch.empty_like(scores)
    for first in range(0, len(x), EM_CHUNK):
        chunk = slice(first, first + EM_CHUNK)
        rows = x[chunk].float()
        score = torch.addmm(offset, rows, directions, out=scores[: len(rows)])
        if prior is not None:
            score += prior.log_prior[chunk].float()[:, prior.component_class]
        z = torch.softmax(score, 1, out=shares[: len(rows)])
        # log Σ_k exp(score_k) = score_k − log z_k for every k; at the largest z nothing is lost to rounding.
        logs = score.amax(1) - z.amax(1).log_()
        if weight is not None:
            w = weight[chunk].float()
            z.mul_(w.unsqueeze(1))
            logs *= w
        objective += logs.sum(dtype=torch.float64)
        mass += z.sum(0)
        total.addmm_(z.T, rows)
    return EMStats(mass, total, objective)


def sum_em_statistics(
    chunks: Sequence[Float[Tensor, "_ d"]],
    mu: Float[Tensor, "k d"],
    sharpness: float,
    weights: Sequence[Float[Tensor, " _"]],
    kernel: str = "dot",
    priors: Sequence[ClassPrior] | None = None,
) -> EMStats:
    """The same of all chunks, added up in their order: each by one thread, so that threads do not wait for each other
    and change no bit."""
    each = [None] * len(chunks) if priors is None else priors

    def compute(number: int) -> EMStats:
        return em_statistics(chunks[number], mu, sharpness, weights[number], kernel, each[number])

    work = 2 * mu.numel() * sum(len(chunk) for chunk in chunks)
    parts = map_in_threads(compute, range(len(chunks)), work)
    total = next(parts)
    for part in parts:
        total = total + part
    return total


def m_step(
    stats: EMStats, mu: Float[Tensor, "k d"], sphere: bool = False
) -> tuple[Float[Tensor, "k d"], Float[Tensor, " k"]]:
    """M step, eq. 14: mu_k = total_k / mass_k (on the sphere: of unit length), and which components have mass.

    Those without mass stay where they are."""
    alive = stats.mass > torch.finfo(torch.float32).tiny * 1e4
    mean = stats.total / torch.where(alive, stats.mass, torch.ones_like(stats.mass)).unsqueeze(1)
    if sphere:
        length = mean.norm(dim=1, keepdim=True)
        alive = alive & (length.squeeze(1) > 1e-12)
        mean = mean / torch.where(length > 1e-12, length, torch.ones_like(length))
    return torch.where(alive.unsqueeze(1), mean, mu.float()), alive.float()


def effective_components(mass: Float[Tensor, " k"]) -> float:
    """exp of the entropy of the mass: how many components share the data."""
    share = mass.double().clamp_min(0)
    share = share / share.sum().clamp_min(torch.finfo(torch.float64).tiny)
    return float(torch.special.entr(share).sum().exp())


def domain_weights(labelled: Tensor) -> Float[Tensor, " n"]:
    """Both domains get half of the mass, whatever their sizes; they sum to n. One domain alone: all ones."""
    flags = labelled.bool()
    counts = torch.tensor([(~flags).sum(), flags.sum()], dtype=torch.float32)
    each = len(flags) / (counts.clamp_min(1) * (counts > 0).sum().clamp_min(1))
    return each[flags.long()]


def mean_perplexity(z: Float[Tensor, "n k"]) -> Float[Tensor, ""]:
    """exp of the mean entropy of the responsibilities: over how many components a site spreads."""
    entropy: Tensor = torch.special.entr(z).sum(1).mean()
    return entropy.exp()


@remember_calls
@torch.no_grad()
def sharpness_for_perplexity(
    cosines: Float[Tensor, "n k"], perplexity: float, lowest: float = 1e-2, highest: float = 1e4
) -> float:
    """The sharpness at which sites spread over `perplexity` components on average; perplexity falls with sharpness.

    Beyond the bounds the bound is returned: identical components never separate."""

    wide = cosines.float()

    def excess(sharpness: float) -> float:
        return float(mean_perplexity((sharpness * wide).softmax(1))) - perplexity

    return solve_falling(excess, lowest, highest)
