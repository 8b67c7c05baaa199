"""Small runs of alignment methods, on rows and on tiny pictures with label maps."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from embasis.engine.self_train import train_rounds
from embasis.methods import ALIGNMENT, METHODS
from embasis.runs.parts import RunParts
from embasis.types import Problem
from map_runs import built_maps
from training_runs import Saved, built_for, toy

SHORT = {"rounds": 2, "source_epochs": 2, "epochs": 1, "batch_size": 32}
TAKES = {name: align.takes for name, recipe in ALIGNMENT.items() if (align := recipe(3).align) is not None}
"""Methods with an aligner; those that do nothing but restyle are tested by test_restyling.py."""


def built(name: str, kind: str = "rows", problem: Problem | None = None, plan: Any = None, **own: Any) -> RunParts:
    """A small run of an alignment method on rows, or on tiny pictures with label maps; its aligner alone."""
    own = {**align_only(name), **own}
    if kind == "maps":
        return built_maps(problem, name, plan={"rounds": 2, "source_epochs": 1, "epochs": 1, **(plan or {})}, **own)
    return built_for(problem or toy(), "mlp", name, plan={**SHORT, **(plan or {})}, **own)


def align_only(name: str) -> dict[str, Any]:
    """The settings by which a method does not restyle: that has a contract of its own (test_restyling.py)."""
    return {"restyle": 0.0} if METHODS[name](3).restyle is not None else {}


def finish(parts: RunParts) -> Saved:
    """The run at its end."""
    states = [event.state for event in train_rounds(parts.problem, parts.network, parts.method, parts.plan)]
    return Saved.of(states[-1])


@functools.cache
def undisturbed(name: str, kind: str) -> Saved:
    return finish(built(name, kind))


def network_of(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value for name, value in tensors.items() if name.startswith("network/")}


def all_finite(tensors: dict[str, Tensor]) -> bool:
    return all(bool(torch.isfinite(value).all()) for value in tensors.values() if value.is_floating_point())
