"""How often labels are right, without a true one: by reference labels that self-training has not touched.

| symbol | shape | meaning |
| --- | --- | --- |
| x, bank | n d, m d | unit rows: sites to be labelled, and labelled sites |
| reference | n | the reference label: class of the labelled site that is nearest to each site |
| mean | n c | label distributions |
| b | () | inverse temperature: mean^b, normalised, is the recalibrated mean; below 1 it is less sure |

Reference labels err, and so do the labels; both make them differ. As long as they do not err together, a label agrees
with its reference about as often as it is right (decision 0022). So b is the one under which the reference labels are
most likely: argmin_b Σ_n −log softmax(b · log mean_n) at reference_n, which is convex. One reference label more, spread
evenly over sites and classes, keeps b finite where a handful of rows all agree.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from embasis.functional.losses import average

HELD_PRODUCTS = 2**24
"""Products of x and bank that are held at once."""
LOWEST, HIGHEST = 1 / 32, 8.0
"""The range of inverse temperatures."""
LEAST_MEAN = 1e-12
"""The least probability whose logarithm is taken."""


def nearest_labels(
    x: Float[Tensor, "n d"], bank: Float[Tensor, "m d"], label: Int64[Tensor, " m"]
) -> Int64[Tensor, " n"]:
    """`reference`, by cosine; the first one among labelled sites that are equally near."""
    size = max(HELD_PRODUCTS // max(len(bank), 1), 1)
    labels = [label[(part @ bank.T).argmax(1)] for part in x.split(size)]
    return torch.cat(labels) if labels else label[:0]


@torch.no_grad()
def fit_temperature(
    mean: Float[Tensor, "n c"], reference: Int64[Tensor, " n"], weight: Float[Tensor, " n"] | None = None
) -> float:
    """b between LOWEST and HIGHEST under which the reference labels are most likely: the loss has slope zero there.

    The slope is E[Σ_c softmax(b · scores)_c scores_c] − E[score of the reference label], with scores = log mean. With
    `weight` each site counts as so many."""
    scores = mean.double().clamp_min(LEAST_MEAN).log()
    weight = None if weight is None else weight.double()
    count = len(mean) if weight is None else float(weight.sum())
    observed = count * float(average(scores.gather(1, reference.unsqueeze(1)).squeeze(1), weight))
    observed = (observed + float(average(scores.mean(1), weight))) / (count + 1)

    def rises(inverse_temperature: float) -> bool:
        expected = average(((inverse_temperature * scores).softmax(1) * scores).sum(1), weight)
        return float(expected) > observed

    if not rises(HIGHEST) or rises(LOWEST):
        return LOWEST if rises(LOWEST) else HIGHEST
    low, high = math.log(LOWEST), math.log(HIGHEST)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if rises(math.exp(middle)) else (middle, high)
    return math.exp((low + high) / 2)


def apply_temperature(
    mean: Float[Tensor, "n c"], between: Float[Tensor, "n c"], within: Float[Tensor, "n c"], inverse_temperature: float
) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"], Float[Tensor, "n c"]]:
    """mean^b, normalised; its variance is split into between and within in the old proportion."""
    new = (inverse_temperature * mean.clamp_min(LEAST_MEAN).log()).softmax(1)
    total = (new - new.square()).clamp_min(0)
    part = (between / (between + within).clamp_min(LEAST_MEAN)).clamp(0, 1)
    first = part * total
    return new, first, total - first


def least_confidence(
    confidence: Float[Tensor, " n"], count: Int64[Tensor, " n"], precision: float
) -> tuple[float, int, float] | None:
    """The lowest probability such that all labels at least as sure are right with this probability on average.

    `count`: how many labels have each probability. With it come how many labels that are, and how many errors are
    expected among them: Σ (1 − probability). None where not even the surest labels are sure enough."""
    seen, count = confidence.double()[count > 0], count.double()[count > 0]
    value, place = torch.unique(seen, return_inverse=True)
    labels = torch.zeros_like(value).index_add_(0, place, count).flip(0).cumsum(0)
    sure = torch.zeros_like(value).index_add_(0, place, count * seen).flip(0).cumsum(0)
    enough = torch.nonzero(sure >= precision * labels * (1 - 1e-12)).flatten()
    if not len(enough):
        return None
    last = int(enough[-1])
    return float(value.flip(0)[last]), int(labels[last]), float(labels[last] - sure[last])
