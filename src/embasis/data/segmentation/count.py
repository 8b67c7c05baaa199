"""How often each number occurs, counted part by part in little memory: ids by 2¹⁶ places, colours by 2²⁴ if need be."""

from __future__ import annotations

from typing import Any

import numpy as np

Numbers = np.ndarray[Any, np.dtype[Any]]
FEW = 2**18
"""Runs of equal neighbours that are kept and sorted; beyond that each possible number has a place of its own."""
_PLACES = 2**24 + 1  # −1, and all colours


class Count:
    """The numbers −1 … 2²⁴ − 1 of some parts; `total` is what they were."""

    def __init__(self) -> None:
        self._runs: list[tuple[Numbers, Numbers]] = []
        self._kept = 0
        self._places: Numbers | None = None

    def add(self, numbers: Numbers) -> None:
        """Count one more part."""
        flat = numbers.reshape(-1)
        if flat.dtype.itemsize < 4:
            counts = np.bincount(flat)
            values = np.flatnonzero(counts)
            return self._keep(values, counts[values])
        starts = np.flatnonzero(np.concatenate([[True], flat[1:] != flat[:-1]]))
        return self._keep(flat[starts].astype(np.int64), np.diff(np.concatenate([starts, [len(flat)]])))

    def _keep(self, values: Numbers, pixels: Numbers) -> None:
        self._runs.append((values, pixels))
        self._kept += len(values)
        if self._kept > FEW:
            if self._places is None:
                self._places = np.zeros(_PLACES, np.int64)
            for kept, lengths in self._runs:
                np.add.at(self._places, kept + 1, lengths)
            self._runs, self._kept = [], 0

    def total(self, palette: Numbers | None = None) -> tuple[Numbers, Numbers]:
        """The numbers that occurred, in increasing order, and how often; with a palette those that they stand for."""
        runs = [*self._runs]
        if self._places is not None:
            there = np.flatnonzero(self._places)
            runs.append((there - 1, self._places[there]))
        if not runs:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        numbers = np.concatenate([values for values, _ in runs])
        values, which = np.unique(numbers if palette is None else palette[numbers], return_inverse=True)
        pixels = np.zeros(len(values), np.int64)
        np.add.at(pixels, which, np.concatenate([lengths for _, lengths in runs]))
        return values.astype(np.int64), pixels
