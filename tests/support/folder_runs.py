"""Runs in a folder, and all that two finished run folders must have in common."""

from __future__ import annotations

import hashlib
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from embasis.config import Config, load
from embasis.engine import train
from embasis.inputs import Inputs
from embasis.runs.run import TrainingRun
from embasis.storage import RunFolder, read_newest
from embasis.types import Problem
from training_runs import toy

TIMED = {"timings.jsonl", "report.html", "HEAD", "lock", "log.txt"}
"""Files that tell times, or how often a run was saved."""


def config(*words: str, method: str = "em_basis", save_seconds: float = 0.0) -> Config:
    """A multi-layer perceptron with dropout: optimiser, cursor, drawn labels and the carried basis all matter."""
    parts = {"selector.labels": "draw", "labeller.start": "WarmStart"} if method == "em_basis" else {}
    return load(
        None,
        words,
        top={"save_seconds": save_seconds, "seed": 5, "parts": parts},
        method={"name": method},
        network={"name": "mlp", "hidden": 16},
        plan={"rounds": 2, "source_epochs": 2, "epochs": 2, "batch_size": 40},
    )


def go(
    path: Path,
    settings: Config,
    stop_after: int | None = None,
    problem: Problem | None = None,
    inputs: Inputs | None = None,
) -> TrainingRun:
    """The run until its end, or until the caller walks away after so many moments."""
    with RunFolder(path) as folder:
        run = TrainingRun(problem or toy(), settings, folder, inputs)
        moments = run.events()
        for number, _ in enumerate(moments, start=1):
            if number == stop_after:
                moments.close()  # type: ignore[attr-defined]
                break
    return run


def digests(path: Path) -> dict[str, str]:
    """sha256 of every artefact that is a function of data, settings and seed, and of what the last generation says."""
    files = {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name not in TIMED and "generations" not in file.parts
    }
    newest = read_newest(path)
    facts: dict[str, Any] = {key: value for key, value in newest.facts.items() if key != "timings"}
    files["facts"] = json.dumps(facts, sort_keys=True).encode()
    files["sealed"] = json.dumps(newest.sealed, sort_keys=True).encode()
    for name, value in newest.tensors.items():
        files[f"tensor {name}"] = f"{value.dtype} {tuple(value.shape)} ".encode() + value.numpy().tobytes()
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def signal_at(monkeypatch: pytest.MonkeyPatch, number: int, at: int) -> None:
    """Send it to this process within the step of that number."""
    whole, seen = train.take_step, list[int]()

    def take_step(*arguments: Any) -> float:
        seen.append(1)
        if len(seen) == at:
            signal.raise_signal(number)
        return whole(*arguments)

    monkeypatch.setattr(train, "take_step", take_step)
