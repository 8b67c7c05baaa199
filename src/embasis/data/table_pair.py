"""Two tables as a problem, and everything that could go wrong with them, before hours of training.

Columns are matched by name, classes by name, rows by id. Tables without names (.npz, .npy) are matched by position.
Both are one pass: checking goes on after an error, loading stops at the first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from embasis.data.class_labels import describe_alike, quote_names, sort_names
from embasis.data.encoding import describe_encoding, learn_encoding
from embasis.data.problem import (
    ErrorLog,
    Finding,
    Side,
    join_sides,
    report_classes,
    require_classes,
    require_known,
    require_labels,
    require_shape,
    sort_findings,
    to_findings,
    warn_of_leak,
)
from embasis.data.shards import describe_records
from embasis.data.standardise import NOISE, NOISE_NARROW, all_columns, is_coarse, is_constant, measure_columns
from embasis.data.table_shards import read_any_table
from embasis.data.tables import (
    TableData,
    describe_table,
    encode_table,
    find_columns,
    narrow_table,
    order_columns,
    require_label_column,
)
from embasis.errors import InputDataError, require
from embasis.types import Fine, PathLike, Problem, ShardRecord, TableEncoding

SCALES_APART = 100.0
"""`check_pair` warns when the size of a feature differs by more than this factor between the sides."""
MOST_COLUMNS = 10


@dataclass(eq=False)
class _Pair:
    """Two tables by role: as their files have them, with checked features, and with columns in one order.

    What cannot be had is not there; sides are there for both or for none."""

    raw: dict[str, TableData] = field(default_factory=dict)
    encoding: TableEncoding | None = None
    """How the columns of both became features, where they have names."""
    shards: dict[str, tuple[ShardRecord, ...]] = field(default_factory=dict)
    """Of each table, where it came in shards."""
    checked: dict[str, TableData] = field(default_factory=dict)
    sides: dict[str, Side] = field(default_factory=dict)


@dataclass(frozen=True)
class TableColumns:
    """The columns that a user names: of labels, of ids, and those that are not read."""

    label: str = "label"
    id: str | None = None
    dropped: tuple[str, ...] = ()


def _read_pair(labelled: PathLike, unlabelled: PathLike, named: TableColumns, log: ErrorLog) -> _Pair:
    """Read each table once, and encode both alike."""
    pair = _Pair()
    for role, path in (("labelled", labelled), ("unlabelled", unlabelled)):
        with log.step(role):
            pair.raw[role], pair.shards[role] = _read_named(path, named)
        if role == "labelled" and role in pair.raw:
            with log.step("label"):
                require_label_column(pair.raw[role], named.label)
    with log.step("dropped"):
        _require_dropped(pair, named.dropped)
    _encode_pair(pair, named.dropped, log)
    for role, table in pair.raw.items():
        with log.step(role):
            if table.cells is None or len({other.columns is None for other in pair.raw.values()}) == 2:
                pair.checked[role] = narrow_table(table)
    if len(pair.raw) == 2:
        with log.step("columns"):
            first = pair.raw["labelled"]
            find_columns(pair.raw["unlabelled"], first.columns, first.path)
            if len(pair.checked) == 2:
                pair.sides = {role: _table_side(table, first) for role, table in pair.checked.items()}
    return pair


def _read_named(path: PathLike, named: TableColumns) -> tuple[TableData, tuple[ShardRecord, ...]]:
    """A table with the columns that a user names, and the shards it came in, if it did."""
    return read_any_table(path, named.label, named.id, dropped=named.dropped)


def _require_dropped(pair: _Pair, dropped: Sequence[str]) -> None:
    """Each column that is not to be read is there, on one of the sides."""
    absent = {*dropped} - {name for table in pair.raw.values() for name in table.dropped}
    known = {name for table in pair.raw.values() for name in table.columns or ()}
    rule = f"no column to drop: {quote_names(absent)}; columns: {quote_names(known) or 'without names'}"
    require(not absent or len(pair.raw) < 2, rule)


def _encode_pair(pair: _Pair, dropped: Sequence[str], log: ErrorLog) -> None:
    """Learn how the columns of both tables become features, and make them so; every column that cannot be is named."""
    tables = list(pair.raw.values())
    if not tables or any(table.columns is None for table in tables):
        return
    encoding, problems = learn_encoding([describe_table(table) for table in tables], dropped)
    if problems and not log.collects:
        raise InputDataError("; ".join(problems))
    for problem in problems:
        with log.step("encoding"):
            raise InputDataError(problem)
    if encoding is None or len({frozenset(table.columns or ()) for table in tables}) > 1:
        return
    pair.encoding = encoding
    for side, (role, table) in enumerate(pair.raw.items()):
        if not encoding.is_plain:
            pair.raw[role], _ = encode_table(table, encoding, side, tables[0].path)


def load_pair(
    labelled: PathLike,
    unlabelled: PathLike,
    *,
    test: PathLike | None = None,
    columns: TableColumns = TableColumns(),
    forbid_leakage: bool = False,
) -> Problem:
    """A problem from two tables (and a third to score on); labels in the unlabelled one become hidden.

    A labelled row among those to score on is a warning, or an error with `forbid_leakage`."""
    pair = _read_pair(labelled, unlabelled, columns, ErrorLog(collects=False))
    first, one, two = pair.raw["labelled"], pair.sides["labelled"], pair.sides["unlabelled"]
    encoded = () if pair.encoding is None else describe_encoding(pair.encoding)
    if test is None:
        problem = replace(join_sides(one, two), columns=first.columns, encoding=pair.encoding)
        return _with_notes(_with_shards(problem, pair), encoded)
    (table, pair.shards["test"]), unknown = _read_named(test, columns), tuple[str, ...]()
    require_label_column(table, columns.label)
    if pair.encoding is not None:
        table, unknown = encode_table(table, pair.encoding, 1, labelled)
    # Rows to score on are centred like the unlabelled ones, so the same columns must be fine.
    places, fine = find_columns(table, first.columns, first.path), all_columns((one.fine, two.fine))
    last = _table_side(narrow_table(table, fine if places is None else [places[column] for column in fine]), first)
    problem = join_sides(one, two, test=last)
    leak = _describe_shared_rows(one, last)
    warn_of_leak(leak, "rows", forbid_leakage)
    notes = filter(None, (leak, _describe_shared_rows(two, last)))
    problem = replace(problem, columns=first.columns, encoding=pair.encoding)
    return _with_notes(_with_shards(problem, pair), (*notes, *encoded, *unknown))


def _with_shards(problem: Problem, pair: _Pair) -> Problem:
    """The problem, with the shards that its sides came in."""
    return replace(problem, shards={role: shards for role, shards in pair.shards.items() if shards})


def _with_notes(problem: Problem, notes: Sequence[str]) -> Problem:
    """The problem, with further notes."""
    return replace(problem, notes=(*problem.notes, *notes))


def check_pair(labelled: PathLike, unlabelled: PathLike, *, columns: TableColumns = TableColumns()) -> list[Finding]:
    """All that is wrong, doubtful or good to know about two tables, errors first; never only the first problem."""
    log = ErrorLog(collects=True)
    pair = _read_pair(labelled, unlabelled, columns, log)
    own = () if pair.encoding is None else pair.encoding.column_names
    findings = [
        finding for role, table in pair.raw.items() for finding in _report_table(table, pair.checked.get(role), own)
    ]
    findings += to_findings("note", *(describe_records(pair.raw[role].path, pair.shards[role]) for role in pair.raw))
    if pair.encoding is not None:
        findings += to_findings("note", *describe_encoding(pair.encoding))
    first, second = (_labels_only(pair.raw.get(role)) for role in ("labelled", "unlabelled"))
    if first is not None:
        for rule in (require_labels, require_classes):
            with log.step("classes"):
                rule(first)
        findings += report_classes(first.name, first.labels or [], "rows")
    if first is not None and second is not None:
        with log.step("known"):
            require_known(second, sort_names(first.classes))
        findings += _report_hidden(first, second)
    if pair.sides:
        with log.step("columns"):
            one, two = pair.sides.values()
            require_shape(one, two)
            findings += _compare_sides(one, two, pair.raw["labelled"].columns)
    return sort_findings(
        log.gather("labelled", "unlabelled", "dropped", "label", "encoding", "classes", "known", "columns") + findings
    )


def _labels_only(table: TableData | None) -> Side | None:
    """The labels of a table without its features, if it has any."""
    if table is None or table.labels is None:
        return None
    return Side(str(table.path), torch.empty(len(table.x), 0), table.labels)


def _table_side(table: TableData, like: TableData) -> Side:
    """A checked table with its columns in the order of `like`."""
    ids = None if table.ids is None else torch.from_numpy(table.ids)
    places, fine = find_columns(table, like.columns, like.path), table.fine
    if fine is not None and places is not None:
        moved = torch.tensor([places.index(column) for column in fine.columns.tolist()])
        order = torch.argsort(moved)
        fine = Fine(moved[order], fine.values[:, order])
    x = torch.from_numpy(order_columns(table, like.columns, like.path))
    return Side(str(table.path), x, table.labels, ids, fine)


def _report_table(raw: TableData, checked: TableData | None, own: Sequence[str] = ()) -> list[Finding]:
    """The size of a table; where its features are numbers, its constant columns, repeated rows and small spreads.

    `own` are the names of its columns before they were encoded."""
    shape = " × ".join(str(length) for length in raw.x.shape[1:])
    made = f", made of {len(own)} columns" if own and {*own} != {*(raw.columns or ())} else ""
    notes = to_findings("note", f"{raw.path}: {_count_units(len(raw.x), 'row')} of {shape or 'no'} features{made}")
    if checked is None:
        return notes
    flat, fine = checked.x.reshape(len(checked.x), -1), checked.fine
    same = (flat == flat[0]).all(0)
    if fine is not None:
        values = fine.values.numpy()
        same[fine.columns.numpy()] = (values == values[0]).all(0)
    if made:  # marks of gaps, and values that the other side has
        same &= np.array([name in own for name in raw.columns or ()])
    texts, constant = [], np.flatnonzero(same)
    if len(constant) and len(flat) > 1:
        which = f"one value only: {_column_names(constant, raw.columns)}"
        texts.append(f"{raw.path}: {_count_units(len(constant), 'column', 'has', 'have')} {which}")
    if repeated := len(flat) - len(set(_hash_rows(flat, fine, all_columns([fine])))):
        texts.append(f"{raw.path}: {_count_units(repeated, 'row', 'repeats', 'repeat')} an earlier row")
    return notes + to_findings("warning", *texts) + to_findings("note", _describe_spreads(raw))


def _describe_spreads(table: TableData) -> str:
    """A sentence about columns of a raw table whose spread is small beside their size, or nothing."""
    flat = table.x.reshape(len(table.x), -1)
    centre, spread, exact = measure_columns(flat)
    constant = is_constant(centre, spread, np.where(exact, NOISE_NARROW, NOISE))
    numbers = np.flatnonzero(is_coarse(centre, spread) & ~constant)
    if not len(numbers):
        return ""
    names = [f"{_column_names([n], table.columns)} ({centre[n]:.3g} ± {spread[n]:.2g})" for n in numbers[:MOST_COLUMNS]]
    rest = f" and {len(numbers) - MOST_COLUMNS} more" if len(numbers) > MOST_COLUMNS else ""
    stored = "the file has float32 numbers, which may have lost it: write them as float64"
    kept = "it is kept in float64 until it is centred; with standardise=none subtract a number near the size first"
    what = stored if np.can_cast(flat.dtype, np.float32) else kept
    text = f"{_count_units(len(numbers), 'column', 'has', 'have')} a spread that is small beside the size"
    return f"{table.path}: {text}: {', '.join(names)}{rest}; {what}"


def _report_hidden(labelled: Side, hidden: Side) -> list[Finding]:
    """Labels on the unlabelled side, and classes that do not occur there."""
    known = sum(bool(name) for name in hidden.labels or [])
    if not known:
        return []
    notes = [f"{hidden.name}: {known} of {len(hidden.x)} rows have labels, used for evaluation only"]
    if absent := labelled.classes - hidden.classes:
        notes.append(f"{hidden.name}: classes without a row: {quote_names(absent)}")
    alike = describe_alike(f"{labelled.name} and {hidden.name}", labelled.classes, hidden.classes)
    return to_findings("note", *notes) + to_findings("warning", alike)


def _compare_sides(one: Side, two: Side, columns: Sequence[str] | None) -> list[Finding]:
    """Rows on both sides, and features whose size differs hugely."""
    texts = [_describe_shared_rows(one, two)]
    a, b = (side.x.numpy().reshape(len(side.x), -1).astype(np.float64) for side in (one, two))
    sizes = np.sqrt(np.mean(a**2, 0)), np.sqrt(np.mean(b**2, 0))
    low, high = np.minimum(*sizes), np.maximum(*sizes)
    apart = np.flatnonzero((low > 0) & (high > SCALES_APART * low))
    if len(apart):
        text = f"{_count_units(len(apart), 'column', 'differs', 'differ')} in size by more than {SCALES_APART:g} times"
        where = f"between {one.name} and {two.name}: {_column_names(apart, columns)}"
        texts.append(f"{text} {where}")
    return to_findings("warning", *texts)


def _describe_shared_rows(one: Side, two: Side) -> str:
    """A sentence about rows that are on both sides, or nothing; columns that are fine on both are compared so."""
    both = set(all_columns([one.fine])) & set(all_columns([two.fine]))
    known = set(_hash_rows(one.x.numpy(), one.fine, both))
    leaked = sum(digest in known for digest in _hash_rows(two.x.numpy(), two.fine, both))
    verb = "is" if leaked == 1 else "are"
    return f"{_count_units(leaked, 'row')} of {two.name} {verb} in {one.name} too" if leaked else ""


def _count_units(number: int, unit: str, one: str = "", more: str = "") -> str:
    """A number with its unit and verb: 1 row repeats, 2 rows repeat."""
    return f"{number} {unit} {one}".strip() if number == 1 else f"{number} {unit}s {more}".strip()


def _column_names(numbers: Iterable[int], columns: Sequence[str] | None) -> str:
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
