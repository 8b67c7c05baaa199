"""Tables from files: .npz, .npy, .csv, .parquet. No pickle is ever read; sizes are checked before memory is taken.

| column | meaning |
| --- | --- |
| x (N, …) | the features: every column that is neither label nor id, or the array x, X, features or data |
| labels (N) | classes by name, "" = unknown; the column `label`, or the array y, label or labels |
| ids (N) | int64, unique; the column or array `id` if there is one |
"""

from __future__ import annotations

import itertools
import os
import stat
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embasis.data.class_labels import decode_text, label_names, quote_names
from embasis.data.column_kinds import ColumnKinds
from embasis.data.csv_dialect import COMMA, Cells, find_decimal_sign
from embasis.data.encoding import RawTable, describe_odd_cell, encode_columns
from embasis.data.formats import (
    LARGEST_TABLE,
    ArrayPack,
    csv_separator,
    list_values,
    open_pack,
    open_parquet,
    open_regular,
    read_array,
    read_csv_header,
    read_csv_rows,
    refuse_unreadable,
)
from embasis.data.problem import check_numbers, to_float32
from embasis.data.raw_columns import GAPS, RawColumn, read_values
from embasis.data.standardise import find_fine_columns
from embasis.errors import InputDataError, quote, require, shorten
from embasis.types import Fine, PathLike, TableEncoding

FEATURE_KEYS, LABEL_KEYS, ID_KEYS = ("x", "X", "features", "data"), ("y", "label", "labels"), ("id", "ids")
EXPECTED_TABLE = "a table is expected: .csv, .npy, .npz or .parquet"


@dataclass(frozen=True, eq=False)
class TableData:
    """What one file holds: x (N, …), the names of its columns if it has names, labels and ids if there are any."""

    path: Path
    x: NDArray[Any]
    columns: tuple[str, ...] | None = None
    labels: list[str] | None = None
    ids: NDArray[np.int64] | None = None
    fine: Fine | None = None
    """Columns of x that float32 may lose, where x is float32."""
    cells: dict[str, RawColumn] | None = None
    """The columns as they are, where some are no numbers or have gaps; x is then of NaN, until it is encoded."""
    dropped: tuple[str, ...] = ()
    """The columns of the file that were not read."""


def read_table(
    path: PathLike, label: str = "label", id: str | None = None, *, largest: int = LARGEST_TABLE
) -> TableData:
    """A table with finite float32 features; an InputDataError says what is wrong with the file, and where in it."""
    return narrow_table(read_raw(path, label, id, largest=largest))


def widen_table(table: TableData) -> TableData:
    """A raw table with finite features in float64, none too large for float32."""
    rows = check_numbers(only_numbers(table), str(table.path), table.columns)
    return replace(table, x=np.require(rows, np.float64, ["C", "W"]))


def narrow_table(table: TableData, always: Collection[int] = ()) -> TableData:
    """A raw table with finite float32 features, and its fine columns, of which `always` are if float32 changes them."""
    rows = check_numbers(only_numbers(table), str(table.path), table.columns)
    return replace(table, x=to_float32(rows).numpy(), fine=find_fine_columns(rows, always))


def only_numbers(table: TableData) -> NDArray[Any]:
    """The features of a table whose columns are all numbers, NaN for gaps; an InputDataError names one that is not."""
    if table.cells is None:
        return table.x
    raw = describe_table(table)
    for name, column in table.cells.items():
        if not column.has("number"):
            kind = "a date" if column.texts is None else ""
            require(not kind, f"{table.path}: column {quote(name)} must be numbers, got {kind}")
            raise InputDataError(describe_odd_cell(raw, name, "number"))
    return np.stack([column.read("number") for column in table.cells.values()], 1)


def describe_table(table: TableData) -> RawTable:
    """The columns of a table with names as they are, and where its rows are in the file."""
    assert table.columns is not None
    cells = table.cells or {
        name: RawColumn(numbers=table.x[:, place].astype(np.float64)) for place, name in enumerate(table.columns)
    }
    is_csv = table.path.suffix.lower() == ".csv"
    return RawTable(str(table.path), cells, partial(find_line, table.path) if is_csv else "row {}".format)


def find_line(path: Path, row: int) -> str:
    """The line of a row in a .csv file."""
    line, _ = next(itertools.islice(_iter_body(path), row, None))
    return f"line {line}"


