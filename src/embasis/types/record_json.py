"""The stored form of a round's record: dicts, lists, strings, numbers and None.

JSON has no NaN or infinity, so such floats are stored as the strings "nan", "inf" and "-inf".
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from embasis.errors import CorruptError, known, require, visible
from embasis.types.records import RoundRecord


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
        return {str(key): _from_json(arguments[1], item, f"{where}.{visible(str(key))}") for key, item in value.items()}
    return _scalar_from_json(kind, value, where)


def _dataclass_from_json(kind: Any, value: Any, where: str) -> Any:
    require(isinstance(value, Mapping), f"{where} must be an object, got {_brief(value)}", CorruptError)
    kinds = {part.name: typing.get_type_hints(kind)[part.name] for part in fields(kind)}
    since = {part.name for part in fields(kind) if part.default is not MISSING or part.default_factory is not MISSING}
    missing = [name for name in kinds if name not in value and name not in since]
    unknown = [visible(str(name)) for name in value if name not in kinds]
    require(not missing, f"{where} lacks the keys {known(missing)}", CorruptError)
    require(not unknown, f"{where} has unknown keys {known(unknown)}; known: {known(kinds)}", CorruptError)
    found = {name: part for name, part in kinds.items() if name in value}
    return kind(**{name: _from_json(part, value[name], f"{where}.{name}") for name, part in found.items()})


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
