"""Config and problem -> network, method, plan; every default filled in and written down."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from embasis import config as settings
from embasis.config import Config
from embasis.data.class_labels import quote_names
from embasis.data.compare_sides import recognise_one_domain
from embasis.data.standardise import Standardiser
from embasis.distributed import current_world
from embasis.engine.calibration import refuse_unheld
from embasis.engine.holdout import training_part
from embasis.engine.learner import refuse_for_learner
from embasis.errors import ConfigError, EmbasisWarning, join_names, require
from embasis.inputs import Inputs
from embasis.inputs.load import open_inputs
from embasis.inputs.restyled_rows import keep_restyled_rows
from embasis.learners import LEARNER_PLAN
from embasis.methods.parts import part_of, replace_parts
from embasis.resources import require_disk, require_memory
from embasis.types import Method, Plan, Problem, fine_of

PLANS: Mapping[str, Mapping[str, Any]] = {
    "linear": {"optimiser": "lbfgs", "batch_size": 0, "source_epochs": 4, "epochs": 2, "weight_decay": 0.1},
    "mlp": {"optimiser": "adam", "batch_size": 64, "source_epochs": 30, "epochs": 6, "weight_decay": 1e-3},
    "adapter": {"optimiser": "adam", "batch_size": 64, "source_epochs": 30, "epochs": 6, "weight_decay": 1e-3},
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
    LEARNER_PLAN: {"batch_size": 0, "source_epochs": 1, "epochs": 1, "weight_decay": 0.0},
}  # fmt: skip
"""What each network trains well with ("images": a backbone, in part or in full; "maps": one for label maps;
"learner": a classifier that is fitted at once); a plan's own keys win."""
CENTRING_PART = "labeller.mixture.centring"
"""The field of a part that hangs on the data."""
ONE_DOMAIN_LIMIT = 2.0
"""plan.harm_limit where both sides come from one place: there the nearest labelled rows can be believed."""
SHARED_PARTS = 8
"""Parts of a training step, where several processes share it and the settings name no other number."""
GENERATIONS = 3
"""Two that stay and one that is being written."""
COPIES = {"sgd": 2, "adam": 3, "lbfgs": 22}
"""Of the weights, while training: gradients and what the optimiser keeps (two times ten steps for L-BFGS)."""
LABEL_BYTES = 8
"""Bytes of a label in a table, when it is packed best."""


@dataclass(frozen=True, eq=False)
class RunSettings:
    """The settings of a run with no default left out, and the objects that need nothing but them."""

    method: Method
    plan: Plan
    standardise: str
    device: torch.device
    resolved: dict[str, Any]


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
    inputs: Inputs
    """How the data become inputs of the network."""


def build(problem: Problem, config: Config, inputs: Inputs | None = None, *, compares: bool = True) -> RunParts:
    """Resolve all settings, make the network and standardise; `inputs`: those that have read the problem's files;
    `compares`: False = whether the sides come from one domain was asked before."""
    inputs = inputs or open_inputs(problem, config)
    config, shape, classes = inputs.fill_config(config, problem), inputs.input_shape(problem), len(problem.schema)
    if compares and config.standardise == "auto" and len(shape) == 1:
        problem = recognise_one_domain(problem)
    network = inputs.make_network(config, shape, classes)  # first, to refuse rows that it cannot take
    chosen = resolve_settings(config, inputs, shape, classes, problem.same_domain)
    refuse_fixed_features(chosen.method, network)
    refuse_for_learner(chosen.method, chosen.plan, network)
    standardiser = None
    if chosen.standardise != "none":
        standardiser = Standardiser.fit(training_part(problem, chosen.plan), chosen.standardise)
    if standardiser is None:
        warn_of_loss(problem)
    standardised = standardiser.transform(problem) if standardiser else problem
    prepared = keep_restyled_rows(inputs.prepare(standardised, network), chosen.method, config)
    network = network.to(chosen.device)
    return RunParts(prepared, network, chosen.method, chosen.plan, standardiser, chosen.resolved, shape, inputs)


def resolve_settings(
    config: Config, inputs: Inputs, shape: tuple[int, ...], classes: int, same_domain: bool
) -> RunSettings:
    """Every default filled in, and everything checked that needs no data: what is wrong is an error before reading."""
    chosen = inputs.resolve(config, shape, same_domain)
    method, plan, resolved = make_method_and_plan(config, chosen.plan_name, classes, same_domain)
    inputs.refuse_plan(plan, shape)
    return RunSettings(method, plan, chosen.standardise, device_for(plan, chosen.is_deep), resolved | chosen.resolved)


def refuse_fixed_features(method: Method, network: nn.Module) -> None:
    """A ConfigError where an aligner is to draw features together that nothing can change."""
    extractor = getattr(network, "extractor", None)
    if method.align is None or not method.align.trains_features or not isinstance(extractor, nn.Module):
        return
    cure = (
        "network.name=adapter adds a layer to tables, images.head=adapter or images.depth=partial trains one for images"
    )
    rule = f"{method.align.name} needs features that can be trained, and this network has none; {cure}"
    require(any(weight.requires_grad for weight in extractor.parameters()), rule, ConfigError)


def resolve_for_problem(problem: Problem, config: Config, inputs: Inputs) -> RunSettings:
    """The settings of a run on this problem, whose files need not have been read yet."""
    shape, config = inputs.input_shape(problem), inputs.fill_config(config, problem)
    return resolve_settings(config, inputs, shape, len(problem.schema), problem.same_domain)


