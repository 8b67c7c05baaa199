"""Numbers of the user: real, finite, and none too large for float32; else a sentence that says where."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from embasis.errors import InputDataError, require


def to_float32(array: NDArray[Any]) -> Tensor:
    """Numbers that were checked, as float32."""
    return torch.from_numpy(np.array(array, dtype=np.float32, order="C"))


def check_numbers(values: object, what: str, columns: Sequence[str] | None = None) -> NDArray[Any]:
    """Numbers as an array (N, …), all finite and none too large for float32, in the type that they have."""
    array = _real_array(values, what)
    require(
        array.ndim >= 2, f"{what}: 2 or more dimensions (rows, features) are needed, got shape {tuple(array.shape)}"
    )
    require(0 not in array.shape[1:], f"{what}: at least one feature is needed, got shape {tuple(array.shape)}")
    flat = array.reshape(len(array), math.prod(array.shape[1:]))
    bad = ~np.isfinite(flat)
    if bad.any():
        count = {"NaN": int(np.isnan(flat).sum()), "inf": int(np.isinf(flat).sum())}
        found = " and ".join(f"{number} {kind}" for kind, number in count.items() if number)
        spread = f"{_count_lines(bad, 1, 'row')} and {_count_lines(bad, 0, 'column')}"
        raise InputDataError(
            f"{what}: values must be finite, got {found} in {spread}; first at {_first_place(bad, columns)}"
        )
    limit = float(np.finfo(np.float32).max)
    over = np.abs(flat) > limit if flat.dtype.itemsize > 4 else np.zeros_like(bad)
    if over.any():
        raise InputDataError(
            f"{what}: values must fit in float32 (up to {limit:.1e}), {int(over.sum())} do not; "
            f"first at {_first_place(over, columns)}: {flat[over][0]:.3g}"
        )
    return array


def _real_array(values: object, what: str) -> NDArray[np.generic]:
    """A numpy array of real numbers."""
    if isinstance(values, Tensor):
        require(values.layout == torch.strided, f"{what}: a dense tensor is needed, got layout {values.layout}")
        values = values.detach().cpu()
        values = (values.float() if values.dtype == torch.bfloat16 else values).resolve_neg().resolve_conj().numpy()
    require(not np.ma.is_masked(values), f"{what}: masked values must be filled or their rows left out")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputDataError(f"{what}: rows must have one length: {error}") from error
    require(array.dtype.kind in "biuf", f"{what}: values must be real numbers, got dtype {array.dtype}")
    return array


def _count_lines(bad: NDArray[np.bool_], axis: int, unit: str) -> str:
    lines = np.asarray(bad.any(axis))
    return f"{int(lines.sum())} of {len(lines)} {unit}{'s' if len(lines) > 1 else ''}"


def _first_place(bad: NDArray[np.bool_], columns: Sequence[str] | None) -> str:
    """Where it begins; rows and columns count from 0, as arrays do."""
    row, column = (int(index) for index in np.argwhere(bad)[0])
    return f"row {row}, column {column if columns is None else repr(columns[column])}"
