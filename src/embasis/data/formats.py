"""Files of the user, read without trusting them: small texts, and the formats of tables and arrays.

| format | danger | what happens |
| --- | --- | --- |
| all | a pipe, a device, a folder in the place of the file | refused, never waited for |
| .npy, .npz | pickles; a header that claims another size than the file has | refused |
| .npz | two arrays of one name | refused: which of them is meant cannot be known |
| .csv | signs that may or may not separate cells | decided by the header and the first rows, or refused |
| .csv | a line without an end, a quotation mark that is never closed | refused before a record is in memory |
| .parquet | a few bytes that stand for gigabytes | refused by what the footer says of rows and bytes |
| .parquet | one long text in a million rows | each different text is in memory once |
| .parquet | lists and structs, with any number of values a row | refused where they are needed, else not read |
| all | names and texts that are not UTF-8 | refused |
"""

from __future__ import annotations

import ast
import csv
import errno
import io
import math
import os
import re
import stat
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, TextIO

import numpy as np
from numpy.typing import NDArray

from embasis.data.class_labels import WRITE_UTF8, quote_names
from embasis.data.column_kinds import ColumnKinds, is_text
from embasis.data.csv_dialect import LONGEST_RECORD, Cells, find_separator
from embasis.errors import InputDataError, ResourceError, quote, require, shorten
from embasis.resources import require_memory

LARGEST_TEXT = 2**20
"""Bytes of a small text: settings, names of classes."""
LARGEST_TABLE = 4 * 2**30
"""Bytes that a table may take in memory."""
PAGE_BYTES = 2**18
"""Bytes of a column that are read at a time where a file is not read whole."""
LONGEST_NPY_HEADER = 10_000
SAVE_UTF8 = "save it as 'CSV UTF-8'"
READABLE = "numbers and text are read"


@contextmanager
def refuse_unreadable(path: Path) -> Iterator[None]:
    """What the system refuses of a file becomes an InputDataError."""
    try:
        yield
    except ResourceError:  # is an OSError, too, and no fault of the file
        raise
    except FileNotFoundError as error:
        raise InputDataError(f"{path}: no such file") from error
    except OSError as error:
        raise InputDataError(f"{path}: cannot be read: {error.strerror or error}") from error


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """A regular file to be read; OSError when it is none, even if it was one a little earlier."""
    # Without O_NONBLOCK a pipe would be waited for until somebody writes into it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Is a directory" if stat.S_ISDIR(mode) else "not a regular file")
    return open(descriptor, "rb")


def read_text(path: str | os.PathLike[str], encoding: str = "utf-8", largest: int = LARGEST_TEXT) -> str:
    """The text of a regular file; OSError or UnicodeDecodeError when there is none."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            raise OSError(errno.EFBIG, f"{size:,} bytes, at most {largest:,} are read")
        return file.read(largest + 1).decode(encoding)


def read_array(stream: IO[bytes], size: int, what: str, largest: int) -> NDArray[Any]:
    """One array in numpy's format, whose header must agree with the bytes that follow."""
    try:
        shape, fortran, descr = _array_header(stream)
        is_plain = isinstance(descr, str) and "O" not in descr
        require(is_plain or "O" not in str(descr), f"{what}: holds Python objects (a pickle); only plain {READABLE}")
        is_known = is_plain and re.fullmatch(r"[<>|=]?[biufcSU]\d+", descr)
        require(is_known, f"{what}: only {READABLE}, got dtype {quote(descr)}")
        dtype = np.dtype(descr)
    except InputDataError:
        raise
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError, struct.error) as error:
        raise InputDataError(f"{what}: not a readable numpy array: {error}") from error
    claimed, held = math.prod(shape) * dtype.itemsize, size - stream.tell()
    require(claimed > 0 and min(shape, default=1) > 0, f"{what}: no rows, got shape {shape}")
    require(claimed == held, f"{what}: its header claims {claimed} bytes as shape {shape}, the file holds {held}")
    require(claimed <= largest, f"{what}: takes {claimed} bytes, at most {largest} are read")
    require_memory(2 * claimed, what, "take fewer rows, or numbers of fewer bytes")
    content = stream.read(claimed)
    require(len(content) == claimed, f"{what}: the file ends after {len(content)} of {claimed} bytes")
    array: NDArray[Any] = np.frombuffer(content, dtype)
    return array.reshape(shape, order="F" if fortran else "C")


