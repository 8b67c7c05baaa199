"""The table of labels that a person has corrected, as predict or export wrote it and a spreadsheet saved it.

| column | meaning |
| --- | --- |
| id, or path | the row of the unlabelled side |
| label | its class |
| corrected | the right class, or a mark (x, yes, true, 1) that the one in `label` is right |

Where there is a column `corrected`, only the rows in which it is filled count. All other columns are ignored. Cells of
a .csv file that begin with an apostrophe and the sign of a formula lose the apostrophe.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from embasis.data.class_labels import decode_text, label_names, quote_names
from embasis.data.corrections import with_corrections
from embasis.data.images.files import printable_path
from embasis.data.tables.formats import LARGEST_TABLE, read_column_names, read_columns, read_csv_rows
from embasis.data.tables.read import require_different
from embasis.errors import InputDataError, ResourceError, quote, require
from embasis.resources import require_memory
from embasis.storage import unescape_formula
from embasis.types import Problem

ID, PATH, LABEL, CORRECTED = "id", "path", "label", "corrected"
YES, NO = frozenset({"x", "y", "yes", "true", "1", "✓", "✔"}), frozenset({"n", "no", "false", "0"})
_WHOLE = re.compile(r"(-?[0-9]+)\.0+")

Columns = dict[str, list[Any]]


def corrected_problem(
    problem: Problem, path: str, unlabelled: str, label: str = LABEL, id: str | None = None
) -> Problem:
    """The problem after the rows that the table names have moved to the labelled side."""
    labels = read_corrections(path, problem.schema.names, label, id, numbered=problem.row_names is None)
    return with_corrections(problem, labels, printable_path(path), printable_path(unlabelled))


def read_corrections(
    path: str, classes: Sequence[str], label: str = LABEL, id: str | None = None, *, numbered: bool
) -> dict[str, str]:
    """The class of each row that the table names; `numbered`: ids are numbers, which may be written as 12.0, too."""
    where, columns = printable_path(path), _read(Path(path))
    semicolons = "; separate its cells by commas" if len(columns) == 1 and ";" in next(iter(columns)) else ""
    there = f"columns: {quote_names(columns)}{semicolons}"
    key = next((name for name in (id, ID, PATH) if name in columns), None)
    require(key is not None, f"{where}: no column {ID!r} or {PATH!r}; {there}")
    assert key is not None
    own = label if label in columns else LABEL
    require(own in columns or CORRECTED in columns, f"{where}: no column {LABEL!r}; {there}")
    labels = _names(columns.get(own, [None] * len(columns[key])), classes, where)
    if CORRECTED in columns:
        labels = _chosen(columns[CORRECTED], labels, classes, where)
    ids = _texts(columns[key], where)
    ids = [_WHOLE.sub(r"\1", name.strip()) for name in ids] if numbered else ids
    filled = [(name, mark) for name, mark in zip(ids, labels, strict=True) if mark]
    what = f"no row has column {CORRECTED!r} filled" if CORRECTED in columns else "no row has a label"
    require(filled, f"{where}: {what}; there is nothing to correct")
    require(all(name for name, _ in filled), f"{where}: a row has a label and no id")
    _require_known({mark for _, mark in filled}, classes, where)
    return _once(filled, where)


def _names(cells: list[Any], classes: Sequence[str], where: str) -> list[str]:
    """Cells as names of classes; one that is a class as it stands stays so."""
    known = {*classes}
    return [
        text if text in known else name
        for text, name in zip(_texts(cells, where), label_names(list(cells), where), strict=True)
    ]


def _chosen(cells: list[Any], labels: list[str], classes: Sequence[str], where: str) -> list[str]:
    """The label of each row by its cell in the column `corrected`, "" where that is empty."""
    marks = [text.strip().lower() for text in _texts(cells, where)]
    given, known = {*marks} - {""}, {name.lower() for name in classes}
    if not given <= YES | NO:
        return _names(cells, classes, where)
    what = f"column {CORRECTED!r} may name classes or mark rows: {quote_names(given)}"
    hint = "mark rows with x, or leave the column out and keep corrected rows only"
    require(not given or not given <= known, f"{where}: {what}; {hint}")
    for row, (mark, label) in enumerate(zip(marks, labels, strict=True), 1):
        require(mark not in YES or label, f"{where}: row {row} is marked as corrected and has no label")
    return [label if mark in YES else "" for mark, label in zip(marks, labels, strict=True)]


def _require_known(names: set[str], classes: Sequence[str], where: str) -> None:
    unknown = names - {*classes}
    there = f"the labelled side has: {quote_names(classes, 50)}"
    require(not unknown, f"{where}: unknown classes: {quote_names(unknown)}; {there}")


def _once(rows: list[tuple[str, str]], where: str) -> dict[str, str]:
    """One label for each id."""
    labels: dict[str, str] = {}
    for name, label in rows:
        other = labels.setdefault(name, label)
        require(other == label, f"{where}: {quote(name)} has two labels, {quote(other)} and {quote(label)}")
    return labels


def _texts(cells: list[Any], where: str) -> list[str]:
    """Cells as text; nothing for None and NaN, 12 for 12.0."""
    plain = (decode_text(cell, where, row) if isinstance(cell, bytes) else cell for row, cell in enumerate(cells))
    whole = (int(cell) if isinstance(cell, float) and cell.is_integer() else cell for cell in plain)
    return ["" if cell is None or cell != cell else str(cell) for cell in whole]


def _read(path: Path) -> Columns:
    """All columns of the table."""
    where, kind = printable_path(path), path.suffix.lower()
    rule = f"{where}: corrections must be a .csv or .parquet file with columns {ID} and {LABEL}"
    require(kind in (".csv", ".parquet") and not os.path.isdir(path), rule)
    try:
        size = path.stat().st_size
        require(size > 0, f"{where}: the file is empty")
        require(size <= LARGEST_TABLE, f"{where}: has {size} bytes, at most {LARGEST_TABLE} are read")
        require_memory(size, where, "keep the rows that were corrected")
        columns = _csv(path) if kind == ".csv" else _parquet(path)
    except ResourceError:  # is an OSError, too
        raise
    except FileNotFoundError as error:
        raise InputDataError(f"{where}: no such file") from error
    except OSError as error:
        raise InputDataError(f"{where}: cannot be read: {error.strerror or error}") from error
    require(any(columns.values()), f"{where}: no rows")
    return columns


def _csv(path: Path) -> Columns:
    rows = list(read_csv_rows(path))
    require(rows, f"{printable_path(path)}: no rows")
    (_, header), *body = rows
    require_different(header, path)
    for line, cells in body:
        rule = f"{printable_path(path)}: line {line} has {len(cells)} fields, the header has {len(header)}"
        require(len(cells) == len(header), rule)
    return {name: [unescape_formula(cells[at]) for _, cells in body] for at, name in enumerate(header)}


def _parquet(path: Path) -> Columns:
    require_different(read_column_names(path), path)
    return read_columns(path)
