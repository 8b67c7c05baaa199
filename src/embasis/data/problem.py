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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from embasis.errors import EmbasisWarning, InputDataError, require
from embasis.types import Arrays, LabelSchema, Problem

Values = ArrayLike | Tensor
UNKNOWN = ""
_MISSING = frozenset({"", "-1", "nan", "NaN"})
_WHOLE = re.compile(r"-?\d+\.0+")


@dataclass(frozen=True, eq=False)
class Side:
    """One side of a problem before the classes are numbered; `name` is how messages call it."""

    name: str
    x: Tensor
    labels: list[str] | None = None
    ids: Tensor | None = None

    def __post_init__(self) -> None:
        rows = len(self.x)
        require(
            self.labels is None or len(self.labels) == rows,
            f"{self.name}: {rows} rows but {len(self.labels or [])} labels",
        )

    @property
    def classes(self) -> set[str]:
        """The classes that occur."""
        return set(self.labels or []) - {UNKNOWN}


def from_arrays(
    x: Values,
    y: Values,
    unlabelled: Values,
    *,
    hidden: Values | None = None,
    names: Sequence[str] | None = None,
    shared: bool = False,
    test: tuple[Values, Values] | None = None,
) -> Problem:
    """A problem from arrays or tensors: rows x with labels y of any kind, rows `unlabelled` without.

    `hidden` holds true labels of the unlabelled rows, for evaluation only; `names` fixes the classes and their order.
    """
    known = None if hidden is None else label_names(hidden, "hidden")
    rows = matrix(unlabelled, "unlabelled")
    require(
        known is None or len(known) == len(rows), f"hidden: {len(known or [])} labels, unlabelled has {len(rows)} rows"
    )
    return join(
        Side("labelled", matrix(x, "labelled"), label_names(y, "labelled")),
        Side("unlabelled", rows, known),
        test=None if test is None else Side("test", matrix(test[0], "test"), label_names(test[1], "test")),
        names=names,
        shared=shared,
    )


def join(
    labelled: Side,
    unlabelled: Side,
    *,
    test: Side | None = None,
    names: Sequence[str] | None = None,
    shared: bool = False,
) -> Problem:
    """The sides as one problem, once they agree in shape and classes."""
    require(len(labelled.x) > 0, f"{labelled.name}: at least one labelled row is needed, got none")
    require_labels(labelled)
    for side in (unlabelled, test):
        if side is not None:
            require_shape(labelled, side)
    require_classes(labelled)
    schema = LabelSchema(tuple(order(labelled.classes) if names is None else (str(name) for name in names)))
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
        hidden = _numbers(unlabelled, schema)
        hidden = hidden if unlabelled.ids is None else hidden[torch.argsort(unlabelled.ids)]
    return Problem(
        labelled=Arrays.of(labelled.x, _numbers(labelled, schema), labelled.ids),
        unlabelled=Arrays.of(unlabelled.x, None, unlabelled.ids),
        schema=schema,
        test=None if test is None else Arrays.of(test.x, _numbers(test, schema), test.ids),
        hidden=hidden,
        shared=shared,
    )


def require_labels(side: Side) -> None:
    """Every row of a side that must be labelled has a label."""
    labels = side.labels or [UNKNOWN] * len(side.x)
    missing = labels.count(UNKNOWN)
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


def _numbers(side: Side, schema: LabelSchema) -> Tensor:
    number = {name: index for index, name in enumerate(schema.names)} | {UNKNOWN: schema.ignore}
    return torch.tensor([number[label] for label in side.labels or []], dtype=torch.int64)


def order(names: Iterable[str]) -> list[str]:
    """Class names by value when all are integers, else by the alphabet."""
    names = sorted(names)
    if all(re.fullmatch(r"-?[0-9]+", name) for name in names):
        names.sort(key=int)
    return names


def listed(names: Iterable[str], most: int = 10) -> str:
    """Names for a sentence: quoted, in order, at most ten of them."""
    names = order(names)
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + rest


def label_names(labels: object, what: str) -> list[str]:
    """Labels of any kind as names; unknown ones (None, NaN, empty, −1) as ""."""
    if isinstance(labels, Tensor):
        labels = labels.detach().cpu().numpy()
    array = np.array(labels, dtype=object) if isinstance(labels, list | tuple) else np.asarray(labels)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    require(array.ndim == 1, f"{what}: labels must be one column, got shape {array.shape}")
    known: dict[str, str] = {}  # rows share their texts, which may be long
    names = []
    for label in array.tolist():
        if isinstance(label, str):
            name = known[label] if label in known else known.setdefault(label, _label_name(label, what))
        else:
            name = _label_name(label, what)
        names.append(name)
    return names


def _label_name(label: object, what: str) -> str:
    if label is None:
        return UNKNOWN
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, bytes):
        label = label.decode("utf-8", "replace")
    if isinstance(label, float):
        require(
            math.isnan(label) or label.is_integer(), f"{what}: labels must be classes, got the continuous value {label}"
        )
        label = UNKNOWN if math.isnan(label) else int(label)
    require(isinstance(label, str | int), f"{what}: labels must be text or integers, got {type(label).__name__}")
    name = str(label).strip()
    if _WHOLE.fullmatch(name):
        name = name.partition(".")[0]
    return UNKNOWN if name in _MISSING else name


def matrix(values: object, what: str, columns: Sequence[str] | None = None) -> Tensor:
    """Numbers as a float32 tensor (N, …), all finite; `columns` gives their names for messages."""
    array = _plain(values, what)
    require(
        array.ndim >= 2, f"{what}: 2 or more dimensions (rows, features) are needed, got shape {tuple(array.shape)}"
    )
    require(0 not in array.shape[1:], f"{what}: at least one feature is needed, got shape {tuple(array.shape)}")
    flat = array.reshape(len(array), math.prod(array.shape[1:]))
    bad = ~np.isfinite(flat)
    if bad.any():
        count = {"NaN": int(np.isnan(flat).sum()), "inf": int(np.isinf(flat).sum())}
        found = " and ".join(f"{number} {kind}" for kind, number in count.items() if number)
        spread = f"{_share(bad, 1, 'row')} and {_share(bad, 0, 'column')}"
        raise InputDataError(f"{what}: values must be finite, got {found} in {spread}; first at {_first(bad, columns)}")
    limit = float(np.finfo(np.float32).max)
    over = np.abs(flat) > limit if flat.dtype.itemsize > 4 else np.zeros_like(bad)
    if over.any():
        raise InputDataError(
            f"{what}: values must fit in float32 (up to {limit:.1e}), {int(over.sum())} do not; "
            f"first at {_first(over, columns)}: {flat[over][0]:.3g}"
        )
    return torch.from_numpy(np.array(array, dtype=np.float32, order="C"))


def _plain(values: object, what: str) -> NDArray[np.generic]:
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


def _share(bad: NDArray[np.bool_], axis: int, unit: str) -> str:
    lines = np.asarray(bad.any(axis))
    return f"{int(lines.sum())} of {len(lines)} {unit}{'s' if len(lines) > 1 else ''}"


def _first(bad: NDArray[np.bool_], columns: Sequence[str] | None) -> str:
    """Where it begins; rows and columns count from 0, as arrays do."""
    row, column = (int(index) for index in np.argwhere(bad)[0])
    return f"row {row}, column {column if columns is None else repr(columns[column])}"
