"""Labels that a person has corrected, in a table as predict or export wrote it and a spreadsheet saved it.

A .json file of Label Studio (data/label_studio.py) is read as a table with the columns id and label.

All other columns are ignored. Cells of a .csv file that begin with an apostrophe and the sign of a formula lose the
apostrophe.

| column | meaning |
| --- | --- |
| id, or path | the row of the unlabelled side |
| label | its class |
| corrected | the right class, or a mark (x, yes, true, 1) that the one in `label` is right; only filled rows count |
| unusable | a mark that the row has no class at all: it leaves the unlabelled side, whatever the other cells say |
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from embasis.data.class_labels import decode_text, label_names, quote_names
from embasis.data.corrections import with_corrections
from embasis.data.formats import LARGEST_TABLE, read_column_names, read_columns, read_csv_rows
from embasis.data.images.files import printable_path
from embasis.data.label_studio import read_label_studio
from embasis.data.tables import require_different
from embasis.errors import InputDataError, ResourceError, quote, require
from embasis.resources import require_memory
from embasis.storage import unescape_formula
from embasis.types import Problem

ID, PATH, LABEL, CORRECTED, UNUSABLE_COLUMN = "id", "path", "label", "corrected", "unusable"
YES, NO = frozenset({"x", "y", "yes", "true", "1", "✓", "✔"}), frozenset({"n", "no", "false", "0"})
WHOLE_NUMBER = re.compile(r"(-?[0-9]+)\.0+")

Columns = dict[str, list[Any]]


def apply_corrections(
    problem: Problem, path: str, unlabelled: str, label: str = LABEL, id: str | None = None
) -> Problem:
    """The problem after the rows that the table names have moved to the labelled side."""
    labels = read_corrections(path, problem.schema.names, label, id, numbered=problem.row_names is None)
    return with_corrections(problem, labels, printable_path(path), printable_path(unlabelled))


def read_corrections(
    path: str, classes: Sequence[str], label: str = LABEL, id: str | None = None, *, numbered: bool
) -> dict[str, str | None]:
    """The class of each row that the table names, None of an unusable one; `numbered`: ids are numbers, which may be
    written as 12.0, too."""
    where, columns = printable_path(path), read_correction_table(Path(path))
    there = f"columns: {quote_names(columns)}"
    key = next((name for name in (id, ID, PATH) if name in columns), None)
    require(key is not None, f"{where}: no column {ID!r} or {PATH!r}; {there}")
    assert key is not None
    own = label if label in columns else LABEL
    require(own in columns or CORRECTED in columns, f"{where}: no column {LABEL!r}; {there}")
    labels = name_classes(columns.get(own, [None] * len(columns[key])), classes, where)
    if CORRECTED in columns:
        labels = choose_labels(columns[CORRECTED], labels, classes, where)
    unusable = read_unusable(columns.get(UNUSABLE_COLUMN, [None] * len(labels)), where)
    ids = read_cells(columns[key], where)
    ids = [WHOLE_NUMBER.sub(r"\1", name.strip()) for name in ids] if numbered else ids
    rows = zip(ids, labels, unusable, strict=True)
    filled = [(name, None if lost else mark) for name, mark, lost in rows if mark or lost]
    what = f"no row has column {CORRECTED!r} filled" if CORRECTED in columns else "no row has a label"
    require(filled, f"{where}: {what}; there is nothing to correct")
    require(all(name for name, _ in filled), f"{where}: a row has a label and no id")
    unknown = {mark for _, mark in filled if mark is not None} - {*classes}
    rule = f"{where}: unknown classes: {quote_names(unknown)}; the labelled side has: {quote_names(classes, 50)}"
    require(not unknown, rule)
    return require_one_label(filled, where)


def read_unusable(cells: list[Any], where: str) -> list[bool]:
    """Which rows a mark says to be unusable."""
    marks = [text.strip().lower() for text in read_cells(cells, where)]
    strange = {*marks} - YES - NO - {""}
    rule = f"{where}: column {UNUSABLE_COLUMN!r} takes marks: x, yes, true, 1, or nothing; got {quote_names(strange)}"
    require(not strange, rule)
    return [mark in YES for mark in marks]


def name_classes(cells: list[Any], classes: Sequence[str], where: str) -> list[str]:
    """Cells as names of classes; one that is a class as it stands stays so."""
    known = {*classes}
    return [
        text if text in known else name
        for text, name in zip(read_cells(cells, where), label_names(list(cells), where), strict=True)
    ]


def choose_labels(cells: list[Any], labels: list[str], classes: Sequence[str], where: str) -> list[str]:
    """The label of each row by its cell in the column `corrected`, "" where that is empty."""
    marks = [text.strip().lower() for text in read_cells(cells, where)]
    read_as = find_marks_in(({*marks} - {""}), {name.lower() for name in classes}, where)
    named = name_classes(cells, classes, where) if {*marks} - read_as - {""} else [""] * len(cells)
    for row, (mark, label) in enumerate(zip(marks, labels, strict=True), 1):
        require(mark not in read_as & YES or label, f"{where}: row {row} is marked as corrected and has no label")
    return [
        name if mark not in read_as else label if mark in YES else ""
        for mark, label, name in zip(marks, labels, named, strict=True)
    ]


def find_marks_in(given: set[str], classes: set[str], where: str) -> set[str]:
    """Which of the words in the column are marks; all others name classes. A mark that is a class too needs a column in
    which all others are marks, or all others are classes."""
    marks = given & (YES | NO)
    sure, doubtful, names = marks - classes, marks & classes, given - marks
    what = f"column {CORRECTED!r} may name classes or mark rows: {quote_names(doubtful)}"
    mark = next((word for word in ("x", "yes", "true") if word not in classes), "✓")
    hint = f"mark rows with {mark}, or leave the column out and keep corrected rows only"
    hint = "write the class into every row that was corrected" if names else hint
    require(not doubtful or bool(sure) != bool(names), f"{where}: {what}; {hint}")
    return sure if names else marks


def require_one_label(rows: list[tuple[str, str | None]], where: str) -> dict[str, str | None]:
    """One label for each id."""
    labels: dict[str, str | None] = {}
    for name, label in rows:
        other = labels.setdefault(name, label)
        both = " and ".join(UNUSABLE_COLUMN if mark is None else quote(mark) for mark in (other, label))
        require(other == label, f"{where}: {quote(name)} has two labels, {both}")
    return labels


def read_cells(cells: list[Any], where: str) -> list[str]:
    """Cells as text; nothing for None and NaN, 12 for 12.0."""
    plain = (decode_text(cell, where, row) if isinstance(cell, bytes) else cell for row, cell in enumerate(cells))
    whole = (int(cell) if isinstance(cell, float) and cell.is_integer() else cell for cell in plain)
    return ["" if cell is None or cell != cell else str(cell) for cell in whole]


def read_correction_table(path: Path) -> Columns:
    """All columns of the table."""
    where, kind = printable_path(path), path.suffix.lower()
    rule = f"{where}: corrections must be a .csv or .parquet file with columns {ID} and {LABEL}"
    rule += ", or a .json file of Label Studio"
    require(kind in CORRECTION_READERS and not os.path.isdir(path), rule)
    try:
        size = path.stat().st_size
        require(size > 0, f"{where}: the file is empty")
        require(size <= LARGEST_TABLE, f"{where}: has {size} bytes, at most {LARGEST_TABLE} are read")
        require_memory(size, where, "keep the rows that were corrected")
        columns = CORRECTION_READERS[kind](path)
    except ResourceError:  # is an OSError, too
        raise
    except FileNotFoundError as error:
        raise InputDataError(f"{where}: no such file") from error
    except OSError as error:
        raise InputDataError(f"{where}: cannot be read: {error.strerror or error}") from error
    what = "no rows" if kind != ".json" else "no task is annotated; there is nothing to correct"
    require(any(columns.values()), f"{where}: {what}")
    return columns


def read_correction_csv(path: Path) -> Columns:
    """All columns of a .csv file; every line has as many cells as the header."""
    rows = list(read_csv_rows(path))
    require(rows, f"{printable_path(path)}: no rows")
    (_, header), *body = rows
    require_different(header, path)
    for line, cells in body:
        rule = f"{printable_path(path)}: line {line} has {len(cells)} fields, the header has {len(header)}"
        require(len(cells) == len(header), rule)
    return {name: [unescape_formula(cells[at]) for _, cells in body] for at, name in enumerate(header)}


def read_correction_parquet(path: Path) -> Columns:
    """All columns of a .parquet file that have one value a row."""
    require_different(read_column_names(path), path)
    return read_columns(path)


CORRECTION_READERS: dict[str, Callable[[Path], Columns]] = {
    ".csv": read_correction_csv,
    ".parquet": read_correction_parquet,
    ".json": read_label_studio,
}
