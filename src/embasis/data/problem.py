"""From arrays to a Problem: numbers checked and made float32, labels made names, names made class numbers; what is
found wrong with the data; and the ledger of a run, in which every file that was met is accounted for, exactly:

    seen = used + unselected + quarantined + refused

| symbol | meaning |
| --- | --- |
| x (N, …) | finite numbers, 2 or more dimensions, rows first |
| labels (N) | classes by name; "" = unknown, which is what None, NaN, an empty cell and −1 become |
| schema | names in order: by value when all are integers, else by the alphabet |
| used | labelled and test rows; unlabelled rows whose label is trusted in the round that is kept; pictures of maps |
| unselected | unlabelled rows whose label is not trusted |
| quarantined | damaged, changed or gone, found by the scan, by reading all of them, or while training |
| refused | left out by a rule: links, pipes, files beside the class folders, classes that nobody learns |
"""

from __future__ import annotations

import math
import warnings
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from embasis.data.class_labels import NO_LABEL, describe_alike, label_names, quote_names, sort_names
from embasis.data.standardise import all_columns, find_fine_columns, settle_columns
from embasis.errors import EmbasisError, EmbasisWarning, InputDataError, quote, require
from embasis.types import Arrays, Fine, LabelSchema, Problem, RejectedFile

SIDE_NAMES = LABELLED, UNLABELLED, TEST = "labelled", "unlabelled", "test"
LEVELS = ("error", "warning", "note")
Values = ArrayLike | Tensor
MASK_CURES = {
    "y": "rows without a label are marked −1 for fit and left out of score",
    "sample_weight": "give the rows that shall not count the weight 0",
}
"""What to do about masked values; of features, whatever they are called: FILL_MASKED."""
FILL_MASKED = "fill them with values or leave their rows out"


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
        labels, rows = self.labels, len(self.x)
        require(labels is None or len(labels) == rows, f"{self.name}: {rows} rows but {len(labels or [])} labels")

    @property
    def classes(self) -> set[str]:
        """The classes that occur."""
        return set(self.labels or []) - {NO_LABEL}


@dataclass(frozen=True)
class Finding:
    """One thing that a check of data met: an error stops training, a warning may spoil it, a note is good to know."""

    level: Literal["error", "warning", "note"]
    text: str
    rejected: tuple[RejectedFile, ...] = field(default=(), compare=False)
    """The files it counts that cannot be used, all of them, where it counts files."""


@contextmanager
def collect_errors(findings: list[Finding]) -> Iterator[None]:
    """What is refused in this block becomes a finding."""
    try:
        yield
    except InputDataError as error:
        findings.append(Finding("error", str(error)))


@dataclass(eq=False)
class ErrorLog:
    """The errors of each step of a pass over data: collected where all are to be listed, else the first is raised."""

    collects: bool
    errors: dict[str, list[Finding]] = field(default_factory=lambda: defaultdict(list))

    def step(self, name: str) -> AbstractContextManager[None]:
        """Errors inside are those of this step, or raised."""
        return collect_errors(self.errors[name]) if self.collects else nullcontext()

    def gather(self, *steps: str) -> list[Finding]:
        """The errors of these steps, in this order."""
        return [error for step in steps for error in self.errors[step]]


def to_findings(level: Literal["error", "warning", "note"], *texts: str) -> list[Finding]:
    """A finding of each text that is not empty."""
    return [Finding(level, text) for text in texts if text]