def _array_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, Any]:
    """Shape, column order and type. Our own reader: numpy's takes headers of Python 2 too, by way of a tokenizer."""
    magic, version = stream.read(6), tuple(stream.read(2))
    if magic != b"\x93NUMPY" or version not in ((1, 0), (2, 0)):
        raise ValueError(f"it begins with {quote(magic)}, version {version}")
    (length,) = struct.unpack("<H", stream.read(2)) if version == (1, 0) else struct.unpack("<I", stream.read(4))
    if length > LONGEST_NPY_HEADER:
        raise ValueError(f"its header has {length} bytes, at most {LONGEST_NPY_HEADER} are read")
    header = ast.literal_eval(stream.read(length).decode("latin-1").strip())
    shape = header["shape"]
    if not isinstance(shape, tuple) or not all(type(count) is int for count in shape):
        raise ValueError(f"its shape is {quote(shape)}")
    fortran = header["fortran_order"]
    if not isinstance(fortran, bool):
        raise ValueError(f"its fortran_order is {quote(fortran)}, it must be True or False")
    return shape, fortran, header["descr"]


ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""How files in an archive may be packed; readers of other ways take any memory, and fail with errors of their own."""


@dataclass(frozen=True, eq=False)
class ArrayPack:
    """An open .npz file: its arrays are read one by one."""

    path: Path
    archive: zipfile.ZipFile
    largest: int

    @property
    def names(self) -> list[str]:
        """The names of the arrays."""
        return [entry.filename.removesuffix(".npy") for entry in self.archive.infolist()]

    def read(self, name: str) -> NDArray[Any]:
        """The array of this name; KeyError if there is none."""
        entry = self.archive.getinfo(f"{name}.npy")
        with self.archive.open(entry) as stream:
            return read_array(stream, entry.file_size, f"{self.path}: array {quote(name)}", self.largest)


@contextmanager
def open_pack(path: Path, largest: int, fault: str = "not a readable .npz file") -> Iterator[ArrayPack]:
    """An .npz file of a fitting size; `fault` is what the error says of a file that is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            pack = ArrayPack(path, archive, largest)
            twice = {name for name, count in Counter(pack.names).items() if count > 1}
            hint = "write the file anew with one array under each name"
            require(not twice, f"{path}: arrays must have different names, twice or more: {quote_names(twice)}; {hint}")
            odd = [entry.filename for entry in archive.infolist() if entry.compress_type not in ZIP_METHODS]
            require(not odd, f"{path}: packed in another way than deflate: {quote_names(odd, 3)}; use numpy.savez")
            size = sum(entry.file_size for entry in archive.infolist())
            require(size <= largest, f"{path}: takes {size} bytes unpacked, at most {largest} are read")
            yield pack
    except InputDataError:
        raise
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, KeyError, RuntimeError, ValueError) as error:
        raise InputDataError(f"{path}: {fault}: {error}") from error


def csv_separator(path: Path) -> str:
    """What separates the cells of a .csv file: a comma, a semicolon or a tab."""
    with _open_csv(path) as stream:

        def open_lines(most: int) -> Iterator[str]:
            stream.seek(0)
            return iter(lambda: stream.readline(most), "")

        return find_separator(open_lines, str(path))


def _open_csv(path: Path) -> TextIO:
    return io.TextIOWrapper(open_regular(path), "utf-8-sig", "surrogateescape", newline="")


def read_csv_rows(path: Path) -> Iterator[Cells]:
    """(line number, cells) of each record, by a plain and slow reader; bytes that are not UTF-8 become surrogates."""
    separator = csv_separator(path)
    with _open_csv(path) as stream:
        lines = _RecordLines(stream, path)
        reader = csv.reader(lines, delimiter=separator)
        try:
            for cells in reader:
                lines.held = 0
                if cells:
                    text = "".join(cells)
                    is_text = text.isprintable() or not any("\ud800" <= letter <= "\udfff" for letter in text)
                    require(is_text, f"{path}: line {reader.line_num} is not UTF-8 text; {SAVE_UTF8}")
                    yield reader.line_num, cells
        except csv.Error as error:
            raise InputDataError(f"{path}: line {reader.line_num}: {error}") from error


