"""How far probabilities can be believed, and how they are recalibrated without a true label.

Every figure is a function of sums, and sums add up.

| symbol | shape | meaning |
| --- | --- | --- |
| mean | n c | probabilities p of the classes |
| truth | n | the true class, −1 = not known |
| probability | n | p of the true class |
| confidence | n | p of the predicted class |
| right | n | whether the predicted class is true |
| bins | b 3 | per bin of confidence: sites, Σ confidence, Σ right |
| bins | c b 3 | per class and bin of p_c: sites, Σ p_c, Σ 1[truth = c] |
| fine | f 3 | the same by value of confidence, or in bins that are fine near 1; the surest first |
| x, bank | n d, m d | unit rows: sites to be labelled, and labelled sites |
| reference | n | the reference label: class of the labelled site that is nearest to each site |
| b | () | inverse temperature: mean^b, normalised, is the recalibrated mean; below 1 it is less sure |

Sums of probabilities that are rounded to a grid of 2^-22 are exact in float64 up to 2^31 sites: they are the same, bit
for bit, in whatever order and parts the sites come.

Reference labels err, and so do the labels; both make them differ. As long as they do not err together, a label agrees
with its reference about as often as it is right (decision 0022). So b is the one under which the reference labels are
most likely: argmin_b Σ_n −log softmax(b · log mean_n) at reference_n, which is convex. One reference label more, spread
evenly over sites and classes, keeps b finite where a handful of rows all agree.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from embasis.functional.losses import average
from embasis.functional.roots import solve_falling
from embasis.functional.selection import order_key
from embasis.functional.sites import softmax_by_class

CONFIDENCE_BINS = 15
"""Equal bins of confidence."""
FINE_BITS = 14
"""How many of the lower bits of a float's key a fine bin leaves out: its values differ by less than 0.2 %."""
FINE = 1 << (30 - FINE_BITS)
"""Fine bins of [0, 2)."""
CACHED_SITES = 1 << 14
"""Sites whose probabilities are taken at once: as many as stay in a processor's cache."""
HELD_PRODUCTS = 2**24
"""Products of x and bank that are held at once."""
LOWEST, HIGHEST = 1 / 32, 8.0
"""The range of inverse temperatures."""
LEAST_MEAN = 1e-12
"""The least probability whose logarithm is taken."""


def bin_of(value: Float[Tensor, " n"], bins: int) -> Int64[Tensor, " n"]:
    """The number of each value's bin, of equal bins (0, 1/b], (1/b, 2/b], …; values ≤ 0 are in the first."""
    return ((value.double() * bins).ceil().long() - 1).clamp(0, bins - 1)


