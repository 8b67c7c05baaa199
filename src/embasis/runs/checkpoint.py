"""What a generation of a run holds, and what lies beside the first one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from embasis.engine.batch import device_of
from embasis.engine.state import TrainState
from embasis.errors import ConfigError, CorruptError, require
from embasis.runs.environment import environment
from embasis.runs.model import BACKBONE
from embasis.runs.parts import RunParts
from embasis.storage import Generation, RunFolder
from embasis.types import Problem, record_from_json, record_to_json


def pack_state(
    built: RunParts,
    problem: Problem,
    data: dict[str, str],
    progress: TrainState,
    kept: Mapping[str, Any],
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts of a generation: everything that is needed to go on, or to label other rows.

    `kept` are the facts that the run itself keeps: timings, changes, refused, environment."""
    tensors = progress.tensors()
    if built.standardiser is not None:
        tensors |= {"input/centre": built.standardiser.centre, "input/scale": built.standardiser.scale}
    return tensors, {
        "classes": list(built.problem.schema.names),
        "shape": list(built.shape),
        "columns": None if problem.columns is None else list(problem.columns),
        "config": built.resolved,
        "data": data,
        "notes": [*problem.notes, *refused_note(problem), *kept.get("changes", ())],
        "corrected": problem.corrected,
        "backbone": backbone_of(built),
        "maps": None if built.maps is None else {**built.maps.facts(), "pictures": len(problem.unlabelled)},
        "progress": progress.facts(),
        "records": [record_to_json(record) for record in progress.records],
        "timings": [],
        **kept,
    }


def unpack_state(fresh: TrainState, found: Generation, changes: Sequence[str]) -> TrainState:
    """The run as the generation left it; settings that give another network cannot change."""
    facts = found.facts
    records = [record_from_json(row) for row in facts["records"]]
    try:
        return TrainState.restore(fresh.network, found.tensors, facts["progress"], records)
    except CorruptError as error:
        rule = f"these settings cannot change within a run: {'; '.join(changes)}; use another folder"
        require(not changes, rule, ConfigError)
        raise error


def rows_name(data: Mapping[str, str]) -> str:
    """The table of the rows that have these hashes."""
    known = "".join(f"{name} {data[name]}\n" for name in sorted(data))
    return f"rows/{hashlib.sha256(known.encode()).hexdigest()[:16]}.parquet"


def backbone_of(built: RunParts) -> str | None:
    """What a run's pretrained part is known by; None where there is none."""
    if built.maps is not None:
        return built.maps.identity
    return None if built.front is None else built.front.backbone.identity


def refused_note(problem: Problem) -> list[str]:
    """One sentence about files that are not used."""
    count = len(problem.rejected)
    what = "1 file is" if count == 1 else f"{count:,} files are"
    return [f"{what} not used; quarantine.jsonl names each with its reason"] if count else []


def environment_of(built: RunParts) -> dict[str, Any]:
    """What bit-identical results of this run depend on."""
    return environment(built.plan.seed, device_of(built.network).type)


def begin_folder(folder: RunFolder, built: RunParts) -> None:
    """What a run folder has before its first generation."""
    folder.write_json("config.json", built.resolved)
    folder.write_json("environment.json", environment_of(built))
    if built.front is not None and built.front.stem is not None:
        folder.write_tensors(BACKBONE, built.front.backbone.state())
