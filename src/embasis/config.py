"""Settings: frozen, from a TOML file and key=value words; an unknown key is an error that lists the known ones.

| table | its keys are |
| --- | --- |
| (top) | seed, standardise, save_seconds |
| [data] | labelled, unlabelled, test, label, id, drop, for images also ImageOptions; or dataset and its settings |
| [method] | name and the arguments of METHODS[name] |
| [align] | name and the arguments of ALIGNMENT[name]: beside a method that labels; and ends, its last round |
| [network] | name and the arguments of BACKBONES[name]; for label maps also backbone, weights, pretrained |
| [learner] | another name of [network]: name and the arguments of LEARNERS[name] |
| [plan], [images], [maps] | the fields of types.Plan, ImagePlan, MapPlan |

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

from embasis.data import DATASETS
from embasis.data.formats import read_text
from embasis.data.segmentation.pairs import is_map_folder
from embasis.errors import ConfigError, find_alike, join_names, lookup, quote, refuse_unknown, require
from embasis.learners import LEARNERS
from embasis.methods import ALIGNMENT, METHODS
from embasis.methods.parts import upgrade_settings, where_it_went
from embasis.networks import BACKBONES, PRETRAINED, SEGMENTERS
from embasis.networks.pretrained import is_timm_model
from embasis.types import ImagePlan, MapPlan, Plan

Table = dict[str, Any]
EntryFunction = Callable[..., Any]


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run, as the user wants it; `runs.parts.build` fills in the rest."""

    seed: int = 0
    standardise: str = "auto"
    save_seconds: float = 60.0
    data: Table = {}
    method: Table = {}
    align: Table = {}
    network: Table = {}
    plan: Table = {}
    images: Table = {}
    maps: Table = {}
    parts: Table = {}


TABLES = ("data", "method", "align", "network", "plan", "images", "maps")
LEARNER = "learner"
"""Another name of the table `network`, where a learner of tables is named."""
TOP = ("seed", "standardise", "save_seconds")
PRESETS = Path(__file__).parent / "presets"
IMAGE_DATA = ("follow_links", "allow_empty_class", "allow_missing_class", "forbid_leakage", "budget")
OF_BACKBONE = ("backbone", "weights", "pretrained")
"""Settings of [network] that choose what a network for label maps is built on."""
MAP_SETS = ("embasis.data.datasets.scenes", "embasis.data.datasets.street_sets")
"""Modules of data sets with label maps."""
LEGACY_PLAN = {
    "batch": "batch_size", "accumulate": "accumulate_steps", "decay": "lr_power",
    "reservoir": "max_sites", "choose": "keep_round", "warp": "augment",
}  # fmt: skip
"""Settings of [plan] of version 0.1.0 → their names now: its run folders load, and who writes an old name is told."""
DATA_KEYS = ("labelled", "unlabelled", "test", "label", "id", "drop", "classes", "corrections", "dataset", *IMAGE_DATA)
PLAN_KEYS = {
    "plan": tuple(field for field in Plan.__dataclass_fields__ if field != "seed"),
    "images": tuple(ImagePlan.__dataclass_fields__),
    "maps": tuple(MapPlan.__dataclass_fields__),
}


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
        rule = f"config: {name} must be a table of settings, got {quote(raw.get(name))}"
        require(isinstance(raw.get(name, {}), dict), rule, ConfigError)
    for name, table in tables.items():
        raw[name] = {**raw.get(name, {}), **{key: value for key, value in (table or {}).items() if value is not None}}
    raw = name_learner(raw)
    raw = raw if preset is None else lay_over(read_preset(preset), raw)
    for word in overrides:
        key, sign, text = word.partition("=")
        require(sign and key, f"settings are written key=value, got {quote(word)}", ConfigError)
        set_value(raw, key.strip(), parse_value(text))
    return make_config(raw)


def name_learner(raw: Table) -> Table:
    """The table [learner] as [network], which it is another name of; a ConfigError where both name something."""
    learner = raw.get(LEARNER, {})
    require(
        isinstance(learner, dict), f"config: {LEARNER} must be a table of settings, got {quote(learner)}", ConfigError
    )
    if "name" in learner:
        lookup(LEARNERS, str(learner["name"]), LEARNER)
    network = raw.get("network", {})
    both = "name" in learner and network.get("name", learner["name"]) != learner["name"]
    clash = f"network {quote(network.get('name'))} and learner {quote(learner.get('name'))} are two for one model"
    require(not both, f"{clash}: leave one out", ConfigError)
    rest = {key: value for key, value in raw.items() if key != LEARNER}
    return {**rest, "network": {**network, **learner}} if learner else rest


def make_config(raw: Table) -> Config:
    """Raw tables as a Config; unknown keys are refused."""
    try:
        config = msgspec.convert(raw, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"config: {error}; known keys: {join_names((*TOP, *TABLES))}") from error
    rule = f"save_seconds must be at least 0 and finite, got {config.save_seconds}"
    require(0 <= config.save_seconds < math.inf, rule, ConfigError)
    return config