class _RecordLines:
    """The lines of a file, refused before a record of them is larger than it may be.

    A file without a line end is one line; a quotation mark that is never closed makes one record of many lines."""

    def __init__(self, stream: TextIO, path: Path) -> None:
        self.stream, self.path, self.number, self.held = stream, path, 0, 0
        """The lines so far, and the characters since the last record ended."""

    def __iter__(self) -> Iterator[str]:
        while line := self.stream.readline(LONGEST_RECORD + 1):
            self.number, self.held = self.number + 1, self.held + len(line)
            rule = f"line {self.number}: a row has at most {LONGEST_RECORD:,} characters, this one has more"
            hint = "is it a .csv file, with a line for each row and every quotation mark closed?"
            require(self.held <= LONGEST_RECORD, f"{self.path}: {rule}; {hint}")
            yield line


def read_csv_header(path: Path) -> list[str]:
    """The cells of a .csv file's first line; InputDataError when there is no line."""
    for _, cells in read_csv_rows(path):
        return list(cells)
    raise InputDataError(f"{path}: no rows")


@dataclass(frozen=True, eq=False)
class ParquetTable(ColumnKinds):
    """An open .parquet file, and what its columns are."""

    file: Any

    def read(self, names: Sequence[str] | None = None) -> Any:
        """These columns, or all, as an Arrow table. After a damaged file, threads may abort the process as it ends."""
        return self.file.read(columns=names, use_threads=False)


@contextmanager
def open_parquet(path: Path, largest: int = LARGEST_TABLE, *, at_once: bool = True) -> Iterator[ParquetTable]:
    """The file, whose size is known to be fitting; texts are read as dictionaries, and nothing is read by threads.

    Without `at_once` it is to be read by groups of rows, of which the largest must fit; pages are read one by one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            texts = [field.name for field in file.schema_arrow if is_text(field.type)]
            groups = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
            most = [max(group.num_rows * len(file.schema_arrow.names) * 8, group.total_byte_size) for group in groups]
            packed = sum(group.total_byte_size for group in groups)
            size = max(int(file.metadata.num_rows) * len(file.schema_arrow.names) * 8, packed)
            size = size if at_once else max(most, default=0)
        require(size <= largest, f"{path}: takes {size} bytes unpacked, at most {largest} are read")
        require_memory(size, str(path), "take fewer rows or columns")
        buffered = {} if at_once else {"buffer_size": PAGE_BYTES}
        with pq.ParquetFile(path, read_dictionary=texts, pre_buffer=False, **buffered) as file:
            yield ParquetTable.of(file.schema_arrow, file=file)
    except UnicodeDecodeError as error:
        raise InputDataError(f"{path}: a name in it is not UTF-8 text: {error}; {WRITE_UTF8}") from error
    except pa.ArrowException as error:
        raise InputDataError(f"{path}: not a readable .parquet file: {shorten(str(error))}") from error


def read_column_names(path: Path) -> list[str]:
    """The names of a .parquet file's columns."""
    with open_parquet(path) as table:
        return table.names


def read_columns(path: Path, names: Sequence[str] | None = None) -> dict[str, list[Any]]:
    """The values of these columns of a .parquet file, or of all that have one value a row."""
    with open_parquet(path) as table:
        wanted = [name for name in table.types if name in table.flat] if names is None else list(names)
        for name in wanted:
            rule = f"{path}: column {quote(name)} must have one value a row"
            require(name in table.flat, f"{rule}, got {table.types[name]}")
        columns = table.read(wanted)
        return {name: list_values(columns.column(name), path) for name in wanted}


def list_values(column: Any, path: Path) -> list[Any]:
    """The values of a column; rows of one text share it. A damaged file may name texts that it does not have."""
    values: list[Any] = []
    for chunk in column.chunks:
        if hasattr(chunk, "dictionary"):
            known, places = _list_texts(chunk.dictionary), chunk.indices.to_pylist()
            wrong = next((place for place in places if place is not None and not 0 <= place < len(known)), None)
            rule = f"{path}: not a readable .parquet file: a value is number {wrong} of {len(known)} texts"
            require(wrong is None, rule)
            values += [None if place is None else known[place] for place in places]
        else:
            values += _list_texts(chunk)
    return values


def _list_texts(values: Any) -> list[Any]:
    """The values; those of a text column as bytes if one of them is not UTF-8, so that its row can be named."""
    try:
        return list(values.to_pylist())
    except UnicodeDecodeError:
        return list(values.cast("large_binary").to_pylist())
