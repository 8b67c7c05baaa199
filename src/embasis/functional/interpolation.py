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

LARGEST_VARIANCE = 0.25
"""Of a variance of a probability."""
NEAR = 2.0**-10
"""Of a site: a place so near to a row or column of centres lies on it, whatever float32 made of it."""
CACHED = 2**17
"""Numbers that stay near a core while it works on them."""


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
    disagreement = torch.minimum((weight * between[index]).sum(1) + spread, most)
    return mixed, disagreement, (share * score[index]).sum(1) + spread.sum(1)


def enlarge_means(mean: Float[Tensor, "s c"], grid: tuple[int, int], size: tuple[int, int]) -> Float[Tensor, "n c"]:
    """mean' at all n = H·W pixels of a map of this size, row by row."""
    lines = _blend(*_steps(_by_column(mean, grid)), *_along(size[1], grid[1])).permute(1, 2, 0).contiguous()
    return _blend(*_steps(lines), *_along(size[0], grid[0])).transpose(0, 1).flatten(1).T


def surest_classes(
    mean: Float[Tensor, "s c"], score: Float[Tensor, " s"], grid: tuple[int, int], size: tuple[int, int]
) -> tuple[Int64[Tensor, " n"], Float[Tensor, " n"], Float[Tensor, " n"], Float[Tensor, " n"]]:
    """At all pixels the first largest class, its mean', Σ_c mean'_c (1 − mean'_c) and score'; no mean' is kept.

    With a part t of the second of two sites, Σ_i share_i mean_i² − mean'² = t (1 − t) (mean_1 − mean_2)²: so what the
    sites disagree in is added along rows, then along columns, and nothing cancels."""
    down, right = _along(size[0], grid[0]), _along(size[1], grid[1])
    sites, steps = _steps(_by_column(mean, grid))
    lines, rises = _steps(_blend(sites, steps, *right).permute(1, 2, 0).contiguous())
    sums = _by_column(torch.stack([1 - mean.square().sum(1), score], 1), grid)
    wide = _blend(*_steps(sums), *right).add_(_disagreement(steps, 2, *right).unsqueeze(2)).permute(1, 2, 0)
    high = _blend(*_steps(wide.contiguous()), *down).add_(_disagreement(rises, 1, *down).unsqueeze(1))
    label, value = _largest(lines, rises, *down)
    return label.flatten(), value.flatten(), high[:, 0].flatten().clamp_min_(0), high[:, 1].flatten()


def _largest(
    lines: Float[Tensor, "h c w"], rises: Float[Tensor, "h c w"], low: Int64[Tensor, " m"], part: Float[Tensor, " m"]
) -> tuple[Int64[Tensor, "m w"], Float[Tensor, "m w"]]:
    """The first largest class and its value on all rows between the lines, a few rows at a time: they stay cached."""
    classes, width = lines.shape[1:]
    most = max(CACHED // (classes * width), 1)
    runs = zip(*(column.tolist() for column in low.unique_consecutive(return_counts=True)), strict=True)
    blocks = [(line, min(most, count - first)) for line, count in runs for first in range(0, count, most)]
    sizes = [count for _, count in blocks]
    value, rank = torch.empty(2, len(part), width)
    ranks, room = torch.arange(classes, 0, -1, dtype=torch.float32).view(-1, 1, 1), torch.empty(classes, most, width)
    columns = (part.unsqueeze(1).split(sizes), value.split(sizes), rank.split(sizes))
    for (line, count), share, best, place in zip(blocks, *columns, strict=True):
        x = torch.mul(rises[line].unsqueeze(1), share, out=room[:, :count]).add_(lines[line].unsqueeze(1))
        torch.amax(x, 0, out=best)
        torch.amax(x.eq_(best).mul_(ranks), 0, out=place)
    return classes - rank.long(), value


def _by_column(x: Float[Tensor, "s c"], grid: tuple[int, int]) -> Float[Tensor, "w h c"]:
    """Sites row by row as sites column by column."""
    return x.reshape(*grid, -1).transpose(0, 1).contiguous()


def _along(pixels: int, sites: int) -> tuple[Int64[Tensor, " n"], Float[Tensor, " n"]]:
    """Along one side the last site before the centre of each pixel, and the share of the next one; by whole numbers."""
    at = ((2 * torch.arange(pixels) + 1) * sites - pixels).clamp(0, 2 * pixels * (sites - 1))
    return at // (2 * pixels), ((at % (2 * pixels)).double() / (2 * pixels)).float()


def _steps(x: Float[Tensor, "k a b"]) -> tuple[Float[Tensor, "k a b"], Float[Tensor, "k a b"]]:
    """x, and from each to the next one; the last one is followed by itself."""
    return x, torch.cat([x[1:], x[-1:]]).sub_(x)


def _blend(
    x: Float[Tensor, "k a b"], steps: Float[Tensor, "k a b"], low: Int64[Tensor, " n"], part: Float[Tensor, " n"]
) -> Float[Tensor, "n a b"]:
    """x_low + part (x_next − x_low)."""
    return steps.index_select(0, low).mul_(part.view(-1, 1, 1)).add_(x.index_select(0, low))


def _disagreement(
    steps: Float[Tensor, "k a b"], dim: int, low: Int64[Tensor, " n"], part: Float[Tensor, " n"]
) -> Float[Tensor, "n m"]:
    """part (1 − part) Σ (x_next − x_low)², a sum over one of the last two dimensions."""
    return steps.square().sum(dim).index_select(0, low).mul_((part * (1 - part)).unsqueeze(1))


def pack_moments(
    mean: Float[Tensor, "s c"], between: Float[Tensor, "s c"]
) -> tuple[Float16[Tensor, "s c"], UInt8[Tensor, "s c"]]:
    """mean in half precision, between in 256 steps up to ¼; site after site, for the order of a sum follows strides."""
    steps = (between.clamp(0.0, LARGEST_VARIANCE) * (255 / LARGEST_VARIANCE)).round().to(torch.uint8)
    return mean.half().contiguous(), steps.contiguous()


def unpack_moments(
    mean: Float16[Tensor, "s c"], between: UInt8[Tensor, "s c"]
) -> tuple[Float[Tensor, "s c"], Float[Tensor, "s c"]]:
    """What `pack_moments` kept: rows of the mean sum to one again, between is at most mean (1 − mean)."""
    wide = mean.float()
    wide = wide / wide.sum(1, keepdim=True)
    return wide, torch.minimum(between.float() * (LARGEST_VARIANCE / 255), wide - wide.square())
