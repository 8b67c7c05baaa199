"""From basis to label distribution (eq. 7 to 9 and 15 of docs/method.md), and what the network adds to it.

| symbol | shape | meaning |
| --- | --- | --- |
| mu | k d | the basis |
| weight, bias | c d, c | the linear head f |
| sigma | () | spread of a component in latent space |
| p | k c | p_k = E_ε softmax f(mu_k + sigma ε) |
| z | n k | responsibilities |
| q | n c | the network's own class probabilities: a second piece of evidence, or None |
| mean, between, within | n c | the label distribution: between + within = mean (1 − mean) |
| likelihood | n c | how well each class explains a site, up to a factor of the site |
| known | c | class priors of the labelled side |
| strength | () | how many times all n sites the known priors count |
| weight | n | how many sites each one stands for |
| pseudo_label_counts | c | selected labels of each class that a network was trained on beside the labelled side |
| priors | c | the π that maximises Σ_n w_n log Σ_c π_c likelihood_nc + strength · Σ_c known_c log π_c |

The paper has no part for the network. That sum is concave in π, so EM finds its maximum from any start: each step sets
π to the mean posterior, mixed with what is known. A network's output is its likelihood times the priors it was trained
with; exchanging these for the priors of where it is used is Bayes' rule.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from embasis.functional.losses import average
from embasis.functional.roots import solve_falling
from embasis.functional.sites import softmax_by_class, times

Moments = tuple[Float[Tensor, "n c"], Float[Tensor, "n c"], Float[Tensor, "n c"]]
"""mean, between and within."""
LEAST_PROBABILITY = 1e-12
PRIOR_STEPS = 30
"""Steps of EM."""


def component_probabilities(
    mu: Float[Tensor, "k d"],
    weight: Float[Tensor, "c d"],
    bias: Float[Tensor, " c"],
    sigma: float = 0.0,
    noise: Float[Tensor, "m d"] | None = None,
) -> Float[Tensor, "k c"]:
    """p_k (eq. 7 and 9): exact for sigma = 0; the mean over the draws `noise` where given; else a closed form.

    The closed form divides each centred class score by sqrt(1 + π/8 · sigma² ‖w_c − mean of the other w‖²): the probit
    approximation of class c against the mean of the others, which for two classes is MacKay's.
    Good to a few hundredths for up to five classes; for many classes take draws, or sigma = 0."""
    scores = mu.float() @ weight.float().T + bias.float()
    if sigma == 0.0:
        return scores.softmax(1)
    if noise is not None:
        return (scores.unsqueeze(0) + sigma * (noise.float() @ weight.float().T).unsqueeze(1)).softmax(2).mean(0)
    classes = len(weight)
    against = (weight.float() - weight.float().mean(0)) * (classes / max(classes - 1, 1))
    spread = (1 + math.pi / 8 * sigma**2 * against.square().sum(1)).sqrt()
    return ((scores - scores.mean(1, keepdim=True)) / spread).softmax(1)


def label_moments(z: Float[Tensor, "n k"], p: Float[Tensor, "k c"], q: Float[Tensor, "n c"] | None = None) -> Moments:
    """mean, between and within of each site: the first two moments of eq. 8, and so the pseudo-label of eq. 15.

    Without q:  mean = Σ_k z p,  between = Σ_k z p² − mean²,  within = Σ_k z p (1 − p).
    With q each component's class probabilities are multiplied by the site's own evidence, p'_nk ∝ p_k q_n, and the
    component by how well it agrees with it, z'_nk ∝ z_nk (p_k·q_n): the posterior of component and class. The same
    three sums over z', p' follow, and so does the identity. No n × k × c tensor is made. Where p and q are sure of
    different classes (0 · 1 and 1 · 0 in float32), both are floored: the mean is then undecided, not zero."""
    p, z = p.float(), z.float()
    if q is None:
        mean = times(z, p)
        second = times(z, p.square())
    else:
        p, q = p.clamp_min(LEAST_PROBABILITY), q.float().clamp_min(LEAST_PROBABILITY)
        agreement = times(q, p.T).contiguous()  # read twice below
        evidence = (z * agreement).sum(1, keepdim=True)
        mean = times(z, p) * q
        mean = mean / mean.sum(1, keepdim=True)
        second = times(z / agreement, p.square()) * q.square() / evidence
    # Σ z p² ≥ mean² by Jensen; rounding may say otherwise by 1e-8.
    squared = mean.square()
    total = (mean - squared).clamp_min(0)
    between = torch.minimum((second - squared).clamp_min(0), total)
    return mean, between, total - between


def scalar_uncertainty(
    mean: Float[Tensor, "n c"], between: Float[Tensor, "n c"], within: Float[Tensor, "n c"], kind: str
) -> Float[Tensor, " n"]:
    """The one number by which sites are ranked.

    kind: "gini" = Σ_c between + within = 1 − Σ_c mean², the Gini index of the mean, whatever the components say;
    "between" = Σ_c between, by which the components disagree: the paper's Var(y), repaired (eq. 8 of docs/method.md).
    """
    return (between + within if kind == "gini" else between).sum(1)


def literal_moments(
    z: Float[Tensor, "n k"],
    mu: Float[Tensor, "k d"],
    weight: Float[Tensor, "c d"],
    bias: Float[Tensor, " c"],
    noise: Float[Tensor, "m d"],
    softmax: bool = True,
) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"]]:
    """Eq. 9 read literally: x̂ = Σ_k z mu_k + ε, y = f(x̂); mean and variance over the draws.

    Without the softmax the variance is that of W ε for every site, so it ranks nothing: kept as an option only."""
    scores = (times(times(z.float(), mu.float()), weight.float().T) + bias.float()).unsqueeze(0)
    draws = scores + (noise.float() @ weight.float().T).unsqueeze(1)
    values = draws.softmax(2) if softmax else draws
    return values.mean(0), values.var(0, correction=0)


def draw_labels(mean: Float[Tensor, "n c"], uniform: Tensor, temperature: float = 1.0) -> Tensor:
    """One class per site from mean^(1/temperature), by the inverse of its distribution function at `uniform`
    (the paper's section 4.3)."""
    sharpened = (mean.double().clamp_min(0).log() / temperature).softmax(1)
    cumulative = sharpened.cumsum(1)
    above = (uniform.double().unsqueeze(1) * cumulative[:, -1:]) < cumulative
    return above.long().argmax(1)


@torch.no_grad()
def inverse_temperature_for_entropy(
    scores: Float[Tensor, "n c"], entropy: float, lowest: float = 1e-4, weight: Float[Tensor, " n"] | None = None
) -> float:
    """The g ≤ 1 at which softmax(g · scores) has this mean entropy, which falls with g; 1 if it has as much already.

    With `weight` it is the weighted mean."""
    wide = scores.double().T.contiguous().T
    share = None if weight is None else weight.double() / weight.double().sum()

    def mean_entropy(power: float) -> float:
        each = torch.special.entr(softmax_by_class(power * wide)).sum(1)
        return float(each.mean() if share is None else (share * each).sum())

    if mean_entropy(1.0) >= entropy:
        return 1.0
    return solve_falling(lambda power: mean_entropy(power) - entropy, lowest, 1.0)


def estimate_priors(
    likelihood: Float[Tensor, "n c"],
    known: Float[Tensor, " c"],
    strength: float,
    weight: Float[Tensor, " n"] | None = None,
) -> Float[Tensor, " c"]:
    """`priors`, in double precision; `known` must be positive."""
    wide, start = likelihood.double(), known.double() / known.double().sum()
    share, priors = None if weight is None else weight.double(), start
    for _ in range(PRIOR_STEPS):
        posterior = wide * priors
        mean = average(posterior / posterior.sum(1, keepdim=True), share)
        priors = (mean + strength * start) / (1 + strength)
    return priors


def training_priors(
    known: Float[Tensor, " c"], pseudo_label_counts: Shaped[Tensor, " c"] | None, weight: float
) -> Float[Tensor, " c"]:
    """(C) class priors of a network's training on labelled sites and, with this weight, on selected ones: what it has
    learned of how common a class is. No class has less than half a site."""
    if pseudo_label_counts is None or not float(pseudo_label_counts.sum()):
        return known
    counts = pseudo_label_counts.double() + 0.5
    return (known + weight * counts / counts.sum()) / (1 + weight)


def swap_priors(
    log_probability: Float[Tensor, "n c"], trained: Float[Tensor, " c"], here: Float[Tensor, " c"], power: float
) -> Float[Tensor, "n c"]:
    """(q / trained)^power · here, normalised: a network's probabilities where classes have other priors."""
    return softmax_by_class(power * (log_probability - trained.log()) + here.log())
