"""Class by class, the surest sites: exact thresholds from mergeable histograms.

The paper's sample selection (its section 4.3; docs/method.md, "Selection and retraining").

| symbol | shape | meaning |
| --- | --- | --- |
| score | n | uncertainty of a site, ≥ 0; low is sure |
| label | n | predicted class |
| key | n | the 32 bits of the score as an integer: for scores ≥ 0 the order is the same |
| high, low | c 65536 | counts of the upper 16 bits; of the lower 16 bits inside the bin that holds the threshold |
| keep | () or c | share of each predicted class to trust |
| threshold | c | the ⌈keep · n_c⌉-th smallest score of the class |
| share | c | share of the sites exactly at the threshold to trust, decided by a hash of the sample id |

Two passes over the stream give the exact order statistic: a radix selection whose only state is counts, and counts add
up over batches and processes. Nothing is sorted and nothing is held. A few sites that are held anyway are sorted:
65,536 counts of each class take longer than that.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

RADIX_BINS = 1 << 16
"""Values of 16 bits."""
SORTED_SITES = 1 << 17
"""The most sites that are sorted."""
CLASSES_AT_ONCE = 16
"""Classes whose counts are added up at once: beside the histograms themselves nothing of their size is made."""


def order_key(score: Float[Tensor, " n"]) -> Int64[Tensor, " n"]:
    """Non-negative floats as integers of the same order (−0 and NaN-free input assumed; negatives count as 0)."""
    return score.float().clamp_min(0).add(0.0).contiguous().view(torch.int32).long()


def high_counts(
    label: Int64[Tensor, " n"], key: Int64[Tensor, " n"], classes: int, into: Int64[Tensor, "c b"] | None = None
) -> Int64[Tensor, "c b"]:
    """Histogram of the upper 16 bits, class by class; added to `into` in place where given."""
    counts = torch.zeros(classes, RADIX_BINS, dtype=torch.int64) if into is None else into
    counts.view(-1).index_add_(0, label * RADIX_BINS + (key >> 16), torch.ones_like(key))
    return counts


def low_counts(
    label: Int64[Tensor, " n"],
    key: Int64[Tensor, " n"],
    high_bin: Int64[Tensor, " c"],
    into: Int64[Tensor, "c b"] | None = None,
) -> Int64[Tensor, "c b"]:
    """Histogram of the lower 16 bits of those sites whose upper bits are their class's threshold bin."""
    inside = (key >> 16) == high_bin[label]
    return high_counts(label[inside], (key[inside] & (RADIX_BINS - 1)) << 16, len(high_bin), into)


def rank_bin(
    counts: Int64[Tensor, "c b"], rank: Int64[Tensor, " c"]
) -> tuple[Int64[Tensor, " c"], Int64[Tensor, " c"]]:
    """The bin that holds the `rank`-th smallest (from 1; 0 = none, bin 0), and how many lie in the bins before it."""
    place, before = torch.empty_like(rank), torch.empty_like(rank)
    for first in range(0, len(counts), CLASSES_AT_ONCE):
        rows = slice(first, first + CLASSES_AT_ONCE)
        cumulative = counts[rows].cumsum(1)
        bins = (cumulative < rank[rows].unsqueeze(1)).sum(1).clamp_max(counts.shape[1] - 1)
        at = cumulative.gather(1, (bins - 1).clamp_min(0).unsqueeze(1)).squeeze(1)
        place[rows], before[rows] = bins, torch.where(bins > 0, at, 0)
    return place, before


def ranks(counts: Int64[Tensor, "c b"], keep: float | Float64[Tensor, " c"]) -> Int64[Tensor, " c"]:
    """How many sites of each class to trust, by their histograms."""
    return count_trusted(counts.sum(1), keep)


def count_trusted(counts: Int64[Tensor, " c"], keep: float | Float64[Tensor, " c"]) -> Int64[Tensor, " c"]:
    """How many of so many sites of each class to trust: ⌈keep_c · n_c⌉."""
    return (counts.double() * keep - 1e-9).ceil().long().clamp_min(0)


def threshold_of(
    high: Int64[Tensor, "c b"], low: Int64[Tensor, "c b"], keep: float | Float64[Tensor, " c"]
) -> tuple[Float[Tensor, " c"], Float[Tensor, " c"]]:
    """threshold and share from the two histograms; a class that trusts nothing gets threshold −1."""
    rank = ranks(high, keep)
    high_bin, before = rank_bin(high, rank)
    low_bin, inside = rank_bin(low, rank - before)
    key = (high_bin << 16) + low_bin
    at = low.gather(1, low_bin.unsqueeze(1)).squeeze(1).clamp_min(1)
    share = ((rank - before - inside).float() / at.float()).clamp(0, 1)
    threshold = key.to(torch.int32).view(torch.float32)
    return torch.where(rank > 0, threshold, -1.0), torch.where(rank > 0, share, 0.0)


def sort_thresholds(
    label: Int64[Tensor, " n"], key: Int64[Tensor, " n"], classes: int, keep: float | Float64[Tensor, " c"]
) -> tuple[Float[Tensor, " c"], Float[Tensor, " c"]]:
    """`threshold_of` where all sites are at hand and few: the same numbers by one sort, without histograms."""
    ordered = ((label << 32) + key).sort().values
    counts = torch.bincount(label, minlength=classes)
    rank = count_trusted(counts, keep)
    first = counts.cumsum(0) - counts
    at = ordered[(first + rank - 1).clamp(0, max(len(ordered) - 1, 0))] if len(ordered) else first
    below = torch.searchsorted(ordered, at)
    equal = (torch.searchsorted(ordered, at, right=True) - below).clamp_min(1)
    share = ((rank - (below - first)).float() / equal.float()).clamp(0, 1)
    threshold = (at & 0xFFFFFFFF).to(torch.int32).view(torch.float32)
    return torch.where(rank > 0, threshold, -1.0), torch.where(rank > 0, share, 0.0)


def is_trusted(
    label: Int64[Tensor, " n"],
    score: Float[Tensor, " n"],
    threshold: Float[Tensor, " c"],
    share: Float[Tensor, " c"],
    uniform: Tensor,
) -> Tensor:
    """Below the class's threshold, or at it and chosen by the hash of the sample id."""
    clean = score.float().clamp_min(0)
    at = clean == threshold[label]
    return (clean < threshold[label]) | (at & (uniform < share[label].double()))
