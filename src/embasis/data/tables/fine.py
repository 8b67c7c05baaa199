"""Columns whose spread is so small beside their size that float32 would lose it: times, ids, anything with an offset.

A float32 number has 24 bits: at 10^8 it moves in steps of 8. Such columns are kept in float64 beside the float32 rows,
until they are centred; then float32 holds them as well as any other column.

| symbol | meaning |
| --- | --- |
| centre, spread | mean and standard deviation of a column |
| COARSE | a column is coarse if its centre is more than so many times its spread |
| noise | a spread of less than this share of the centre is the rounding of its numbers: the column is constant |
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from embasis.types import Fine

COARSE = 2.0**12
"""Below that float32 is wrong by at most 2^-12 of the spread, and the arithmetic is the one of every other column."""
NOISE, NOISE_NARROW = 1e-12, 1e-7
"""Of numbers in float64, and of those that are float32 numbers."""
SPREAD_BLOCK = 2**21
"""Numbers that are looked at together."""
Column = NDArray[np.float64]
Spread = tuple[Tensor, Tensor, Tensor]
"""Centre, spread and noise of each column."""


def measure_columns(flat: NDArray[Any]) -> tuple[Column, Column, NDArray[np.bool_]]:
    """Centre and spread of each column of (N, f), and whether float32 holds every number of it as it is."""
    first, rows = flat[0].astype(np.float64), max(1, SPREAD_BLOCK // flat.shape[1])
    total, square, exact = np.zeros_like(first), np.zeros_like(first), np.ones(len(first), dtype=bool)
    for start in range(0, len(flat), rows):
        part = flat[start : start + rows].astype(np.float64)
        exact &= (part == part.astype(np.float32)).all(0)
        part -= first  # so that the squares are those of the spread, not of the size
        total += part.sum(0)
        square += np.square(part).sum(0)
    shift = total / len(flat)
    return first + shift, np.sqrt(np.maximum(square / len(flat) - shift**2, 0)), exact


def is_coarse(centre: Any, spread: Any, limit: float = COARSE) -> Any:
    """Whether the size of a column is large beside its spread, be it constant or not."""
    return abs(centre) > limit * spread


def is_constant(centre: Any, spread: Any, noise: Any) -> Any:
    """Whether a column has one value, but for the rounding of its numbers."""
    return spread <= noise * abs(centre)


def find_fine_columns(array: NDArray[Any], always: Collection[int] = ()) -> Fine | None:
    """The columns of checked rows (N, …) that float32 may lose, and those of `always` if it changes them.

    Constant ones are among them: another side of the problem decides whether their value matters."""
    if not len(array) or array.dtype.kind not in "iuf" or np.can_cast(array.dtype, np.float32):
        return None
    flat = array.reshape(len(array), -1)
    centre, spread, exact = measure_columns(flat)
    lost = is_coarse(centre, spread, COARSE / 2)  # those at the limit are kept: `Standardiser.wide` decides
    lost[list(always)] = True
    chosen = np.flatnonzero(lost & ~exact)
    return Fine(torch.from_numpy(chosen), torch.from_numpy(flat[:, chosen].astype(np.float64))) if len(chosen) else None


def settle_columns(sides: Sequence[tuple[Tensor, Fine | None]], seen: int = 2) -> list[Fine | None]:
    """For rows x (N, …) of each side and their fine columns: those that are needed, the same for all sides.

    The first `seen` sides are the ones whose rows are centred by their own spread, or by that of all of them."""
    chosen = torch.tensor(all_columns(fine for _, fine in sides[:seen]), dtype=torch.int64)
    if not len(chosen):
        return [None] * len(sides)
    whole = [_exact_values(x, fine, chosen) for x, fine in sides]
    spreads = [measure_spread(values) for values in whole[:seen] if len(values)]
    counts = [len(values) for values in whole[:seen] if len(values)]
    needed = torch.zeros(len(chosen), dtype=torch.bool)
    for centre, spread, noise in (*spreads, pool_spreads(spreads, counts)):
        needed |= is_coarse(centre, spread, COARSE / 2) & ~is_constant(centre, spread, noise)
    if not bool(needed.any()):
        return [None] * len(sides)
    return [Fine(chosen[needed], values[:, needed]) for values in whole]


def all_columns(sides: Iterable[Fine | None]) -> list[int]:
    """The columns that are fine on any side."""
    return sorted({int(column) for fine in sides if fine is not None for column in fine.columns})


def _exact_values(x: Tensor, fine: Fine | None, columns: Tensor) -> Tensor:
    """(N, k) float64: these columns as exactly as they are known."""
    found = x.flatten(1)[:, columns].double()
    if fine is not None:
        place = {int(column): number for number, column in enumerate(columns)}
        for number, column in enumerate(fine.columns.tolist()):
            if column in place:
                found[:, place[column]] = fine.values[:, number]
    return found


def measure_spread(values: Tensor) -> Spread:
    """Centre, spread and noise of columns (N, k)."""
    centre, spread, exact = measure_columns(values.numpy())
    noise = np.where(exact, NOISE_NARROW, NOISE)
    return torch.from_numpy(centre), torch.from_numpy(spread), torch.from_numpy(noise)


def pool_spreads(spreads: Sequence[Spread], counts: Sequence[int]) -> Spread:
    """Those of all sides together; a difference between two of them may be the rounding of either."""
    weight = torch.tensor(counts, dtype=torch.float64).unsqueeze(1) / sum(counts)
    centres, parts, noises = (torch.stack(values) for values in zip(*spreads, strict=True))
    first = centres[0]  # centres may be large and close to each other
    centre = first + (weight * (centres - first)).sum(0)
    return centre, (weight * (parts.square() + (centres - centre).square())).sum(0).sqrt(), noises.amax(0)
