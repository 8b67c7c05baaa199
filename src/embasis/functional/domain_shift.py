"""Do two sides differ in more than their class shares? Their nearest neighbours tell.

| symbol | shape | meaning |
| --- | --- | --- |
| x, u | n d, m d | columns of the labelled and of the unlabelled rows whose means tell the class shares |
| y | n | classes 0 … c − 1 of the labelled rows |
| prior, shares | c | class shares of the labelled side, and those that fit the unlabelled one best |
| weight | n + m | of all rows, each side with sum 1; of labelled rows as shares_y / prior_y |
| v | n + m f | all rows, the labelled ones first, of unit length |
| half | n + m | the half, 0 or 1, that a row belongs to |
| auroc | () | P(a row of the unlabelled side has more neighbours of that side than a labelled row), weighted |

If the sides differ in nothing but their class shares, the mean of u is Σ_c shares_c mean_c, and labelled rows with
these weights are distributed as the unlabelled ones are. So the shares are found by matching means, and each row is
asked which of the weighted sides its nearest neighbours in the other half are of: an auroc of 1/2 says that this tells
nothing, so the sides are alike. The paper has no part for this.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from embasis.functional.sites import times

RIDGE = 1.0
"""Added to the variances of standardised columns, so that means are matched with fewer rows than columns, too."""
STEPS = 200
"""Most steps towards the shares that fit best."""
SETTLED = 1e-6
"""They are found when a step changes no share by more."""
NEIGHBOURS = 10
"""That each row asks."""
ERRORS = 2.5
"""So many standard errors above 1/2 may be chance."""
CLEARLY_TWO = 0.1
"""Sides that are told apart by more than this above 1/2 are two, however few their rows are. Better a gain that is
missed than scales that are wrong: a shift along the line between two classes looks like other shares of them."""
TINY_SHARE = 1e-12
"""The least share of a class, and the least weight of a row."""


@dataclass(frozen=True)
class DomainComparison:
    """How well two sides are told apart once their class shares are made equal."""

    auroc: float
    error: float
    """Standard error of the auroc of sides that are alike."""
    prior: Float64[Tensor, " c"]
    shares: Float64[Tensor, " c"]

    @property
    def is_alike(self) -> bool:
        """Whether the sides differ in nothing but, perhaps, their class shares."""
        return self.auroc < 0.5 + min(CLEARLY_TWO, ERRORS * self.error)

    @property
    def moved(self) -> float:
        """Which part of the unlabelled side is of other classes than on the labelled side: half of Σ |difference|."""
        return float((self.shares - self.prior).abs().sum()) / 2


def match_shares(
    means: Float64[Tensor, "c d"], target: Float64[Tensor, " d"], spread: Float64[Tensor, "d d"], prior: Tensor
) -> Float64[Tensor, " c"]:
    """shares ≥ 0 with sum 1 that minimise ‖Σ_c shares_c means_c − target‖² in the metric of spread⁻¹.

    By exponentiated gradients from the prior: shares_c ← shares_c exp(−step · gradient_c), divided by their sum."""
    root = torch.linalg.cholesky(spread)
    sides = torch.linalg.solve_triangular(root, torch.cat([means, target.unsqueeze(0)]).T, upper=False)
    products, matched = sides[:, :-1].T @ sides[:, :-1], sides[:, :-1].T @ sides[:, -1]
    step = 1 / float(products.diagonal().amax().clamp_min(1e-9))
    shares = prior.clamp_min(TINY_SHARE)
    for _ in range(STEPS):
        pulled = (shares.log() - step * (products @ shares - matched)).softmax(0)
        settled = float((pulled - shares).abs().amax()) <= SETTLED
        shares = pulled.clamp_min(TINY_SHARE)
        if settled:
            break
    return shares / shares.sum()


def weighted_auroc(score: Float64[Tensor, " n"], positive: Bool[Tensor, " n"], weight: Float64[Tensor, " n"]) -> float:
    """P(a positive row has a higher score than a negative one), rows drawn by their weights; ties count half."""
    values, place = torch.unique(score, return_inverse=True)
    negatives, positives = torch.zeros(2, len(values), dtype=torch.float64).unbind()
    negatives = negatives.index_add(0, place[~positive], weight[~positive])
    positives = positives.index_add(0, place[positive], weight[positive])
    before = negatives.cumsum(0) - negatives
    return float((positives * (before + negatives / 2)).sum() / (positives.sum() * negatives.sum()))


def find_shares(
    x: Float64[Tensor, "n d"], y: Int64[Tensor, " n"], u: Float64[Tensor, "m d"], classes: int
) -> tuple[Float64[Tensor, " c"], Float64[Tensor, " c"]]:
    """prior and shares; a class without a labelled row has neither."""
    counts = torch.bincount(y, minlength=classes).double()
    known = counts > 0
    means = torch.zeros(classes, x.shape[1], dtype=torch.float64).index_add(0, y, x) / counts.clamp_min(1).unsqueeze(1)
    rest = x - means[y]
    spread = rest.T @ rest / len(x) + RIDGE * torch.eye(x.shape[1], dtype=torch.float64)
    prior, shares = counts / len(x), torch.zeros(classes, dtype=torch.float64)
    shares[known] = match_shares(means[known], u.mean(0), spread, prior[known])
    return prior, shares


def neighbour_shares(
    v: Float[Tensor, "n f"],
    others: Float[Tensor, "k f"],
    weight: Float64[Tensor, " k"],
    positive: Bool[Tensor, " k"],
    count: int = NEIGHBOURS,
) -> Float64[Tensor, " n"]:
    """Which part of the weight of each row's nearest others (by cosine) is that of positive ones."""
    nearest = times(v, others.T).contiguous().topk(min(count, len(others)), 1).indices
    near = weight[nearest]
    return (near * positive[nearest]).sum(1) / near.sum(1)


def balance_sides(weight: Float64[Tensor, " n"], positive: Bool[Tensor, " n"]) -> Float64[Tensor, " n"]:
    """The weights with sum 1 on either side."""
    totals = torch.stack([weight[~positive].sum(), weight[positive].sum()])
    return weight / totals[positive.long()]


def compare_domains(
    v: Float[Tensor, "n f"], y: Int64[Tensor, " k"], columns: Float64[Tensor, "n d"], classes: int, half: Tensor
) -> DomainComparison:
    """The auroc of both halves, each judged by its neighbours in the other; rows of `columns` are x, then u.

    Each half must have rows of both sides."""
    count = len(y)
    prior, shares = find_shares(columns[:count], y, columns[count:], classes)
    labelled = (shares / prior.clamp_min(TINY_SHARE))[y].clamp_min(TINY_SHARE)
    weight = torch.cat([labelled, torch.ones(len(v) - count, dtype=torch.float64)])
    positive, aurocs = torch.arange(len(v)) >= count, list[float]()
    for number in (0, 1):
        own, other = half == number, half != number
        near = balance_sides(weight[other], positive[other])
        scores = neighbour_shares(v[own], v[other], near, positive[other])
        aurocs.append(weighted_auroc(scores, positive[own], weight[own]))
    effective = float(labelled.sum().square() / labelled.square().sum())
    error = ((1 / effective + 1 / (len(v) - count)) / 12) ** 0.5
    return DomainComparison(sum(aurocs) / 2, error, prior, shares)