def read_raw(
    path: PathLike,
    label: str = "label",
    id: str | None = None,
    *,
    dropped: Collection[str] = (),
    largest: int = LARGEST_TABLE,
) -> TableData:
    """A table whose features are as the file has them: maybe with gaps or texts, maybe too large for float32."""
    path = Path(path)
    kind = path.suffix.lower()
    readers = {".csv": _read_csv, ".npy": _read_npy, ".npz": _read_npz, ".parquet": _read_parquet}
    with refuse_unreadable(path):
        mode = path.stat().st_mode
        other = "is a folder" if stat.S_ISDIR(mode) else "is not a regular file"
        require(stat.S_ISREG(mode), f"{path}: {other}; {EXPECTED_TABLE}")
        require(kind in readers, f"{path}: unknown kind of file {quote(kind)}; {EXPECTED_TABLE}")
        require(path.stat().st_size > 0, f"{path}: the file is empty")
        table = readers[kind](path, WantedColumns(label, id, tuple(dropped)), largest)
    require(table.x.ndim > 0, f"{path}: 2 or more dimensions (rows, features) are needed, got shape ()")
    rows = len(table.x)
    require(rows > 0, f"{path}: no rows")
    for name, column in (("labels", table.labels), ("ids", table.ids)):
        if column is not None:
            require(len(column) == rows, f"{path}: {rows} rows but {len(column)} {name}")
    require_unique(table)
    return table


def require_unique(table: TableData) -> None:
    """No two rows have one id."""
    if table.ids is not None and len(table.ids):
        values, counts = np.unique(table.ids, return_counts=True)
        twice = f"{values[counts.argmax()]} appears {counts.max()} times"
        require(len(values) == len(table.ids), f"{table.path}: ids must be unique, {twice}")


class WantedColumns(NamedTuple):
    """The columns that a user names: of labels, of ids, and those that are not read."""

    label: str
    id: str | None
    dropped: tuple[str, ...]


def _read_npy(path: Path, wanted: WantedColumns, largest: int) -> TableData:
    with open_regular(path) as stream:
        return TableData(path, read_array(stream, os.fstat(stream.fileno()).st_size, str(path), largest))


def _read_npz(path: Path, wanted: WantedColumns, largest: int) -> TableData:
    label, id, _ = wanted
    with open_pack(path, largest) as pack:
        x = _read_one_of(pack, FEATURE_KEYS, "features", needed=True)
        y = _read_one_of(pack, tuple(dict.fromkeys((label, *LABEL_KEYS))), "labels", needed=False)
        ids = _read_one_of(pack, ID_KEYS if id is None else (id,), "ids", needed=id is not None)
    assert x is not None
    labels = None if y is None else label_names(y, str(path))
    return TableData(path, x, None, labels, None if ids is None else _id_numbers(ids, path))


def _read_one_of(pack: ArrayPack, keys: Sequence[str], what: str, needed: bool) -> NDArray[Any] | None:
    """The array that has one of these names; None if there is none and none is needed."""
    names = sorted(set(keys) & set(pack.names))
    has = f"it has: {quote_names(pack.names)}"
    require(names or not needed, f"{pack.path}: no array of {what} ({' or '.join(keys)}); {has}")
    require(len(names) < 2, f"{pack.path}: {len(names)} arrays of {what}, one is needed: {quote_names(names)}")
    return pack.read(names[0]) if names else None


class ColumnRoles(NamedTuple):
    """Which columns are features, which one holds labels and which one ids, if there are such."""

    features: list[str]
    label: str | None
    id: str | None
    dropped: tuple[str, ...]

    @property
    def used(self) -> list[str]:
        """The columns that are read."""
        return [*self.features, *(name for name in (self.label, self.id) if name is not None)]


def find_roles(path: Path, names: list[str], wanted: WantedColumns) -> ColumnRoles:
    """What each of these columns is for."""
    require_different(names, path)
    label, id = wanted.label, wanted.id
    dropped = tuple(name for name in names if name in wanted.dropped)
    names = [name for name in names if name not in dropped]
    nameless = next((name for name in names if not name.strip() or name.startswith("__index_level_")), None)
    cure = "write the table without it"
    require(nameless is None, f"{path}: column {quote(nameless)} looks like a row index; {cure}")
    require(id is None or id in names, f"{path}: no id column {quote(id)}; columns: {quote_names(names)}")
    id = "id" if id is None and "id" in names else id
    features = [name for name in names if name not in (label, id)]
    require(features, f"{path}: no feature columns; columns: {quote_names(names)}")
    return ColumnRoles(features, label if label in names else None, id, dropped)


