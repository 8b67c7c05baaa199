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
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embasis.data.class_labels import label_names, quote_names
from embasis.data.csv_dialect import COMMA, Row, find_decimal_sign
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
from embasis.data.standardise import find_fine_columns
from embasis.errors import InputDataError, quote, require, shorten
from embasis.types import Fine, PathLike

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


def read_table(
    path: PathLike, label: str = "label", id: str | None = None, *, largest: int = LARGEST_TABLE
) -> TableData:
    """A table with finite float32 features; an InputDataError says what is wrong with the file, and where in it."""
    return narrow_table(read_raw(path, label, id, largest=largest))


def read_exact(path: PathLike, label: str = "label", id: str | None = None) -> TableData:
    """A table with finite features in float64, none too large for float32."""
    table = read_raw(path, label, id)
    rows = check_numbers(table.x, str(table.path), table.columns)
    return replace(table, x=np.require(rows, np.float64, ["C", "W"]))


def narrow_table(table: TableData, always: Collection[int] = ()) -> TableData:
    """A raw table with finite float32 features, and its fine columns, of which `always` are if float32 changes them."""
    rows = check_numbers(table.x, str(table.path), table.columns)
    return replace(table, x=to_float32(rows).numpy(), fine=find_fine_columns(rows, always))


def read_raw(path: PathLike, label: str = "label", id: str | None = None, *, largest: int = LARGEST_TABLE) -> TableData:
    """A table whose features are as the file has them: maybe NaN, maybe too large for float32."""
    path = Path(path)
    kind = path.suffix.lower()
    readers = {".csv": _read_csv, ".npy": _read_npy, ".npz": _read_npz, ".parquet": _read_parquet}
    with refuse_unreadable(path):
        mode = path.stat().st_mode
        other = "is a folder" if stat.S_ISDIR(mode) else "is not a regular file"
        require(stat.S_ISREG(mode), f"{path}: {other}; {EXPECTED_TABLE}")
        require(kind in readers, f"{path}: unknown kind of file {quote(kind)}; {EXPECTED_TABLE}")
        require(path.stat().st_size > 0, f"{path}: the file is empty")
        table = readers[kind](path, label, id, largest)
    require(table.x.ndim > 0, f"{path}: 2 or more dimensions (rows, features) are needed, got shape ()")
    rows = len(table.x)
    require(rows > 0, f"{path}: no rows")
    for name, column in (("labels", table.labels), ("ids", table.ids)):
        if column is not None:
            require(len(column) == rows, f"{path}: {rows} rows but {len(column)} {name}")
    if table.ids is not None:
        values, counts = np.unique(table.ids, return_counts=True)
        twice = f"{values[counts.argmax()]} appears {counts.max()} times"
        require(len(values) == rows, f"{path}: ids must be unique, {twice}")
    return table


def _read_npy(path: Path, label: str, id: str | None, largest: int) -> TableData:
    with open_regular(path) as stream:
        return TableData(path, read_array(stream, os.fstat(stream.fileno()).st_size, str(path), largest))


def _read_npz(path: Path, label: str, id: str | None, largest: int) -> TableData:
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


class _Roles(NamedTuple):
    """Which columns are features, which one holds labels and which one ids, if there are such."""

    features: list[str]
    label: str | None
    id: str | None


def _column_roles(path: Path, names: list[str], label: str, id: str | None) -> _Roles:
    require_different(names, path)
    nameless = next((name for name in names if not name.strip() or name.startswith("__index_level_")), None)
    require(nameless is None, f"{path}: column {quote(nameless)} looks like a row index; write the table without it")
    require(id is None or id in names, f"{path}: no id column {quote(id)}; columns: {quote_names(names)}")
    id = "id" if id is None and "id" in names else id
    features = [name for name in names if name not in (label, id)]
    require(features, f"{path}: no feature columns; columns: {quote_names(names)}")
    return _Roles(features, label if label in names else None, id)


