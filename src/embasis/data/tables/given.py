"""Arrays as a caller of the estimator gives them: what they must not hold, and which of their rows are labelled."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from embasis.errors import EmbasisWarning, InputDataError, quoted, require

UNLABELLED_MARK = -1
MASK_CURES = {
    "y": "rows without a label are marked −1 for fit and left out of score",
    "sample_weight": "give the rows that shall not count the weight 0",
}
"""What to do about masked values; of features, whatever they are called: FILL."""
FILL_MASKED = "fill them with values or leave their rows out"


def refuse_masked(**given: Any) -> None:
    """No array with masked values, nor a list of such: made an array it would lose its mask and keep what is below."""
    for name, values in given.items():
        parts = values if isinstance(values, list | tuple) else [values]
        masked = sum(int(np.ma.count_masked(part)) for part in parts if isinstance(part, np.ma.MaskedArray))
        count = "1 masked value" if masked == 1 else f"{masked} masked values"
        require(not masked, f"{name} has {count}, and masks are not read: {MASK_CURES.get(name, FILL_MASKED)}")


def split_labels(y: ArrayLike, rows: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The labels as an array, and which rows are labelled: all but those of −1."""
    if y is None:
        raise InputDataError("requires y to be passed, but the target y is None")
    given = column_or_1d(y, warn=True)
    require(len(given) == rows, f"X and y must have one length, got {rows} and {len(given)}")
    if given.dtype.kind == "f" and not np.isfinite(given).all():
        raise InputDataError(f"Input y contains NaN or inf in {int((~np.isfinite(given)).sum())} rows")
    if given.dtype.kind == "O":
        refuse_objects(given)
    known = ~find_marks(given)
    if known.any() and not known.all() and len(np.unique(given[known])) == 1:
        warnings.warn(
            f"y holds only −1 and {quoted(given[known][0])}: read as two classes, not as unlabelled rows",
            EmbasisWarning,
            stacklevel=4,  # the caller of fit
        )
        known = np.ones(rows, dtype=bool)
    check_classification_targets(given[known])  # after the marks: words and −1 together cannot be sorted
    return given, known


def find_marks(given: NDArray[Any]) -> NDArray[np.bool_]:
    """Which labels are −1, as a number or as the word that numpy makes of it among words."""
    if given.dtype.kind in "bu":  # these have no −1
        return np.zeros(len(given), dtype=bool)
    if given.dtype.kind == "O":
        return np.array([is_mark(value) for value in given], dtype=bool)
    return np.asarray(given == (str(UNLABELLED_MARK) if given.dtype.kind == "U" else UNLABELLED_MARK), dtype=bool)


def is_mark(value: object) -> bool:
    """Whether one label among objects says that there is none."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return bool(value == UNLABELLED_MARK) if number else isinstance(value, str) and value == str(UNLABELLED_MARK)


def is_missing(value: object) -> bool:
    """Whether it is None, NaN or a value that pandas has for what is not there."""
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def refuse_objects(given: NDArray[Any]) -> None:
    """Labels in an array of Python objects must be words, or −1."""
    missing = sum(is_missing(value) for value in given)
    cure = "mark unlabelled rows with −1 or leave them out"
    require(not missing, f"y has None, NaN or NA in {missing} of {len(given)} rows: {cure}")
    other = next((value for value in given if not isinstance(value, str) and not is_mark(value)), None)
    rule = f"Unknown label type: y is an array of objects, whose labels must be words or −1, got {quoted(other)}"
    require(other is None, f"{rule}: give numbers as numbers, y.astype(int), or all as words, y.astype(str)")


def dtype_with_mark(classes: NDArray[Any]) -> Any:
    """A dtype for labels of these classes beside −1: their own, or the next one that can hold it."""
    if classes.dtype.kind in "if":
        return classes.dtype
    if classes.dtype.kind == "u" and int(classes.max()) <= np.iinfo(np.int64).max:
        return np.dtype(np.int64)
    return np.dtype(object)


def narrow_rows(x: NDArray[Any]) -> torch.Tensor:
    """float32 rows; a value that float32 cannot hold is an error."""
    with np.errstate(over="ignore"):
        narrow = np.ascontiguousarray(x, dtype=np.float32)
    lost = int((~np.isfinite(narrow)).sum())
    require(not lost, f"X holds {lost} values that are too large for float32 (over 3.4e38)")
    return torch.from_numpy(narrow)
