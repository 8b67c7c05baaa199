"""Tables as CSV and Parquet: cells, bytes, and back."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embasis.errors import ConfigError, CorruptError, quote, require
from embasis.storage.atomic import encode_text, read_bytes

if TYPE_CHECKING:
    import numpy as np

    Column = Sequence[Any] | np.ndarray[Any, Any]


FORMULA_SIGNS = "[-=+@\\t\\r\\n\uff1d\uff0b\uff0d\uff20]"
"""Of the beginning of a formula. Spreadsheets drop a tab or a line end before it, and some read the full-width signs
(U+FF1D, U+FF0B, U+FF0D, U+FF20) as the plain ones."""


def escape_formula(text: str) -> str:
    """An apostrophe before what a spreadsheet would run as a formula."""
    return "'" + text if re.match(f"'*{FORMULA_SIGNS}", text) else text


def unescape_formula(text: str) -> str:
    """The inverse of `escape_formula`."""
    return text[1:] if re.match(f"'+{FORMULA_SIGNS}", text) else text


def _format_csv_cell(value: object) -> str:
    """Nothing for None, true and false, the shortest digits that give a number back."""
    if isinstance(value, str):
        text = escape_formula(value)
        return '"' + text.replace('"', '""') + '"' if re.search('[,"\r\n]', text) else text
    text = "" if value is None else str(value)
    return text.lower() if text in ("True", "False") else text


def encode_table(columns: Mapping[str, Column], suffix: str) -> bytes:
    """A table as the bytes of a `.csv` or `.parquet` file; the same columns give the same bytes."""
    require(suffix in (".csv", ".parquet"), f"output must end in .csv or .parquet, got {quote(suffix)}", ConfigError)
    numeric = {
        name for name, column in columns.items() if getattr(getattr(column, "dtype", None), "kind", "O") in "biuf"
    }
    clean: dict[str, Any] = {
        name: column if name in numeric else [encode_text(v).decode() if isinstance(v, str) else v for v in column]
        for name, column in columns.items()
    }
    if suffix == ".csv":
        rows = zip(*(map(_format_csv_cell, column) for column in clean.values()), strict=True)
        return encode_text("".join(f"{','.join(row)}\n" for row in [map(_format_csv_cell, clean), *rows]))
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(clean), buffer := io.BytesIO(), compression="zstd")
    return buffer.getvalue()


def read_stored_table(path: Path | str) -> dict[str, list[Any]]:
    """The columns of a table. Parquet keeps the types; cells of a CSV file come back as text, None as ''."""
    return parse_stored_table(read_bytes(Path(path)), path)


def parse_stored_table(data: bytes, path: Path | str) -> dict[str, list[Any]]:
    """The same of bytes that were read from that path."""
    suffix = Path(path).suffix
    require(suffix in (".csv", ".parquet"), f"a table must end in .csv or .parquet, got {quote(suffix)}", ConfigError)
    try:
        if suffix == ".csv":
            *rows, rest = csv.reader(io.StringIO(data.decode() + "end", newline=""), strict=True)
            require(rows and rest == ["end"], f"{path} is not a table: the end is cut off", CorruptError)
            columns = zip(*(list(map(unescape_formula, row or [""])) for row in rows), strict=True)
            return {name: cells for name, *cells in columns}
        return _parse_parquet(data)
    except (ValueError, OSError, LookupError, TypeError, RuntimeError, csv.Error) as error:
        raise CorruptError(f"{path} is not a table: {error}") from error


def _parse_parquet(data: bytes) -> dict[str, list[Any]]:
    """The columns of a Parquet file, read by this thread alone.

    `pyarrow.parquet.read_table` reads in threads of arrow, which after a damaged file may abort the process as it
    ends."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(pyarrow.BufferReader(data), pre_buffer=False) as file:
        return dict(file.read(use_threads=False).to_pydict())
