"""Randomness as a function: (seed, purpose, round, epoch, step or sample id) -> value.

No generator is carried along, so resuming, the number of workers and the order of rows change nothing.

| name | shape | meaning |
| --- | --- | --- |
| seed | int | the run's seed |
| purpose | str | what the draw is for, e.g. "hard labels" |
| keys | ints | round, epoch, step … |
| ids | N | sample ids, int64 |
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor


def derive(seed: int, purpose: str, *keys: int) -> int:
    """A 63-bit seed that depends on every argument."""
    text = "\x1f".join([str(int(seed)), purpose, *(str(int(key)) for key in keys)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(seed: int, purpose: str, *keys: int) -> torch.Generator:
    """A CPU generator of its own for one purpose."""
    return torch.Generator().manual_seed(derive(seed, purpose, *keys))


def permutation(count: int, seed: int, purpose: str, *keys: int) -> Tensor:
    """An order of 0 … count − 1."""
    return torch.randperm(count, generator=generator(seed, purpose, *keys))


def uniforms(ids: Tensor, seed: int, purpose: str, *keys: int) -> Tensor:
    """One number in [0, 1) for each sample id, whatever rows stand beside it (splitmix64 of the id)."""
    with np.errstate(over="ignore"):
        z = ids.cpu().numpy().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(
            derive(seed, purpose, *keys)
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return torch.from_numpy((z >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def site_ids(ids: Tensor, sites: int) -> Tensor:
    """(N · sites) ids of all sites of rows, row after row; a row with one site lends it its own id."""
    if sites == 1:
        return ids
    return (ids.unsqueeze(1) * 0x5851F42D4C957F2D + torch.arange(sites)).flatten()


@contextmanager
def seeded(seed: int, purpose: str, *keys: int) -> Iterator[None]:
    """Torch's global generator set for this block (module initialisation, dropout), and given back as it was."""
    devices = range(torch.cuda.device_count())
    with torch.random.fork_rng(devices=devices):
        value = derive(seed, purpose, *keys)
        # Not torch.manual_seed: it writes a stack trace down for each kind of device that is not there, at every step.
        torch.default_generator.manual_seed(value)
        if devices:
            torch.cuda.manual_seed_all(value)
        yield
