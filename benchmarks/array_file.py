"""For `em_memory`, arrays larger than memory: rows of a `.npy` file, read in chunks through plain reads.

A memory map would count every page that was touched as memory of this process; here the memory is that of one chunk,
however long the file is. No pickle is ever read, and the header must agree with the size of the file.
"""

from __future__ import annotations

import math
import os
import stat
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray
from torch import Tensor

from embasis.data.formats import open_regular
from embasis.errors import InputDataError, quote, require

CHUNK_BYTES = 2**24
"""Bytes of the file in one chunk of an iteration."""
LONGEST_HEADER = 10_000


class ArrayFile:
    """The array of a `.npy` file with its rows on disk: `shape`, `dtype`, `rows(first, last)`, and chunks to iterate.

    The file is opened for each read, so there is nothing to close, and workers may share the object.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            mode = self.path.stat().st_mode
            require(stat.S_ISREG(mode), f"{self.path}: a .npy file is expected, this is not a regular file")
            self.shape, self.dtype, self._offset, self._size = self._read_header()
        except FileNotFoundError as error:
            raise InputDataError(f"{self.path}: no such file") from error
        except OSError as error:
            raise InputDataError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        self._row_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize

    def rows(self, first: int, last: int) -> Tensor:
        """Rows first … last − 1 as float32, in memory of their own."""
        count = self.shape[0]
        require(0 <= first <= last <= count, f"{self.path}: rows must be in 0..{count}, got {first}..{last}")
        raw = np.empty((last - first, *self.shape[1:]), self.dtype)
        self._fill(raw, self._offset + first * self._row_bytes)
        with np.errstate(over="ignore"):
            narrow = raw.astype(np.float32, copy=False)
        if self.dtype.kind == "f" and self.dtype.itemsize > 4:
            lost = int((np.isfinite(raw) & ~np.isfinite(narrow)).sum())
            where = f"rows {first}..{last - 1} hold {lost} values"
            require(not lost, f"{self.path}: {where} that are too large for float32 (over 3.4e38)")
        return torch.from_numpy(narrow)

    def chunks(self, rows: int = 0) -> Iterator[Tensor]:
        """All rows in order, so many at a time; 0 = as many as CHUNK_BYTES hold."""
        require(rows >= 0, f"rows of a chunk must be at least 0, got {rows}")
        step = rows or max(1, CHUNK_BYTES // self._row_bytes)
        for first in range(0, self.shape[0], step):
            yield self.rows(first, min(first + step, self.shape[0]))

    def __iter__(self) -> Iterator[Tensor]:
        return self.chunks()

    def _read_header(self) -> tuple[tuple[int, ...], np.dtype[Any], int, int]:
        """Shape, type, where the rows begin, and the size of the file that all of them need."""
        with open_regular(self.path) as stream:
            try:
                version = npy.read_magic(stream)
                if version not in READ:
                    raise ValueError(f"version {version[0]}.{version[1]} of the format is not read, only 1.0 and 2.0")
                shape, fortran, dtype = READ[version](stream, max_header_size=LONGEST_HEADER)
            except BROKEN as error:
                raise InputDataError(f"{self.path}: not a readable .npy file: {error}") from error
            offset, held = stream.tell(), os.fstat(stream.fileno()).st_size
        require(not dtype.hasobject, f"{self.path}: holds Python objects (a pickle); only plain numbers are read")
        plain = dtype.kind in "biuf" and dtype.itemsize <= 8
        require(plain, f"{self.path}: only numbers of up to 8 bytes are read, got dtype {quote(dtype.str)}")
        require(
            len(shape) >= 2 and min(shape) > 0,
            f"{self.path}: 2 or more dimensions (rows, features) without a zero are needed, got shape {shape}",
        )
        require(not fortran, f"{self.path}: is stored column by column (Fortran order); save it row by row (C order)")
        size = offset + math.prod(shape) * dtype.itemsize
        require(
            size == held, f"{self.path}: its header claims {size} bytes with shape {shape}, the file holds {held} bytes"
        )
        return shape, dtype, offset, size

    def _fill(self, raw: NDArray[Any], position: int) -> None:
        """The bytes at `position` into `raw`; the file must still be as long as it was."""
        target = raw.reshape(-1).view(np.uint8).data
        try:
            with open_regular(self.path) as stream:
                held = os.fstat(stream.fileno()).st_size
                require(
                    held == self._size, f"{self.path}: had {self._size} bytes when it was opened, now it has {held}"
                )
                stream.seek(position)
                done = 0
                while done < len(target):
                    count = stream.readinto(target[done:])
                    require(count, f"{self.path}: the file ended while it was read, at byte {position + done}")
                    done += count or 0
        except FileNotFoundError as error:
            raise InputDataError(f"{self.path}: no such file") from error
        except OSError as error:
            raise InputDataError(f"{self.path}: cannot be read: {error.strerror or error}") from error


BROKEN = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError, EOFError, tokenize.TokenError)
"""What numpy raises for headers that are none."""
READ = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
