"""Config and problem -> network, method, plan; every default filled in and written down."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from embasis import config as settings
from embasis.config import Config
from embasis.data.class_labels import listed
from embasis.data.standardise import Standardiser
from embasis.engine.calibration import refuse_unheld
from embasis.engine.holdout import training_part
from embasis.errors import ConfigError, EmbasisWarning, known, quoted, require
from embasis.inputs.image_inputs import ImageInputs
from embasis.inputs.map_inputs import SMALL, MapInputs, is_maps, open_map_inputs
from embasis.methods.parts import part_of, replace_parts
from embasis.networks import BACKBONES, PRETRAINED
from embasis.networks.network import Network
from embasis.randomness import seeded
from embasis.types import Arrays, Method, Plan, Problem, Samples, fine_of

PLANS: Mapping[str, Mapping[str, Any]] = {
    "linear": {"optimiser": "lbfgs", "batch_size": 0, "source_epochs": 4, "epochs": 2, "weight_decay": 0.1},
    "mlp": {"optimiser": "adam", "batch_size": 64, "source_epochs": 30, "epochs": 6, "weight_decay": 1e-3},
    "small_cnn": {
        "optimiser": "adam", "batch_size": 128, "source_epochs": 30, "epochs": 6, "weight_decay": 1e-4, "augment": 1.0,
    },
    "images": {
        "optimiser": "sgd", "batch_size": 32, "source_epochs": 5, "epochs": 1, "source_lr": 1e-3, "lr": 1e-3,
        "weight_decay": 5e-4, "rounds": 3,
    },
    "small_fcn": {
        "optimiser": "adam", "batch_size": 8, "source_epochs": 16, "epochs": 3, "source_lr": 8e-3, "lr": 4e-3,
        "weight_decay": 1e-4, "rounds": 6, "lr_power": 0.9, "max_sites": 65_536,
    },
    "maps": {
        "optimiser": "adam", "batch_size": 8, "source_epochs": 6, "epochs": 2, "source_lr": 1e-3, "lr": 5e-4,
        "weight_decay": 1e-4, "rounds": 3, "lr_power": 0.9, "max_sites": 65_536,
    },
}  # fmt: skip
"""What each network trains well with ("images": a backbone, in part or in full; "maps": one for label maps); a plan's
own keys win."""
CENTRING = "labeller.mixture.centring"
"""The field of a part that hangs on the data."""


@dataclass(frozen=True, eq=False)
class RunParts:
    """All objects of a run, and the settings they were made from with no default left out."""

    problem: Problem
    network: nn.Module
    method: Method
    plan: Plan
    standardiser: Standardiser | None
    resolved: dict[str, Any]
    shape: tuple[int, ...]
    """Of one input."""
    front: ImageInputs | None = None
    """How image files become inputs, where the data are images."""
    maps: MapInputs | None = None
    """How pictures become inputs, where they have label maps."""


def build(problem: Problem, config: Config, front: ImageInputs | None = None) -> RunParts:
    """Standardise, make the network, the method and the plan; `front` has made the problem's rows from images."""
    refuse_unused(problem, config, front)
    if is_maps(problem):
        return build_mapped(problem, config)
    shape, classes = input_shape(problem.labelled), len(problem.schema)
    mode = config.standardise
    if mode == "auto":
        mode = ("joint" if problem.same_domain else "domain") if len(shape) == 1 else "none"
    rows = mode == "none" or front is None or front.plan.depth == "frozen"
    deep = "is for rows in memory; at depth partial and full the network scales by itself: leave standardise out"
    require(rows, f"standardise = {mode} {deep}", ConfigError)
    kind, network, network_settings = make_network(shape, classes, config, front)
    method, plan, resolved = make_method_and_plan(problem, config, kind)
    files = "; image files have images.augment" if front is not None else ""
    rule = f"plan.augment = {plan.augment} is for pictures in arrays, (channels, height, width){files}"
    refused = f"{rule}; the rows here have shape {shape}"
    require(not plan.augment or (len(shape) == 3 and front is None), refused, ConfigError)
    standardiser = Standardiser.fit(training_part(problem, plan), mode)
    resolved |= {
        "standardise": mode,
        "network": network_settings,
        "images": front.resolved() if front is not None else {},
        "maps": {},
    }
    if standardiser is None:
        warn_of_loss(problem)
    prepared = standardiser.transform(problem) if standardiser else problem
    network = network.to(device_for(plan, front is not None and front.plan.depth != "frozen"))
    return RunParts(prepared, network, method, plan, standardiser, resolved, shape, front)


def warn_of_loss(problem: Problem) -> None:
    """Rows that are not centred lose what float32 cannot hold of them."""
    if (fine := fine_of(problem.labelled)) is None:
        return
    names = [str(column) if problem.columns is None else problem.columns[column] for column in fine.columns.tolist()]
    what = f"float32 loses the differences of {len(names)} of the columns, which are small beside their size"
    cure = "leave standardise out, or subtract a number near their size from them"
    warnings.warn(EmbasisWarning(f"standardise = none: {what}: {listed(names)}; {cure}"), stacklevel=3)


