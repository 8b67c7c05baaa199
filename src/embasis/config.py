"""Settings: frozen, from a TOML file and key=value words; an unknown key is an error that lists the known ones.

| table | its keys are |
| --- | --- |
| (top) | seed, standardise, save_seconds |
| [data] | labelled, unlabelled, test, label, id — or dataset and the settings of that data set; for image folders also
  the fields of data.folders.ImageOptions |
| [method] | name and the arguments of METHODS[name] |
| [network] | name and the arguments of BACKBONES[name]; for label maps also backbone, weights, pretrained |
| [plan] | the fields of types.Plan |
| [images] | the fields of types.ImagePlan |
| [maps] | the fields of types.MapPlan |

A run folder's config.json may also have `parts`: changes of the method's parts (methods/parts.py), made in Python or by
settings of an older release.
"""

from __future__ import annotations

import inspect
import math
import re
import tomllib
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from embasis.errors import ConfigError, known, lookup, quoted, require

Table = dict[str, Any]


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run, as the user asked for it; `experiment.build` fills in the rest."""

    seed: int = 0
    standardise: str = "auto"
    save_seconds: float = 60.0
    data: Table = {}
    method: Table = {}
    network: Table = {}
    plan: Table = {}
    images: Table = {}
    maps: Table = {}
    parts: Table = {}


TABLES = ("data", "method", "network", "plan", "images", "maps")
TOP = ("seed", "standardise", "save_seconds")
PRESETS = Path(__file__).parent / "presets"
IMAGE_DATA = ("follow_links", "allow_empty_class", "allow_missing_class", "forbid_leakage", "budget")
OF_BACKBONE = ("backbone", "weights", "pretrained")
"""Settings of [network] that choose what a network for label maps is built on."""
MAP_SETS = ("embasis.data.datasets.scenes", "embasis.data.datasets.street_sets")
"""Modules of data sets with label maps."""
LEGACY_PLAN = {
    "batch": "batch_size",
    "accumulate": "accumulate_steps",
    "decay": "lr_power",
    "reservoir": "max_sites",
    "choose": "keep_round",
    "warp": "augment",
}
"""Settings of [plan] of version 0.1.0 → their names now: its run folders load, and who writes an old name is told."""
DATA_KEYS = ("labelled", "unlabelled", "test", "label", "id", "classes", "corrections", "dataset", *IMAGE_DATA)


def load(
    path: str | Path | None = None,
    overrides: Sequence[str] = (),
    top: Table | None = None,
    preset: str | None = None,
    **tables: Table | None,
) -> Config:
    """A config from a preset, a TOML file, the given values and tables, then key=value words; later ones win."""
    raw = read_settings(path) if path is not None else {}
    raw |= top or {}
    for name in TABLES:
        rule = f"config: {name} must be a table of settings, got {quoted(raw.get(name))}"
        require(isinstance(raw.get(name, {}), dict), rule, ConfigError)
    for name, table in tables.items():
        raw[name] = {**raw.get(name, {}), **{key: value for key, value in (table or {}).items() if value is not None}}
    raw = raw if preset is None else above(read_preset(preset), raw)
    for word in overrides:
        put(raw, word)
    return resolve(raw)


def resolve(raw: Table) -> Config:
    """Raw tables as a Config; unknown keys are refused."""
    try:
        config = msgspec.convert(raw, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"config: {error}; known keys: {known((*TOP, *TABLES))}") from error
    rule = f"save_seconds must be at least 0 and finite, got {config.save_seconds}"
    require(0 <= config.save_seconds < math.inf, rule, ConfigError)
    return config


def presets() -> tuple[str, ...]:
    """Names of the settings that come with embasis, sorted."""
    return tuple(sorted(path.stem for path in PRESETS.glob("*.toml")))


def read_preset(name: str) -> Table:
    """The tables of a preset, or a ConfigError that lists what is known."""
    require(name in presets(), f"unknown preset {quoted(name)}; known: {known(presets())}", ConfigError)
    return read_settings(PRESETS / f"{name}.toml")


def above(preset: Table, given: Table) -> Table:
    """What is given, and the preset where nothing is. Tables of the user's stand in for the preset's data set."""
    tables = {name: {**preset.get(name, {}), **given.get(name, {})} for name in TABLES}
    if "labelled" in given.get("data", {}) and "dataset" not in given["data"]:
        tables["data"].pop("dataset", None)
    return {**preset, **given, **tables}


def read_settings(path: str | Path) -> Table:
    """The tables of a .toml file, or of a run folder's config.json; a ConfigError says the line."""
    from embasis.data.tables.formats import read_text

    try:
        text = read_text(path)
        tables = msgspec.json.decode(text) if Path(path).suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"cannot read config {path}: {error.strerror}") from error
    except (ValueError, msgspec.DecodeError, RecursionError) as error:  # ValueError: TOML, UTF-8, long numbers
        raise ConfigError(f"config {path}: {error}") from error
    require(
        isinstance(tables, dict), f"config {path}: tables of settings are expected, got a list or a value", ConfigError
    )
    if Path(path).suffix == ".json":
        return upgrade(tables)
    rule = f"config {path}: unknown key 'parts'; known keys: {known((*TOP, *TABLES))}"
    require("parts" not in tables, rule, ConfigError)
    return dict(tables)


