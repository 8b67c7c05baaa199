"""Class priors of a side without labels, and a network's probabilities under other priors. The paper has none of this.

| symbol | shape | meaning |
| --- | --- | --- |
| likelihood | n c | how well each class explains a site, up to a factor of the site |
| known | c | class priors of the labelled side |
| strength | () | how many times all n sites the known priors count |
| weight | n | how many sites each one stands for |
| pseudo_label_counts | c | selected labels of each class that a network was trained on beside the labelled side |
| priors | c | the π that maximises Σ_n w_n log Σ_c π_c likelihood_nc + strength · Σ_c known_c log π_c |

The sum is concave in π, so EM finds its maximum from any start: each step sets π to the mean posterior, mixed with what
is known. A network's output is its likelihood times the priors it was trained with; exchanging these for the priors of
where it is used is Bayes' rule.
"""

from __future__ import annotations

from jaxtyping import Float, Shaped
from torch import Tensor

from embasis.functional.losses import average

PRIOR_STEPS = 30
"""Steps of EM."""


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
    return (power * (log_probability - trained.log()) + here.log()).softmax(1)