def build_mapped(problem: Problem, config: Config) -> RunParts:
    """The same for pictures with label maps."""
    scaled = f"standardise = {config.standardise} is for rows in memory; networks of pictures scale by themselves"
    require(config.standardise in ("auto", "none"), scaled, ConfigError)
    front, network = open_map_inputs(problem, config)
    method, plan, resolved = make_method_and_plan(
        problem, config, "small_fcn" if front.identity == "scratch" else "maps"
    )
    warped = (
        f"plan.augment = {plan.augment} is for pictures in arrays; pictures with label maps have views of their own"
    )
    require(not plan.augment, warped, ConfigError)
    resolved |= {"standardise": "none", "network": front.network, "images": {}, "maps": front.resolved()}
    return finished_mapped(problem, front, network, method, plan, resolved)


def finished_mapped(
    problem: Problem, front: MapInputs, network: Network, method: Method, plan: Plan, resolved: dict[str, Any]
) -> RunParts:
    """The network on its device, with its window, and the sides made ready for it."""
    network.window = front.plan.window // network.multiple * network.multiple
    ready = front.ready(problem, network)
    network = network.to(device_for(plan, front.identity != "scratch"))
    return RunParts(ready, network, method, plan, None, resolved, front.shape, None, front)


def refuse_unused(problem: Problem, config: Config, front: ImageInputs | None) -> None:
    """Settings of another kind of data are a mistake."""
    none = "have label maps, whose settings begin with maps" if is_maps(problem) else "are none"
    unused = f"images settings are for images, the data {none}: {', '.join(config.images)}"
    require(front is not None or not config.images, unused, ConfigError)
    unused = f"maps settings are for label maps, the data have none: {', '.join(config.maps)}"
    require(is_maps(problem) or not config.maps, unused, ConfigError)


def make_method_and_plan(problem: Problem, config: Config, kind: str) -> tuple[Method, Plan, dict[str, Any]]:
    """The method and the plan, and the settings that they were made from."""
    name, classes = str(config.method.get("name", "em_basis")), len(problem.schema)
    method_settings = bound("method", name, without_name(config.method))
    plan_keys = [key for key in Plan.__dataclass_fields__ if key != "seed"]
    plan_settings = settings.bind("plan", Plan, {**PLANS[kind], **config.plan}, plan_keys)
    plan = Plan(**plan_settings, seed=config.seed)
    recipe = settings.entry_of("method", name)(classes, **method_settings)
    parts = parts_for(recipe, config.parts, problem.same_domain)
    method = replace_parts(recipe, parts)
    refuse_unheld(method, plan)
    return method, plan, {
        "seed": config.seed,
        "standardise": config.standardise,
        "save_seconds": config.save_seconds,
        "data": dict(config.data),
        "method": {"name": name, **method_settings},
        "network": {},
        "plan": plan_settings,
        **({"parts": parts} if parts else {}),
    }  # fmt: skip


def parts_for(method: Method, given: Mapping[str, Any], same_domain: bool) -> dict[str, Any]:
    """The parts of the recipe that are changed: those that are given; two sides of one domain are centred together."""
    together = same_domain and CENTRING not in given and part_of(method, CENTRING) == "domain"
    return {**given, **({CENTRING: "joint"} if together else {})}


def validate_settings(problem: Problem, config: Config, front: ImageInputs) -> dict[str, Any]:
    """Build everything on one empty row: what is wrong with the settings is said before any image is read."""
    shape = (front.backbone.features,) if front.plan.depth == "frozen" else (3, 1, 1)
    side = Arrays.of(torch.zeros(1, *shape), torch.zeros(1, dtype=torch.int64))
    empty = replace(
        problem, labelled=side, unlabelled=Arrays.of(side.x[:0]), test=None, hidden_labels=None, row_names=None
    )
    return build(empty, config, front).resolved


def make_network(
    shape: tuple[int, ...], classes: int, config: Config, front: ImageInputs | None
) -> tuple[str, nn.Module, dict[str, Any]]:
    """What is trained, the name its plan goes by, and the settings it was made from."""
    if front is not None and front.plan.depth != "frozen":
        return "images", front.head(classes), front.network
    default = "linear" if len(shape) == 1 else "small_cnn"
    name = front.plan.head if front is not None else str(config.network.get("name", default))
    given = without_name(config.network) if front is None else {}
    family = settings.family(name)
    entry, plain = settings.entry_of("network", name), [name for name in BACKBONES if name != SMALL]
    kind = "image files" if entry in PRETRAINED.values() else "pictures with label maps"
    require(family in plain, f"network {quoted(name)} is for {kind}; known for arrays: {known(plain)}", ConfigError)
    own = bound("network", name, given)
    with seeded(config.seed, "network"):
        network = BACKBONES[name](shape, classes, **own)
    return name, network, {"name": name, **own} if front is None else front.network


def device_for(plan: Plan, deep: bool) -> torch.device:
    """Where training runs: a GPU by itself only for deep networks, where it pays."""
    wanted = plan.device
    if wanted == "auto":
        wanted = "cuda" if deep and torch.cuda.is_available() else "cpu"
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
