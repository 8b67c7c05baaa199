"""Labels as users write them: as names of classes, as numbers, as −1 or nothing for a row without a label.

| symbol | meaning |
| --- | --- |
| labels (N) | classes by name; "" = unknown, which is what None, NaN, an empty cell and −1 become |
| y (N) | labels of the estimator; −1 = a row without a label |
| names | classes in order: by value when all are integers, else by the alphabet |

Classes are matched by their exact names. Unicode has two forms of many letters: ö as one character (NFC), and as o with
two dots behind it (NFD), which is what some systems make of file names. So names that nobody could tell apart may be
different classes, and are pointed out.
"""

from __future__ import annotations

import math
import re
import unicodedata
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from embasis.errors import EmbasisWarning, InputDataError, quote, require

NO_LABEL = ""
UNLABELLED_MARK = -1
WRITE_UTF8 = "write the table again, with text in UTF-8"
MOST_GROUPS = 5
"""Groups of names that look the same which a sentence lists."""
_MISSING = frozenset({"", "-1", "nan", "NaN"})
_WHOLE_FLOAT = re.compile(r"-?\d+\.0+")


def sort_names(names: Iterable[str]) -> list[str]:
    """Class names by value when all are integers, else by the alphabet."""
    names = sorted(names)
    if all(re.fullmatch(r"-?[0-9]+", name) for name in names):
        names.sort(key=int)
    return names


def quote_names(names: Iterable[str], most: int = 10) -> str:
    """Names for a sentence: quoted, in order, at most ten of them."""
    names = sort_names(names)
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(quote(name) for name in names[:most]) + rest


def label_names(labels: object, what: str) -> list[str]:
    """Labels of any kind as names; unknown ones (None, NaN, empty, −1) as ""."""
    if isinstance(labels, Tensor):
        labels = labels.detach().cpu().numpy()
    array = np.array(labels, dtype=object) if isinstance(labels, list | tuple) else np.asarray(labels)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    require(array.ndim == 1, f"{what}: labels must be one column, got shape {array.shape}")
    _require_characters(array, what)
    known: dict[str | bytes, str] = {}  # rows share their texts, which may be long
    names = []
    for row, label in enumerate(array.tolist()):
        if not isinstance(label, str | bytes):
            names.append(_label_name(label, what))
        elif label in known:
            names.append(known[label])
        else:
            names.append(known.setdefault(label, _label_name(decode_text(label, what, row), what)))
    return names


def _require_characters(array: NDArray[Any], what: str) -> None:
    """Numpy keeps texts as numbers of characters: refuse those that are none, over 0x10FFFF or half of a pair."""
    if array.dtype.kind != "U" or not array.size:
        return
    codes = np.ascontiguousarray(array).view(np.dtype("u4").newbyteorder(array.dtype.byteorder)).reshape(len(array), -1)
    bad = (codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))
    if bad.any():
        row, place = (int(index) for index in np.argwhere(bad)[0])
        rule = f"row {row}: labels must be text, got the character number {codes[row, place]:#x}, which is none"
        raise InputDataError(f"{what}: {rule}; {WRITE_UTF8}")


def decode_text(value: str | bytes, what: str, row: int) -> str:
    """Text that UTF-8 can hold. Other bytes are refused: replaced by a sign, two names could become one."""
    try:
        return value.decode() if isinstance(value, bytes) else value.encode().decode()
    except UnicodeError as error:
        raise InputDataError(f"{what}: row {row}: {quote(value)} is not UTF-8 text; {WRITE_UTF8}") from error


def _label_name(label: object, what: str) -> str:
    if label is None:
        return NO_LABEL
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, float):
        if math.isnan(label):
            return NO_LABEL
        require(label.is_integer(), f"{what}: labels must be classes, got the continuous value {label}")
        label = int(label)
    require(isinstance(label, str | int), f"{what}: labels must be text or integers, got {type(label).__name__}")
    name = str(label).strip()
    if _WHOLE_FLOAT.fullmatch(name):
        name = name.partition(".")[0]
    return NO_LABEL if name in _MISSING else name


def group_alike(names: Iterable[str], others: Iterable[str] | None = None) -> list[list[str]]:
    """Groups of names that look the same; with `others` only those that hold one of them that is no name."""
    names = set(names)
    strangers = None if others is None else set(others) - names
    groups: dict[str, list[str]] = {}
    for name in sorted(names | (strangers or set())):
        alike = unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
        groups.setdefault(alike, []).append(name)
    several = [group for group in groups.values() if len(group) > 1]
    return several if strangers is None else [group for group in several if not strangers.isdisjoint(group)]


def describe_alike(where: str, names: Iterable[str], others: Iterable[str] | None = None) -> str:
    """A sentence about classes that look the same, or nothing."""
    groups = group_alike(names, others)
    if not groups:
        return ""
    named = ", ".join(" and ".join(map(_quote_letters, group)) for group in groups[:MOST_GROUPS])
    more = f" and {len(groups) - MOST_GROUPS:,} more" if len(groups) > MOST_GROUPS else ""
    what = "classes that differ only in upper and lower case or in the Unicode form of their letters"
    return f"{where}: {what}: {named}{more}; they count as different classes: write each name in one way"


def _quote_letters(name: str) -> str:
    """A name whose letters are not in their usual form is written out, because nobody could see the difference."""
    return repr(name) if unicodedata.is_normalized("NFC", name) else ascii(name)


def split_labels(y: ArrayLike, rows: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The labels as an array, and which rows are labelled: all but those of −1."""
    if y is None:
        raise InputDataError("requires y to be passed, but the target y is None")
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import column_or_1d

    given = column_or_1d(y, warn=True)
    require(len(given) == rows, f"X and y must have one length, got {rows} and {len(given)}")
    if given.dtype.kind == "f" and not np.isfinite(given).all():
        raise InputDataError(f"Input y contains NaN or inf in {int((~np.isfinite(given)).sum())} rows")
    if given.dtype.kind == "O":
        refuse_objects(given)
    known = ~find_marks(given)
    if known.any() and not known.all() and len(np.unique(given[known])) == 1:
        warnings.warn(
            f"y holds only −1 and {quote(given[known][0])}: read as two classes, not as unlabelled rows",
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
    rule = f"Unknown label type: y is an array of objects, whose labels must be words or −1, got {quote(other)}"
    require(other is None, f"{rule}: give numbers as numbers, y.astype(int), or all as words, y.astype(str)")


def dtype_with_mark(classes: NDArray[Any]) -> Any:
    """A dtype for labels of these classes beside −1: their own, or the next one that can hold it."""
    if classes.dtype.kind in "if":
        return classes.dtype
    if classes.dtype.kind == "u" and int(classes.max()) <= np.iinfo(np.int64).max:
        return np.dtype(np.int64)
    return np.dtype(object)
