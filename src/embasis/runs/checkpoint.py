"""What a generation of a run holds, how it is read back, and what bit-identical results depend on.

A manifest vouches for bytes, not for sense: whoever made the folder made the manifest too. So facts are believed only
as far as their form goes: one that is missing or of another kind is an error of the folder, and no size is believed
that its tensors do not bear out.
"""

from __future__ import annotations

import hashlib
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import msgspec
import torch
from torch import Tensor, nn

from embasis.config import Config
from embasis.engine.state import TrainState
from embasis.errors import ConfigError, CorruptError, InputDataError, require
from embasis.inputs import FROZEN_WEIGHTS, Inputs, class_colours, count_pictures
from embasis.networks.learner import LearnerNetwork
from embasis.report import RunView
from embasis.report.collect import view_generation
from embasis.report.restyled import read_restyled
from embasis.runs.parts import RunParts
from embasis.storage import Generation, RunFolder, SealedFiles, read_generation, read_json, read_jsonl, read_newest
from embasis.types import ColumnEncoding, Method, Problem, TableEncoding, record_from_json, record_to_json

PACKAGES = ("embasis", "torch", "numpy", "scikit-learn", "safetensors", "pyarrow", "pillow", "timm", "simplejpeg")
ENCODING_VERSION = 1
"""Raised when the same encoding would make other numbers of a table."""
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
    alignment_sums: dict[str, tuple[float, float]] = {}


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


class ColumnFacts(msgspec.Struct):
    """How one column of a table is encoded; see types/encoding.py."""

    name: str
    kind: str
    fills: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    values: tuple[str, ...] = ()
    has_gaps: bool = False
    has_time: bool = False


class EncodingFacts(msgspec.Struct):
    """How the columns of a table become the features of the model."""

    version: Annotated[int, msgspec.Meta(ge=1, le=ENCODING_VERSION)]
    columns: list[ColumnFacts]
    dropped: list[str] = []


Plain = str | int | float | bool | None
EnvironmentFacts = dict[str, Plain | dict[str, Plain]]


class Facts(msgspec.Struct):
    """All facts of a generation; see `pack_state`."""

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
    encoding: EncodingFacts | None = None


def read_run(path: Path | str, number: int | None = None) -> Generation:
    """The newest whole generation of a run folder, or that one, whose facts have the form that we write."""
    generation = read_newest(path) if number is None else read_generation(path, number)
    check_facts(generation.facts, path)
    return generation


def check_facts(facts: Mapping[str, Any], path: Path | str) -> None:
    """A CorruptError that says where the facts are not what they must be."""
    damaged = f"{path}: the run's facts are damaged"
    known: Facts = convert_facts(facts, Facts, damaged)
    rounds, kept = len(known.records), known.progress.kept
    require(kept is None or kept < rounds, f"{damaged}: round {kept} of {rounds} is kept", CorruptError)


def convert_facts(value: Any, kind: Any, damaged: str) -> Any:
    """The value as this kind of facts; a CorruptError that begins with the words `damaged` if it is none."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise CorruptError(f"{damaged}: {error}") from error


def read_run_view(path: Path) -> RunView:
    """All that the page of a run shows; CorruptError when a byte of it is not as the run wrote it."""
    newest = read_run(path)
    facts = newest.facts
    environment, refused = read_environment(path, facts), read_refused(path, facts)
    view = view_generation(path, newest, environment, refused, class_colours(facts), count_pictures(facts))
    return replace(view, restyled=read_restyled(SealedFiles(path, newest.sealed), newest.tensors))


def read_environment(path: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Versions and machine of the run: facts of its generation, in runs of 0.1.0 a file beside it."""
    if facts.get("environment") is not None:
        return dict(facts["environment"])
    file = path / "environment.json"
    return dict(convert_facts(read_json(file), EnvironmentFacts, f"{file} is damaged"))


