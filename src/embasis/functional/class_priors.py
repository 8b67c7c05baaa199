"""Class shares of a side without labels, and evidence judged by them.

| symbol | shape | meaning |
| --- | --- | --- |
| likelihood | n c | how well each class explains a site, up to a factor of the site |
| known | c | class shares of the labelled side |
| strength | () | how many times all n sites the known shares count |
| weight | n | how many sites each one stands for |
| taught | c | trusted labels of each class that a network was trained on beside the labelled side |
| found | c | the shares π that maximise Σ_n w_n log Σ_c π_c likelihood_nc + strength · Σ_c known_c log π_c |

The sum is concave in π, so EM finds its maximum from any start: each step sets π to the mean posterior, mixed with what
is known. What a network says is its likelihood times the shares it was trained with; exchanging these for the shares of
where it is used is Bayes' rule.
"""

from __future__ import annotations

from jaxtyping import Float, Shaped
from torch import Tensor

from embasis.functional.losses import average

STEPS = 30


def estimated_shares(
    likelihood: Float[Tensor, "n c"],
    known: Float[Tensor, " c"],
    strength: float,
    weight: Float[Tensor, " n"] | None = None,
) -> Float[Tensor, " c"]:
    """`found`, in double precision; `known` must be positive."""
    wide, start = likelihood.double(), known.double() / known.double().sum()
    share, found = None if weight is None else weight.double(), start
    for _ in range(STEPS):
        posterior = wide * found
        mean = average(posterior / posterior.sum(1, keepdim=True), share)
        found = (mean + strength * start) / (1 + strength)
    return found


def training_priors(
    known: Float[Tensor, " c"], pseudo_label_counts: Shaped[Tensor, " c"] | None, weight: float
) -> Float[Tensor, " c"]:
    """(C) class shares of a network's training on labelled sites and, with this weight, on trusted ones: what it has
    learned of how common a class is. No class has less than half a site."""
    if pseudo_label_counts is None or not float(pseudo_label_counts.sum()):
        return known
    counts = pseudo_label_counts.double() + 0.5
    return (known + weight * counts / counts.sum()) / (1 + weight)


def swap_priors(
    log_probability: Float[Tensor, "n c"], trained: Float[Tensor, " c"], here: Float[Tensor, " c"], power: float
) -> Float[Tensor, "n c"]:
    """(q / trained)^power · here, normalised: a network's evidence where classes have other shares."""
    return (power * (log_probability - trained.log()) + here.log()).softmax(1)
