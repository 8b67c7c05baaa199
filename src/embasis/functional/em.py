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

from embasis.functional.remembered import BYTES, remember_calls, remember_memory
from embasis.functional.roots import solve_falling
from embasis.functional.sites import SPANNED_WIDTH, join_rows, multiply_own, softmax_by_class, times
from embasis.threads import map_in_threads
from embasis.types import EMStats

LEAST_MASS = torch.finfo(torch.float32).tiny * 1e4
"""A component with less has none."""
ALL_ITERATIONS = 40
"""Iterations on the same rows that are counted on, in all rounds."""
EM_CHUNK = 2048
"""Rows per chunk: the responsibilities stay in the cache between the two products, and the threads meet seldom."""


@dataclass(frozen=True, eq=False)
class ClassPrior:
    """What is known of the classes of n sites beside their features, and the class of each component."""

    log_prior: Float[Tensor, "n c"]
    component_class: Int64[Tensor, " k"]


@remember_memory
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
    return softmax_by_class(kernel_scores(x, mu, sharpness, kernel))


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
    eq. 1 up to a constant, Σ w log Σ_k exp(kernel + log prior).

    Scores and z lie component by component (k, n): so both products and the softmax go along rows (decision 0053)."""
    mu = mu.float()
    directions = sharpness * mu
    offset = (-sharpness * mu.square().sum(1) / 2).unsqueeze(1) if kernel == "gaussian" else None
    mass, total = torch.zeros(len(mu)), torch.zeros_like(mu)
    objective = torch.zeros((), dtype=torch.float64)
    for first in range(0, len(x), EM_CHUNK):
        chunk = slice(first, first + EM_CHUNK)
        rows = x[chunk].float()
        score = directions @ rows.T
        if offset is not None:
            score += offset
        if prior is not None:
            score += prior.log_prior[chunk].float().T.index_select(0, prior.component_class)
        z = score.softmax(0)
        # log Σ_k exp(score_k) = score_k − log z_k for every k; at the largest z nothing is lost to rounding.
        logs = score.amax(0) - z.amax(0).log_()
        if weight is not None:
            w = weight[chunk].float()
            z.mul_(w)
            logs *= w
        objective += logs.sum(dtype=torch.float64)
        mass += z.sum(1)
        total.addmm_(z, rows)
    return EMStats(mass, total, objective)


def merge_chunks(
    chunks: Sequence[Float[Tensor, "_ d"]], weights: Sequence[Tensor], priors: Sequence[ClassPrior] | None
) -> tuple[list[Tensor], list[Tensor], list[ClassPrior] | None]:
    """Chunks joined until they have about EM_CHUNK rows: fewer calls for the same sums. Many rows stay as they are."""
    if len(chunks) == 1 or 4 * sum(chunk.numel() for chunk in chunks) > BYTES:
        return list(chunks), list(weights), None if priors is None else list(priors)
    groups, count = list[list[int]](), EM_CHUNK
    for number, chunk in enumerate(chunks):
        if count + len(chunk) > EM_CHUNK:
            groups.append([])
            count = 0
        groups[-1].append(number)
        count += len(chunk)
    joined = None if priors is None else [join_priors([priors[number] for number in group]) for group in groups]
    rows = [join_rows(*(chunks[number] for number in group)) for group in groups]
    return rows, [torch.cat([weights[number] for number in group]) for group in groups], joined


def join_priors(priors: Sequence[ClassPrior]) -> ClassPrior:
    """What is known of the classes of several chunks, class by class in memory."""
    return ClassPrior(torch.cat([prior.log_prior.T for prior in priors], 1).T, priors[0].component_class)


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


def iterate_in_span(
    chunks: Sequence[Float[Tensor, "_ d"]],
    mu: Float[Tensor, "k d"],
    sharpness: float,
    weights: Sequence[Float[Tensor, " _"]],
    priors: Sequence[ClassPrior] | None,
    iterations: int,
) -> tuple[EMStats, Float[Tensor, "k d"]] | None:
    """`iterations` of EM on the sphere where sites are fewer than features: the last statistics and means.

    A mean is z X of unit length, so its scores with all sites are z X Xᵀ / ‖z X‖: one product with n² numbers in place
    of two with n d, and X Xᵀ is the same in every round. None where that is no gain, or where a component has no mass:
    it would stay where it is, which is not in this span."""
    components, width, count = *mu.shape, sum(len(chunk) for chunk in chunks)
    saved = ALL_ITERATIONS * components * (2 * width - count) - 0.75 * count * width
    if saved <= 0 or width < SPANNED_WIDTH or 4 * count * width > BYTES:
        return None
    rows, weight = join_rows(*chunks), torch.cat(list(weights))
    gram = multiply_own(rows)
    prior = None if priors is None else join_priors(priors)
    known = None if prior is None else prior.log_prior.float().T.index_select(0, prior.component_class)
    cosines = mu.float() @ rows.T
    for _ in range(iterations):
        score = sharpness * cosines if known is None else torch.add(known, cosines, alpha=sharpness)
        z = score.softmax(0)
        objective = ((score.amax(0) - z.amax(0).log()) * weight).sum(dtype=torch.float64)
        z.mul_(weight)
        mass, cosines = z.sum(1), z @ gram
        length = (cosines * z).sum(1).clamp_min(0).sqrt()
        if not bool((length > 1e-6 * mass).all()) or not float(mass.min()) > LEAST_MASS:
            return None
        cosines.div_(length.unsqueeze(1))
    stats = EMStats(mass, z @ rows, objective)
    return stats, m_step(stats, mu, sphere=True)[0]


def m_step(
    stats: EMStats, mu: Float[Tensor, "k d"], sphere: bool = False
) -> tuple[Float[Tensor, "k d"], Float[Tensor, " k"]]:
    """M step, eq. 14: mu_k = total_k / mass_k (on the sphere: of unit length), and which components have mass.

    Those without mass stay where they are."""
    alive = stats.mass > LEAST_MASS
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

    wide = cosines.float().T.contiguous().T

    def excess(sharpness: float) -> float:
        return float(mean_perplexity(softmax_by_class(sharpness * wide))) - perplexity

    return solve_falling(excess, lowest, highest)