def presets() -> tuple[str, ...]:
    """Names of the settings that come with embasis, sorted."""
    return tuple(sorted(path.stem for path in PRESETS.glob("*.toml")))


def read_preset(name: str) -> Table:
    """The tables of a preset, or a ConfigError that lists what is known."""
    if name not in presets():
        refuse_unknown(name, presets(), "preset")
    return read_settings(PRESETS / f"{name}.toml")


def lay_over(preset: Table, given: Table) -> Table:
    """What is given, and the preset where nothing is. Tables of the user's stand in for the preset's data set."""
    tables = {name: {**preset.get(name, {}), **given.get(name, {})} for name in TABLES}
    if "labelled" in given.get("data", {}) and "dataset" not in given["data"]:
        tables["data"].pop("dataset", None)
    return {**preset, **given, **tables}


def read_settings(path: str | Path) -> Table:
    """The tables of a .toml file, or of a run folder's config.json; a ConfigError names the line."""
    try:
        text = read_text(path)
        tables = msgspec.json.decode(text) if Path(path).suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"cannot read config {path}: {error.strerror}") from error
    except (ValueError, msgspec.DecodeError, RecursionError) as error:  # ValueError: TOML, UTF-8, long numbers
        raise ConfigError(f"config {path}: {error}") from error
    rule = f"config {path}: tables of settings are expected, got a list or a value"
    require(isinstance(tables, dict), rule, ConfigError)
    if Path(path).suffix == ".json":
        return upgrade_config(tables)
    rule = f"config {path}: unknown key 'parts'; known keys: {join_names((*TOP, *TABLES))}"
    require("parts" not in tables, rule, ConfigError)
    return dict(tables)


def upgrade_config(tables: Mapping[str, Any]) -> Table:
    """The config of a run folder, whichever release wrote it, with the settings of this one."""
    if isinstance(tables.get("plan"), Mapping):
        tables = {**tables, "plan": {LEGACY_PLAN.get(key, key): value for key, value in tables["plan"].items()}}
    network = tables.get("network")
    if isinstance(network, Mapping) and network.get("name") == "small_cnn" and "width" in network:
        tables = {**tables, "network": {"norm": False, **network}}  # all settings are there; old ones had no norm
    if not isinstance(tables.get("method"), Mapping):
        return dict(tables)
    method, parts = upgrade_settings(tables["method"], known_keys({"method": dict(tables["method"])})["method"])
    own = tables.get("parts") or {}
    return {**tables, "method": method, **({"parts": {**parts, **own}} if parts or own else {})}


def refuse_old_name(key: str, table: str = "") -> None:
    """A ConfigError for a setting of an older release that names its place now; a `table` leaves out the others."""
    if key in LEGACY_PLAN and table != "method":
        raise ConfigError(f"plan.{key} is called plan.{LEGACY_PLAN[key]} now")
    if table != "plan" and (sentence := where_it_went(key)) is not None:
        raise ConfigError(sentence)


def set_value(raw: Table, name: str, value: Any) -> None:
    """Set one value by its dotted name, `plan.rounds`, or by its bare name where only one table knows it."""
    *tables, key = name.split(".")
    require(len(tables) <= 1, f"a key has at most one dot, got {quote(name)}", ConfigError)
    if not tables and key in TOP:
        raw[key] = value
        return
    table = tables[0] if tables else find_table(raw, key)
    if table == LEARNER:
        table = "network"
        if key == "name":
            lookup(LEARNERS, str(value), LEARNER)
    if table not in TABLES:
        refuse_unknown(table, TABLES, "table")
    raw[table] = {**raw.get(table, {}), key: value}


def find_table(raw: Table, key: str) -> str:
    """The one table that knows the key."""
    keys = known_keys(raw)
    tables = [table for table in TABLES if key in keys[table]]
    if len(tables) > 1 and "maps" in tables:  # as in size and workers: the data decide which is meant
        tables = ["maps"] if has_maps(raw) else [table for table in tables if table != "maps"]
    if not tables:
        refuse_old_name(key)
        listing = "; ".join(f"{table}: {join_names(keys[table])}" for table in TABLES if keys[table])
        meant = find_alike_key(key, keys)
        question = f" did you mean {meant}?" if meant else ""
        raise ConfigError(f"unknown key {quote(key)};{question} known keys: {join_names(TOP)}; {listing}")
    full_names = " or ".join(f"{table}.{key}" for table in tables)
    require(len(tables) == 1, f"{quote(key)} is ambiguous: write {full_names}", ConfigError)
    return tables[0]


def find_alike_key(key: str, keys: Mapping[str, Sequence[str]]) -> str:
    """The setting that a bare name is nearly called, with its table: `plan.rounds` for `round`; or nothing."""
    full = {name: f"{table}.{name}" for table in TABLES for name in keys[table]} | {name: name for name in TOP}
    return full.get(find_alike(key, full), "")


