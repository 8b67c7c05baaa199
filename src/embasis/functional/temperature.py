"""How often labels are right, without a true one: by a witness that self-training has not taught.

| symbol | shape | meaning |
| --- | --- | --- |
| x, bank | n d, m d | unit rows: sites to be judged, and labelled sites |
| witness | n | class of the labelled site that is nearest to each site |
| mean | n c | label distributions |
| power | () | mean^power, normalised, is the recalibrated mean; below 1 it is less sure |

The witness errs, and so do the labels; both make them differ. As long as they do not err together, a label agrees with
the witness about as often as it is right (decision 0022). So the power is the one under which the witness's classes are
most likely: argmin_power Σ_n −log softmax(power · log mean_n) at witness_n, which is convex. One answer more, spread
evenly over sites and classes, keeps a handful of rows on which all agree from saying that nothing is ever wrong.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from embasis.functional.losses import average

BLOCK = 2**24
"""Products that are held at once."""
LEAST, MOST = 1 / 32, 8.0
"""Powers that are looked at."""
TINY = 1e-12


def nearest_labels(
    x: Float[Tensor, "n d"], bank: Float[Tensor, "m d"], label: Int64[Tensor, " m"]
) -> Int64[Tensor, " n"]:
    """`witness`, by cosine; the first one among labelled sites that are equally near."""
    size = max(BLOCK // max(len(bank), 1), 1)
    found = [label[(part @ bank.T).argmax(1)] for part in x.split(size)]
    return torch.cat(found) if found else label[:0]


@torch.no_grad()
def fit_temperature(
    mean: Float[Tensor, "n c"], reference: Int64[Tensor, " n"], weight: Float[Tensor, " n"] | None = None
) -> float:
    """The power between LEAST and MOST under which the witness is most likely: where the slope of the loss is zero.

    With `weight` each site counts as so many answers."""
    scores = mean.double().clamp_min(TINY).log()
    weight = None if weight is None else weight.double()
    answers = len(mean) if weight is None else float(weight.sum())
    said = answers * float(average(scores.gather(1, reference.unsqueeze(1)).squeeze(1), weight))
    said = (said + float(average(scores.mean(1), weight))) / (answers + 1)

    def rises(power: float) -> bool:
        return float(average(((power * scores).softmax(1) * scores).sum(1), weight)) > said

    if not rises(MOST) or rises(LEAST):
        return LEAST if rises(LEAST) else MOST
    low, high = math.log(LEAST), math.log(MOST)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if rises(math.exp(middle)) else (middle, high)
    return math.exp((low + high) / 2)


def apply_temperature(
    mean: Float[Tensor, "n c"], between: Float[Tensor, "n c"], within: Float[Tensor, "n c"], inverse_temperature: float
) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"], Float[Tensor, "n c"]]:
    """mean^power, normalised; its variance parts into between and within as the old one did."""
    new = (inverse_temperature * mean.clamp_min(TINY).log()).softmax(1)
    total = (new - new.square()).clamp_min(0)
    part = (between / (between + within).clamp_min(TINY)).clamp(0, 1)
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
