"""Two tables as a problem, and everything that could go wrong with them, before hours of training.

Columns are matched by name, classes by name, rows by id. Tables without names (.npz, .npy) are matched by position.
"""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from embasis.data.class_labels import describe_alike, quote_names, sort_names
from embasis.data.problem import Side, join_sides, require_classes, require_known, require_labels, require_shape
from embasis.data.standardise import NOISE, NOISE_NARROW, all_columns, is_coarse, is_constant, measure_columns
from embasis.data.tables.formats import LARGEST_TABLE
from embasis.data.tables.read import TableData, narrow_table, read_raw, read_table
from embasis.errors import EmbasisWarning, InputDataError, quote, require
from embasis.types import Fine, PathLike, Problem, RejectedFile

__all__ = ["LARGEST_TABLE", "Finding", "TableData", "check_pair", "load_pair", "order_columns", "read_table"]

SCALES_APART = 100.0
"""`check_pair` warns when the size of a feature differs by more than this factor between the sides."""
MOST_COLUMNS = 10


@dataclass(frozen=True)
class Finding:
    """One thing that `check_pair` saw: an error stops training, a warning may spoil it, a note is good to know."""

    level: Literal["error", "warning", "note"]
    text: str
    rejected: tuple[RejectedFile, ...] = field(default=(), compare=False)
    """The files it counts that cannot be used, all of them, where it counts files."""


def load_pair(
    labelled: PathLike,
    unlabelled: PathLike,
    *,
    test: PathLike | None = None,
    label: str = "label",
    id: str | None = None,
    forbid_leakage: bool = False,
) -> Problem:
    """A problem from two tables (and a third to score on); labels in the unlabelled one become hidden.

    A labelled row among those to score on is a warning, or an error with `forbid_leakage`."""
    first = read_table(labelled, label, id)
    require_label_column(first, label)
    second = read_table(unlabelled, label, id)
    one, two = _table_side(first, first), _table_side(second, first)
    last = None
    if test is not None:
        last = _scored_side(read_raw(test, label, id), first, label, all_columns((one.fine, two.fine)))
    sides = join_sides(one, two, test=last)
    notes = [] if last is None else _find_test_leaks(one, two, last, forbid_leakage)
    return replace(sides, columns=first.columns, notes=(*sides.notes, *notes))


def _scored_side(table: TableData, like: TableData, label: str, fine: list[int]) -> Side:
    """The rows to score on, which are centred like the unlabelled ones, so that the same columns must be fine."""
    require_label_column(table, label)
    places = _column_places(table, like.columns, like.path)
    return _table_side(narrow_table(table, fine if places is None else [places[column] for column in fine]), like)


def _find_test_leaks(one: Side, two: Side, test: Side, forbid: bool) -> list[str]:
    """Notes on rows to score on that training sees; a warning, or an error, for those with labels."""
    leak = _describe_shared_rows(one, test)
    hint = "remove them from one side (data.forbid_leakage=true)"
    require(not (leak and forbid), f"{leak}; {hint}")
    if leak:
        warnings.warn(EmbasisWarning(f"{leak}: scores on the test rows are too good"), stacklevel=3)
    return [text for text in (leak, _describe_shared_rows(two, test)) if text]


def _describe_shared_rows(one: Side, two: Side) -> str:
    """A sentence about rows that are on both sides, or nothing; columns that are fine on both are compared so."""
    both = set(all_columns([one.fine])) & set(all_columns([two.fine]))
    known = set(_hash_rows(one.x.numpy(), one.fine, both))
    leaked = sum(digest in known for digest in _hash_rows(two.x.numpy(), two.fine, both))
    verb = "is" if leaked == 1 else "are"
    return f"{_count_units(leaked, 'row')} of {two.name} {verb} in {one.name} too" if leaked else ""


def require_label_column(table: TableData, label: str) -> None:
    """A table with labels; else where they should be."""
    if table.path.suffix.lower() == ".npy":
        hint = "a .npy file holds no labels; put x and y into one .npz file"
    elif table.columns is None:
        hint = "no labels; store them as array y, label or labels"
    else:
        hint = f"no label column {quote(label)}; columns: {quote_names(table.columns)}"
    require(table.labels is not None, f"{table.path}: {hint}")