def sort_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Errors first, then warnings, then notes."""
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))


def report_classes(name: str, labels: Iterable[str], unit: str, number: str = "") -> list[Finding]:
    """How many rows or images each class has (`number`: the format of a count), and which look the same."""
    counts = Counter(label for label in labels if label)
    text = ", ".join(f"{quote(label)} {counts[label]:{number}}" for label in sort_names(counts))
    few = [label for label in counts if counts[label] < 2]
    rare = f"{name}: classes with under 2 {unit}: {quote_names(few)}" if few else ""
    number_of = "1 class" if len(counts) == 1 else f"{len(counts)} classes"
    notes = to_findings("note", f"{name}: {number_of}: {text}")
    return notes + to_findings("warning", rare, describe_alike(name, counts))


def warn_of_leak(leak: str, unit: str, forbid: bool) -> None:
    """A warning, or an error, if rows to score on are labelled ones, as `leak` says."""
    require(not (leak and forbid), f"{leak}; remove them from one side (data.forbid_leakage=true)")
    if leak:
        text = f"{leak}: scores on the test {unit} are too good"
        warnings.warn(EmbasisWarning(text), stacklevel=4)  # the caller of whoever loads


@dataclass(frozen=True)
class Account:
    """What became of the files of one side."""

    seen: int
    used: int
    unselected: int
    quarantined: int
    refused: int

    def __str__(self) -> str:
        parts = asdict(self)
        seen = parts.pop("seen")
        return f"{seen:,} seen = " + " + ".join(f"{count:,} {name}" for name, count in parts.items())

    @property
    def is_even(self) -> bool:
        """Whether every file is accounted for."""
        return self.seen == self.used + self.unselected + self.quarantined + self.refused


def account_for_files(
    problem: Problem, late: Mapping[str, Sequence[RejectedFile]], trusted: int | None
) -> dict[str, Account]:
    """The account of each side; `late`: rows that were lost while training; `trusted`: None where all rows are used."""
    accounts = {}
    for name, side in zip(SIDE_NAMES, (problem.labelled, problem.unlabelled, problem.test), strict=True):
        if side is None:
            continue
        kinds = Counter(item.kind for item in problem.rejected if item.side == name)
        lost = len({item.name for item in late.get(name, ())})
        rows = len(side) - lost
        used = min(trusted, rows) if name == UNLABELLED and trusted is not None else rows
        # A table has seen its rows; files were counted, before a person's labels moved some to the other side.
        seen = len(side) + kinds["quarantined"] + kinds["refused"]
        if problem.files_seen is not None and name in problem.files_seen:
            moved = {LABELLED: problem.corrected, UNLABELLED: -problem.corrected}
            seen = problem.files_seen[name] + moved.get(name, 0)
        account = Account(seen, used, rows - used, kinds["quarantined"] + lost, kinds["refused"])
        require(account.is_even, f"the ledger of the {name} side does not add up: {account}", EmbasisError)
        accounts[name] = account
    return accounts


def from_arrays(
    x: Values,
    y: Values,
    unlabelled: Values,
    *,
    hidden_labels: Values | None = None,
    names: Sequence[str] | None = None,
    test: tuple[Values, Values] | None = None,
) -> Problem:
    """A problem from arrays or tensors: rows x with labels y of any kind, rows `unlabelled` without.

    `hidden_labels` are true labels of the unlabelled rows, for evaluation only; `names` fixes the classes and their
    order.
    """
    known = None if hidden_labels is None else label_names(hidden_labels, "hidden")
    rows = check_numbers(unlabelled, "unlabelled")
    if known is not None:
        require(len(known) == len(rows), f"hidden: {len(known)} labels, unlabelled has {len(rows)} rows")
    one = make_side("labelled", check_numbers(x, "labelled"), label_names(y, "labelled"))
    two, last = make_side("unlabelled", rows, known), None
    if test is not None:
        always = all_columns((one.fine, two.fine))
        last = make_side("test", check_numbers(test[0], "test"), label_names(test[1], "test"), always)
    return join_sides(one, two, test=last, names=names)


def make_side(name: str, rows: NDArray[Any], labels: list[str] | None, always: Collection[int] = ()) -> Side:
    """A side of checked rows; the columns of `always` are those that another side has fine."""
    return Side(name, to_float32(rows), labels, fine=find_fine_columns(rows, always))


def join_sides(
    labelled: Side,
    unlabelled: Side,
    *,
    test: Side | None = None,
    names: Sequence[str] | None = None,
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
    require(not unnamed, f"{labelled.name}: classes that are not in names: {quote_names(unnamed)}")
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
    )


def require_labels(side: Side) -> None:
    """Every row of a side that must be labelled has a label."""
    labels = side.labels or [NO_LABEL] * len(side.x)
    missing = labels.count(NO_LABEL)
    require(not missing, f"{side.name}: {missing} of {len(labels)} rows have no label (empty, NaN or -1)")


def require_classes(side: Side) -> None:
    """A labelled side with at least two classes."""
    got = f"1 class: {quote_names(side.classes)}" if side.classes else "none"
    require(len(side.classes) >= 2, f"{side.name}: at least 2 classes are needed, got {got}")


def require_shape(labelled: Side, side: Side) -> None:
    """Rows of the side have the shape of the labelled ones."""
    here, there = tuple(side.x.shape[1:]), tuple(labelled.x.shape[1:])
    if len(here) == len(there) == 1:
        require(here == there, f"{side.name}: {here[0]} features, {labelled.name} has {there[0]}")
    require(here == there, f"{side.name}: rows of shape {here}, {labelled.name} has {there}")


def require_known(side: Side, names: Sequence[str]) -> None:
    """A side that has no class beyond `names`; else both differences by name."""
    extra, lacking = side.classes - set(names), set(names) - side.classes
    absent = f"; classes only on the labelled side: {quote_names(lacking)}" if lacking else ""
    require(not extra, f"{side.name}: classes that the labelled side lacks: {quote_names(extra)}{absent}")


def _class_numbers(side: Side, schema: LabelSchema) -> Tensor:
    number = {name: index for index, name in enumerate(schema.names)} | {NO_LABEL: schema.ignore}
    return torch.tensor([number[label] for label in side.labels or []], dtype=torch.int64)


def to_float32(array: NDArray[Any]) -> Tensor:
    """Numbers that were checked, as float32."""
    return torch.from_numpy(np.array(array, dtype=np.float32, order="C"))


def check_numbers(values: object, what: str, columns: Sequence[str] | None = None) -> NDArray[Any]:
    """Numbers as an array (N, …), all finite and none too large for float32, in the type that they have."""
    array = _real_array(values, what)
    shape = tuple(array.shape)
    require(len(shape) >= 2, f"{what}: 2 or more dimensions (rows, features) are needed, got shape {shape}")
    require(0 not in shape[1:], f"{what}: at least one feature is needed, got shape {shape}")
    flat = array.reshape(len(array), math.prod(array.shape[1:]))
    bad = ~np.isfinite(flat)
    if bad.any():
        count = {"NaN": int(np.isnan(flat).sum()), "inf": int(np.isinf(flat).sum())}
        got = " and ".join(f"{number} {kind}" for kind, number in count.items() if number)
        spread = f"{_count_lines(bad, 1, 'row')} and {_count_lines(bad, 0, 'column')}"
        where = f"{spread}; first at {_first_place(bad, columns)}"
        raise InputDataError(f"{what}: values must be finite, got {got} in {where}")
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


def narrow_rows(x: NDArray[Any]) -> torch.Tensor:
    """float32 rows; a value that float32 cannot hold is an error."""
    with np.errstate(over="ignore"):
        narrow = np.ascontiguousarray(x, dtype=np.float32)
    lost = int((~np.isfinite(narrow)).sum())
    require(not lost, f"X holds {lost} values that are too large for float32 (over 3.4e38)")
    return torch.from_numpy(narrow)


def refuse_masked(**given: Any) -> None:
    """No array with masked values, nor a list of such: made an array it would lose its mask and keep what is below."""
    for name, values in given.items():
        parts = values if isinstance(values, list | tuple) else [values]
        masked = sum(int(np.ma.count_masked(part)) for part in parts if isinstance(part, np.ma.MaskedArray))
        count = "1 masked value" if masked == 1 else f"{masked} masked values"
        require(not masked, f"{name} has {count}, and masks are not read: {MASK_CURES.get(name, FILL_MASKED)}")
