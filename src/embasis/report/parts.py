"""What a page is made of: tables, cards and panels, as plain values for the template, and numbers as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from embasis.report.tables import NONE

MOST_ROWS = 200
"""A table behind a figure shows at most so many rows."""


@dataclass(frozen=True)
class Table:
    """A heading, its rows as text, a sentence below; `best` are the rows in bold."""

    name: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    best: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Card:
    """One key figure."""

    name: str
    value: str
    hint: str = ""


@dataclass(frozen=True)
class Panel:
    """A figure: its pictures as SVG, each of which says in words what is to be seen, and the table of its numbers."""

    title: str
    pictures: Sequence[str]
    caption: str
    table: Table
    wide: bool = False


def three(value: float | None) -> str:
    """Three decimals, a dash for None."""
    return NONE if value is None else f"{value:.3f}"


def short(value: float | None) -> str:
    """Four digits, a dash for None."""
    return NONE if value is None else f"{value:.4g}"


def percent(part: float, whole: float) -> str:
    """A share with one decimal, a dash for a share of nothing."""
    return f"{part / whole:.1%}" if whole else NONE


def duration(seconds: float) -> str:
    """A time for reading."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def numbers_table(header: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> Table:
    """The numbers behind a figure, the first of them."""
    note = f"The first {MOST_ROWS} of {len(rows):,} rows." if len(rows) > MOST_ROWS else ""
    return Table(f"The numbers of: {title}" if title else "The numbers", header, rows[:MOST_ROWS], note)