def read_refused(path: Path, facts: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """The files that could not be used: facts of the generation, in runs of 0.1.0 a file beside it."""
    file = path / "quarantine.jsonl"
    if "refused" in facts or not file.exists():
        return tuple(facts.get("refused", ()))
    rows = read_jsonl(file)
    convert_facts(rows, list[RefusedFacts], f"{file} is damaged")
    return tuple(rows)


def refuse_sizes(shape: tuple[int, ...], tensors: Mapping[str, Tensor]) -> None:
    """Refuse a shape that would take memory far beyond what the tensors take."""
    most = max(LARGEST_INPUT, sum(tensor.numel() for tensor in tensors.values()))
    rule = f"the run's facts claim inputs of shape {shape}, far more than its tensors bear out"
    require(math.prod(shape) <= most, rule, CorruptError)


def refuse_other_network(network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Refuse a network, made without memory, that the tensors are not the weights of."""
    wanted = {f"network/{name}": tuple(value.shape) for name, value in network.state_dict().items()}
    any_size = isinstance(network, LearnerNetwork)  # which refuses what is none of it when it takes the tensors
    wrong = [
        name for name, size in wanted.items()
        if name not in tensors or not (any_size or tuple(tensors[name].shape) == size)
    ]  # fmt: skip
    rule = f"the run's facts describe another network than its tensors: {', '.join(wrong[:3])}"
    require(not wrong, rule, CorruptError)


def refuse_large_basis(method: Method, tensors: Mapping[str, Tensor]) -> None:
    """Refuse a basis block that is larger than the tensors of one."""
    wanted = 0 if method.basis is None else method.basis.components
    held = [len(value) for name, value in tensors.items() if name.startswith("network/basis.")]
    rule = f"the run's facts ask for a basis of {wanted:,} components, its tensors have {max(held, default=0):,}"
    require(wanted <= max(held, default=0), rule, CorruptError)


def pack_state(
    parts: RunParts,
    problem: Problem,
    data: dict[str, str],
    progress: TrainState,
    kept: Mapping[str, Any],
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts of a generation: everything that is needed to go on, or to label other rows.

    `kept` are the facts that the run itself keeps: timings, changes, refused, environment."""
    count = len(problem.rejected)
    files = "1 file is" if count == 1 else f"{count:,} files are"
    refused = [f"{files} not used; quarantine.jsonl names each with its reason"] if count else []
    tensors = progress.tensors()
    if parts.standardiser is not None:
        tensors |= {"input/centre": parts.standardiser.centre, "input/scale": parts.standardiser.scale}
    return tensors, {
        "classes": list(parts.problem.schema.names),
        "shape": list(parts.shape),
        "columns": None if problem.columns is None else list(problem.columns),
        "encoding": pack_encoding(problem.encoding),
        "config": parts.resolved,
        "data": data,
        "notes": [*problem.notes, *refused, *kept.get("changes", ())],
        "corrected": problem.corrected,
        "same_domain": parts.problem.same_domain,
        "backbone": parts.inputs.identity,
        "maps": parts.inputs.metadata(problem),
        "progress": progress.facts(),
        "records": [record_to_json(record) for record in progress.records],
        "timings": [],
        **kept,
    }


def unpack_state(fresh: TrainState, stored: Generation, changes: Sequence[str]) -> TrainState:
    """The run as the generation left it; settings that give another network cannot change."""
    facts = stored.facts
    records = [record_from_json(row) for row in facts["records"]]
    try:
        return TrainState.restore(fresh.network, stored.tensors, facts["progress"], records)
    except CorruptError as error:
        rule = f"these settings cannot change within a run: {'; '.join(changes)}; use another folder"
        require(not changes, rule, ConfigError)
        raise error


def pack_encoding(encoding: TableEncoding | None) -> dict[str, Any] | None:
    """The facts of an encoding."""
    if encoding is None:
        return None
    columns = [{**asdict(column), "fills": [list(side) for side in column.fills], "values": list(column.values)}
               for column in encoding.columns]  # fmt: skip
    return {"version": ENCODING_VERSION, "columns": columns, "dropped": list(encoding.dropped)}


def unpack_encoding(facts: Mapping[str, Any], shape: tuple[int, ...]) -> TableEncoding | None:
    """The encoding of a stored run, which must make rows of this shape; None for data without names of columns."""
    damaged = "the run's facts of its columns are damaged"
    known: EncodingFacts | None = convert_facts(facts.get("encoding"), EncodingFacts | None, damaged)
    if known is None:
        return None
    try:
        columns = tuple(ColumnEncoding(**msgspec.structs.asdict(column)) for column in known.columns)
        encoding = TableEncoding(columns, tuple(known.dropped))
    except (ConfigError, InputDataError) as error:
        raise CorruptError(f"{damaged}: {error}") from error
    rule = f"{damaged}: they make {len(encoding.names)} features, the model has shape {shape}"
    require(shape == (len(encoding.names),) and list(encoding.names) == facts.get("columns"), rule, CorruptError)
    return encoding


def rows_name(data: Mapping[str, str]) -> str:
    """The table of the rows that have these hashes."""
    known = "".join(f"{name} {data[name]}\n" for name in sorted(data))
    return f"rows/{hashlib.sha256(known.encode()).hexdigest()[:16]}.parquet"


def begin_folder(
    folder: RunFolder, resolved: Mapping[str, Any], environment: Mapping[str, Any], inputs: Inputs
) -> None:
    """What a run folder has before its first generation."""
    folder.write_json("config.json", resolved)
    folder.write_json("environment.json", environment)
    if (weights := inputs.frozen_weights()) is not None:
        folder.write_tensors(FROZEN_WEIGHTS, weights)


def describe_environment(seed: int, device: str = "cpu") -> dict[str, Any]:
    """Versions, machine type, threads and seed: what bit-identical results depend on. No names of people or hosts."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "device": device,
        "threads": torch.get_num_threads(),
        "packages": {name: package_version(name) for name in PACKAGES},
        "commit": find_commit(),
        "seed": seed,
    }


def package_version(name: str) -> str | None:
    """The installed version, if any."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def find_commit() -> str | None:
    """The commit of the clone that runs, if it is one."""
    git = Path(__file__).resolve().parents[3] / ".git"
    try:
        head = (git / "HEAD").read_text().strip()
        return (git / head[5:]).read_text().strip() if head.startswith("ref: ") else head
    except OSError:
        return None
