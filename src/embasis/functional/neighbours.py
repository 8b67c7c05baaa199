"""What the nearest sites say of a site: a second opinion that does not rest on the site's own features alone.

| symbol | shape | meaning |
| --- | --- | --- |
| x, bank | n d, m d | unit rows: sites to be labelled, and sites that are kept for comparison |
| p | m c | class probabilities of the kept sites |
| count | () | how many of the kept sites count: those of the largest cosine |
| mean, second | n c | Σ_j p_j / count and Σ_j p_j² / count over the nearest sites |
| share | () | weight of the neighbours in the pool |

The paper has no part for this. A pool of two opinions is a mixture: with share s its mean is (1 − s) mean + s mean',
and its members are the components of the basis and the neighbours, each with its class probabilities. What they
disagree about is *between*: (1 − s) E p² + s E p'² − mean²; *within* is the rest of mean (1 − mean).
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from embasis.functional.moments import Moments
from embasis.functional.remembered import remember_calls
from embasis.functional.sites import times

PRODUCTS_AT_ONCE = 2**22
"""Products of x and bank that are held at once."""


def nearest_moments(
    x: Float[Tensor, "n d"], bank: Float[Tensor, "m d"], p: Float[Tensor, "m c"], count: int
) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"]]:
    """mean and second over the `count` kept sites that are nearest to each site by cosine; over all if there are fewer.

    All products of x and bank are held at once."""
    near = p[times(x, bank.T).contiguous().topk(min(count, len(bank)), 1).indices]
    return near.mean(1), near.square().mean(1)


def neighbour_moments(
    x: Float[Tensor, "n d"], bank: Float[Tensor, "m d"], p: Float[Tensor, "m c"], count: int
) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"]]:
    """The same, part by part, so that many sites need no more memory than PRODUCTS_AT_ONCE products.

    A site that is kept itself is its own nearest neighbour."""
    found = [torch.empty(0, 2, p.shape[1])]
    for part in x.split(max(PRODUCTS_AT_ONCE // max(len(bank), 1), 1)):
        near = p[find_nearest_kept(part, bank, count)]
        found.append(torch.stack([near.mean(1), near.square().mean(1)], 1))
    mean, second = torch.cat(found).unbind(1)
    return mean, second


@remember_calls
def find_nearest_kept(x: Float[Tensor, "n d"], bank: Float[Tensor, "m d"], count: int) -> Int64[Tensor, "n k"]:
    """Numbers of the `count` kept sites of the largest cosine, the nearest first; of all if there are fewer."""
    return times(x, bank.T).contiguous().topk(min(count, len(bank)), 1).indices


def pool_moments(moments: Moments, mean: Float[Tensor, "n c"], second: Float[Tensor, "n c"], share: float) -> Moments:
    """mean, between and within of the pool of a site's own label distribution and that of its neighbours."""
    own, between, _ = moments
    pooled = (1 - share) * own + share * mean
    squared = pooled.square()
    total = (pooled - squared).clamp_min(0)
    apart = (1 - share) * (between + own.square()) + share * second - squared
    # ≥ 0 by Jensen; rounding may say otherwise by 1e-8.
    apart = torch.minimum(apart.clamp_min(0), total)
    return pooled, apart, total - apart