def upgrade(tables: Mapping[str, Any]) -> Table:
    """The config of a run folder, whichever release wrote it, with the settings of this one."""
    from embasis.methods.parts import upgrade_settings

    if isinstance(tables.get("plan"), Mapping):
        tables = {**tables, "plan": {LEGACY_PLAN.get(key, key): value for key, value in tables["plan"].items()}}
    if not isinstance(tables.get("method"), Mapping):
        return dict(tables)
    method, parts = upgrade_settings(tables["method"])
    own = tables.get("parts") or {}
    return {**tables, "method": method, **({"parts": {**parts, **own}} if parts or own else {})}


def refuse_moved(key: str, table: str = "") -> None:
    """A ConfigError for a setting of an older release that says where it went; a `table` leaves out the others."""
    from embasis.methods.parts import where_it_went

    if key in LEGACY_PLAN and table != "method":
        raise ConfigError(f"plan.{key} is called plan.{LEGACY_PLAN[key]} now")
    if table != "plan" and (sentence := where_it_went(key)) is not None:
        raise ConfigError(sentence)


def put(raw: Table, word: str) -> None:
    """`plan.rounds=3`, or `rounds=3` where only one table knows the key."""
    name, sign, text = word.partition("=")
    require(sign and name, f"settings are written key=value, got {quoted(word)}", ConfigError)
    place(raw, name.strip(), value_of(text))


def place(raw: Table, name: str, value: Any) -> None:
    """Set one value by its dotted name, or by its bare name where only one table knows it."""
    parts = name.split(".")
    require(len(parts) <= 2, f"a key has at most one dot, got {quoted(name)}", ConfigError)
    if len(parts) == 1 and parts[0] not in TOP:
        parts = [home_of(raw, parts[0]), parts[0]]
    if len(parts) == 1:
        raw[parts[0]] = value
        return
    require(parts[0] in TABLES, f"unknown table {quoted(parts[0])}; known: {known(TABLES)}", ConfigError)
    raw[parts[0]] = {**raw.get(parts[0], {}), parts[1]: value}


def home_of(raw: Table, key: str) -> str:
    """The one table that knows `key`."""
    keys = known_keys(raw)
    homes = [table for table in TABLES if key in keys[table]]
    if len(homes) > 1 and "maps" in homes:  # as in size and workers: the data say which is meant
        homes = ["maps"] if has_maps(raw) else [home for home in homes if home != "maps"]
    if not homes:
        refuse_moved(key)
        listing = "; ".join(f"{table}: {known(keys[table])}" for table in TABLES if keys[table])
        raise ConfigError(f"unknown key {quoted(key)}; known keys: {known(TOP)}; {listing}")
    require(
        len(homes) == 1,
        f"{quoted(key)} is ambiguous: write {' or '.join(f'{home}.{key}' for home in homes)}",
        ConfigError,
    )
    return homes[0]


def has_maps(raw: Table) -> bool:
    """Whether the data that are asked for have label maps."""
    from embasis.data.segmentation.pairs import is_map_folder

    data = raw.get("data", {})
    if "labelled" in data:
        return is_map_folder(str(data["labelled"]))
    return getattr(registry("data").get(str(data.get("dataset"))), "__module__", "") in MAP_SETS


