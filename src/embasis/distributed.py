"""Processes that work together: global state is a sum, so `all_sum` is the one collective that everything needs.

Alone it returns its input: `m_step(all_sum(stats.mass), …)` is one line for one process or many.
"""

from __future__ import annotations

import os

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
