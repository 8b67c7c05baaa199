"""How good a model is on a side without labels: by the shape of its predictions, or by labelled rows that stand for it.

| symbol | shape | meaning |
| --- | --- | --- |
| mean | n c | label distributions of unlabelled sites |
| P | n n | softmax over the other sites of cosine(mean_i, mean_j) / temperature |
| x, side | n d, n | features, and 1 for sites of the unlabelled side, 0 for those of the labelled one |
| logit | n | x · weight + bias of a classifier that tells the sides apart |
| w | n | importance of a labelled site: how much likelier the unlabelled side is to have it |
| loss | n | 1 for a wrong label, 0 for a right one |
| share | n | how many sites a site stands for |

w = (n_l / n_u) · p_u / p_l = (n_l / n_u) · exp(logit), because p_u = 1 / (1 + exp(−logit)) and p_l = 1 − p_u.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 — its usual name

DENSITY_TEMPERATURE = 0.05
"""Of the neighbourhood's softmax, as published."""
HELD_SIMILARITIES = 2**18
"""Similarities that are held at once: as many as stay in a processor's cache."""


def neighbourhood_density(mean: Float[Tensor, "n c"], temperature: float = DENSITY_TEMPERATURE) -> float:
    """Soft-neighbourhood density: −(1/n) Σ_i Σ_{j≠i} P_ij log P_ij; 0 with fewer than three sites.

    Large when each site has many others as near as its nearest ones: when predictions lie in tight groups."""
    if len(mean) < 3:
        return 0.0
    unit = F.normalize(mean.float(), dim=1)
    size, (mass, heat) = max(HELD_SIMILARITIES // len(unit), 1), torch.zeros(2, len(unit))
    # Cosines are at most 1: less 1 / temperature no exponential overflows, and no row needs its largest first.
    most = torch.tensor(-1 / temperature)
    for start in range(0, len(unit), size):
        # Similarities are the same both ways: of those with earlier sites the sums of columns are known already.
        rows = slice(start, start + size)
        part = torch.addmm(most, unit[rows], unit[start:].T, alpha=1 / temperature)
        chance = part.exp()
        chance.diagonal().zero_()
        product = part.mul_(chance)
        for total, each in ((mass, chance), (heat, product)):
            total[rows] += each.sum(1)
            total[start + size :] += each[:, size:].sum(0)
    # −Σ P log P with P = chance / mass is log mass − Σ chance · part / mass.
    mass.clamp_min_(torch.finfo(torch.float32).tiny)
    return float((mass.log() - heat / mass).sum(dtype=torch.float64)) / len(unit)


def side_loss(
    x: Float[Tensor, "n d"],
    side: Float[Tensor, " n"],
    weight: Float[Tensor, " d"],
    bias: Float[Tensor, ""],
    penalty: float = 0.0,
) -> Float[Tensor, ""]:
    """Mean logistic loss of the classifier of sides, + penalty · |weight|²."""
    return F.binary_cross_entropy_with_logits(x @ weight + bias, side) + penalty * weight.square().sum()


def importance(logit: Float[Tensor, " n"], labelled: int, unlabelled: int) -> Float64[Tensor, " n"]:
    """w of labelled sites, by a classifier that was fitted on so many sites of each side."""
    return logit.double().exp() * (labelled / unlabelled)


def embedded_risk(
    loss: Float[Tensor, " n"], weight: Float[Tensor, " n"], share: Float[Tensor, " n"] | None = None
) -> float:
    """Deep embedded validation: E[w·loss] + η·(E[w] − 1), η = −Cov(w·loss, w) / Var(w); 0 where w does not vary.

    E[w] is 1 if the weights are right, so the second term changes no expectation, and takes away variance."""
    each = torch.ones_like(loss, dtype=torch.float64) if share is None else share.double()
    each, w = each / each.sum(), weight.double()
    lost, middle = w * loss.double(), float(each @ w)
    variance = float(each @ (w - middle).square())
    together = float(each @ ((lost - each @ lost) * (w - middle)))
    pull = -together / variance if variance > 1e-12 * middle**2 else 0.0
    return float(each @ lost) + pull * (middle - 1)


def effective_weights(weight: Float[Tensor, " n"]) -> Float64[Tensor, " n"]:
    """The weights scaled so that they add up to the number of equal ones that say as much: (Σw)² / Σw²."""
    w = weight.double()
    return w * (w.sum() / w.square().sum())


def accuracy_of(
    label: Int64[Tensor, " n"], truth: Int64[Tensor, " n"], share: Float[Tensor, " n"] | None = None
) -> float:
    """Share of right labels; 0 without sites."""
    right = (label == truth).double()
    if not len(right):
        return 0.0
    return float(right.mean() if share is None else share.double() @ right / share.double().sum())
