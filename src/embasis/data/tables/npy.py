"""One array in numpy's format, from a stream. No pickle is ever read, and the header must agree with the bytes."""

from __future__ import annotations

import ast
import math
import re
import struct
import zipfile
from collections import Counter
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from embasis.data.problem import listed
from embasis.errors import InputDataError, quoted, require
from embasis.resources import require_memory

LONGEST_NPY_HEADER = 10_000
READABLE = "numbers and text are read"


def read_array(stream: IO[bytes], size: int, what: str, largest: int) -> NDArray[Any]:
    """One array in numpy's format, whose header must agree with the bytes that follow."""
    try:
        shape, fortran, descr = _array_header(stream)
        plain = isinstance(descr, str) and "O" not in descr
        require(plain or "O" not in str(descr), f"{what}: holds Python objects (a pickle); only plain {READABLE}")
        require(
            plain and re.fullmatch(r"[<>|=]?[biufcSU]\d+", descr), f"{what}: only {READABLE}, got dtype {quoted(descr)}"
        )
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
        raise ValueError(f"it begins with {quoted(magic)}, version {version}")
    (length,) = struct.unpack("<H", stream.read(2)) if version == (1, 0) else struct.unpack("<I", stream.read(4))
    if length > LONGEST_NPY_HEADER:
        raise ValueError(f"its header has {length} bytes, at most {LONGEST_NPY_HEADER} are read")
    header = ast.literal_eval(stream.read(length).decode("latin-1").strip())
    shape = header["shape"]
    if not isinstance(shape, tuple) or not all(type(count) is int for count in shape):
        raise ValueError(f"its shape is {quoted(shape)}")
    fortran = header["fortran_order"]
    if not isinstance(fortran, bool):
        raise ValueError(f"its fortran_order is {quoted(fortran)}, it must be True or False")
    return shape, fortran, header["descr"]


def require_single_names(archive: zipfile.ZipFile, path: Path) -> None:
    """No two members of an .npz file have one name: which of them is meant cannot be known."""
    names = Counter(entry.filename.removesuffix(".npy") for entry in archive.infolist())
    twice = {name for name, count in names.items() if count > 1}
    hint = "write the file anew with one array under each name"
    require(not twice, f"{path}: arrays must have different names, twice or more: {listed(twice)}; {hint}")
