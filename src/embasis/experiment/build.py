"""Config and problem -> network, method, plan; every default filled in and written down."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from embasis import config as settings
from embasis.config import Config
from embasis.data.image.samples import Images
from embasis.data.standard import Standardiser
from embasis.errors import ConfigError, known, require
from embasis.experiment.front import Front, Kept
from embasis.networks import BACKBONES
from embasis.randomness import seeded
from embasis.types import Arrays, Method, Plan, Problem, Samples

PLANS: Mapping[str, Mapping[str, Any]] = {
    "linear": {"optimiser": "lbfgs", "batch": 0, "source_epochs": 4, "epochs": 2, "weight_decay": 0.1},
    "mlp": {"optimiser": "adam", "batch": 64, "source_epochs": 30, "epochs": 6, "weight_decay": 1e-3},
    "small_cnn": {"optimiser": "adam", "batch": 128, "source_epochs": 10, "epochs": 3, "weight_decay": 1e-4},
    "images": {
        "optimiser": "sgd", "batch": 32, "source_epochs": 5, "epochs": 1, "source_lr": 1e-3, "lr": 1e-3,
        "weight_decay": 5e-4, "rounds": 3,
    },
}  # fmt: skip
"""What each network trains well with ("images": a backbone, in part or in full); a plan's own keys win."""


@dataclass(frozen=True, eq=False)
class Built:
    """All objects of a run, and the settings they were made from with no default left out."""

    problem: Problem
    network: nn.Module
    method: Method
    plan: Plan
    standardiser: Standardiser | None
    resolved: dict[str, Any]
    shape: tuple[int, ...]
    """Of one input."""
    front: Front | None = None
    """How image files become inputs, where the data are images."""


def build(problem: Problem, config: Config, front: Front | None = None) -> Built:
    """Standardise, make the network, the method and the plan; `front` has made the problem's rows from images."""
    shape, classes = input_shape(problem.labelled), len(problem.schema)
    unused = f"images settings are for images, the data are none: {', '.join(config.images)}"
    require(front is not None or not config.images, unused, ConfigError)
    method_name = str(config.method.get("name", "em_basis"))
    method_settings = bound("method", method_name, without_name(config.method))
    if method_settings.get("centring") == "domain" and "centring" not in config.method and problem.shared:
        method_settings["centring"] = "joint"
    mode = config.standardise
    if mode == "auto":
        mode = ("joint" if problem.shared else "domain") if len(shape) == 1 else "none"
    rows = mode == "none" or front is None or front.plan.depth == "frozen"
    deep = "is for rows in memory; at depth partial and full the network scales by itself: leave standardise out"
    require(rows, f"standardise = {mode} {deep}", ConfigError)
    plan_keys = [name for name in Plan.__dataclass_fields__ if name != "seed"]
    kind, network, network_settings = make_network(shape, classes, config, front)
    plan_settings = settings.bind("plan", Plan, {**PLANS[kind], **config.plan}, plan_keys)
    plan = Plan(**plan_settings, seed=config.seed)
    method = settings.entry_of("method", method_name)(classes, **method_settings)
    standardiser = Standardiser.fit(problem, mode)
    resolved = {
        "seed": config.seed,
        "standardise": mode,
        "save_seconds": config.save_seconds,
        "data": dict(config.data),
        "method": {"name": method_name, **method_settings},
        "network": network_settings,
        "plan": plan_settings,
        "images": front.resolved() if front is not None else {},
    }
    prepared = standardiser.transform(problem) if standardiser else problem
    network = network.to(device_for(plan, front))
    return Built(prepared, network, method, plan, standardiser, resolved, shape, front)


def rehearse(problem: Problem, config: Config, front: Front) -> dict[str, Any]:
    """Build everything on one empty row: what is wrong with the settings is said before any image is read."""
    shape = (front.backbone.features,) if front.plan.depth == "frozen" else (3, 1, 1)
    side = Arrays.of(torch.zeros(1, *shape), torch.zeros(1, dtype=torch.int64))
    empty = replace(problem, labelled=side, unlabelled=Arrays.of(side.x[:0]), test=None, hidden=None, row_names=None)
    return build(empty, config, front).resolved


def make_network(
    shape: tuple[int, ...], classes: int, config: Config, front: Front | None
) -> tuple[str, nn.Module, dict[str, Any]]:
    """What is trained, the name its plan goes by, and the settings it was made from."""
    if front is not None and front.plan.depth != "frozen":
        return "images", front.head(classes), front.network
    default = "linear" if len(shape) == 1 else "small_cnn"
    name = front.plan.head if front is not None else str(config.network.get("name", default))
    given = without_name(config.network) if front is None else {}
    family = settings.family(name)
    rule = f"network {name!r} is for image files; known for arrays: {known(BACKBONES)}"
    settings.entry_of("network", name)
    require(family in BACKBONES, rule, ConfigError)
    own = bound("network", name, given)
    with seeded(config.seed, "network"):
        network = BACKBONES[name](shape, classes, **own)
    return name, network, {"name": name, **own} if front is None else front.network


def device_for(plan: Plan, front: Front | None) -> torch.device:
    """Where training runs: a GPU by itself only for networks of images, where it pays."""
    wanted = plan.device
    if wanted == "auto":
        wanted = "cuda" if front is not None and front.plan.depth != "frozen" and torch.cuda.is_available() else "cpu"
    require(wanted != "cuda" or torch.cuda.is_available(), "plan.device = cuda, but torch finds no GPU", ConfigError)
    return torch.device(wanted)


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
    if isinstance(samples, Images | Kept):
        digests = samples.digests if isinstance(samples, Kept) else [file.digest for file in samples.files]
        digest.update(b"".join(digests))
    else:
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