def has_maps(raw: Table) -> bool:
    """Whether the data of these settings have label maps."""
    data = raw.get("data", {})
    if "labelled" in data:
        return is_map_folder(str(data["labelled"]))
    return getattr(DATASETS.get(str(data.get("dataset"))), "__module__", "") in MAP_SETS


def known_keys(raw: Table) -> dict[str, tuple[str, ...]]:
    """The keys of each table, given the method, network and data set that the settings name."""
    keys = dict(PLAN_KEYS)
    # Without a name the data decide between the defaults for tables and for images, so the keys of both are known. A
    # comparison names several methods, with commas between them.
    for table, default in (("method", "em_basis"), ("network", "linear,efficientnet_lite0")):
        names = str(raw.get(table, {}).get("name", default)).split(",")
        entries = [registry(table).get(network_family(name) if table == "network" else name) for name in names]
        keys[table] = ("name", *dict.fromkeys(key for entry in entries if entry for key in setting_names(entry)))
    aligner = registry("align").get(str(raw.get("align", {}).get("name")))
    keys["align"] = ("name", "ends", *(setting_names(aligner) if aligner else ()))
    if raw.get("network", {}).get("name") in SEGMENTERS:
        keys["network"] += OF_BACKBONE
    entry = registry("data").get(str(raw.get("data", {}).get("dataset")))
    return {**keys, "data": (*DATA_KEYS, *(inspect.signature(entry).parameters if entry else ()))}


def registry(table: str) -> Mapping[str, EntryFunction]:
    """The entries that a table's `name`, or `dataset`, can be."""
    networks: Mapping[str, Any] = {**BACKBONES, **PRETRAINED, **SEGMENTERS, **LEARNERS}
    tables: dict[str, Mapping[str, Any]] = {
        "method": METHODS, "align": ALIGNMENT, "network": networks, "data": DATASETS,
    }  # fmt: skip
    return tables[table]


def find_entry(table: str, name: str) -> EntryFunction:
    """The registry's entry, or a ConfigError that lists what is known."""
    kind, known = {"data": "data set", "align": "alignment method"}.get(table, table), registry(table)
    key = network_family(name) if table == "network" else name
    labels = table == "align" and name in METHODS and name not in ALIGNMENT
    cure = f"name it by --method; alignment methods: {join_names(ALIGNMENT)}"
    require(not labels, f"{name} does not align, it labels: {cure}", ConfigError)
    if table == "network" and key not in known and is_timm_model(name):
        refuse_unknown(name, known, kind, meant=f"timm:{name}")
    return lookup(known, key, kind)


def network_family(name: str) -> str:
    """The registry's name of a network: "timm:resnet50" is an entry of "timm"."""
    return name.partition(":")[0]


def setting_names(entry: EntryFunction) -> tuple[str, ...]:
    """A method's or network's settings are its keyword-only arguments."""
    parameters = inspect.signature(entry).parameters.values()
    return tuple(parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY)


def bind_settings(kind: str, entry: EntryFunction, settings: Mapping[str, Any], names: Sequence[str]) -> Table:
    """`settings` checked against the entry's signature: names and types, with its defaults filled in."""
    parameters = inspect.signature(entry).parameters
    hints = typing.get_type_hints(entry.__init__ if inspect.isclass(entry) else entry)
    for key, value in settings.items():
        if kind in ("method", "plan") and key not in names:
            refuse_old_name(key, kind)
        if key not in names:
            refuse_unknown(key, names, f"{kind} setting")
        check_type(f"{kind}.{key}", value, hints[key])
    values = {name: settings.get(name, parameters[name].default) for name in names}
    return {  # 3 becomes 3.0 where the hint is float, so that equal settings are written equally
        name: float(value) if hints[name] is float and isinstance(value, int) else value
        for name, value in values.items()
        if value is not inspect.Parameter.empty
    }


def bind_entry(table: str, name: str, given: Mapping[str, Any]) -> Table:
    """The settings of a registry's entry with its defaults, checked; `given` may hold the name, too."""
    entry = find_entry(table, name)
    own = {key: value for key, value in given.items() if key != "name"}
    return bind_settings(table, entry, own, setting_names(entry))


def check_type(name: str, value: Any, hint: Any) -> None:
    """An int where the hint is int, a number where it is float; True is not a number."""
    allowed = typing.get_args(hint) or (hint,)
    types = {int: int, float: int | float, str: str, bool: bool, type(None): type(None)}
    fits = any(isinstance(value, types.get(option, ())) for option in allowed)
    fits = fits and (not isinstance(value, bool) or bool in allowed)
    words = {int: "a whole number", float: "a number", str: "a word", bool: "true or false"}
    expected = " or ".join(words.get(option, str(option)) for option in allowed if option is not type(None))
    require(fits, f"{name} must be {expected}, got {quote(value)}", ConfigError)
    finite = not isinstance(value, float) or math.isfinite(value)
    require(finite, f"{name} must be finite, got {quote(value)}", ConfigError)


def parse_value(text: str) -> Any:
    """A TOML value; what is none is a word."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        plain = text.strip()
        return float(plain) if re.fullmatch(r"[+-]?\.[0-9]+", plain) else plain
