"""Label distributions between sites: a place between four sites is a mixture of them.

| symbol | shape | meaning |
| --- | --- | --- |
| place | n 2 | row and column in the picture, both in [0, 1]; the centre of site (i, j) is ((i + ½)/h, (j + ½)/w) |
| index, share | n 4 | the four sites around a place, row by row, and their shares; shares sum to one |
| mean, between | s c | of the label distributions of the s = h·w sites of a picture |
| score | s | their uncertainty |

With z' = Σ_i share_i z_i the latent of a place is the mixture of its sites' mixtures, so that

    mean' = Σ_i share_i mean_i
    between' = Σ_i share_i (between_i + mean_i²) − mean'²
    score' = Σ_i share_i score_i + Σ_c (Σ_i share_i mean_ic² − mean'_c²)

the last one exactly for the summed variances (total or between), and by the same rule for any other score: sites that
disagree make the places between them unsure.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Float16, Int64, UInt8
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 — its usual name

LARGEST = 0.25
"""Of a variance of a probability."""
NEAR = 2.0**-10
"""Of a site: a place so near to a row or column of centres lies on it, whatever float32 made of it."""


def corners(place: Float[Tensor, "n 2"], grid: tuple[int, int]) -> tuple[Int64[Tensor, "n 4"], Float[Tensor, "n 4"]]:
    """index and share of the four sites around each place; beyond the outermost centres the nearest site counts."""
    sizes = torch.tensor(grid, dtype=torch.float32)
    at = torch.minimum((place.float() * sizes - 0.5).clamp_min(0), sizes - 1)
    at = torch.where((at - at.round()).abs() < NEAR, at.round(), at)
    low = at.floor()
    high = torch.minimum(low + 1, sizes - 1).long()
    part, low = at - low, low.long()
    top, bottom = low[:, 0] * grid[1], high[:, 0] * grid[1]
    index = torch.stack([top + low[:, 1], top + high[:, 1], bottom + low[:, 1], bottom + high[:, 1]], 1)
    down, right = part[:, 0], part[:, 1]
    share = torch.stack([(1 - down) * (1 - right), (1 - down) * right, down * (1 - right), down * right], 1)
    return index, share


def mixtures(
    mean: Float[Tensor, "s c"],
    between: Float[Tensor, "s c"],
    score: Float[Tensor, " s"],
    index: Int64[Tensor, "n m"],
    share: Float[Tensor, "n m"],
) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"], Float[Tensor, " n"]]:
    """mean', between' and score' of mixtures of sites."""
    weight = share.unsqueeze(2)
    mixed = (weight * mean[index]).sum(1)
    squares = (weight * mean.square()[index]).sum(1)
    spread = (squares - mixed.square()).clamp_min(0)
    most = (mixed - mixed.square()).clamp_min(0)
    found = torch.minimum((weight * between[index]).sum(1) + spread, most)
    return mixed, found, (share * score[index]).sum(1) + spread.sum(1)


def enlarged(
    mean: Float[Tensor, "s c"], score: Float[Tensor, " s"], grid: tuple[int, int], size: tuple[int, int]
) -> tuple[Float[Tensor, "n c"], Float[Tensor, " n"]]:
    """mean' and score' at all n = H·W pixels of a map of this size, row by row."""
    channels = torch.cat([mean, score.unsqueeze(1), mean.square().sum(1, keepdim=True)], 1)
    maps = channels.T.reshape(1, -1, *grid)
    wide = F.interpolate(maps, size, mode="bilinear", align_corners=False)[0].flatten(1)
    mixed = wide[:-2]
    spread = (wide[-1] - mixed.square().sum(0)).clamp_min(0)
    return mixed.T, wide[-2] + spread


def packed(
    mean: Float[Tensor, "s c"], between: Float[Tensor, "s c"]
) -> tuple[Float16[Tensor, "s c"], UInt8[Tensor, "s c"]]:
    """mean in half precision, between in 256 steps up to ¼; site after site, for the order of a sum follows strides."""
    steps = (between.clamp(0, LARGEST) * (255 / LARGEST)).round().to(torch.uint8)
    return mean.half().contiguous(), steps.contiguous()


def unpacked(
    mean: Float16[Tensor, "s c"], between: UInt8[Tensor, "s c"]
) -> tuple[Float[Tensor, "s c"], Float[Tensor, "s c"]]:
    """What `packed` kept: rows of the mean sum to one again, between is at most mean (1 − mean)."""
    wide = mean.float()
    wide = wide / wide.sum(1, keepdim=True)
    return wide, torch.minimum(between.float() * (LARGEST / 255), wide - wide.square())