def known_keys(raw: Table) -> dict[str, tuple[str, ...]]:
    """The keys of each table, given the method, network and data set that are asked for."""
    from embasis.networks import SEGMENTERS
    from embasis.types import ImagePlan, MapPlan, Plan

    keys = {"plan": tuple(field for field in Plan.__dataclass_fields__ if field != "seed")}
    keys |= {"images": tuple(ImagePlan.__dataclass_fields__), "maps": tuple(MapPlan.__dataclass_fields__)}
    # Without a name the data decide between the defaults for tables and for images, so the keys of both are known.
    for table, default in (("method", "em_basis"), ("network", "linear,efficientnet_lite0")):
        # A comparison names several methods, with commas between them.
        names = str(raw.get(table, {}).get("name", default)).split(",")
        entries = [registry(table).get(family(name) if table == "network" else name) for name in names]
        keys[table] = ("name", *dict.fromkeys(key for entry in entries if entry for key in settings_of(entry)))
    if raw.get("network", {}).get("name") in SEGMENTERS:
        keys["network"] += OF_BACKBONE
    entry = registry("data").get(str(raw.get("data", {}).get("dataset")))
    return {**keys, "data": (*DATA_KEYS, *(inspect.signature(entry).parameters if entry else ()))}


def registry(table: str) -> Mapping[str, Callable[..., Any]]:
    """The registry behind a table's name."""
    from embasis.data import DATASETS
    from embasis.methods import METHODS
    from embasis.networks import BACKBONES, PRETRAINED, SEGMENTERS

    networks: Mapping[str, Any] = {**BACKBONES, **PRETRAINED, **SEGMENTERS}
    datasets: Mapping[str, Any] = DATASETS
    methods: Mapping[str, Any] = METHODS
    tables: dict[str, Mapping[str, Callable[..., Any]]] = {"method": methods, "network": networks, "data": datasets}
    return tables[table]


def family(name: str) -> str:
    """The registry's name of a network: "timm:resnet50" is an entry of "timm"."""
    return name.partition(":")[0]


def settings_of(entry: Callable[..., Any]) -> tuple[str, ...]:
    """A method's or network's settings are its keyword-only arguments."""
    parameters = inspect.signature(entry).parameters.values()
    return tuple(parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY)


def bind(kind: str, entry: Callable[..., Any], settings: Mapping[str, Any], names: Sequence[str]) -> Table:
    """`settings` checked against the entry's signature: names and types, with its defaults filled in."""
    parameters = inspect.signature(entry).parameters
    hints = typing.get_type_hints(entry.__init__ if inspect.isclass(entry) else entry)
    for key, value in settings.items():
        if kind in ("method", "plan") and key not in names:
            refuse_moved(key, kind)
        require(key in names, f"unknown {kind} setting {quoted(key)}; known: {known(names) or 'none'}", ConfigError)
        check_type(f"{kind}.{key}", value, hints[key])
    return {
        name: coerce(settings.get(name, parameters[name].default), hints[name])
        for name in names
        if name in settings or parameters[name].default is not inspect.Parameter.empty
    }


def check_type(name: str, value: Any, hint: Any) -> None:
    """int where int is asked for, a number where float is; True is not a number."""
    allowed = typing.get_args(hint) or (hint,)
    fits = any(
        (option is float and isinstance(value, int | float) and not isinstance(value, bool))
        or (option is int and isinstance(value, int) and not isinstance(value, bool))
        or (option in (str, bool) and isinstance(value, option))
        or (option is type(None) and value is None)
        for option in allowed
    )
    words = {int: "a whole number", float: "a number", str: "a word", bool: "true or false", type(None): "nothing"}
    expected = " or ".join(words.get(option, str(option)) for option in allowed if option is not type(None))
    require(fits, f"{name} must be {expected}, got {quoted(value)}", ConfigError)
    finite = not isinstance(value, float) or math.isfinite(value)
    require(finite, f"{name} must be finite, got {quoted(value)}", ConfigError)


def coerce(value: Any, hint: Any) -> Any:
    """3 becomes 3.0 where a float is asked for, so that equal settings are written equally."""
    return float(value) if hint is float and isinstance(value, int) else value


def value_of(text: str) -> Any:
    """A TOML value; what is none is a word."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        plain = text.strip()
        return float(plain) if re.fullmatch(r"[+-]?\.[0-9]+", plain) else plain


def entry_of(table: str, name: str) -> Callable[..., Any]:
    """The registry's entry, or a ConfigError that lists what is known."""
    kind = {"data": "data set"}.get(table, table)
    return lookup(registry(table), family(name) if table == "network" else name, kind)
