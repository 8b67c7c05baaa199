"""Inputs to mean 0 and deviation 1, each side by itself or both together, before any network sees them.

| symbol | shape | meaning |
| --- | --- | --- |
| centre, scale | 2 f | of the labelled (0) and the unlabelled side (1), over the f numbers of one input |
| spread | f | standard deviation of a column |
| COARSE | | a column is coarse if its centre is more than so many times its spread |
| noise | f | a spread of less than this share of the centre is the rounding of its numbers: the column is constant |

Each domain by itself is what helped most on data with a gap (decision 0003); sides that come from one place share.

A float32 number has 24 bits: at 10^8 it moves in steps of 8. Columns whose spread is so small beside their size that
float32 would lose it (times, ids, anything with an offset) are *fine columns*: they are kept in float64 beside the
float32 rows until they are centred; then float32 holds them as well as any other column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from embasis.errors import ConfigError, quote, require
from embasis.functional.sites import centre_and_scale, domain_sums, sum_parts
from embasis.types import Arrays, Fine, Problem, Samples, fine_of

MODES = ("domain", "joint", "none")
ROWS_AT_A_TIME = 4096
COARSE = 2.0**12
"""Below that float32 is wrong by at most 2^-12 of the spread, and the arithmetic is the one of every other column."""
NOISE, NOISE_NARROW = 1e-12, 1e-7
"""Of numbers in float64, and of those that are float32 numbers."""
SPREAD_BLOCK = 2**21
"""Numbers that are measured together."""
Column = NDArray[np.float64]
Spread = tuple[Tensor, Tensor, Tensor]
"""Centre, spread and noise of each column."""


@dataclass(frozen=True, eq=False)
class Standardiser:
    """What `fit` learned; `apply` is for any rows of one side."""

    centre: Tensor
    scale: Tensor

    @classmethod
    def fit(cls, problem: Problem, mode: str) -> Standardiser | None:
        """None when nothing is to be done."""
        require(mode in MODES, f"standardise must be one of {', '.join(MODES)}, got {quote(mode)}", ConfigError)
        if mode == "none":
            return None
        sums = [sum_side(problem.labelled), sum_side(problem.unlabelled)]
        if mode == "joint" or not len(problem.unlabelled):
            both = tuple(a + b for a, b in zip(*sums, strict=True)) if len(problem.unlabelled) else sums[0]
            sums = [both, both]
        pairs = [centre_and_scale(*side) for side in sums]
        standardiser = cls(torch.stack([pair[0] for pair in pairs]), torch.stack([pair[1] for pair in pairs]))
        standardiser._refine([fine_of(problem.labelled), fine_of(problem.unlabelled)], mode == "joint")
        return standardiser

    def _refine(self, sides: list[Fine | None], joint: bool) -> None:
        """Centre and scale of the columns that are kept in float64, from what they are there."""
        known = [fine for fine in sides if fine is not None and len(fine.values)]
        if not known:
            return
        spreads = [measure_spread(fine.values) for fine in known]
        if joint:
            spreads = [pool_spreads(spreads, [len(fine.values) for fine in known])]
        for side, (centre, spread, noise) in enumerate((spreads * 2)[:2]):
            self.centre[side, known[0].columns] = centre
            flat = is_constant(centre, spread, noise)
            self.scale[side, known[0].columns] = torch.where(flat, centre.abs().clamp_min(1), spread)

    def wide(self, side: int) -> Tensor:
        """(f) bool: the columns of a side that must not be rounded to float32 before they are centred."""
        return torch.as_tensor(is_coarse(self.centre[side], self.scale[side]))

    def apply(self, x: Tensor, side: int, fine: Fine | None = None) -> Tensor:
        """(x − centre) / scale in float64, returned as float32 in x's shape.

        x is rounded to float32 first, but for the wide columns; `fine` has them where x is float32."""
        out, wide = torch.empty(x.shape), self.wide(side)  # filled part by part: no second copy of all rows is there
        for start in range(0, len(x), ROWS_AT_A_TIME):
            part = x[start : start + ROWS_AT_A_TIME]
            values = part.flatten(1).float().double()
            if x.dtype == torch.float64:
                values[:, wide] = part.flatten(1)[:, wide]
            elif fine is not None:
                kept = wide[fine.columns]
                values[:, fine.columns[kept]] = fine.values[start : start + ROWS_AT_A_TIME, kept]
            out[start : start + ROWS_AT_A_TIME] = ((values - self.centre[side]) / self.scale[side]).view(part.shape)
        return out

    def transform(self, problem: Problem) -> Problem:
        """The problem with both sides (and the test rows, as unlabelled ones) standardised."""
        return replace(
            problem,
            labelled=self._samples(problem.labelled, 0),
            unlabelled=self._samples(problem.unlabelled, 1),
            test=None if problem.test is None else self._samples(problem.test, 1),
        )

    def _samples(self, samples: Samples, side: int) -> Samples:
        x = samples.x if isinstance(samples, Arrays) else samples.inputs(torch.arange(len(samples)))
        return Arrays(self.apply(x, side, fine_of(samples)), samples.labels, samples.ids)


def sum_side(samples: Samples) -> tuple[Tensor, Tensor, Tensor]:
    """Count, total and square over all rows, chunk by chunk."""
    if not len(samples):
        return domain_sums(torch.zeros(0, 1))
    chunks = torch.arange(len(samples)).split(ROWS_AT_A_TIME)
    width = samples.inputs(chunks[0][:1]).numel()
    return sum_parts((samples.inputs(rows).flatten(1).float() for rows in chunks), len(chunks), width)


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
    values = x.flatten(1)[:, columns].double()
    if fine is not None:
        place = {int(column): number for number, column in enumerate(columns)}
        for number, column in enumerate(fine.columns.tolist()):
            if column in place:
                values[:, place[column]] = fine.values[:, number]
    return values


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
