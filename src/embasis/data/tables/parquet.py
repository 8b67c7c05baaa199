"""Parquet files, refused before they take memory: a few of their bytes can stand for gigabytes.

| danger | what happens |
| --- | --- |
| more rows or bytes than are read | refused by what the footer says |
| one long text in a million rows | each different text is in memory once |
| lists and structs, which may hold any number of values a row | refused where they are needed, else not read |
| names and texts that are not UTF-8 | refused |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from embasis.data.problem import WRITE_UTF8
from embasis.errors import InputDataError, quoted, require, shortened
from embasis.resources import require_memory

LARGEST_TABLE = 4 * 2**30
"""Bytes that a packed table may take in memory."""


@contextmanager
def open_parquet(path: Path, largest: int = LARGEST_TABLE) -> Iterator[Any]:
    """The file, whose size is known to be fitting; texts are read as dictionaries.

    Neither `pre_buffer` nor `use_threads`: after a damaged file, threads of arrow may abort the process as it ends."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            texts = [field.name for field in file.schema_arrow if _is_text(field.type)]
            size = _unpacked_size(file.metadata, len(file.schema_arrow.names))
        require(size <= largest, f"{path}: takes {size} bytes unpacked, at most {largest} are read")
        require_memory(size, str(path), "take fewer rows or columns")
        with pq.ParquetFile(path, read_dictionary=texts, pre_buffer=False) as file:
            yield file
    except UnicodeDecodeError as error:
        raise InputDataError(f"{path}: a name in it is not UTF-8 text: {error}; {WRITE_UTF8}") from error
    except pa.ArrowException as error:
        raise InputDataError(f"{path}: not a readable .parquet file: {shortened(str(error))}") from error


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind))


def _unpacked_size(footer: Any, columns: int) -> int:
    """Bytes of all values, by what the footer says of rows and of packed bytes."""
    packed: list[int] = [footer.row_group(group).total_byte_size for group in range(footer.num_row_groups)]
    return max(int(footer.num_rows) * columns * 8, sum(packed))


def read_column_names(path: Path) -> list[str]:
    """The names of its columns."""
    with open_parquet(path) as file:
        return list(file.schema_arrow.names)


def column_types(file: Any) -> dict[str, Any]:
    """The type of each column, as it is stored."""
    from pyarrow import types

    coded = ((field.name, field.type) for field in file.schema_arrow)
    return {name: kind.value_type if types.is_dictionary(kind) else kind for name, kind in coded}


def is_flat(kind: Any) -> bool:
    """Whether a column of this type has one value a row."""
    from pyarrow import types

    return not types.is_nested(kind)


def list_values(column: Any) -> list[Any]:
    """The values of a column; rows of one text share it."""
    found: list[Any] = []
    for chunk in column.chunks:
        if hasattr(chunk, "dictionary"):
            known = _list_texts(chunk.dictionary)
            found += [None if place is None else known[place] for place in chunk.indices.to_pylist()]
        else:
            found += _list_texts(chunk)
    return found


def _list_texts(values: Any) -> list[Any]:
    """The values; those of a text column as bytes if one of them is not UTF-8, so that its row can be named."""
    try:
        return list(values.to_pylist())
    except UnicodeDecodeError:
        return list(values.cast("large_binary").to_pylist())


def read_columns(path: Path, names: Sequence[str] | None = None) -> dict[str, list[Any]]:
    """The values of these columns, or of all that have one value a row."""
    with open_parquet(path) as file:
        kinds = column_types(file)
        wanted = [name for name, kind in kinds.items() if is_flat(kind)] if names is None else list(names)
        for name in wanted:
            require(is_flat(kinds[name]), f"{path}: column {quoted(name)} must have one value a row, got {kinds[name]}")
        table = file.read(columns=wanted, use_threads=False)
        return {name: list_values(table.column(name)) for name in wanted}
