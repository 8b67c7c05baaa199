"""Other compositions of a method, written down: `{"labeller.mixture.guided": False}` instead of nested `replace` calls.

The ablation, studies and the config of a run folder name changes like this; in Python the same is
`replace(method, labeller=replace(method.labeller, mixture=replace(method.labeller.mixture, guided=False)))`.
A whole part is changed by the name of its class, such as `{"labeller.start": "StageOne"}`, or taken away by None.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import msgspec

from embasis.errors import ConfigError, known, quoted, require
from embasis.methods.em_basis.fusion import Fusion
from embasis.methods.em_basis.head import CountHead, LinearHead
from embasis.methods.em_basis.labeller import EMBasisLabeller
from embasis.methods.em_basis.start import ClassMeans, StageOne, WarmStart
from embasis.types import Method

PLAIN = (int, float, str, bool)


def make_stage_one(labeller: EMBasisLabeller) -> StageOne:
    """Stage I with as many components as the class means have that it takes the place of."""
    start = labeller.start
    return StageOne(start.components_per_class * labeller.classes if isinstance(start, ClassMeans) else 0)


def make_warm_start(labeller: EMBasisLabeller) -> WarmStart:
    """The present start for the first round alone."""
    return labeller.start if isinstance(labeller.start, WarmStart) else WarmStart(labeller.start)


PARTS: Mapping[str, Mapping[str, Callable[[EMBasisLabeller], Any]]] = {
    "start": {"ClassMeans": lambda _: ClassMeans(), "StageOne": make_stage_one, "WarmStart": make_warm_start},
    "head": {"LinearHead": lambda _: LinearHead(), "CountHead": lambda _: CountHead()},
    "fusion": {"Fusion": lambda _: Fusion()},
}
"""The whole parts of an EMBasisLabeller that can be changed by name."""


def replace_parts(method: Method, changes: Mapping[str, Any]) -> Method:
    """The method with these fields changed; whole parts first, then fields of them."""
    for path in sorted(changes, key=lambda path: (path.count("."), path)):
        method = replace_at(method, path.split("."), changes[path], path)
    return method


def part_of(method: Method, path: str) -> Any:
    """The value at a path; None where there is no such part."""
    value: Any = method
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def replace_at(owner: Any, names: list[str], value: Any, path: str) -> Any:
    """`owner` with the field at the end of `names` changed."""
    name, *rest = names
    own = [field.name for field in fields(owner)] if is_dataclass(owner) else []
    rule = f"the method has no part {quoted(path)}: {type(owner).__name__} has {known(own) or 'no fields'}"
    require(name in own, rule, ConfigError)
    if rest:
        return replace(owner, **{name: replace_at(getattr(owner, name), rest, value, path)})
    return replace(owner, **{name: whole_part(owner, name, value, path)})


def whole_part(owner: Any, name: str, value: Any, path: str) -> Any:
    """A plain value, checked by the type of its field, or a part by its name."""
    if isinstance(owner, EMBasisLabeller) and name in PARTS:
        if value is None and name == "fusion":
            return None
        kinds = PARTS[name]
        rule = f"{path} must be one of {', '.join(kinds)}, got {quoted(value)}"
        require(isinstance(value, str) and value in kinds, rule, ConfigError)
        return kinds[value](owner)
    hint = typing.get_type_hints(type(owner))[name]
    require(hint in PLAIN, f"{path} is a part, which has fields of its own", ConfigError)
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}, got {quoted(value)}") from error
