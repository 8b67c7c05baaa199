"""Tables as CSV and Parquet: cells, bytes, and back."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embasis.errors import ConfigError, CorruptError, require
from embasis.storage.files import read_bytes, utf8

if TYPE_CHECKING:
    import numpy as np

    Column = Sequence[Any] | np.ndarray[Any, Any]


def neutral_cell(text: str) -> str:
    """An apostrophe before what a spreadsheet would run as a formula."""
    return "'" + text if re.match(r"'*[=+\-@\t\r]", text) else text


def restore_cell(text: str) -> str:
    """The inverse of `neutral_cell`."""
    return text[1:] if re.match(r"'+[=+\-@\t\r]", text) else text


def _cell(value: object) -> str:
    """Nothing for None, true and false, the shortest digits that give a number back."""
    if isinstance(value, str):
        text = neutral_cell(value)
        return '"' + text.replace('"', '""') + '"' if re.search('[,"\r\n]', text) else text
    text = "" if value is None else str(value)
    return text.lower() if text in ("True", "False") else text


def table_bytes(columns: Mapping[str, Column], suffix: str) -> bytes:
    """A table as the bytes of a `.csv` or `.parquet` file; the same columns give the same bytes."""
    require(suffix in (".csv", ".parquet"), f"output must end in .csv or .parquet, got {suffix!r}", ConfigError)
    numeric = {
        name for name, column in columns.items() if getattr(getattr(column, "dtype", None), "kind", "O") in "biuf"
    }
    clean: dict[str, Any] = {
        name: column if name in numeric else [utf8(v).decode() if isinstance(v, str) else v for v in column]
        for name, column in columns.items()
    }
    if suffix == ".csv":
        rows = zip(*(map(_cell, column) for column in clean.values()), strict=True)
        return utf8("".join(f"{','.join(row)}\n" for row in [map(_cell, clean), *rows]))
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(clean), buffer := io.BytesIO(), compression="zstd")
    return buffer.getvalue()


def read_table(path: Path | str) -> dict[str, list[Any]]:
    """The columns of a table. Parquet keeps the types; cells of a CSV file come back as text, None as ''."""
    suffix, data = Path(path).suffix, read_bytes(Path(path))
    require(suffix in (".csv", ".parquet"), f"a table must end in .csv or .parquet, got {suffix!r}", ConfigError)
    try:
        if suffix == ".csv":
            *rows, rest = csv.reader(io.StringIO(data.decode() + "end", newline=""), strict=True)
            require(rows and rest == ["end"], f"{path} is not a table: the end is cut off", CorruptError)
            columns = zip(*(list(map(restore_cell, row or [""])) for row in rows), strict=True)
            return {name: cells for name, *cells in columns}
        import pyarrow.parquet as pq

        return dict(pq.read_table(io.BytesIO(data)).to_pydict())
    except (ValueError, OSError, LookupError, TypeError, RuntimeError, csv.Error) as error:
        raise CorruptError(f"{path} is not a table: {error}") from error
