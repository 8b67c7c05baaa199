"""The record of a round, and its stored form: dicts, lists, strings, numbers and None.

JSON has no NaN or infinity, so such floats are stored as the strings "nan", "inf" and "-inf".
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any

from embasis.errors import CorruptError, join_names, require, reveal


@dataclass(frozen=True)
class Evaluation:
    """What true labels say of the machine-made ones. Sums and curves, so that every figure can be drawn from it."""

    rows: int
    accuracy: float
    mean_class_accuracy: float
    network_accuracy: float
    ece: float
    nll: float
    auroc: float | None
    """AUROC of the uncertainty against errors; None when all labels are right or all wrong."""
    trusted_share: float
    trusted_precision: float | None
    """None when nothing is trusted."""
    confusion: tuple[tuple[int, ...], ...]
    """[true][predicted] counts"""
    reliability: tuple[tuple[float, float, float], ...]
    """per bin of confidence: rows, Σ confidence, Σ right"""
    risk_coverage: tuple[tuple[float, float], ...]
    """(share kept, share of errors among the kept), surest first"""
    class_ece: tuple[float | None, ...] = ()
    """calibration error of the sites of each predicted class; None without any"""
    mean_iou: float | None = None
    """of label maps: mean over the classes that truly occur of intersection over union, from `confusion`"""
    class_iou: tuple[float | None, ...] = ()
    """of label maps: that of each class; None for a class that does not truly occur"""
    adaptive_ece: float | None = None
    """as `ece`, in bins with equally many rows each; this and what follows is None in records of older releases"""
    classwise_ece: float | None = None
    """mean over classes of the calibration error of the class's own probability"""
    brier: float | None = None
    """mean of Σ_c (p_c − 1[true class = c])², from 0 to 2"""
    brier_parts: tuple[float, float, float] | None = None
    """reliability, resolution, uncertainty: brier = first − second + third + what bins leave over"""
    aupr: float | None = None
    """average precision of the uncertainty against errors; None when all labels are right or all wrong"""
    aurc: float | None = None
    """area under the risk–coverage curve: mean share of errors over all coverages"""
    coverage: tuple[tuple[float, float | None], ...] = ()
    """(precision, largest share of labels, surest first, that reaches it; None where none does)"""
    spread: tuple[tuple[float, int, int], ...] = ()
    """per bin of uncertainty, clamped to [0, 1]: upper edge, right labels, wrong labels"""
    confidence: float | None = None
    """mean stated probability of the labels: the accuracy that they claim"""


@dataclass(frozen=True)
class RoundRecord:
    """One round, as it is written to rounds.jsonl. Times are not in it: a record depends on data and seed alone.

    Parameters
    ----------
    round : its number; 0 is the source model
    status : "ok", "no_change" (nothing trusted), "source_kept" (adaptation would harm) or "collapsed"
    loss : mean loss of the round's training steps
    unlabelled : sites of the unlabelled side
    trusted : how many of their labels the next round trains on
    class_counts, trusted_counts : labels, and trusted labels, of each class on the unlabelled side
    changed : share of labels that differ from the round before
    scores : label-free scores (engine/scores.py); higher is better
    facts : numbers that the labeller has learned: sharpness, components in use, …
    evaluation, test : figures by hidden labels, and by those of the test set; None without any
    notes : sentences that a person should read
    """

    round: int
    status: str
    loss: float
    unlabelled: int
    trusted: int
    class_counts: tuple[int, ...]
    trusted_counts: tuple[int, ...]
    changed: float
    scores: Mapping[str, float]
    facts: Mapping[str, float] = field(default_factory=dict)
    evaluation: Evaluation | None = None
    test: Evaluation | None = None
    notes: tuple[str, ...] = ()


def record_to_json(record: RoundRecord) -> dict[str, Any]:
    """The record as dicts, lists, strings, numbers and None."""
    plain: dict[str, Any] = _to_json(record)
    return plain


def record_from_json(value: Mapping[str, Any]) -> RoundRecord:
    """The record that `record_to_json` was given; CorruptError when a key or a value is not as it writes them.

    Fields with a default may be missing: records of older releases do not have them."""
    record: RoundRecord = _from_json(RoundRecord, value, "round")
    return record


def _to_json(value: Any) -> Any:
    if is_dataclass(value):
        return {part.name: _to_json(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, Mapping):
        return {key: _to_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_to_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(value))
    return value


def _from_json(kind: Any, value: Any, where: str) -> Any:
    """`value` as the annotated type `kind`; `where` names it in the message."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if is_dataclass(kind):
        return _dataclass_from_json(kind, value, where)
    if origin in (types.UnionType, typing.Union):
        inner = next(argument for argument in arguments if argument is not type(None))
        return None if value is None else _from_json(inner, value, where)
    if origin is tuple:
        require(isinstance(value, list), f"{where} must be a list, got {_brief(value)}", CorruptError)
        if arguments[-1] is Ellipsis:
            arguments = (arguments[0],) * len(value)
        rule = f"{where} must have {len(arguments)} values, got {len(value)}"
        require(len(value) == len(arguments), rule, CorruptError)
        pairs = enumerate(zip(arguments, value, strict=True))
        return tuple(_from_json(part, item, f"{where}[{i}]") for i, (part, item) in pairs)
    if origin is not None:  # Mapping[str, float]
        require(isinstance(value, Mapping), f"{where} must be an object, got {_brief(value)}", CorruptError)
        return {str(key): _from_json(arguments[1], item, f"{where}.{reveal(str(key))}") for key, item in value.items()}
    return _scalar_from_json(kind, value, where)


def _dataclass_from_json(kind: Any, value: Any, where: str) -> Any:
    require(isinstance(value, Mapping), f"{where} must be an object, got {_brief(value)}", CorruptError)
    kinds = {part.name: typing.get_type_hints(kind)[part.name] for part in fields(kind)}
    since = {part.name for part in fields(kind) if part.default is not MISSING or part.default_factory is not MISSING}
    missing = [name for name in kinds if name not in value and name not in since]
    unknown = [reveal(str(name)) for name in value if name not in kinds]
    require(not missing, f"{where} lacks the keys {join_names(missing)}", CorruptError)
    require(not unknown, f"{where} has unknown keys {join_names(unknown)}; known: {join_names(kinds)}", CorruptError)
    given = {name: part for name, part in kinds.items() if name in value}
    return kind(**{name: _from_json(part, value[name], f"{where}.{name}") for name, part in given.items()})


def _scalar_from_json(kind: Any, value: Any, where: str) -> Any:
    if kind is float:
        if isinstance(value, str) and value in ("nan", "inf", "-inf"):
            return float(value)
        fits = isinstance(value, float) or (type(value) is int and abs(value) < 2**1023)
        require(fits, f"{where} must be a number, got {_brief(value)}", CorruptError)
        return float(value)
    if kind is int:
        require(type(value) is int, f"{where} must be a whole number, got {_brief(value)}", CorruptError)
        return value
    require(isinstance(value, kind), f"{where} must be a {kind.__name__}, got {_brief(value)}", CorruptError)
    return value


def _brief(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."
