"""One of N contiguous parts of the rows of an input, so that schedulers can label it by N calls that know nothing of
each other; and the pieces of it that several processes of one call take in turn.

| symbol | meaning |
| --- | --- |
| I/N | part I of N, counted from 1 |
| T | rows of the whole input |
| piece | rows that one process reads and labels before it hands them in |

Part I has the rows from ⌊T (I − 1) / N⌋ up to ⌊T I / N⌋: every row is in exactly one part, and parts differ by at most
one row in size. With more parts than rows, some are empty.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from embasis.distributed import current_world
from embasis.errors import ConfigError, quote, require

LARGEST_COUNT = 10**9
PIECES_EACH = 4
"""Each process should have so many pieces: with one each, all would wait for the slowest."""
_WORDS = re.compile(r"([0-9]{1,10})/([0-9]{1,10})", re.ASCII)


@dataclass(frozen=True)
class Part:
    """Part `number` of `count`."""

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Part:
        """The part that `3/16` names; a ConfigError for what names none."""
        match = _WORDS.fullmatch(text)
        number, count = (int(match[1]), int(match[2])) if match else (0, 0)
        rule = f"part must be I/N with 1 ≤ I ≤ N ≤ {LARGEST_COUNT:,}, such as 3/16, got {quote(text)}"
        require(1 <= number <= count <= LARGEST_COUNT, rule, ConfigError)
        return cls(number, count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def rows(self, total: int) -> range:
        """The numbers of its rows, among so many."""
        return range(total * (self.number - 1) // self.count, total * self.number // self.count)


WHOLE = Part()
"""All rows."""


def rows_of_piece(total: int, unit: int, most: int) -> int:
    """How many of so many rows make a piece: a multiple of `unit`, at most `most`; as many as that for one process."""
    world = current_world()
    if world.size == 1:
        return most
    return min(unit * max(math.ceil(total / (world.size * PIECES_EACH * unit)), 1), most)


def own_pieces(rows: range, size: int) -> list[range]:
    """The pieces of these rows, `size` rows each, that this process reads: all of them, if it is alone."""
    world = current_world()
    starts = range(rows.start, rows.stop, size)[world.rank :: world.size]
    return [range(first, min(first + size, rows.stop)) for first in starts]
