"""How far probabilities and uncertainties can be believed.

| symbol | shape | meaning |
| --- | --- | --- |
| confidence | n | probability of the predicted class |
| right | n | whether the predicted class is true |
| bins | b 3 | per bin of confidence: sites, Σ confidence, Σ right; sums, so they add up |
| uncertainty | n | the ranking score; high should mean wrong |
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

BINS = 15


def reliability_bins(
    confidence: Float[Tensor, " n"], right: Bool[Tensor, " n"], bins: int = BINS
) -> Float64[Tensor, "b 3"]:
    """Sites, Σ confidence, Σ right in equal bins of (0, 1]."""
    index = ((confidence.double() * bins).ceil().long() - 1).clamp(0, bins - 1)
    rows = torch.stack([torch.ones_like(confidence), confidence, right.to(confidence.dtype)], 1).double()
    return torch.zeros(bins, 3, dtype=torch.float64).index_add_(0, index, rows)


def class_reliability_bins(
    confidence: Float[Tensor, " n"],
    right: Bool[Tensor, " n"],
    label: Int64[Tensor, " n"],
    classes: int,
    bins: int = BINS,
) -> Float64[Tensor, "c b 3"]:
    """The same bins for the sites of each predicted class; their sum over classes is `reliability_bins`."""
    index = ((confidence.double() * bins).ceil().long() - 1).clamp(0, bins - 1) + label * bins
    columns = [torch.ones_like(confidence), confidence, right.to(confidence.dtype)]
    sums = [torch.bincount(index, column.double(), minlength=classes * bins) for column in columns]
    return torch.stack(sums, 1).view(classes, bins, 3).double()  # without sites they are counted as integers


def expected_calibration_error(bins: Float64[Tensor, "b 3"]) -> float:
    """Σ_b (n_b / n) |accuracy_b − confidence_b|."""
    return float((bins[:, 1] - bins[:, 2]).abs().sum() / bins[:, 0].sum().clamp_min(1))


def negative_log_likelihood(mean: Float[Tensor, "n c"], truth: Int64[Tensor, " n"]) -> float:
    """−mean log p(true class), probabilities floored at 1e-12."""
    return float(-mean.double().gather(1, truth.unsqueeze(1)).clamp_min(1e-12).log().mean())


def auroc(score: Float[Tensor, " n"], positive: Bool[Tensor, " n"]) -> float | None:
    """P(score of a positive > score of a negative), ties count half; None when there is only one kind."""
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not positives or not negatives:
        return None
    _, inverse, counts = torch.unique(score.double(), return_inverse=True, return_counts=True)
    last = counts.cumsum(0)
    rank = (last.double() - (counts - 1).double() / 2)[inverse]
    return float((rank[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def risk_coverage(
    uncertainty: Float[Tensor, " n"], right: Bool[Tensor, " n"], points: int = 50
) -> Float64[Tensor, "m 2"]:
    """(share kept, share of errors among the kept) when the surest are kept first."""
    order = torch.argsort(uncertainty.double(), stable=True)
    errors = (~right[order]).double().cumsum(0)
    kept = torch.linspace(0, len(right), points + 1, dtype=torch.float64)[1:].round().long().clamp_min(1).unique()
    return torch.stack([kept.double() / len(right), errors[kept - 1] / kept.double()], 1)
