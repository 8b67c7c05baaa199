"""What differences come to: pure functions of numbers.

| name | formula |
| --- | --- |
| paired_error | mean of d_i and sqrt(var(d) / n), d_i = right_i − other right_i in {−1, 0, 1} |
| mean_error | mean and sqrt(var / n), var = Σ (v − mean)² / (n − 1) |
| main_effects | mean over all cells with a level − mean over all cells with the factor's first level |
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from embasis.errors import require

Levels = tuple[str, ...]


def paired_error(left: NDArray[np.bool_], right: NDArray[np.bool_]) -> tuple[float, float]:
    """The difference of two accuracies on the same rows, and its standard error."""
    require(len(left) == len(right) > 1, f"two rows or more are needed on both sides, got {len(left)} and {len(right)}")
    difference = left.astype(np.float64) - right
    return float(difference.mean()), float(difference.std(ddof=1) / math.sqrt(len(difference)))


def mean_error(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean and its standard error; None of one value."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return statistics.mean(values), error


def main_effects(cells: Mapping[Levels, float], factors: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], float]:
    """What each level but the first is worth, by factor and level; the factorial must be full."""
    full = math.prod(len(levels) for levels in factors.values())
    require(len(cells) == full, f"a full factorial has {full} cells, got {len(cells)}")
    found = dict[tuple[str, str], float]()
    for place, (factor, (first, *others)) in enumerate(factors.items()):
        means = {
            level: statistics.mean(value for levels, value in cells.items() if levels[place] == level)
            for level in (first, *others)
        }
        found |= {(factor, level): means[level] - means[first] for level in others}
    return found
