"""From arrays to a Problem: numbers checked and made float32, labels made names, names made class numbers.

| symbol | meaning |
| --- | --- |
| x (N, …) | finite numbers, 2 or more dimensions, rows first |
| labels (N) | classes by name; "" = unknown, which is what None, NaN, an empty cell and −1 become |
| schema | names in order: by value when all are integers, else by the alphabet |
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from embasis.data.tables.fine import all_columns, find_fine_columns, settle_columns
from embasis.data.tables.numbers import check_numbers, to_float32
from embasis.errors import EmbasisWarning, InputDataError, quoted, require
from embasis.types import Arrays, Fine, LabelSchema, Problem

Values = ArrayLike | Tensor
NO_LABEL = ""
WRITE_UTF8 = "write the table again, with text in UTF-8"
_MISSING = frozenset({"", "-1", "nan", "NaN"})
_WHOLE_FLOAT = re.compile(r"-?\d+\.0+")


@dataclass(frozen=True, eq=False)
class Side:
    """One side of a problem before the classes are numbered; `name` is how messages call it."""

    name: str
    x: Tensor
    labels: list[str] | None = None
    ids: Tensor | None = None
    fine: Fine | None = None
    """Columns of x that float32 may lose."""

    def __post_init__(self) -> None:
        rows = len(self.x)
        require(
            self.labels is None or len(self.labels) == rows,
            f"{self.name}: {rows} rows but {len(self.labels or [])} labels",
        )

    @property
    def classes(self) -> set[str]:
        """The classes that occur."""
        return set(self.labels or []) - {NO_LABEL}


def from_arrays(
    x: Values,
    y: Values,
    unlabelled: Values,
    *,
    hidden_labels: Values | None = None,
    names: Sequence[str] | None = None,
    same_domain: bool = False,
    test: tuple[Values, Values] | None = None,
) -> Problem:
    """A problem from arrays or tensors: rows x with labels y of any kind, rows `unlabelled` without.

    `hidden` holds true labels of the unlabelled rows, for evaluation only; `names` fixes the classes and their order.
    """
    known = None if hidden_labels is None else label_names(hidden_labels, "hidden")
    rows = check_numbers(unlabelled, "unlabelled")
    require(
        known is None or len(known) == len(rows), f"hidden: {len(known or [])} labels, unlabelled has {len(rows)} rows"
    )
    one = make_side("labelled", check_numbers(x, "labelled"), label_names(y, "labelled"))
    two, last = make_side("unlabelled", rows, known), None
    if test is not None:
        always = all_columns((one.fine, two.fine))
        last = make_side("test", check_numbers(test[0], "test"), label_names(test[1], "test"), always)
    return join_sides(one, two, test=last, names=names, same_domain=same_domain)


def make_side(name: str, rows: NDArray[Any], labels: list[str] | None, always: Collection[int] = ()) -> Side:
    """A side of checked rows; the columns of `always` are those that another side has fine."""
    return Side(name, to_float32(rows), labels, fine=find_fine_columns(rows, always))


def join_sides(
    labelled: Side,
    unlabelled: Side,
    *,
    test: Side | None = None,
    names: Sequence[str] | None = None,
    same_domain: bool = False,
) -> Problem:
    """The sides as one problem, once they agree in shape and classes."""
    require(len(labelled.x) > 0, f"{labelled.name}: at least one labelled row is needed, got none")
    require_labels(labelled)
    for side in (unlabelled, test):
        if side is not None:
            require_shape(labelled, side)
    require_classes(labelled)
    schema = LabelSchema(tuple(sort_names(labelled.classes) if names is None else (str(name) for name in names)))
    unnamed = labelled.classes - set(schema.names)
    require(not unnamed, f"{labelled.name}: classes that are not in names: {listed(unnamed)}")
    for side in (unlabelled, test):
        if side is not None:
            require_known(side, schema.names)
    if test is not None:
        require_labels(test)
    if len(unlabelled.x) == 0:
        warnings.warn(EmbasisWarning("no unlabelled rows: training is supervised only"), stacklevel=3)
    hidden = None
    if unlabelled.classes:
        hidden = _class_numbers(unlabelled, schema)
        hidden = hidden if unlabelled.ids is None else hidden[torch.argsort(unlabelled.ids)]
    sides = (labelled, unlabelled) if test is None else (labelled, unlabelled, test)
    one, two, *last = settle_columns([(side.x, side.fine) for side in sides])
    return Problem(
        labelled=Arrays.of(labelled.x, _class_numbers(labelled, schema), labelled.ids, one),
        unlabelled=Arrays.of(unlabelled.x, None, unlabelled.ids, two),
        schema=schema,
        test=None if test is None else Arrays.of(test.x, _class_numbers(test, schema), test.ids, *last),
        hidden_labels=hidden,
        same_domain=same_domain,
    )


def require_labels(side: Side) -> None:
    """Every row of a side that must be labelled has a label."""
    labels = side.labels or [NO_LABEL] * len(side.x)
    missing = labels.count(NO_LABEL)
    require(not missing, f"{side.name}: {missing} of {len(labels)} rows have no label (empty, NaN or -1)")


def require_classes(side: Side) -> None:
    """A labelled side with at least two classes."""
    require(
        len(side.classes) >= 2,
        f"{side.name}: at least 2 classes are needed, got {_class_count(side.classes)}",
    )


def _class_count(classes: set[str]) -> str:
    return f"1 class: {listed(classes)}" if classes else "none"


def require_shape(labelled: Side, side: Side) -> None:
    """A side whose rows look like the labelled ones."""
    here, there = tuple(side.x.shape[1:]), tuple(labelled.x.shape[1:])
    if len(here) == len(there) == 1:
        require(here == there, f"{side.name}: {here[0]} features, {labelled.name} has {there[0]}")
    require(here == there, f"{side.name}: rows of shape {here}, {labelled.name} has {there}")


def require_known(side: Side, names: Sequence[str]) -> None:
    """A side that has no class beyond `names`; else both differences by name."""
    extra, lacking = side.classes - set(names), set(names) - side.classes
    absent = f"; classes only on the labelled side: {listed(lacking)}" if lacking else ""
    require(not extra, f"{side.name}: classes that the labelled side lacks: {listed(extra)}{absent}")


def _class_numbers(side: Side, schema: LabelSchema) -> Tensor:
    number = {name: index for index, name in enumerate(schema.names)} | {NO_LABEL: schema.ignore}
    return torch.tensor([number[label] for label in side.labels or []], dtype=torch.int64)


def sort_names(names: Iterable[str]) -> list[str]:
    """Class names by value when all are integers, else by the alphabet."""
    names = sorted(names)
    if all(re.fullmatch(r"-?[0-9]+", name) for name in names):
        names.sort(key=int)
    return names


def listed(names: Iterable[str], most: int = 10) -> str:
    """Names for a sentence: quoted, in order, at most ten of them."""
    names = sort_names(names)
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(quoted(name) for name in names[:most]) + rest


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
        raise InputDataError(f"{what}: row {row}: {quoted(value)} is not UTF-8 text; {WRITE_UTF8}") from error


def _label_name(label: object, what: str) -> str:
    if label is None:
        return NO_LABEL
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, float):
        require(
            math.isnan(label) or label.is_integer(), f"{what}: labels must be classes, got the continuous value {label}"
        )
        label = NO_LABEL if math.isnan(label) else int(label)
    require(isinstance(label, str | int), f"{what}: labels must be text or integers, got {type(label).__name__}")
    name = str(label).strip()
    if _WHOLE_FLOAT.fullmatch(name):
        name = name.partition(".")[0]
    return NO_LABEL if name in _MISSING else name
