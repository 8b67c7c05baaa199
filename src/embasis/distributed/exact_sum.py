"""Sums of floating-point numbers that are the same for any number of processes.

| symbol | shape | meaning |
| --- | --- | --- |
| v_p | … | the tensor of part p |
| P | () | how many parts there are in all processes |
| m | () | max |v_p| over all entries and parts; m < 2^e |
| q | () | 2^(e − b), b = 62 − ⌈log₂ P⌉: what everything is counted in |

    Σ_p v_p ≈ q · Σ_p round(v_p / q)

Whole numbers of 64 bits add up in any order to the same number, and their sum cannot overflow: each is at most 2^b.
A float32 has 24 bits, so entries down to 2^(24 − b) m are counted without any rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from embasis.distributed.world import World


def exact_sum(world: World, parts: Sequence[Sequence[Tensor]], like: Sequence[Tensor], count: int) -> list[Tensor]:
    """Each tensor summed over the `count` parts of all processes, of which `parts` are this one's.

    `like` are tensors of the same shapes and dtypes. Where a value is not finite, all of that sum is NaN."""
    peaks = torch.zeros(len(like), dtype=torch.float64)
    for part in parts:
        own = torch.stack([value.detach().abs().amax().double().cpu() for value in part]) if len(part) else peaks
        peaks = torch.maximum(peaks, torch.where(torch.isfinite(own), own, torch.inf))
    peaks = world.largest(peaks)
    bits = 62 - math.ceil(math.log2(max(count, 1)))
    scales = [math.ldexp(1.0, bits - math.frexp(peak)[1]) if 0 < peak < math.inf else 1.0 for peak in peaks.tolist()]
    totals = world.add_up(count_multiples(parts, like, scales, peaks))
    sizes = [value.numel() for value in like]
    sums = []
    for total, value, scale, peak in zip(totals.split(sizes), like, scales, peaks.tolist(), strict=True):
        number = total.double() / scale if peak < math.inf else torch.full_like(total, torch.nan, dtype=torch.float64)
        sums.append(number.to(value.dtype).view(value.shape).to(value.device))
    return sums


def count_multiples(
    parts: Sequence[Sequence[Tensor]], like: Sequence[Tensor], scales: Sequence[float], peaks: Tensor
) -> Tensor:
    """(all entries, one tensor behind the other) how many units the parts of this process have together."""
    total = torch.zeros(sum(value.numel() for value in like), dtype=torch.int64)
    pieces = total.split([value.numel() for value in like])
    for part in parts:
        for piece, value, scale, peak in zip(pieces, part, scales, peaks.tolist(), strict=True):
            if peak < math.inf:
                piece += (value.detach().cpu().flatten().double() * scale).round().to(torch.int64)
    return total
