"""From basis to label distribution (eq. 7 to 9 and 15 of docs/method.md).

| symbol | shape | meaning |
| --- | --- | --- |
| mu | k d | the basis |
| weight, bias | c d, c | the linear head f |
| sigma | () | spread of a component in latent space |
| p | k c | p_k = E_ε softmax f(mu_k + sigma ε) |
| z | n k | responsibilities |
| q | n c | the network's own class probabilities: a second piece of evidence, or None |
| mean, between, within | n c | the label distribution: between + within = mean (1 − mean) |
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from embasis.functional.sites import times

LEAST_PROBABILITY = 1e-12


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
    Good to a few hundredths for up to five classes; for many classes take draws, or sigma = 0.
    """
    scores = mu.float() @ weight.float().T + bias.float()
    if sigma == 0.0:
        return scores.softmax(1)
    if noise is not None:
        return (scores.unsqueeze(0) + sigma * (noise.float() @ weight.float().T).unsqueeze(1)).softmax(2).mean(0)
    classes = len(weight)
    against = (weight.float() - weight.float().mean(0)) * (classes / max(classes - 1, 1))
    spread = (1 + math.pi / 8 * sigma**2 * against.square().sum(1)).sqrt()
    return ((scores - scores.mean(1, keepdim=True)) / spread).softmax(1)


def label_moments(
    z: Float[Tensor, "n k"], p: Float[Tensor, "k c"], q: Float[Tensor, "n c"] | None = None
) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"], Float[Tensor, "n c"]]:
    """mean, between and within of each site: the first two moments of eq. 8, and so the pseudo-label of eq. 15.

    Without q:  mean = Σ_k z p,  between = Σ_k z p² − mean²,  within = Σ_k z p (1 − p).
    With q each component's class probabilities are multiplied by the site's own evidence, p'_nk ∝ p_k q_n, and the
    component by how well it agrees with it, z'_nk ∝ z_nk (p_k·q_n): the posterior of component and class. The same
    three sums over z', p' follow, and so does the identity. No n × k × c tensor is made. Where p and q are sure of
    different classes (0 · 1 and 1 · 0 in float32), both are floored: the mean is then undecided, not zero.
    """
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

    Without the softmax the variance is that of W ε for every site, so it ranks nothing: kept as an option only.
    """
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
def fit_network_temperature(
    scores: Float[Tensor, "n c"], entropy: float, lowest: float = 1e-4, weight: Float[Tensor, " n"] | None = None
) -> float:
    """The power g ≤ 1 at which softmax(g · scores) has this mean entropy; 1 if it has as much already.

    Mean entropy falls with g, so bisection of log g finds it. With `weight` it is the weighted mean.
    """
    wide = scores.double()
    share = None if weight is None else weight.double() / weight.double().sum()

    def mean_entropy(power: float) -> float:
        each = torch.special.entr((power * wide).softmax(1)).sum(1)
        return float(each.mean() if share is None else (share * each).sum())

    if mean_entropy(1.0) >= entropy:
        return 1.0
    low, high = lowest, 1.0
    for _ in range(40):
        middle = math.sqrt(low * high)
        if mean_entropy(middle) > entropy:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)
