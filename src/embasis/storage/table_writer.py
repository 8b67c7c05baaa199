"""A table that is written group by group: as large as the disk allows, in memory never more than a group of rows.

Until all rows are written the file has no name (O_TMPFILE), so whatever ends the process, nothing is left behind; where
a file system knows no such files, it has a temporary name beside its place. Then it is synced and takes its name, as
every other file does. Groups are cut by the number of a row alone: the same rows give the same bytes, in whatever
pieces they come.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from embasis.errors import ConfigError, quote, require
from embasis.storage import atomic

GROUP_ROWS = 2**16
"""Rows that are encoded together."""
NAMELESS = getattr(os, "O_TMPFILE", 0)
"""The flag of files without a name; 0 where the system has none."""


class TableWriter:
    """A `.csv` or `.parquet` file outside the run folders; inside `with` rows are added, and at its end it is there.

    `types` are the columns with their types, as Arrow calls them: `int64`, `string`, `double`, `bool`."""

    def __init__(self, path: Path | str, types: Mapping[str, str]) -> None:
        self.path, self.types = Path(path), dict(types)
        suffix = self.path.suffix
        rule = f"output must end in .csv or .parquet, got {quote(suffix)}"
        require(suffix in (".csv", ".parquet"), rule, ConfigError)
        self._waiting: dict[str, list[Any]] = {name: [] for name in types}
        self._handle, self._temp = -1, Path()
        self._parquet: Any = None

    def __enter__(self) -> TableWriter:
        atomic.require_output_place(self.path)
        with atomic.explain_write_errors(self.path):
            self._open()
        try:
            self._begin()
        except BaseException:
            self._discard()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._discard()

    def add(self, columns: Mapping[str, list[Any]]) -> None:
        """More rows; whole groups are written at once."""
        for name, waiting in self._waiting.items():
            waiting += columns[name]
        while len(next(iter(self._waiting.values()))) >= GROUP_ROWS:
            group = {name: waiting[:GROUP_ROWS] for name, waiting in self._waiting.items()}
            self._waiting = {name: waiting[GROUP_ROWS:] for name, waiting in self._waiting.items()}
            self._write(group)

    def _open(self) -> None:
        """A file without a name in the folder; else one with a temporary name."""
        folder = self.path.parent
        if can_name_later(folder):
            self._handle = atomic.disk.open(folder, os.O_WRONLY | NAMELESS | os.O_CLOEXEC, 0o666)
            return
        self._temp = atomic.temp_path(folder)
        self._handle = atomic.disk.open(self._temp, atomic.CREATE_FLAGS, 0o666)

    def _begin(self) -> None:
        if self.path.suffix == ".csv":
            self.write(atomic.encode_csv_rows({name: [name] for name in self.types}))
            return
        schema = pyarrow.schema(list(self.types.items()))
        self._parquet = pyarrow.parquet.ParquetWriter(pyarrow.PythonFile(self, "w"), schema, compression="zstd")

    def _write(self, group: Mapping[str, list[Any]]) -> None:
        if self._parquet is None:
            self.write(atomic.encode_csv_rows(group))
            return
        self._parquet.write_table(pyarrow.table(atomic.clean_texts(group), self._parquet.schema), GROUP_ROWS)

    def _finish(self) -> None:
        """Write what waits, and give the file its name once it is on the disk."""
        if any(self._waiting.values()):
            self._write(self._waiting)
        if self._parquet is not None:
            self._parquet.close()
        with atomic.explain_write_errors(self.path):
            atomic.disk.fsync(self._handle)
            if not self._temp.name:
                temp = atomic.temp_path(self.path.parent)
                atomic.disk.link(self._handle, temp)
                self._temp = temp
            handle, self._handle = self._handle, -1
            atomic.disk.close(handle)
            atomic.disk.replace(self._temp, self.path)
            self._temp = Path()
            atomic.disk.sync(self.path.parent)

    def _discard(self) -> None:
        """Close and remove what did not become a table."""
        if self._handle >= 0:
            handle, self._handle = self._handle, -1
            with suppress(OSError):
                atomic.disk.close(handle)
        if self._temp.name:
            atomic.disk.discard(self._temp)

    # What pyarrow needs of a file that it writes to.

    closed = False

    def write(self, data: Any) -> int:
        """All of these bytes."""
        with atomic.explain_write_errors(self.path):
            atomic.disk.write_all(self._handle, data)
        return len(data)

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """The file is closed at the end of `with`."""


def can_name_later(folder: Path) -> bool:
    """Whether files in this folder can be without a name first, and get one later: tried, not believed."""
    if not NAMELESS:
        return False
    probe = atomic.temp_path(folder)
    try:
        handle = atomic.disk.open(folder, os.O_WRONLY | NAMELESS | os.O_CLOEXEC, 0o600)
        try:
            atomic.disk.link(handle, probe)
        finally:
            atomic.disk.close(handle)
    except OSError:
        return False
    finally:
        atomic.disk.discard(probe)
    return True
