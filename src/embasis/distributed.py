"""The two collectives that everything needs, because global state is a sum or a gathered column.

Alone, both return their input: `m_step(all_sum(stats.mass), …)` is one line for one process or many.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


def _is_alone() -> bool:
    return not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)


def all_sum(value: Tensor) -> Tensor:
    """The sum of `value` over all processes."""
    if _is_alone():
        return value
    total = value.clone()
    dist.all_reduce(total)
    return total


def all_gather(column: Tensor) -> Tensor:
    """The columns of all processes, one after the other (lengths may differ)."""
    if _is_alone():
        return column
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, torch.tensor([len(column)]))
    longest = int(max(int(length) for length in lengths))
    padded = column.new_zeros(longest, *column.shape[1:])
    padded[: len(column)] = column
    columns = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(columns, padded)
    return torch.cat([part[: int(length)] for part, length in zip(columns, lengths, strict=True)])
