"""Config and problem -> network, method, plan; every default filled in and written down."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from embasis import config as settings
from embasis.config import Config
from embasis.data.standard import Standardiser
from embasis.errors import ConfigError, require
from embasis.randomness import seeded
from embasis.types import Method, Plan, Problem, Samples

PLANS: Mapping[str, Mapping[str, Any]] = {
    "linear": {"optimiser": "lbfgs", "batch": 0, "source_epochs": 4, "epochs": 2, "weight_decay": 0.1},
    "mlp": {"optimiser": "adam", "batch": 64, "source_epochs": 30, "epochs": 6, "weight_decay": 1e-3},
    "small_cnn": {"optimiser": "adam", "batch": 128, "source_epochs": 10, "epochs": 3, "weight_decay": 1e-4},
}
"""What each network trains well with; a plan's own keys win."""


@dataclass(frozen=True, eq=False)
class Built:
    """All objects of a run, and the settings they were made from with no default left out."""

    problem: Problem
    network: nn.Module
    method: Method
    plan: Plan
    standardiser: Standardiser | None
    resolved: dict[str, Any]


def build(problem: Problem, config: Config) -> Built:
    """Standardise, make the network, the method and the plan."""
    shape, classes = input_shape(problem.labelled), len(problem.schema)
    network_name = str(config.network.get("name", "linear" if len(shape) == 1 else "small_cnn"))
    method_name = str(config.method.get("name", "em_basis"))
    network_settings = bound("network", network_name, without_name(config.network))
    method_settings = bound("method", method_name, without_name(config.method))
    if method_settings.get("centring") == "domain" and "centring" not in config.method and problem.shared:
        method_settings["centring"] = "joint"
    mode = config.standardise
    if mode == "auto":
        mode = ("joint" if problem.shared else "domain") if len(shape) == 1 else "none"
    plan_keys = [name for name in Plan.__dataclass_fields__ if name != "seed"]
    plan_settings = settings.bind("plan", Plan, {**PLANS[network_name], **config.plan}, plan_keys)
    plan = Plan(**plan_settings, seed=config.seed)
    method = settings.entry_of("method", method_name)(classes, **method_settings)
    with seeded(config.seed, "network"):
        network = settings.entry_of("network", network_name)(shape, classes, **network_settings)
    standardiser = Standardiser.fit(problem, mode)
    resolved = {
        "seed": config.seed,
        "standardise": mode,
        "save_seconds": config.save_seconds,
        "data": dict(config.data),
        "method": {"name": method_name, **method_settings},
        "network": {"name": network_name, **network_settings},
        "plan": plan_settings,
    }
    prepared = standardiser.transform(problem) if standardiser else problem
    return Built(prepared, network, method, plan, standardiser, resolved)


def bound(table: str, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The entry's settings with its defaults, checked."""
    entry = settings.entry_of(table, name)
    return settings.bind(table, entry, given, settings.settings_of(entry))


def without_name(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table's settings."""
    return {key: value for key, value in table.items() if key != "name"}


def input_shape(samples: Samples) -> tuple[int, ...]:
    """The shape of one input."""
    require(len(samples) > 0, "labelled: at least one row is needed, got none")
    return tuple(samples.inputs(torch.tensor([0])).shape[1:])


def fingerprint(problem: Problem) -> dict[str, str]:
    """sha256 of each side of the data: a run goes on only with what it began with."""
    sides = {"labelled": problem.labelled, "unlabelled": problem.unlabelled, "test": problem.test}
    hashes = {name: side_hash(side) for name, side in sides.items() if side is not None}
    hidden = b"" if problem.hidden is None else problem.hidden.numpy().tobytes()
    names = "\x1f".join(problem.schema.names).encode()
    return {**hashes, "labels": hashlib.sha256(names + b"\x1e" + hidden).hexdigest()}


def side_hash(samples: Samples) -> str:
    """sha256 over inputs, labels and ids."""
    digest = hashlib.sha256(f"{len(samples)}".encode())
    for rows in torch.arange(len(samples)).split(4096):
        digest.update(samples.inputs(rows).contiguous().numpy().tobytes())
    digest.update(samples.labels.numpy().tobytes() + samples.ids.numpy().tobytes())
    return digest.hexdigest()


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """`key: old → new` for every setting that differs."""
    lines = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            lines += differences(before, after, f"{prefix}{key}.")
        elif before != after:
            lines.append(f"{prefix}{key}: {before!r} → {after!r}")
    return lines


def refuse_changed_config(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """A run folder belongs to one config; how often it saves may change."""
    lines = [line for line in differences(old, new) if not line.startswith(("save_seconds", "data."))]
    require(
        not lines,
        f"the run folder was begun with other settings: {'; '.join(lines)}; use another folder, or the old settings",
        ConfigError,
    )
