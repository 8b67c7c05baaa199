"""What a generation of a run holds, what lies beside the first one, and what bit-identical results depend on."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from embasis.engine.batch import device_of
from embasis.engine.state import TrainState
from embasis.errors import ConfigError, CorruptError, require
from embasis.inputs.base import FROZEN_WEIGHTS, Inputs
from embasis.runs.parts import RunParts
from embasis.storage import Generation, RunFolder
from embasis.types import Plan, Problem, record_from_json, record_to_json

PACKAGES = ("embasis", "torch", "numpy", "scikit-learn", "safetensors", "pyarrow", "pillow", "timm", "simplejpeg")


def pack_state(
    parts: RunParts,
    problem: Problem,
    data: dict[str, str],
    progress: TrainState,
    kept: Mapping[str, Any],
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts of a generation: everything that is needed to go on, or to label other rows.

    `kept` are the facts that the run itself keeps: timings, changes, refused, environment."""
    tensors = progress.tensors()
    if parts.standardiser is not None:
        tensors |= {"input/centre": parts.standardiser.centre, "input/scale": parts.standardiser.scale}
    return tensors, {
        "classes": list(parts.problem.schema.names),
        "shape": list(parts.shape),
        "columns": None if problem.columns is None else list(problem.columns),
        "config": parts.resolved,
        "data": data,
        "notes": [*problem.notes, *refused_note(problem), *kept.get("changes", ())],
        "corrected": problem.corrected,
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


def rows_name(data: Mapping[str, str]) -> str:
    """The table of the rows that have these hashes."""
    known = "".join(f"{name} {data[name]}\n" for name in sorted(data))
    return f"rows/{hashlib.sha256(known.encode()).hexdigest()[:16]}.parquet"


def refused_note(problem: Problem) -> list[str]:
    """One sentence about files that are not used."""
    count = len(problem.rejected)
    what = "1 file is" if count == 1 else f"{count:,} files are"
    return [f"{what} not used; quarantine.jsonl names each with its reason"] if count else []


def environment_of(plan: Plan, network: nn.Module) -> dict[str, Any]:
    """What bit-identical results of a run depend on, beside its data and settings."""
    return describe_environment(plan.seed, device_of(network).type)


def begin_folder(
    folder: RunFolder, resolved: Mapping[str, Any], run_environment: Mapping[str, Any], inputs: Inputs
) -> None:
    """What a run folder has before its first generation."""
    folder.write_json("config.json", resolved)
    folder.write_json("environment.json", run_environment)
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