def _table_side(table: TableData, like: TableData) -> Side:
    """A checked table with its columns in the order of `like`."""
    ids = None if table.ids is None else torch.from_numpy(table.ids)
    places, fine = _column_places(table, like.columns, like.path), table.fine
    if fine is not None and places is not None:
        moved = torch.tensor([places.index(column) for column in fine.columns.tolist()])
        order = torch.argsort(moved)
        fine = Fine(moved[order], fine.values[:, order])
    x = table.x if places is None else table.x[:, places]
    return Side(str(table.path), torch.from_numpy(x), table.labels, ids, fine)


def order_columns(table: TableData, columns: Sequence[str] | None, reference: PathLike) -> NDArray[Any]:
    """The features of a table in the order of `columns`, which are those of `reference`."""
    places = _column_places(table, columns, reference)
    ordered: NDArray[Any] = table.x if places is None else table.x[:, places]
    return ordered


def _column_places(table: TableData, columns: Sequence[str] | None, reference: PathLike) -> list[int] | None:
    """Where the table has each of `columns`; None where it has them in this order."""
    if table.columns is None or columns is None or table.columns == tuple(columns):
        return None
    here, there = set(table.columns), set(columns)
    missing = f"; only in {reference}: {quote_names(there - here)}" if there - here else ""
    extra = f"; only in {table.path}: {quote_names(here - there)}" if here - there else ""
    require(here == there, f"feature columns differ{missing}{extra}")
    position = {name: number for number, name in enumerate(table.columns)}
    return [position[name] for name in columns]


def check_pair(
    labelled: PathLike, unlabelled: PathLike, *, label: str = "label", id: str | None = None
) -> list[Finding]:
    """All that is wrong, doubtful or good to know about two tables, errors first; never only the first problem."""
    findings: list[Finding] = []
    first, first_clean = _inspect_table(labelled, label, id, findings)
    second, second_clean = _inspect_table(unlabelled, label, id, findings)
    if first is not None:
        with collect_errors(findings):
            require_label_column(first, label)
            _check_class_sizes(_labels_only(first), findings)
    if first is not None and second is not None:
        if first.labels is not None and second.labels is not None:
            _check_hidden(_labels_only(second), _labels_only(first), findings)
        with collect_errors(findings):
            order_columns(second, first.columns, first.path)
            if first_clean is not None and second_clean is not None:
                one, two = _table_side(first_clean, first), _table_side(second_clean, first)
                require_shape(one, two)
                findings += _compare_sides(one, two, first.columns)
    rank = ("error", "warning", "note")
    return sorted(findings, key=lambda finding: rank.index(finding.level))


@contextmanager
def collect_errors(findings: list[Finding]) -> Iterator[None]:
    """What is refused in this block becomes a finding."""
    try:
        yield
    except InputDataError as error:
        findings.append(Finding("error", str(error)))


def _inspect_table(
    path: PathLike, label: str, id: str | None, findings: list[Finding]
) -> tuple[TableData | None, TableData | None]:
    """A table as its file has it, and with checked features; None for what cannot be had."""
    raw, clean = None, None
    with collect_errors(findings):
        raw = read_raw(path, label, id)
        shape = " × ".join(str(length) for length in raw.x.shape[1:])
        findings.append(Finding("note", f"{raw.path}: {_count_units(len(raw.x), 'row')} of {shape or 'no'} features"))
        clean = narrow_table(raw)
        findings += [*_check_rows(clean), *_check_spreads(raw)]
    return raw, clean


def _labels_only(table: TableData) -> Side:
    """The labels of a table, without its features."""
    return Side(str(table.path), torch.empty(len(table.x), 0), table.labels)


def _check_rows(table: TableData) -> list[Finding]:
    """Constant columns and repeated rows of one table."""
    findings = []
    flat = table.x.reshape(len(table.x), -1)
    same = (flat == flat[0]).all(0)
    if table.fine is not None:
        values = table.fine.values.numpy()
        same[table.fine.columns.numpy()] = (values == values[0]).all(0)
    constant = np.flatnonzero(same)
    if len(constant) and len(flat) > 1:
        which = f"one value only: {_column_names(constant, table.columns)}"
        text = f"{table.path}: {_count_units(len(constant), 'column', 'has', 'have')} {which}"
        findings.append(Finding("warning", text))
    repeated = len(flat) - len(set(_hash_rows(flat, table.fine, all_columns([table.fine]))))
    if repeated:
        findings.append(
            Finding("warning", f"{table.path}: {_count_units(repeated, 'row', 'repeats', 'repeat')} an earlier row")
        )
    return findings


