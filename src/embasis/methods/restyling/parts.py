"""What restylers are made of: the rows that they learn from, and the units in which they see them.

| symbol | meaning |
| --- | --- |
| unit | pictures (x − centre) / scale: bytes and standardised numbers alike lie mostly in −1 … 1 |
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from embasis.randomness import permutation
from embasis.types import Samples

MOST_ROWS = 1024
"""Statistics are taken of at most so many rows of a side."""
CHUNK = 64


def read_whole(samples: Samples, seed: int, most: int = MOST_ROWS) -> Iterator[Tensor]:
    """Whole rows of a side in chunks: all of them, or so many that are drawn; one at a time where shapes differ."""
    rows = permutation(len(samples), seed, "rows to learn a style from")[:most].sort().values
    for view in samples.stream(rows.split(1 if samples.has_mixed_shapes else CHUNK)):
        yield view.inputs