def require_different(names: Sequence[str], path: Path) -> None:
    """No two columns have one name."""
    twice = {name for name, count in Counter(names).items() if count > 1}
    require(not twice, f"{path}: columns must have different names, twice or more: {quote_names(twice)}")


def _read_csv(path: Path, label: str, id: str | None, largest: int) -> TableData:
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    size = path.stat().st_size
    require(size <= largest, f"{path}: has {size} bytes, at most {largest} are read")
    names, separator = read_csv_header(path), csv_separator(path)
    roles = _column_roles(path, names, label, id)
    places = [names.index(name) for name in roles.features]
    decimal = "." if separator == COMMA else find_decimal_sign(_iter_body(path), places, str(path))
    types = {name: pa.float64() for name in roles.features} | {label: pa.string()}
    if roles.id is not None:
        types[roles.id] = pa.int64()
    options = arrow_csv.ConvertOptions(column_types=types, decimal_point=decimal)
    try:
        table = arrow_csv.read_csv(
            path,
            read_options=arrow_csv.ReadOptions(use_threads=False),
            parse_options=arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True),
            convert_options=options,
        )
        require(
            table.column_names == names, f"{path}: header cannot be read; columns: {quote_names(table.column_names)}"
        )
    except (pa.ArrowException, UnicodeDecodeError) as error:
        _raise_bad_record(path, names, roles, set(options.null_values), decimal if separator != COMMA else "")
        raise InputDataError(f"{path}: not a readable .csv file: {shorten(str(error))}") from error
    return _from_arrow(path, table, roles)


def _iter_body(path: Path) -> Iterator[Row]:
    """The rows below the header."""
    return itertools.islice(read_csv_rows(path), 1, None)


def _raise_bad_record(path: Path, names: list[str], roles: _Roles, empty: set[str], decimal: str) -> None:
    """Raise for the first record that does not fit, with its line; `decimal`: the sign in numbers, if it is said."""
    require(len([*itertools.islice(read_csv_rows(path), 2)]) == 2, f"{path}: no rows")
    signs = {"": "", ".": " with a decimal point", COMMA: " with a decimal comma"}
    for line, cells in _iter_body(path):
        require(len(cells) == len(names), f"{path}: line {line} has {len(cells)} fields, the header has {len(names)}")
        for name, cell in zip(names, cells, strict=True):
            kind = int if name == roles.id else float if name in roles.features else str
            try:
                swapped = kind is float and decimal == COMMA
                kind(0 if cell in empty else cell.translate({ord("."): COMMA, ord(COMMA): "."}) if swapped else cell)
            except ValueError as error:
                what = f"{quote(cell)} is not {'an integer' if kind is int else 'a number' + signs[decimal]}"
                raise InputDataError(f"{path}: line {line}, column {quote(name)}: {what}") from error


def _read_parquet(path: Path, label: str, id: str | None, largest: int) -> TableData:
    with open_parquet(path, largest) as file:
        roles = _column_roles(path, file.names, label, id)
        for name in roles.features:
            require(name in file.numeric, f"{path}: column {quote(name)} must be numbers, got {file.types[name]}")
        if roles.label is not None:
            require(label in file.flat, f"{path}: labels must be text or integers, got {file.types[label]}")
        if roles.id is not None:
            rule = f"{path}: ids must be one column of int64 values without gaps"
            require(roles.id in file.whole, f"{rule}, got {file.types[roles.id]}")
        return _from_arrow(path, file.read(), roles)


def _from_arrow(path: Path, table: Any, roles: _Roles) -> TableData:
    x = np.empty((table.num_rows, len(roles.features)), dtype=np.float64)
    for number, name in enumerate(roles.features):
        x[:, number] = table.column(name).to_numpy()
    labels = None if roles.label is None else label_names(list_values(table.column(roles.label), path), str(path))
    ids = None if roles.id is None else _id_numbers(table.column(roles.id).to_numpy(), path)
    return TableData(path, x, tuple(roles.features), labels, ids)


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
        hint = f"no label column {quote(label)}; columns: {quote_names(table.columns)}"
    require(table.labels is not None, f"{table.path}: {hint}")


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