def require_different(names: Sequence[str], path: Path) -> None:
    """No two columns have one name."""
    twice = {name for name, count in Counter(names).items() if count > 1}
    require(not twice, f"{path}: columns must have different names, twice or more: {quote_names(twice)}")


def _read_csv(path: Path, wanted: WantedColumns, largest: int) -> TableData:
    size = path.stat().st_size
    require(size <= largest, f"{path}: has {size} bytes, at most {largest} are read")
    names, separator = read_csv_header(path), csv_separator(path)
    roles = find_roles(path, names, wanted)
    order = {name: place for place, name in enumerate(names)}
    places = [order[name] for name in roles.features]
    decimal = "." if separator == COMMA else find_decimal_sign(_iter_body(path), places, str(path))
    table, error = _convert_csv(path, names, roles, (separator, decimal), as_texts=False)
    if table is not None:
        return _from_arrow(path, table, roles)
    table, error = _convert_csv(path, names, roles, (separator, decimal), as_texts=True)
    if table is None:
        _raise_bad_record(path, names, roles)
        raise InputDataError(f"{path}: not a readable .csv file: {shorten(str(error))}") from error
    sign = "" if separator == COMMA else decimal
    cells = {name: RawColumn.of_texts(table.column(name).to_pylist(), sign) for name in roles.features}
    return _from_cells(path, table, roles, cells)


def _convert_csv(
    path: Path, names: list[str], roles: ColumnRoles, signs: tuple[str, str], as_texts: bool
) -> tuple[Any, Exception | None]:
    """The columns that have a role, features as numbers or as texts; None and the reason where that is not possible."""
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    separator, decimal = signs
    types = {name: pa.string() if as_texts else pa.float64() for name in roles.features}
    types |= {} if roles.label is None else {roles.label: pa.string()}
    types |= {} if roles.id is None else {roles.id: pa.int64()}
    options = arrow_csv.ConvertOptions(
        column_types={**dict.fromkeys(names, pa.string()), **types}, decimal_point=decimal
    )
    try:
        table = arrow_csv.read_csv(
            path,
            read_options=arrow_csv.ReadOptions(use_threads=False),
            parse_options=arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True),
            convert_options=options,
        )
    except (pa.ArrowException, UnicodeDecodeError) as error:
        return None, error
    require(table.column_names == names, f"{path}: header cannot be read; columns: {quote_names(table.column_names)}")
    return table, None


def _iter_body(path: Path) -> Iterator[Cells]:
    """The rows below the header."""
    return itertools.islice(read_csv_rows(path), 1, None)


def _raise_bad_record(path: Path, names: list[str], roles: ColumnRoles) -> None:
    """Raise for the first record that does not fit, with its line."""
    require(len([*itertools.islice(read_csv_rows(path), 2)]) == 2, f"{path}: no rows")
    for line, cells in _iter_body(path):
        require(len(cells) == len(names), f"{path}: line {line} has {len(cells)} fields, the header has {len(names)}")
        cell = "" if roles.id is None else cells[names.index(roles.id)]
        try:
            int(0 if cell in GAPS else cell)
        except ValueError as error:
            rule = f"{path}: line {line}, column {quote(roles.id)}: {quote(cell)} is not an integer"
            raise InputDataError(rule) from error


def _read_parquet(path: Path, wanted: WantedColumns, largest: int) -> TableData:
    with open_parquet(path, largest) as file:
        roles = find_typed_roles(path, file, wanted)
        return convert_arrow(path, file, file.read(roles.used if wanted.dropped else None), roles)


def find_typed_roles(path: Path, file: ColumnKinds, wanted: WantedColumns) -> ColumnRoles:
    """What each column is for, all of types that can be read."""
    roles = find_roles(path, file.names, wanted)
    for name in roles.features:
        kinds = "numbers, text, true and false, or dates"
        known = name in file.numeric | file.texts | file.dates
        require(known, f"{path}: column {quote(name)} must be {kinds}, got {file.types[name]}")
    if roles.label is not None:
        require(roles.label in file.flat, f"{path}: labels must be text or integers, got {file.types[roles.label]}")
    if roles.id is not None:
        rule = f"{path}: ids must be one column of int64 values without gaps"
        require(roles.id in file.whole, f"{rule}, got {file.types[roles.id]}")
    return roles


