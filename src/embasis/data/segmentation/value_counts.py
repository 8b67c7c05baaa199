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

from embasis.data.images.files import ImageFile, why
from embasis.data.images.header import UnreadableImage
from embasis.data.segmentation.count import Count
from embasis.data.segmentation.labels import CLEAR, IGNORED, BadMap, indexed_parts, lookup_table, map_header
from embasis.data.segmentation.png import Numbers
from embasis.data.workers.protocol import read_checked, request_for
from embasis.types.maps import ClassTable

THREADS = 2


@dataclass(frozen=True, eq=False)
class ValueCounts:
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

    def unknown_values(self, table: ClassTable) -> dict[int, int]:
        """Pixels of each number that is not allowed."""
        classes = lookup_table(table)[self.values]
        strange = (classes >= len(table.names)) & (classes != IGNORED)
        return dict(zip(self.values[strange].tolist(), self.pixels[strange].tolist(), strict=True))


def value_counts(data: bytes, coded: str) -> ValueCounts:
    """The numbers of one map."""
    head, count = map_header(data), Count()
    palette, parts = indexed_parts(data, coded)
    for numbers in parts:
        count.add(numbers)
    return ValueCounts((head.height, head.width), *count.total(palette))


def tallies(files: Sequence[ImageFile | None], coded: str) -> list[ValueCounts | BadMap | None]:
    """The numbers of each map, or why there are none; None where there is no file."""

    def read(file: ImageFile | None) -> ValueCounts | BadMap | None:
        try:
            return None if file is None else value_counts(read_checked(request_for(file)), coded)
        except OSError as error:
            return BadMap(why(error))
        except UnreadableImage as error:
            return BadMap(str(error))
        except BadMap as error:
            return error

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(read, files))


def together(found: Sequence[ValueCounts | BadMap | None]) -> dict[int, int]:
    """Pixels of each number in all maps; transparent ones are left out."""
    total: dict[int, int] = {}
    for one in found:
        if isinstance(one, ValueCounts):
            for value, count in zip(one.values.tolist(), one.pixels.tolist(), strict=True):
                total[value] = total.get(value, 0) + count
    total.pop(CLEAR, None)
    return total