def on_grid(value: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """Values in [0, 2] rounded to multiples of 2^-22 (float32 in [0, 1]: 2^-23)."""
    if value.dtype == torch.float32:
        return (value + 1).sub_(1)
    return (value.double() + 2**30).sub_(2**30)


def nonzero(mask: Bool[Tensor, "*n"]) -> Int64[Tensor, " k"]:
    """Numbers of the true ones, row after row. Numpy finds them ten times as fast as torch."""
    return torch.from_numpy(np.flatnonzero(mask.numpy()))


def reliability_bins(
    confidence: Float[Tensor, " n"],
    right: Bool[Tensor, " n"],
    bins: int = CONFIDENCE_BINS,
    weight: Float[Tensor, " n"] | None = None,
) -> Float64[Tensor, "b 3"]:
    """Sites, Σ confidence, Σ right in equal bins of (0, 1]; with `weight` each site counts by its own."""
    rows = torch.stack([torch.ones_like(confidence), confidence, right.to(confidence.dtype)], 1).double()
    rows = rows if weight is None else rows * weight.double().unsqueeze(1)
    return torch.zeros(bins, 3, dtype=torch.float64).index_add_(0, bin_of(confidence, bins), rows)


def class_reliability_bins(
    confidence: Float[Tensor, " n"],
    right: Bool[Tensor, " n"],
    label: Int64[Tensor, " n"],
    classes: int,
    bins: int = CONFIDENCE_BINS,
) -> Float64[Tensor, "c b 3"]:
    """The same bins for the sites of each predicted class; their sum over classes is `reliability_bins`."""
    index, size = bin_of(confidence, bins) + label * bins, classes * bins
    counts = torch.bincount(index * 2 + right, minlength=2 * size).view(size, 2).double()
    total = torch.bincount(index, confidence.double(), minlength=size).double()  # without sites these are integers
    return torch.stack([counts.sum(1), total, counts[:, 1]], 1).view(classes, bins, 3)


def fine_bins(confidence: Float[Tensor, " n"], right: Bool[Tensor, " n"]) -> Float64[Tensor, "f 3"]:
    """Sites, Σ confidence, Σ right in bins of the upper bits of 1 − confidence."""
    bins = torch.zeros(FINE, 3, dtype=torch.float64)
    index = (order_key(1 - confidence) >> FINE_BITS) * 3
    for number, column in enumerate((torch.ones_like(confidence), on_grid(confidence), right)):
        bins.view(-1).index_add_(0, index + number, column.double())
    return bins


def exact_bins(confidence: Float[Tensor, " n"], right: Bool[Tensor, " n"]) -> Float64[Tensor, "f 3"]:
    """The same for each value of confidence that occurs."""
    values, index = torch.unique(-confidence.double(), return_inverse=True)
    rows = torch.stack([torch.ones_like(confidence), on_grid(confidence), right.to(confidence.dtype)], 1).double()
    return torch.zeros(len(values), 3, dtype=torch.float64).index_add_(0, index, rows)


def probability_of(mean: Float[Tensor, "n c"], truth: Int64[Tensor, " n"]) -> Float[Tensor, " n"]:
    """p of the true class; of sites with truth −1, that of the first class."""
    return mean[torch.arange(len(truth)), truth.clamp_min(0)]


def classwise_bins(
    mean: Float[Tensor, "n c"],
    truth: Int64[Tensor, " n"],
    probability: Float[Tensor, " n"],
    bins: int = CONFIDENCE_BINS,
) -> Float64[Tensor, "c b 3"]:
    """Sites, Σ p_c, Σ 1[truth = c] in equal bins of each class's own probability; sites with truth −1 are left out.

    Most of n·c probabilities are small. So those above the first bin are counted one by one, and what is in the first
    bin is what they leave over of the sums of the columns."""
    classes, known, size = mean.shape[1], truth >= 0, mean.shape[1] * bins
    counts, total = torch.zeros(size, dtype=torch.int64), torch.zeros(size, dtype=torch.float64)
    columns = torch.zeros(classes, dtype=torch.float64)
    for part, there in zip(mean.split(CACHED_SITES), known.split(CACHED_SITES), strict=True):
        own = (part * there.unsqueeze(1)).T.contiguous()
        columns += on_grid(own).sum(1, dtype=torch.float64)
        above = nonzero(own > 0.99 / bins)
        ends = torch.searchsorted(above, torch.arange(1, classes + 1) * len(part))
        first = torch.arange(0, size, bins).repeat_interleave(ends.diff(prepend=ends.new_zeros(1)))
        value = own.view(-1)[above]
        place = bin_of(value, bins) + first
        counts += torch.bincount(place, minlength=size)
        total += torch.bincount(place, on_grid(value).double(), minlength=size)
    hits = (bin_of(probability, bins) + truth * bins).index_select(0, nonzero(known))
    right = torch.bincount(hits, minlength=size)
    filled = torch.stack([counts.double(), total, right.double()], 1).view(classes, bins, 3)
    filled[:, 0, 0] = len(hits) - filled[:, 1:, 0].sum(1)
    filled[:, 0, 1] = columns - filled[:, 1:, 1].sum(1)
    return filled


def brier_sum(mean: Float[Tensor, "n c"], truth: Int64[Tensor, " n"], probability: Float[Tensor, " n"]) -> float:
    """The Brier score Σ_c (p_c − 1[truth = c])² = Σ_c p_c² − 2 p_truth + 1, summed over the sites with a truth."""
    squares = [part.square().sum(1, dtype=torch.float64) for part in mean.split(CACHED_SITES)]
    value = on_grid(torch.cat(squares) - 2 * probability.double() + 1)
    return float(torch.where(truth >= 0, value, 0.0).sum())


def expected_calibration_error(bins: Float64[Tensor, "b 3"]) -> float:
    """Σ_b (n_b / n) |accuracy_b − confidence_b|: the gap of stated and true accuracy, in equal bins of confidence."""
    return float((bins[:, 1] - bins[:, 2]).abs().sum() / bins[:, 0].sum().clamp_min(1))


def adaptive_calibration_error(fine: Float64[Tensor, "f 3"], bins: int = 15) -> float:
    """Σ_b (1 / B) |accuracy_b − confidence_b|: the same gap in bins with equally many sites each.

    A site at an edge is in both bins by its shares; sites of one value, or of one fine bin, are in no order."""
    gap = torch.cat([torch.zeros(1, dtype=torch.float64), (fine[:, 1] - fine[:, 2]).cumsum(0)])
    mass = torch.cat([torch.zeros(1, dtype=torch.float64), fine[:, 0].cumsum(0)])
    edge = torch.arange(bins + 1, dtype=torch.float64) * mass[-1] / bins
    right = torch.searchsorted(mass, edge).clamp(1, len(mass) - 1)
    share = (edge - mass[right - 1]) / (mass[right] - mass[right - 1]).clamp_min(1)
    at = gap[right - 1] + share * (gap[right] - gap[right - 1])
    return float(at.diff().abs().sum() / mass[-1].clamp_min(1))


def classwise_calibration_error(bins: Float64[Tensor, "c b 3"]) -> float:
    """Mean over classes of Σ_b (n_b / n) |share of the class − p_c|: the gap of each class's own probability."""
    return float((bins[..., 1] - bins[..., 2]).abs().sum() / bins[..., 0].sum().clamp_min(1))


def brier_parts(bins: Float64[Tensor, "c b 3"]) -> tuple[float, float, float]:
    """Murphy's reliability, resolution and uncertainty of the Brier score, summed over classes.

    o_cb, p_cb: share of the class and mean probability in a bin; o_c: share of the class among all sites.
    reliability Σ (n_cb / n)(p_cb − o_cb)², resolution Σ (n_cb / n)(o_cb − o_c)², uncertainty Σ o_c (1 − o_c);
    Brier = reliability − resolution + uncertainty + what probabilities vary within bins."""
    count, filled = bins[..., 0].sum(1, keepdim=True).clamp_min(1), bins[..., 0].clamp_min(1)
    stated, true, share = bins[..., 1] / filled, bins[..., 2] / filled, bins[..., 2].sum(1, keepdim=True) / count
    weight = bins[..., 0] / count
    reliability = (weight * (stated - true).square()).sum()
    resolution = (weight * (true - share).square()).sum()
    return float(reliability), float(resolution), float((share - share.square()).sum())


def negative_log_likelihood(mean: Float[Tensor, "n c"], truth: Int64[Tensor, " n"]) -> float:
    """−mean log p(true class), probabilities floored at 1e-12."""
    return float(-mean.double().gather(1, truth.unsqueeze(1)).clamp_min(1e-12).log().mean())


def nearest_labels(
    x: Float[Tensor, "n d"], bank: Float[Tensor, "m d"], label: Int64[Tensor, " m"]
) -> Int64[Tensor, " n"]:
    """`reference`, by cosine; the first one among labelled sites that are equally near."""
    size = max(HELD_PRODUCTS // max(len(bank), 1), 1)
    labels = [label[(part @ bank.T).argmax(1)] for part in x.split(size)]
    return torch.cat(labels) if labels else label[:0]


def confirmed_shares(label: Int64[Tensor, " n"], reference: Int64[Tensor, " n"], classes: int) -> Float64[Tensor, " c"]:
    """Which share of the labels of each class the reference labels confirm; of a class without labels, which of all."""
    counts = torch.bincount(label, minlength=classes).double()
    confirmed = torch.bincount(label[label == reference], minlength=classes).double()
    return torch.where(counts > 0, confirmed / counts.clamp_min(1), confirmed.sum() / counts.sum().clamp_min(1))


def confirmed_changes(
    before: Int64[Tensor, " n"], after: Int64[Tensor, " n"], reference: Int64[Tensor, " n"]
) -> tuple[int, int]:
    """Of the sites whose label differs before and after: how many have their reference label now, and how many had."""
    changed = before != after
    return int((changed & (after == reference)).sum()), int((changed & (before == reference)).sum())


@torch.no_grad()
def fit_inverse_temperature(
    mean: Float[Tensor, "n c"], reference: Int64[Tensor, " n"], weight: Float[Tensor, " n"] | None = None
) -> float:
    """b between LOWEST and HIGHEST under which the reference labels are most likely: the loss has slope zero there.

    The slope is E[Σ_c softmax(b · scores)_c scores_c] − E[score of the reference label], with scores = log mean. With
    `weight` each site counts as so many."""
    scores = mean.double().T.contiguous().T.clamp_min(LEAST_MEAN).log()
    weight = None if weight is None else weight.double()
    count = len(mean) if weight is None else float(weight.sum())
    observed = count * float(average(scores.gather(1, reference.unsqueeze(1)).squeeze(1), weight))
    observed = (observed + float(average(scores.mean(1), weight))) / (count + 1)

    def fall(inverse_temperature: float) -> float:
        """How far the loss still falls with the inverse temperature: its slope, negated."""
        expected = average((softmax_by_class(inverse_temperature * scores) * scores).sum(1), weight)
        return observed - float(expected)

    return solve_falling(fall, LOWEST, HIGHEST)


def apply_inverse_temperature(
    mean: Float[Tensor, "n c"], between: Float[Tensor, "n c"], within: Float[Tensor, "n c"], inverse_temperature: float
) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"], Float[Tensor, "n c"]]:
    """mean^b, normalised; its variance is split into between and within in the old proportion."""
    new = softmax_by_class(inverse_temperature * mean.clamp_min(LEAST_MEAN).log())
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
