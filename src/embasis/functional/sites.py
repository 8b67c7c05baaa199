"""Rows of sites, and the feature space in which the basis lives.

| symbol | shape | meaning |
| --- | --- | --- |
| x | n d | features of n sites |
| count, total, square | (), d, d | Σ 1, Σ x, Σ x² of one domain, in float64: sums, so they add up |
| centre, scale | d | mean and standard deviation of a domain |
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from embasis.functional.remembered import remember_calls, remember_memory

Sums = tuple[Float64[Tensor, ""], Float64[Tensor, " d"], Float64[Tensor, " d"]]
"""count, total and square of a domain."""
Scaling = tuple[Float64[Tensor, " d"], Float64[Tensor, " d"]]
"""centre and scale of a domain."""

SPANNED_WIDTH = 256
"""Features from which on it pays to compute in the span of the rows: with fewer, products take little of the time."""


def to_sites(grid: Tensor) -> Tensor:
    """(B, d, *S) -> (B·S, d): a segmentation is a classification with more sites."""
    return grid.flatten(2).transpose(1, 2).flatten(0, 1) if grid.ndim > 2 else grid


def times(x: Float[Tensor, "n d"], w: Float[Tensor, "d m"]) -> Float[Tensor, "n m"]:
    """x w as (wᵀ xᵀ)ᵀ. In a thin product x @ w a row is rounded by where it stands; this way round it is not."""
    return (w.T @ x.T).T


def softmax_by_class(scores: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
    """softmax over the classes, the second axis; the result lies class by class in memory.

    Rows of a few numbers are no work for a vector unit, columns of many rows are: 2,000 rows of two classes take a
    thirtieth of the time of `scores.softmax(1)` (decision 0053)."""
    return scores.T.softmax(0).T


@remember_memory
def join_rows(*parts: Float[Tensor, "_ d"]) -> Float[Tensor, "n d"]:
    """All rows one below the other; one part alone, or parts that lie so in memory, are not copied."""
    first, total = parts[0], sum(len(part) for part in parts)
    end, storage = first.storage_offset(), first.untyped_storage().data_ptr()
    for part in parts:
        if not part.is_contiguous() or part.storage_offset() != end or part.untyped_storage().data_ptr() != storage:
            return torch.cat(parts)
        end += part.numel()
    return first.as_strided((total, first.shape[1]), (first.shape[1], 1))


@remember_memory
def multiply_own(x: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    """x xᵀ, in four blocks of which two are each other's transpose."""
    first, second = x.split(max(-(-len(x) // 2), 1)) if len(x) > 1 else (x, x[:0])
    return join_products(first @ first.T, second @ first.T, second @ second.T)


@remember_calls
def multiply_rows(first: Float[Tensor, "n d"], second: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """Scalar products of the rows of two blocks."""
    return first @ second.T


def join_products(
    first: Float[Tensor, "n n"], across: Float[Tensor, "m n"], second: Float[Tensor, "m m"]
) -> Float[Tensor, "k k"]:
    """The products of all rows with all by those of two blocks: each with itself, and the second with the first."""
    return torch.cat([torch.cat([first, across.T], 1), torch.cat([across, second], 1)])


@remember_memory
def domain_sums(x: Float[Tensor, "n d"]) -> Sums:
    """count, total and square of these rows; float64, so that features × 10^30 do not overflow."""
    wide = x.double()
    return torch.tensor(float(len(x)), dtype=torch.float64), wide.sum(0), wide.square().sum(0)


def sum_parts(parts: Iterable[Float[Tensor, "n d"]], number: int, width: int) -> Sums:
    """count, total and square over `number` parts; sums of parts lie in one block, so that no gap in memory stays."""
    counts = torch.empty(number, dtype=torch.float64)
    totals, squares = torch.empty(2, number, width, dtype=torch.float64)
    for row, x in enumerate(parts):
        counts[row], totals[row], squares[row] = domain_sums(x)
    return counts.sum(0), totals.sum(0), squares.sum(0)


def centre_and_scale(
    count: Float64[Tensor, ""], total: Float64[Tensor, " d"], square: Float64[Tensor, " d"]
) -> Scaling:
    """Mean and standard deviation from sums; a constant feature gets scale max(1, |centre|): it becomes 0, not NaN."""
    centre = total / count.clamp_min(1)
    scale = (square / count.clamp_min(1) - centre.square()).clamp_min(0).sqrt()
    # Rounding leaves a constant column with a variance of about 1e-16 of its square: that is not a spread.
    constant = scale <= 1e-7 * centre.abs().clamp_min(torch.finfo(torch.float64).tiny)
    return centre, torch.where(constant, centre.abs().clamp_min(1), scale)


def matched_scale(fixed: Scaling, here: Scaling, there: Scaling) -> Scaling:
    """(centre, scale) by which rows of mean and deviation `there` get those that `fixed` gives rows of `here`.

    With fixed = (c, s), here = (m, v), there = (m', v'): scale = v' s / v, centre = m' − scale (m − c) / s."""
    scale = there[1] * fixed[1] / here[1]
    return there[0] - scale * (here[0] - fixed[0]) / fixed[1], scale


def standardise(
    x: Float[Tensor, "n d"], centre: Float64[Tensor, " d"], scale: Float64[Tensor, " d"]
) -> Float[Tensor, "n d"]:
    """(x − centre) / scale, computed in float64, returned in float32."""
    return ((x.double() - centre) / scale).float()


def unit_rows(x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """x_n / ‖x_n‖ in float32; a row of zeros stays zero. Divides by the largest entry first, against overflow."""
    wide = x.float()
    largest = wide.abs().amax(1, keepdim=True).detach()
    nonzero = largest > 0
    scaled = wide / torch.where(nonzero, largest, torch.ones_like(largest))
    # One is added under the root of zero rows only: the gradient of a norm at zero is not finite.
    length = (scaled.square().sum(1, keepdim=True) + (~nonzero).float()).sqrt()
    return scaled / length
