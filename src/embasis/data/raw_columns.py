"""Columns of a table as they are: numbers, true and false, dates, texts, with gaps.

| cell of a .csv file | is |
| --- | --- |
| nothing, NA, N/A, NaN, NULL, ? and the like (GAPS) | a gap |
| true, false in any case | a boolean |
| 2026-11-18, 2026-11-18 09:30, 2026-11-18T09:30:15.5Z | a date |
| anything else that is no number | a text |

A column is of one kind: that of all of its cells on both sides. Spaces around a cell do not count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embasis.errors import InputDataError

GAPS = frozenset({
    "", "?", "NA", "N/A", "n/a", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "#N/A", "#N/A N/A", "#NA", "-1.#IND",
    "-1.#QNAN", "1.#IND", "1.#QNAN",
})  # fmt: skip
"""Cells that say that there is no value."""
BOOLEANS = {"true": 1.0, "false": 0.0, "1": 1.0, "0": 0.0}
EPOCH, DAY = datetime(1970, 1, 1, tzinfo=UTC), timedelta(days=1)
MICROSECONDS = 86_400e6
"""Of a day."""
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?inf(inity)?", re.IGNORECASE)
EITHER_NUMBER = re.compile(r"[+-]?[0-9.,]*[0-9][0-9.,]*([eE][+-]?[0-9]+)?")
"""A number with whatever sign, decimal or between thousands."""
DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII)
ANY_DATE = re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}\b.*", re.ASCII)
EXPECTED = {"number": "a number", "boolean": "true or false", "date": "a date such as 2026-11-18"}

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RawColumn:
    """One column of one table: either texts (None = a gap), numbers, or dates in days since 1970 (NaN = a gap)."""

    texts: list[str | None] | None = None
    numbers: Numbers | None = None
    days: Numbers | None = None
    decimal: str = ""
    """The sign in numbers that are texts: a comma, or a point; nothing where it can be a point alone."""

    @classmethod
    def of_texts(cls, cells: Sequence[str | None], decimal: str = "") -> RawColumn:
        """A column of texts; cells that say nothing become gaps."""
        known: dict[str | None, str | None] = {None: None}  # rows share their texts
        for cell in cells:
            if cell is not None and cell not in known:
                text = cell.strip()
                known[cell] = None if text in GAPS else text
        return cls([known[cell] for cell in cells], decimal=decimal)

    def __len__(self) -> int:
        return len(next(column for column in (self.texts, self.numbers, self.days) if column is not None))

    @cached_property
    def counts(self) -> Counter[str]:
        """How often each text is there."""
        return Counter(text for text in self.texts or () if text is not None)

    @property
    def gaps(self) -> NDArray[np.bool_]:
        """(N) which cells are gaps."""
        if self.texts is not None:
            return np.array([text is None for text in self.texts], dtype=bool)
        return np.isnan(self.numbers if self.numbers is not None else self._days())

    def has(self, kind: str) -> bool:
        """Whether all of its cells, gaps aside, are of a kind; a column of gaps is of every kind."""
        if self.texts is not None:
            return all(self.parse_text(text, kind) is not None for text in self.counts)
        if self.days is not None:
            return kind in ("date", "category")
        if kind in ("number", "category"):
            return True
        numbers = self._numbers()
        return kind == "boolean" and bool((np.isnan(numbers) | (numbers == 0) | (numbers == 1)).all())

    def parse_text(self, text: str, kind: str) -> float | str | None:
        """A text as a value of a kind; None where it is none."""
        if kind == "category":
            return text
        if kind == "boolean":
            return BOOLEANS.get(text.lower())
        if kind == "date":
            return read_date(text)
        swapped = text.translate({ord("."): ",", ord(","): "."}) if self.decimal == "," else text
        return float(swapped) if NUMBER.fullmatch(swapped) else None

    def read(self, kind: str) -> Numbers:
        """(N) the cells as numbers of a kind, of which all of them are; NaN for gaps."""
        if self.texts is None:
            return self._numbers() if self.days is None else self.days
        known: dict[str | None, Any] = {text: self.parse_text(text, kind) for text in self.counts}
        known[None] = np.nan
        return np.array([known[text] for text in self.texts], dtype=np.float64)

    def read_categories(self) -> list[str | None]:
        """The cells as texts; whole numbers without a point."""
        if self.texts is not None:
            return self.texts
        values = (self._numbers() if self.days is None else self.days).tolist()
        return [None if value != value else f"{value:.15g}" for value in values]

    def find_other(self, kind: str) -> tuple[int, str, int]:
        """Row and text of the first cell that is not of a kind, and how many are not."""
        wrong = {text for text in self.counts if self.parse_text(text, kind) is None}
        row = next(row for row, text in enumerate(self.texts or ()) if text in wrong)
        return row, str((self.texts or [])[row]), sum(self.counts[text] for text in wrong)

    def share_like(self, kind: str) -> float:
        """The share of its cells, gaps aside, that look like numbers or dates, however they are written."""
        pattern, total = {"number": EITHER_NUMBER, "date": ANY_DATE}[kind], sum(self.counts.values())
        return sum(count for text, count in self.counts.items() if pattern.fullmatch(text)) / max(total, 1)

    def _numbers(self) -> Numbers:
        assert self.numbers is not None
        return self.numbers

    def _days(self) -> Numbers:
        assert self.days is not None
        return self.days


def read_date(text: str) -> float | None:
    """Days since 1970 of a date, with its time if it has one; a time without a zone is taken as it stands."""
    if not DATE.fullmatch(text):
        return None
    try:
        instant = datetime.fromisoformat(text)
        return ((instant if instant.tzinfo else instant.replace(tzinfo=UTC)) - EPOCH) / DAY
    except (ValueError, OverflowError):
        return None


def read_frame(frame: Any, names: Sequence[str], what: str) -> dict[str, RawColumn]:
    """These columns of a mapping or of a data frame, by name."""
    columns = {}
    for name in names:
        try:
            values = frame[name]
        except KeyError as error:
            raise InputDataError(f"{what}: no column {name!r}") from error
        columns[name] = read_values(np.asarray(values))
    return columns


def read_values(array: NDArray[Any]) -> RawColumn:
    """A column in memory, of whatever kind numpy makes of it."""
    if array.dtype.kind in "biuf":
        return RawColumn(numbers=array.astype(np.float64))
    if array.dtype.kind == "M":
        days = array.astype("datetime64[us]").astype(np.int64) / MICROSECONDS
        return RawColumn(days=np.where(np.isnat(array), np.nan, days))
    # None, NaN, and pandas' NA and NaT are gaps: what is no gap is equal to itself.
    cells = [None if value is None or (value == value) is not True else str(value) for value in array.tolist()]
    return RawColumn.of_texts(cells)


def is_frame(source: object) -> bool:
    """Whether something has columns by name: a mapping, or a data frame of pandas or another library."""
    return isinstance(source, Mapping) or (hasattr(source, "columns") and hasattr(source, "__getitem__"))
