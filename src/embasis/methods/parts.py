"""Other compositions of a method, written down: `{"labeller.mixture.guided": False}` instead of nested `replace` calls.

The ablation, studies and the config of a run folder name changes like this; in Python the same is
`replace(method, labeller=replace(method.labeller, mixture=replace(method.labeller.mixture, guided=False)))`.
A whole part is changed by the name of its class, such as `{"labeller.start": "StageOne"}`, or taken away by None.

Settings of version 0.1.0 that are fields of parts now are changes, too: so its run folders load. Only what reads a run
folder's config uses `upgrade_settings`; a person who writes an old name gets a sentence with the new one.
"""

from __future__ import annotations

import typing
from collections.abc import Container, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import msgspec

from embasis.errors import ConfigError, IncompatibleError, join_names, quote, require
from embasis.types import Method

PLAIN_TYPES = (int, float, str, bool)

LEGACY_SETTINGS = {
    "keep": "keep_first",
    "step": "keep_step",
    "cap": "keep_max",
    "weight": "unlabelled_weight",
    "per_class": "components_per_class",
}
"""Old name → new name, of all methods that have it."""
LEGACY_VALUES = {("recalibration", "witness"): "reference"}
"""(Setting, old value) → the word for the same today."""
START, HEAD, SELECTOR = "labeller.start", "labeller.head", "selector"
MOVED_SETTINGS: Mapping[str, tuple[str, Any]] = {
    "perplexity": ("labeller.mixture.perplexity", 0.0),
    "kernel": ("labeller.mixture.kernel", "dot"),
    "centring": ("labeller.mixture.centring", "domain"),
    "joint": ("labeller.mixture.guided", True),
    "start": (START, "class_means"),
    "carry": (START, False),
    "orthogonal": (f"{START}.orthogonal", 1.0),
    "reconstruction": (f"{START}.reconstruction", 1.0),
    "affinity": (f"{START}.affinity", 1.0),
    "head": (HEAD, "linear"),
    "head_penalty": (f"{HEAD}.penalty", 1e-3),
    "variance_weight": (f"{HEAD}.variance_weight", 0.0),
    "balance_weight": (f"{HEAD}.balance_weight", 1.0),
    "sigma": (f"{HEAD}.sigma", 0.0),
    "draws": (f"{HEAD}.draws", 0),
    "evidence": ("labeller.fusion.weight", 1.0),
    "temper": ("labeller.fusion.soften", True),
    "least_agreement": ("labeller.fusion.min_kappa", 0.35),
    "prior": ("labeller.fusion.class_priors", "auto"),
    "prior_strength": ("labeller.fusion.prior_strength", 1.0),
    "uncertainty": ("labeller.rank_by", "total_sum"),
    "select": (f"{SELECTOR}.selects", "class"),
    "labels": (f"{SELECTOR}.labels", "mode"),
    "temperature": (f"{SELECTOR}.temperature", 1.0),
    "weights": (f"{SELECTOR}.weights", "equal"),
    "floor": (f"{SELECTOR}.floor", 0.05),
}
"""Old setting of em_basis → the field of a part that it is now, and the value that does what em_basis does."""
LEGACY_RANKINGS = {"total_sum": "gini", "between_sum": "between"}
"""Kinds of uncertainty that are left."""


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


def replace_at(part: Any, names: list[str], value: Any, path: str) -> Any:
    """`part` with the field at the end of `names` changed."""
    name, *rest = names
    own = [field.name for field in fields(part)] if is_dataclass(part) else []
    rule = f"the method has no part {quote(path)}: {type(part).__name__} has {join_names(own) or 'no fields'}"
    require(name in own, rule, ConfigError)
    if rest:
        return replace(part, **{name: replace_at(getattr(part, name), rest, value, path)})
    return replace(part, **{name: new_value(part, name, value, path)})


def new_value(part: Any, name: str, value: Any, path: str) -> Any:
    """What the field `name` of `part` becomes: a whole part by its name, or a plain value checked by its type."""
    kinds = part.alternatives(name) if hasattr(part, "alternatives") else {}
    if kinds:
        if value is None and None in kinds:
            return None
        words = [kind for kind in kinds if kind is not None]
        rule = f"{path} must be one of {', '.join(words)}, got {quote(value)}"
        require(isinstance(value, str) and value in kinds, rule, ConfigError)
        return kinds[value]
    hint = typing.get_type_hints(type(part))[name]
    require(hint in PLAIN_TYPES, f"{path} is a part, which has fields of its own", ConfigError)
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}, got {quote(value)}") from error


def upgrade_settings(method: Mapping[str, Any], known: Container[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A [method] table with today's settings, and the changes of parts that its old ones stand for; a setting that the
    method has today (`known`) is no old name: the weight of an aligner is its own."""
    renamed = {
        key if key in known else LEGACY_SETTINGS.get(key, key): legacy_value(key, value)
        for key, value in method.items()
    }
    if method.get("name", "em_basis") != "em_basis":
        return renamed, {}
    moved = {key: renamed.pop(key) for key in MOVED_SETTINGS if key in renamed}
    changed = {key: value for key, value in moved.items() if value != MOVED_SETTINGS[key][1]}
    changes: dict[str, Any] = {"labeller.neighbours": None} if moved else {}  # version 0.1.0 had none
    for key, value in changed.items():
        path = MOVED_SETTINGS[key][0]
        if key == "uncertainty":
            changes[path] = ranking_of(value)
        elif path == START:
            changes[path] = "StageOne" if moved.get("start") == "stage1" else "WarmStart"
        elif path == HEAD:
            changes[path] = "CountHead"
        elif is_used(path, changed):
            changes[path] = value
    return renamed, changes


def legacy_value(key: str, value: Any) -> Any:
    """The value of a setting by today's word."""
    return LEGACY_VALUES.get((key, value), value) if isinstance(value, str) else value


def is_used(path: str, changed: Mapping[str, Any]) -> bool:
    """Whether the part that has the field is there: weights of Stage I are nothing without it, nor are a count's."""
    if path.startswith(f"{START}."):
        return changed.get("start") == "stage1"
    return not path.startswith(f"{HEAD}.") or "head" not in changed


def ranking_of(kind: Any) -> str:
    """The ranking that an old kind of uncertainty is; an IncompatibleError for one that is not left."""
    rule = f"the run ranks its labels by uncertainty = {quote(kind)}, which this version does not have"
    require(isinstance(kind, str) and kind in LEGACY_RANKINGS, f"{rule}; use version 0.1.0", IncompatibleError)
    return LEGACY_RANKINGS[kind]


def where_it_went(key: str) -> str | None:
    """A sentence for a setting that has another name now or is the field of a part; None for any other word."""
    if key in LEGACY_SETTINGS:
        return f"method.{key} is called method.{LEGACY_SETTINGS[key]} now"
    if key not in MOVED_SETTINGS:
        return None
    path, _ = MOVED_SETTINGS[key]
    python = f"in Python: embasis.methods.parts.replace_parts(method, {{{path!r}: …}})"
    return (
        f"method.{key} is no setting any more, it is the part {path} ({python}); em_basis_paper has the paper's parts"
    )
