"""The facts of a run folder, believed only as far as their form goes: what is not as we write it is damage.

A manifest vouches for bytes, not for sense: whoever made the folder made the manifest too. So a fact that is missing or
of another kind is an error of the folder, and no size is believed that its tensors do not bear out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import torch
from torch import Tensor, nn

from embasis.config import Config
from embasis.errors import CorruptError, require
from embasis.report.collect import view_generation
from embasis.report.run_view import RunView
from embasis.storage import Generation, read_generation, read_json, read_jsonl, read_newest
from embasis.types import Method

Count = Annotated[int, msgspec.Meta(ge=0)]
LARGEST_INPUT = 2**24
"""Numbers of one input that are believed without a tensor of that size."""


class ProgressFacts(msgspec.Struct):
    """Where a run stands; see engine/state.py."""

    round: Count
    epoch: Count
    step: Count
    loss_sum: float
    loss_count: Count
    status: str
    best_round: Count
    best_score: float | None
    optimiser: dict[str, Any]
    kept: Count | None = None


class MapFacts(msgspec.Struct):
    """What a run on label maps has to know; see inputs/map_inputs.py."""

    table: dict[str, Any]
    shape: list[Count]
    pictures: Count = 0


class TimingFacts(msgspec.Struct):
    """The seconds that a stage of a round took."""

    round: Count
    stage: str
    seconds: Annotated[float, msgspec.Meta(ge=0)]


class RefusedFacts(msgspec.Struct):
    """A file that could not be used."""

    name: str
    reason: str
    phase: str
    side: str = ""
    kind: str = ""


Plain = str | int | float | bool | None
EnvironmentFacts = dict[str, Plain | dict[str, Plain]]


class Facts(msgspec.Struct):
    """All facts of a generation; see runs/checkpoint.py, `contents`."""

    classes: Annotated[list[str], msgspec.Meta(min_length=1)]
    shape: list[Count]
    columns: list[str] | None
    config: Config
    data: dict[str, str]
    backbone: str | None
    progress: ProgressFacts
    records: list[dict[str, Any]]
    timings: list[TimingFacts]
    notes: list[str] = []
    changes: list[str] = []
    corrected: Count = 0
    maps: MapFacts | None = None
    refused: list[RefusedFacts] = []
    environment: EnvironmentFacts | None = None


def read_run(path: Path | str, number: int | None = None) -> Generation:
    """The newest whole generation of a run folder, or that one, whose facts have the form that we write."""
    generation = read_newest(path) if number is None else read_generation(path, number)
    check_facts(generation.facts, path)
    return generation


def check_facts(facts: Mapping[str, Any], path: Path | str) -> None:
    """A CorruptError that says where the facts are not what they must be."""
    try:
        known = msgspec.convert(facts, Facts)
    except (msgspec.ValidationError, RecursionError) as error:
        raise CorruptError(f"{path}: the run's facts are damaged: {error}") from error
    rounds, kept = len(known.records), known.progress.kept
    fits = kept is None or kept < rounds
    require(fits, f"{path}: the run's facts are damaged: round {kept} of {rounds} is kept", CorruptError)


def read_run_view(path: Path) -> RunView:
    """All that the page of a run shows; CorruptError when a byte of it is not as the run wrote it."""
    newest = read_run(path)
    return view_generation(path, newest, read_environment(path, newest.facts), read_refused(path, newest.facts))


def read_environment(path: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Versions and machine of the run: facts of its generation, in runs of 0.1.0 a file beside it."""
    if facts.get("environment") is not None:
        return dict(facts["environment"])
    return dict(_convert(read_json(path / "environment.json"), EnvironmentFacts, path / "environment.json"))


def read_refused(path: Path, facts: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """The files that could not be used: facts of the generation, in runs of 0.1.0 a file beside it."""
    file = path / "quarantine.jsonl"
    if "refused" in facts or not file.exists():
        return tuple(facts.get("refused", ()))
    rows = read_jsonl(file)
    _convert(rows, list[RefusedFacts], file)
    return tuple(rows)


def _convert(value: Any, kind: Any, path: Path) -> Any:
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise CorruptError(f"{path} is damaged: {error}") from error


def refuse_sizes(shape: tuple[int, ...], tensors: Mapping[str, Tensor]) -> None:
    """Refuse a shape that would take memory far beyond what the tensors take."""
    most = max(LARGEST_INPUT, sum(tensor.numel() for tensor in tensors.values()))
    rule = f"the run's facts claim inputs of shape {shape}, far more than its tensors bear out"
    require(math.prod(shape) <= most, rule, CorruptError)


def refuse_other_network(network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Refuse a network, made without memory, that the tensors are not the weights of."""
    wanted = {f"network/{name}": tuple(value.shape) for name, value in network.state_dict().items()}
    wrong = [name for name, size in wanted.items() if name not in tensors or tuple(tensors[name].shape) != size]
    rule = f"the run's facts describe another network than its tensors: {', '.join(wrong[:3])}"
    require(not wrong, rule, CorruptError)


def refuse_large_basis(method: Method, tensors: Mapping[str, Tensor]) -> None:
    """Refuse a basis block that is larger than the tensors of one."""
    wanted = 0 if method.basis is None else method.basis.components
    held = [len(value) for name, value in tensors.items() if name.startswith("network/basis.")]
    rule = f"the run's facts ask for a basis of {wanted:,} components, its tensors have {max(held, default=0):,}"
    require(wanted <= max(held, default=0), rule, CorruptError)


def without_memory() -> torch.device:
    """Where tensors have shapes and no numbers."""
    return torch.device("meta")
