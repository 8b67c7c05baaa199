"""Which methods a comparison runs: names, families, `alignment` or `all`.

Of a family runs only what the data and the network allow; what is left out is said, with the reason. A method that is
named is never left out: where it cannot run, its error names the cure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from torch import nn

from embasis.benchmark.compare import iter_problems
from embasis.config import Config
from embasis.errors import ConfigError, lookup, require
from embasis.inputs.load import open_inputs
from embasis.methods import ALIGNMENT, FAMILIES, METHODS
from embasis.runs.parts import resolve_for_problem
from embasis.types import Aligner, Method, Plan, Sizes

CURE = "network.name=adapter, images.head=adapter or images.depth=partial makes features trainable"


@dataclass(frozen=True)
class Choice:
    """The methods of a comparison."""

    names: tuple[str, ...]
    left_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Why some of a group do not run → their names."""

    @property
    def sentence(self) -> str:
        """What is left out and why, empty if nothing is."""
        reasons = [f"{', '.join(names)} ({reason})" for reason, names in self.left_out.items()]
        cure = f"; {CURE}" if any("trainable" in reason for reason in self.left_out) else ""
        return f"left out: {'; '.join(reasons)}{cure}" if reasons else ""


def expand_names(words: str) -> tuple[str, ...]:
    """The names of methods that the words stand for, each once, or a ConfigError that lists methods and families."""
    groups: dict[str, Mapping[str, object]] = {"all": METHODS, "alignment": ALIGNMENT, **FAMILIES}
    known = {**{name: (name,) for name in METHODS}, **{name: tuple(group) for name, group in groups.items()}}
    given = [word.strip() for word in words.split(",")]
    return tuple(dict.fromkeys(name for word in given for name in lookup(known, word, "method or family")))


def leave_out(names: Sequence[str], kept: Sequence[str], config: Config, root: str | None) -> Choice:
    """Without what the data set and the network of the settings do not allow; `kept` are named by the user."""
    candidates = [name for name in names if name not in kept and name in METHODS]
    if not candidates:
        return Choice(tuple(names))
    dataset = str(config.data["dataset"])
    _, problem = next(iter(iter_problems(dataset, config.seed, root, config.data)))
    plain = msgspec.structs.replace(config, method={"name": "source_only"}, align={}, parts={})
    inputs, classes = open_inputs(problem, plain), len(problem.schema)
    shape, plan = inputs.input_shape(problem), resolve_for_problem(problem, plain, inputs).plan
    network = inputs.make_network(plain, shape, classes)
    reasons = dict[str, tuple[str, ...]]()
    for name in candidates:
        method = METHODS[name](classes)
        obstacle = find_obstacle(method, network, plan, inputs.kind.has_maps, len(shape) > 1)
        if not obstacle and method.align is not None and not inputs.kind.has_maps:
            obstacle = try_build(method.align, network, Sizes(shape, count_features(network), classes))
        if obstacle:
            reasons[obstacle] = (*reasons.get(obstacle, ()), name)
    gone = {name for group in reasons.values() for name in group}
    choice = Choice(tuple(name for name in names if name not in gone), reasons)
    require(choice.names, f"none of these methods can run here; {choice.sentence}", ConfigError)
    return choice


def find_obstacle(method: Method, network: nn.Module, plan: Plan, has_maps: bool, has_pictures: bool) -> str:
    """Why a method cannot run on such data with this network, in a few words; empty where it can."""
    if method.restyle is not None and not (method.restyle.takes_vectors or has_maps or has_pictures):
        return "for pictures only"
    aligner = method.align
    if aligner is None:
        return ""
    if ("maps" if has_maps else "rows") not in aligner.takes:
        return "for rows only" if has_maps else "for label maps only"
    extractor = getattr(network, "extractor", None)
    fixed = isinstance(extractor, nn.Module) and not any(weight.requires_grad for weight in extractor.parameters())
    if fixed and aligner.trains_features:
        return "need trainable features"
    return "need adam or sgd" if aligner.is_game and plan.optimiser == "lbfgs" else ""


def try_build(aligner: Aligner, network: nn.Module, sizes: Sizes) -> str:
    """Why an aligner has no modules for inputs of this shape, in a few words; of image files only the number of
    dimensions is known before they are read, and that they are large."""
    try:
        aligner.build(network, sizes)
    except ConfigError:
        return "not for inputs of this shape"
    return ""


def count_features(network: nn.Module) -> int:
    """The width of what the classifier reads."""
    return int(getattr(getattr(network, "classifier", None), "in_features", 1))
