"""One of N contiguous parts of the rows of an input, so that schedulers can label it by N calls that know nothing of
each other.

| symbol | meaning |
| --- | --- |
| I/N | part I of N, counted from 1 |
| T | rows of the whole input |

Part I has the rows from ⌊T (I − 1) / N⌋ up to ⌊T I / N⌋: every row is in exactly one part, and parts differ by at most
one row in size. With more parts than rows, some are empty.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from embasis.errors import ConfigError, quote, require

LARGEST_COUNT = 10**9
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
