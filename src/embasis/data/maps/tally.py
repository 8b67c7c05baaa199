"""How often each number occurs in each label map: one decoding, whatever the classes turn out to be.

| symbol | meaning |
| --- | --- |
| values, pixels | the numbers in a map, in increasing order, and how many pixels have each |
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from embasis.data.image.files import ImageFile, why
from embasis.data.maps.labels import CLEAR, IGNORED, BadMap, lookup_table, raw_numbers
from embasis.data.maps.png import Numbers
from embasis.types.maps import ClassTable

THREADS = 2


@dataclass(frozen=True, eq=False)
class Tally:
    """Height and width of one map, and its numbers."""

    size: tuple[int, int]
    values: Numbers
    pixels: Numbers

    def counts(self, table: ClassTable) -> Tensor:
        """(C) int64: pixels of each class."""
        classes = lookup_table(table)[self.values]
        known = classes < len(table.names)
        found = np.zeros(len(table.names), np.int64)
        np.add.at(found, classes[known], self.pixels[known])
        return torch.from_numpy(found)

    def strangers(self, table: ClassTable) -> dict[int, int]:
        """Pixels of each number that is not allowed."""
        classes = lookup_table(table)[self.values]
        strange = (classes >= len(table.names)) & (classes != IGNORED)
        return dict(zip(self.values[strange].tolist(), self.pixels[strange].tolist(), strict=True))


def tally(data: bytes, coded: str) -> Tally:
    """The numbers of one map."""
    numbers = raw_numbers(data, coded)
    height, width = numbers.shape
    values, pixels = _runs(numbers) if coded == "colours" else _few(numbers)
    return Tally((height, width), values, pixels)


def _few(numbers: Numbers) -> tuple[Numbers, Numbers]:
    pixels = np.bincount(numbers.reshape(-1))
    values = np.flatnonzero(pixels)
    return values, pixels[values]


def _runs(numbers: Numbers) -> tuple[Numbers, Numbers]:
    """Sorting the runs of equal neighbours instead of all pixels, of which there are many more."""
    flat = numbers.reshape(-1)
    starts = np.flatnonzero(np.concatenate([[True], flat[1:] != flat[:-1]]))
    lengths = np.diff(np.concatenate([starts, [len(flat)]]))
    values, which = np.unique(flat[starts], return_inverse=True)
    pixels = np.zeros(len(values), np.int64)
    np.add.at(pixels, which, lengths)
    return values.astype(np.int64), pixels


def tallies(files: Sequence[ImageFile | None], coded: str) -> list[Tally | BadMap | None]:
    """The numbers of each map, or why there are none; None where there is no file."""

    def read(file: ImageFile | None) -> Tally | BadMap | None:
        try:
            return None if file is None else tally(file.read(), coded)
        except OSError as error:
            return BadMap(why(error))
        except BadMap as error:
            return error

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(read, files))


def together(found: Sequence[Tally | BadMap | None]) -> dict[int, int]:
    """Pixels of each number in all maps; transparent ones are left out."""
    total: dict[int, int] = {}
    for one in found:
        if isinstance(one, Tally):
            for value, count in zip(one.values.tolist(), one.pixels.tolist(), strict=True):
                total[value] = total.get(value, 0) + count
    total.pop(CLEAR, None)
    return total
