"""Matrices of numbers in a MATLAB file of version 5: a reader of our own, for scipy's crashes on damaged files.

| bytes | meaning |
| --- | --- |
| 128 | words, the version 0x0100 and "IM" (little endian) |
| element | type and length (4 bytes each), content, filled up to 8 bytes; up to 4 bytes fit into the tag itself |
| element of type 15 | a compressed element |
| element of type 14 | a matrix: flags, dimensions, name, values column by column |

Only real matrices of numbers are read; cells, structures, text and sparse ones are passed over.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

MAT_TYPES = {1: "<i1", 2: "<u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"}
"""numpy's name of each type of numbers."""
MAT_MATRIX, MAT_PACKED, MAT_COMPLEX = 14, 15, 0x0800
MAT_NUMERIC = range(6, 16)
"""Classes of matrices that hold plain numbers."""
Matrix = NDArray[np.float64]


def read_mat(data: bytes, largest: int) -> dict[str, Matrix]:
    """Every matrix of numbers by its name, float64; ValueError says what is wrong with the file."""
    if len(data) < 128 or data[124:128] != b"\x00\x01IM":
        raise ValueError("it is no MATLAB file of version 5")
    found: dict[str, Matrix] = {}
    for kind, content in _mat_elements(memoryview(data)[128:], filled=False):
        if kind == MAT_PACKED:
            kind, content = next(_mat_elements(memoryview(_unpack(content, largest))), (0, content))
        if kind == MAT_MATRIX:
            found |= _mat_matrix(content)
    return found


def _unpack(content: memoryview, largest: int) -> bytes:
    inflater = zlib.decompressobj()
    data = inflater.decompress(content, largest)
    if inflater.unconsumed_tail:
        raise ValueError(f"a part takes more than {largest} bytes unpacked")
    return data


def _mat_elements(data: memoryview, filled: bool = True) -> Iterator[tuple[int, memoryview]]:
    """(type, content) one after the other; on the first level only matrices are filled up to 8 bytes."""
    at = 0
    while at + 8 <= len(data):
        kind, size = struct.unpack("<II", data[at : at + 8])
        start, step = at + 8, 8 + size
        if kind >> 16:
            kind, size, start, step = kind & 0xFFFF, kind >> 16, at + 4, 8
        elif filled or kind != MAT_PACKED:
            step = 8 + -(-size // 8) * 8
        if size > len(data) - start or (step == 8 and size > 4 and start == at + 4):
            raise ValueError(f"it ends within a part of {size} bytes")
        yield kind, data[start : start + size]
        at += step


def _mat_matrix(content: memoryview) -> dict[str, Matrix]:
    parts = list(_mat_elements(content))
    if len(parts) < 4 or len(parts[0][1]) < 8:
        return {}
    (flags,) = struct.unpack("<I", parts[0][1][:4])
    kind, values = parts[3]
    if flags & 0xFF not in MAT_NUMERIC or flags & MAT_COMPLEX or kind not in MAT_TYPES:
        return {}
    shape = tuple(np.frombuffer(parts[1][1][: len(parts[1][1]) // 4 * 4], "<i4").tolist())
    dtype = np.dtype(MAT_TYPES[kind])
    if len(shape) != 2 or min(shape) < 0 or math.prod(shape) * dtype.itemsize != len(values):
        raise ValueError(f"a matrix of shape {shape} has {len(values)} bytes of {dtype.name}")
    name = bytes(parts[2][1]).decode("latin-1")
    return {name: np.frombuffer(values, dtype).reshape(shape, order="F").astype(np.float64)}