def _check_spreads(table: TableData) -> list[Finding]:
    """Columns of a raw table whose spread is small beside their size."""
    flat = table.x.reshape(len(table.x), -1)
    centre, spread, exact = measure_columns(flat)
    constant = is_constant(centre, spread, np.where(exact, NOISE_NARROW, NOISE))
    numbers = np.flatnonzero(is_coarse(centre, spread) & ~constant)
    if not len(numbers):
        return []
    names = [f"{_column_names(numbers[at : at + 1], table.columns)} ({centre[n]:.3g} ± {spread[n]:.2g})"
             for at, n in enumerate(numbers[:MOST_COLUMNS])]  # fmt: skip
    rest = f" and {len(numbers) - MOST_COLUMNS} more" if len(numbers) > MOST_COLUMNS else ""
    stored = "the file has float32 numbers, which may have lost it: write them as float64"
    kept = "it is kept in float64 until it is centred; with standardise=none subtract a number near the size first"
    what = stored if np.can_cast(flat.dtype, np.float32) else kept
    text = f"{_count_units(len(numbers), 'column', 'has', 'have')} a spread that is small beside the size"
    return [Finding("note", f"{table.path}: {text}: {', '.join(names)}{rest}; {what}")]


def _check_class_sizes(side: Side, findings: list[Finding]) -> None:
    """How many rows each class has."""
    for rule in (require_labels, require_classes):
        with collect_errors(findings):
            rule(side)
    counts = Counter(name for name in side.labels or [] if name)
    text = ", ".join(f"{quote(name)} {counts[name]}" for name in sort_names(counts))
    findings.append(Finding("note", f"{side.name}: {len(counts)} classes: {text}"))
    if few := [name for name in counts if counts[name] < 2]:
        findings.append(Finding("warning", f"{side.name}: classes with under 2 rows: {quote_names(few)}"))
    if text := describe_alike(side.name, counts):
        findings.append(Finding("warning", text))


def _check_hidden(hidden: Side, names: Side, findings: list[Finding]) -> None:
    """Labels on the unlabelled side, and classes that do not occur there."""
    with collect_errors(findings):
        require_known(hidden, sort_names(names.classes))
    if not (known := sum(bool(name) for name in hidden.labels or [])):
        return
    text = f"{hidden.name}: {known} of {len(hidden.x)} rows have labels, used for evaluation only"
    findings.append(Finding("note", text))
    if absent := names.classes - hidden.classes:
        findings.append(Finding("note", f"{hidden.name}: classes without a row: {quote_names(absent)}"))
    if text := describe_alike(f"{names.name} and {hidden.name}", names.classes, hidden.classes):
        findings.append(Finding("warning", text))


def _compare_sides(one: Side, two: Side, columns: Sequence[str] | None) -> list[Finding]:
    """Rows on both sides, and features whose size differs hugely."""
    findings = []
    a, b = (side.x.numpy().reshape(len(side.x), -1).astype(np.float64) for side in (one, two))
    if text := _describe_shared_rows(one, two):
        findings.append(Finding("warning", text))
    sizes = np.sqrt(np.mean(a**2, 0)), np.sqrt(np.mean(b**2, 0))
    low, high = np.minimum(*sizes), np.maximum(*sizes)
    apart = np.flatnonzero((low > 0) & (high > SCALES_APART * low))
    if len(apart):
        text = f"{_count_units(len(apart), 'column', 'differs', 'differ')} in size by more than {SCALES_APART:g} times"
        where = f"between {one.name} and {two.name}: {_column_names(apart, columns)}"
        findings.append(Finding("warning", f"{text} {where}"))
    return findings


def _count_units(number: int, unit: str, one: str = "", more: str = "") -> str:
    """A number with its unit and verb: 1 row repeats, 2 rows repeat."""
    return f"{number} {unit} {one}".strip() if number == 1 else f"{number} {unit}s {more}".strip()


def _column_names(numbers: NDArray[np.int64], columns: Sequence[str] | None) -> str:
    return quote_names(str(number) if columns is None else columns[number] for number in numbers)


def _hash_rows(x: NDArray[Any], fine: Fine | None, columns: Collection[int]) -> list[bytes]:
    """One digest for each row, and for what `fine` has of these columns; −0 and 0 are the same."""
    rows = np.ascontiguousarray(x, dtype=np.float32).reshape(len(x), -1) + np.float32(0)
    more = [b""] * len(rows)
    if fine is not None and columns:
        kept = [column in columns for column in fine.columns.tolist()]
        more = [row.tobytes() for row in fine.values.numpy()[:, kept] + 0.0]
    return [
        hashlib.blake2b(row.tobytes() + rest, digest_size=16).digest() for row, rest in zip(rows, more, strict=True)
    ]
