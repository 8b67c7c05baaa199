"""The two collectives that everything needs, because global state is a sum or a gathered column.

Alone, both return their input: `m_step(all_sum(stats.mass), …)` is one line for one process or many.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import Tensor

from embasis.errors import ConfigError, require

WORLD_SIZE = "WORLD_SIZE"
"""The variable in which torchrun says how many processes it has started."""


def _is_alone() -> bool:
    return not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)


def require_alone() -> None:
    """A ConfigError where this process is one of several: work is not shared among processes yet, and rows that
    are split over them would get wrong labels without a word."""
    given = os.environ.get(WORLD_SIZE, "")
    size = int(given) if given.isdecimal() else 1
    if not _is_alone():
        size = dist.get_world_size()
    rule = f"this is one of {size} processes (torchrun, or a group of torch.distributed), and embasis works in one"
    require(size <= 1, f"{rule}; start it without torchrun, or with --nproc-per-node=1", ConfigError)


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
