"""Results that others published: read from published.toml, never mixed with ours.

| where | file |
| --- | --- |
| an installed package | embasis/published.toml |
| a clone | benchmarks/published.toml |
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGE_FOLDER = Path(__file__).parent.parent
PUBLISHED_FILES = (PACKAGE_FOLDER / "published.toml", PACKAGE_FOLDER.parent.parent / "benchmarks" / "published.toml")


@dataclass(frozen=True)
class PublishedRow:
    """One method of a published table, in per cent; None where the source prints a dash."""

    method: str
    values: tuple[float | None, ...]
    means: tuple[float | None, ...]
    spread: tuple[float, ...] = ()
    """the numbers after ±, one a column; empty where none are printed"""
    backbone: str = ""
    cites: str = ""
    source: str = ""
    """the row's own source, where it is not that of the table"""
    commit: str = ""
    averaged: str = ""
    verified: str = ""
    """how the row was checked; empty for rows of the paper, whose text we have"""
    check: str = ""
    """what is wrong with the printed means; empty where they are the means of the printed columns"""

    @property
    def name(self) -> str:
        """The method and its backbone, where it is printed; the paper's "Ours" is not ours."""
        method = f"{self.method} (paper)" if self.method == "Ours" and not self.source else self.method
        return f"{method}, {self.backbone}" if self.backbone else method


@dataclass(frozen=True)
class PublishedTable:
    """One table of the paper, as printed, and rows for the same columns from elsewhere."""

    dataset: str
    title: str
    source: str
    averaged: str
    measure: str
    kind: str
    """"pairs": a column is a pair of domains, "classes": a column is a class"""
    columns: tuple[str, ...]
    short: tuple[str, ...]
    """headings for a terminal"""
    keys: tuple[str, ...]
    """our name of each column: source→target, or the class"""
    means: tuple[str, ...]
    """headings of the means, which follow the columns"""
    without: tuple[str, ...]
    """columns that the last mean leaves out"""
    rows: tuple[PublishedRow, ...]
    elsewhere: tuple[PublishedRow, ...]


def find_published(dataset: str) -> PublishedTable | None:
    """The published table of a data set, None where there is none."""
    raw = read_published().get(dataset)
    return None if raw is None else _parse_table(dataset, raw)


def read_published() -> dict[str, Any]:
    """All tables of the file by data set; none if the file is missing, as no result of ours depends on it."""
    place = next((path for path in PUBLISHED_FILES if path.is_file()), None)
    return {} if place is None else tomllib.loads(place.read_text(encoding="utf-8"))


def _parse_table(dataset: str, raw: dict[str, Any]) -> PublishedTable:
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()}
    fields = {"short": fields["columns"], "without": ()} | fields
    rows, elsewhere = (tuple(map(_parse_row, fields.pop(name, ()))) for name in ("row", "elsewhere"))
    return PublishedTable(dataset=dataset, rows=rows, elsewhere=elsewhere, **fields)


def _parse_row(raw: dict[str, Any]) -> PublishedRow:
    numbers = {name: tuple(map(_parse_number, raw.get(name, ()))) for name in ("values", "means", "spread")}
    return PublishedRow(**{**raw, **numbers})


def _parse_number(printed: float | str) -> float | None:
    return None if printed == "-" else float(printed)