def warn_of_loss(problem: Problem) -> None:
    """Rows that are not centred lose what float32 cannot hold of them."""
    if (fine := fine_of(problem.labelled)) is None:
        return
    names = [str(column) if problem.columns is None else problem.columns[column] for column in fine.columns.tolist()]
    what = f"float32 loses the differences of {len(names)} of the columns, which are small beside their size"
    cure = "leave standardise out, or subtract a number near their size from them"
    warnings.warn(EmbasisWarning(f"standardise = none: {what}: {quote_names(names)}; {cure}"), stacklevel=3)


def make_method_and_plan(
    config: Config, plan_name: str, classes: int, same_domain: bool
) -> tuple[Method, Plan, dict[str, Any]]:
    """The method and the plan, and the settings that they were made from."""
    name = str(config.method.get("name", "em_basis"))
    method_settings = settings.bind_entry("method", name, config.method)
    guard = {"harm_limit": ONE_DOMAIN_LIMIT} if same_domain else {}
    given = {**PLANS[plan_name], **guard, **config.plan}
    plan_settings = settings.bind_settings("plan", Plan, given, settings.PLAN_KEYS["plan"])
    plan = Plan(**plan_settings, seed=config.seed)
    recipe = settings.find_entry("method", name)(classes, **method_settings)
    parts = dict(config.parts)
    if same_domain and CENTRING_PART not in parts and part_of(recipe, CENTRING_PART) == "domain":
        parts[CENTRING_PART] = "joint"  # two sides of one domain are centred together
    aligner_settings, aligned = choose_aligner(config, recipe, classes)
    method = replace(replace_parts(recipe, parts), align=aligned.align, restyle=aligned.restyle)
    refuse_unheld(method, plan)
    if current_world().size > 1:
        plan = share_steps(config, method, plan)
        plan_settings["accumulate_steps"] = plan.accumulate_steps
    return method, plan, {
        "seed": config.seed,
        "standardise": config.standardise,
        "save_seconds": config.save_seconds,
        "data": dict(config.data),
        "method": {"name": name, **method_settings},
        "network": {},
        "plan": plan_settings,
        **({"align": aligner_settings} if aligner_settings else {}),
        **({"parts": parts} if parts else {}),
    }  # fmt: skip


def share_steps(config: Config, method: Method, plan: Plan) -> Plan:
    """The plan of several processes: steps in SHARED_PARTS parts unless the settings say so; an aligner's training is
    not shared, and what a restyler makes is not either."""
    rule = f"{method.name} restyles pictures, which works in one process; start it without torchrun"
    require(method.restyle is None, rule, ConfigError)
    given = "accumulate_steps" in config.plan or method.align is not None
    return plan if given else replace(plan, accumulate_steps=SHARED_PARTS)


def choose_aligner(config: Config, method: Method, classes: int) -> tuple[dict[str, Any], Method]:
    """The settings of [align], and the method with the aligner and the restyler that these name beside its own; by
    default the aligner acts in its first round."""
    if not config.align:
        return {}, method
    known = join_names(settings.registry("align"))
    require("name" in config.align, f"align.name is missing; known: {known}", ConfigError)
    name = str(config.align["name"])
    given = {key: value for key, value in config.align.items() if key not in ("name", "ends")}
    bound = settings.bind_entry("align", name, given)
    own, beside = {"name": name, **bound}, settings.find_entry("align", name)(classes, **bound)
    twice = (method.align and beside.align) or (method.restyle and beside.restyle)
    clash = f"{method.name} aligns by itself: leave align.name={name} out, or take another method"
    require(twice is None, clash, ConfigError)
    aligner = beside.align
    if aligner is None:
        rule = f"{name} acts before the first round alone: leave align.ends out"
        require("ends" not in config.align, rule, ConfigError)
        return own, replace(method, restyle=beside.restyle)
    ends = config.align.get("ends", aligner.begins)
    rule = f"align.ends must be a round from {aligner.begins} on, got {ends!r}"
    require(isinstance(ends, int) and ends >= aligner.begins, rule, ConfigError)
    restyler = method.restyle or beside.restyle
    return {**own, "ends": ends}, replace(method, align=replace(aligner, ends=ends), restyle=restyler)


def device_for(plan: Plan, deep: bool) -> torch.device:
    """Where training runs: a GPU by itself only for deep networks, where it pays."""
    wanted = plan.device
    if wanted == "auto":
        wanted = "cuda" if deep and torch.cuda.is_available() else "cpu"
    require(wanted != "cuda" or torch.cuda.is_available(), "plan.device = cuda, but torch finds no GPU", ConfigError)
    return torch.device(wanted)


def require_run_room(parts: RunParts, folder: Path) -> None:
    """The run's folder has room for its generations and labels, and memory for the optimiser."""
    weights = sum(tensor.numel() * tensor.element_size() for tensor in parts.network.state_dict().values())
    begun = (folder / "HEAD").exists()  # then all but the next generation is there already
    rows = 0 if begun else LABEL_BYTES * len(parts.problem.unlabelled) * (parts.plan.rounds + 1)
    need = weights * (1 if begun else GENERATIONS) + rows
    require_disk(folder, need, "the run folder", "free some, or name a folder on another disk with -o")
    copies = COPIES.get(parts.plan.optimiser, 2) * weights
    if next(parts.network.parameters(), torch.zeros(0)).device.type == "cpu":
        hint = "take a smaller network, or plan.optimiser=sgd, which keeps less"
        require_memory(copies, f"training {weights:,} bytes of weights by {parts.plan.optimiser}", hint)
