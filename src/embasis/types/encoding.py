"""How the columns of a table become numbers: learned from both sides, kept with the model, applied to every new table.

| kind of column | becomes |
| --- | --- |
| number | the number |
| boolean | 1 for true, 0 for false |
| date | days since 1970; sine and cosine of the place in the year and in the week, with times also in the day |
| category | a column of 0 and 1 for each value |

A gap is filled with the mean of its side (in a category with zeros); a column that had gaps has a further one of 0 and
1 that marks them. A value of a category that was not there when the encoding was learned is all zeros.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from embasis.errors import check_choice, require

KINDS = ("number", "boolean", "date", "category")
CYCLES = ("year", "week", "day")


@dataclass(frozen=True)
class ColumnEncoding:
    """One column of a table.

    Parameters
    ----------
    name : of the column
    kind : one of KINDS
    fills : what fills gaps, on the labelled and on the unlabelled side: a number for each part; none for categories
    values : of a category, in the order of their columns
    has_gaps : whether a part marks gaps
    has_time : of dates: whether there are times of day
    """

    name: str
    kind: str
    fills: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    values: tuple[str, ...] = ()
    has_gaps: bool = False
    has_time: bool = False

    def __post_init__(self) -> None:
        check_choice(self, "kind", KINDS)
        parts = {"category": 0, "date": len(self.value_names)}.get(self.kind, 1)
        whole = all(len(side) == parts and all(map(math.isfinite, side)) for side in self.fills)
        require(whole, f"fills of column {self.name!r} must be {parts} finite numbers for each side")
        rule = f"values of column {self.name!r} must be different, and there for categories alone"
        require(bool(self.values) == (self.kind == "category") and len({*self.values}) == len(self.values), rule)

    @property
    def value_names(self) -> tuple[str, ...]:
        """The names of the parts, without the one that marks gaps."""
        if self.kind == "category":
            return tuple(f"{self.name}={value}" for value in self.values)
        if self.kind == "date":
            cycles = CYCLES if self.has_time else CYCLES[:2]
            waves = (f"{self.name} ({wave} of the {cycle})" for cycle in cycles for wave in ("sine", "cosine"))
            return (self.name, *waves)
        return (self.name,)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all parts."""
        return (*self.value_names, f"{self.name} is missing") if self.has_gaps else self.value_names

    @property
    def is_plain(self) -> bool:
        """Whether the column stays as it is."""
        return self.kind == "number" and not self.has_gaps


@dataclass(frozen=True)
class TableEncoding:
    """All columns of a table, in the model's order; `dropped` are columns that are not read."""

    columns: tuple[ColumnEncoding, ...]
    dropped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require(self.columns, "an encoding has at least one column, got none")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features that the model sees."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the table's own columns."""
        return tuple(column.name for column in self.columns)

    @property
    def is_plain(self) -> bool:
        """Whether all columns stay as they are."""
        return all(column.is_plain for column in self.columns)
