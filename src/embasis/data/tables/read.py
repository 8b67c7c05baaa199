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
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embasis.data.class_labels import label_names, quote_names
from embasis.data.problem import check_numbers, to_float32
from embasis.data.standardise import find_fine_columns
from embasis.data.tables.formats import (
    LARGEST_TABLE,
    ArrayPack,
    list_values,
    open_pack,
    open_parquet,
    open_regular,
    read_array,
    read_csv_header,
    read_csv_rows,
)
from embasis.errors import InputDataError, ResourceError, quote, require, shorten
from embasis.types import Fine, PathLike

FEATURE_KEYS, LABEL_KEYS, ID_KEYS = ("x", "X", "features", "data"), ("y", "label", "labels"), ("id", "ids")


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
    try:
        require(stat.S_ISREG(mode := path.stat().st_mode), f"{path}: {_file_kind(mode)}; {EXPECTED_TABLE}")
        require(kind in TABLE_READERS, f"{path}: unknown kind of file {quote(kind)}; {EXPECTED_TABLE}")
        require(path.stat().st_size > 0, f"{path}: the file is empty")
        table = TABLE_READERS[kind](path, label, id, largest)
    except ResourceError:  # is an OSError, too, and no fault of the file
        raise
    except FileNotFoundError as error:
        raise InputDataError(f"{path}: no such file") from error
    except OSError as error:
        raise InputDataError(f"{path}: cannot be read: {error.strerror or error}") from error
    require(table.x.ndim > 0, f"{path}: 2 or more dimensions (rows, features) are needed, got shape ()")
    rows, ids = len(table.x), table.ids
    require(rows > 0, f"{path}: no rows")
    require(
        table.labels is None or len(table.labels) == rows, f"{path}: {rows} rows but {len(table.labels or [])} labels"
    )
    if ids is not None:
        require(len(ids) == rows, f"{path}: {rows} rows but {len(ids)} ids")
        values, counts = np.unique(ids, return_counts=True)
        require(
            len(values) == rows, f"{path}: ids must be unique, {values[counts.argmax()]} appears {counts.max()} times"
        )
    return table


def _file_kind(mode: int) -> str:
    return "is a folder" if stat.S_ISDIR(mode) else "is not a regular file"


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


def _read_csv(path: Path, label: str, id: str | None, largest: int) -> TableData:
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    size = path.stat().st_size
    require(size <= largest, f"{path}: has {size} bytes, at most {largest} are read")
    names = read_csv_header(path)
    features, has_label, id_column = _column_roles(path, names, label, id)
    types = {name: pa.float64() for name in features} | {label: pa.string()}
    if id_column is not None:
        types[id_column] = pa.int64()
    try:
        table = arrow_csv.read_csv(
            path,
            read_options=arrow_csv.ReadOptions(use_threads=False),
            parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(column_types=types),
        )
        require(
            table.column_names == names, f"{path}: header cannot be read; columns: {quote_names(table.column_names)}"
        )
    except (pa.ArrowException, UnicodeDecodeError) as error:
        _raise_bad_record(path, names, features, id_column, set(arrow_csv.ConvertOptions().null_values))
        raise InputDataError(f"{path}: not a readable .csv file: {shorten(str(error))}") from error
    return _from_arrow(path, table, features, label if has_label else None, id_column)


def _raise_bad_record(
    path: Path, names: list[str], features: list[str], id_column: str | None, empty: set[str]
) -> None:
    """Raise for the first record that does not fit, with its line."""
    rows = list(itertools.islice(read_csv_rows(path), 2))
    require(len(rows) == 2, f"{path}: no rows")
    for line, cells in itertools.islice(read_csv_rows(path), 1, None):
        require(len(cells) == len(names), f"{path}: line {line} has {len(cells)} fields, the header has {len(names)}")
        for name, cell in zip(names, cells, strict=True):
            kind = int if name == id_column else float if name in features else str
            try:
                kind(0 if cell in empty else cell)
            except ValueError as error:
                rule = "an integer" if kind is int else "a number"
                raise InputDataError(
                    f"{path}: line {line}, column {quote(name)}: {quote(cell)} is not {rule}"
                ) from error


def _read_parquet(path: Path, label: str, id: str | None, largest: int) -> TableData:
    with open_parquet(path, largest) as file:
        features, has_label, id_column = _column_roles(path, file.names, label, id)
        for name in features:
            require(name in file.numeric, f"{path}: column {quote(name)} must be numbers, got {file.types[name]}")
        if has_label:
            require(label in file.flat, f"{path}: labels must be text or integers, got {file.types[label]}")
        if id_column is not None:
            rule = f"{path}: ids must be one column of int64 values without gaps"
            require(id_column in file.whole, f"{rule}, got {file.types[id_column]}")
        return _from_arrow(path, file.read(), features, label if has_label else None, id_column)


def require_different(names: Sequence[str], path: Path) -> None:
    """No two columns have one name."""
    twice = {name for name, count in Counter(names).items() if count > 1}
    require(not twice, f"{path}: columns must have different names, twice or more: {quote_names(twice)}")


def _column_roles(path: Path, names: list[str], label: str, id: str | None) -> tuple[list[str], bool, str | None]:
    """The feature columns, whether there is a label column, and the id column."""
    require_different(names, path)
    nameless = next((name for name in names if not name.strip() or name.startswith("__index_level_")), None)
    require(nameless is None, f"{path}: column {quote(nameless)} looks like a row index; write the table without it")
    require(id is None or id in names, f"{path}: no id column {quote(id)}; columns: {quote_names(names)}")
    id = "id" if id is None and "id" in names else id
    features = [name for name in names if name not in (label, id)]
    require(features, f"{path}: no feature columns; columns: {quote_names(names)}")
    return features, label in names, id


def _from_arrow(path: Path, table: Any, features: list[str], label: str | None, id: str | None) -> TableData:
    x = np.empty((table.num_rows, len(features)), dtype=np.float64)
    for number, name in enumerate(features):
        x[:, number] = table.column(name).to_numpy()
    labels = None if label is None else label_names(list_values(table.column(label)), str(path))
    ids = None if id is None else _id_numbers(table.column(id).to_numpy(), path)
    return TableData(path, x, tuple(features), labels, ids)


def _id_numbers(values: NDArray[Any], path: Path) -> NDArray[np.int64]:
    whole = values.ndim == 1 and values.dtype.kind in "iu" and (not len(values) or values.max() < 2**63)
    require(whole, f"{path}: ids must be one column of int64 values without gaps, got {values.dtype}")
    return values.astype(np.int64)


TABLE_READERS: dict[str, Callable[[Path, str, str | None, int], TableData]] = {
    ".csv": _read_csv,
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".parquet": _read_parquet,
}
EXPECTED_TABLE = "a table is expected: .csv, .npy, .npz or .parquet"