def convert_arrow(path: Path, file: ColumnKinds, rows: Any, roles: ColumnRoles) -> TableData:
    """Some rows that Arrow has read as a table."""
    if file.numeric.issuperset(roles.features):
        return _from_arrow(path, rows, roles)
    cells = {name: _read_arrow_cells(file, rows.column(name), name, path) for name in roles.features}
    return _from_cells(path, rows, roles, cells)


def _read_arrow_cells(file: ColumnKinds, column: Any, name: str, path: Path) -> RawColumn:
    """One column as it is."""
    import pyarrow as pa

    if name in file.numeric:
        return RawColumn(numbers=column.to_numpy().astype(np.float64))
    if name in file.dates:
        return read_values(column.cast(pa.timestamp("us", getattr(column.type, "tz", None)), safe=False).to_numpy())
    cells = list_values(column, path)
    return RawColumn.of_texts([
        decode_text(cell, f"{path}: column {quote(name)}", row) if isinstance(cell, bytes) else cell
        for row, cell in enumerate(cells)
    ])  # fmt: skip


def _from_arrow(path: Path, table: Any, roles: ColumnRoles) -> TableData:
    x = np.empty((table.num_rows, len(roles.features)), dtype=np.float64)
    for number, name in enumerate(roles.features):
        x[:, number] = table.column(name).to_numpy()
    cells = None
    if np.isnan(x).any():
        cells = {name: RawColumn(numbers=x[:, place]) for place, name in enumerate(roles.features)}
    return replace(_from_cells(path, table, roles, cells), x=x)


def _from_cells(path: Path, table: Any, roles: ColumnRoles, cells: dict[str, RawColumn] | None) -> TableData:
    """A table whose numbers are still to be made of its cells."""
    x = np.broadcast_to(np.array(np.nan), (table.num_rows, len(roles.features)))
    labels = None if roles.label is None else label_names(list_values(table.column(roles.label), path), str(path))
    ids = None if roles.id is None else _id_numbers(table.column(roles.id).to_numpy(), path)
    return TableData(path, x, tuple(roles.features), labels, ids, cells=cells, dropped=roles.dropped)


def _id_numbers(values: NDArray[Any], path: Path) -> NDArray[np.int64]:
    whole = values.ndim == 1 and values.dtype.kind in "iu" and (not len(values) or values.max() < 2**63)
    require(whole, f"{path}: ids must be one column of int64 values without gaps, got {values.dtype}")
    return values.astype(np.int64)


def require_label_column(table: TableData, label: str) -> None:
    """A table with labels; else where they should be."""
    if table.path.suffix.lower() == ".npy":
        hint = "a .npy file holds no labels; put x and y into one .npz file"
    elif table.columns is None:
        hint = "no labels; store them as array y, label or labels"
    else:
        hint = f"no label column {quote(label)}; columns: {quote_names(table.columns)}; --label names another"
    require(table.labels is not None, f"{table.path}: {hint}")


def encode_table(
    table: TableData, encoding: TableEncoding, side: int, reference: PathLike
) -> tuple[TableData, tuple[str, ...]]:
    """A raw table with the model's features in place of its own columns, in the order of `encoding`, and what is to be
    said of it; a table without names, and one that needs no encoding, stays as it is."""
    if table.columns is None:
        rule = f"{table.path}: has no names of columns, and columns of {reference} are encoded by their names"
        require(encoding.is_plain, f"{rule}; give a .csv or .parquet file")
        return table, ()
    find_columns(table, encoding.column_names, reference)
    if encoding.is_plain and table.cells is None:
        return table, ()
    made = encode_columns(describe_table(table), encoding, side)
    return replace(table, x=made.x, columns=encoding.names, cells=None), made.notes


def order_columns(table: TableData, columns: Sequence[str] | None, reference: PathLike) -> NDArray[Any]:
    """The features of a table in the order of `columns`, which are those of `reference`."""
    places = find_columns(table, columns, reference)
    ordered: NDArray[Any] = table.x if places is None else table.x[:, places]
    return ordered


def find_columns(table: TableData, columns: Sequence[str] | None, reference: PathLike) -> list[int] | None:
    """Where the table has each of `columns`; None where it has them in this order."""
    if table.columns is None or columns is None or table.columns == tuple(columns):
        return None
    here, there = set(table.columns), set(columns)
    missing = f"; only in {reference}: {quote_names(there - here)}" if there - here else ""
    extra = f"; only in {table.path}: {quote_names(here - there)}" if here - there else ""
    require(here == there, f"feature columns differ{missing}{extra}")
    position = {name: number for number, name in enumerate(table.columns)}
    return [position[name] for name in columns]
