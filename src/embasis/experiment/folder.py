"""A run in its folder: it can be killed at any instant, and the same command goes on where it was.

Every artefact is a function of data, config and seed and is written before the generation that contains its round, so
that going on writes the same bytes again. Times are apart, in timings.jsonl.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from embasis.config import Config
from embasis.engine.progress import Progress
from embasis.engine.rounds import Moment, begin, walk
from embasis.errors import EmbasisError, InputDataError, require
from embasis.experiment.build import Built, build, fingerprint, refuse_changed_config
from embasis.experiment.model import Model, finished, label_columns
from embasis.methods.em_basis import EMBasisLabeller
from embasis.report.page import run_page
from embasis.report.records import RunView, record_from_json, record_to_json
from embasis.storage import Generation, RunFolder, read_json, read_jsonl, read_newest, read_table
from embasis.types import Problem

PACKAGES = ("embasis", "torch", "numpy", "scikit-learn", "safetensors", "pyarrow")


@dataclass
class FolderRun:
    """A run and its folder. Iterate over `moments`; `model` is there when they have ended."""

    problem: Problem
    config: Config
    folder: RunFolder
    resumed: Generation | None = None
    model: Model | None = None
    timings: list[dict[str, Any]] = field(default_factory=list)
    saved: int = 0
    """Number of the last generation that is on disk."""
    _built: Built | None = None
    _data: dict[str, str] = field(default_factory=dict)
    _progress: Progress | None = None

    def prepare(self) -> Built:
        """Build everything; what is wrong with config or data is said here, before the folder is touched."""
        if self._built is None:
            self._built, self._data = build(self.problem, self.config), fingerprint(self.problem)
            labeller = self._built.method.labeller
            if isinstance(labeller, EMBasisLabeller):  # refuses more components than rows
                labeller.centres_of_a_class(len(self.problem.labelled) + len(self.problem.unlabelled))
        return self._built

    def open(self) -> Progress:
        """Where the run stands: at its start, or where the folder's newest generation is."""
        if self._progress is None:
            self._progress = self._open(self.prepare(), self._data)
        return self._progress

    def moments(self) -> Iterator[Moment]:
        """The whole run, saved after every round and every `save_seconds`; ends at once if it had ended before."""
        built, progress = self.prepare(), self.open()
        last_save = last_moment = time.monotonic()
        for moment in walk(built.problem, built.network, built.method, built.plan, progress):
            now = time.monotonic()
            self._count(moment, now - last_moment)
            last_moment = now
            progress = moment.progress
            if moment.record is not None:
                self._write_round(moment)
            if moment.record is not None or now - last_save >= self.config.save_seconds:
                self.save(progress)
                last_save = time.monotonic()
            yield moment
        self.model = finished(built, progress)
        self._write_report(progress)

    def save(self, progress: Progress) -> None:
        """Publish everything that is needed to go on; callers may do so at any moment."""
        built = self._built
        require(built is not None, "nothing has been built yet: iterate over moments() first", EmbasisError)
        assert built is not None
        tensors = progress.tensors()
        if built.standardiser is not None:
            tensors |= {"input/centre": built.standardiser.centre, "input/scale": built.standardiser.scale}
        facts = {
            "classes": list(built.problem.schema.names),
            "shape": list(built.problem.labelled.inputs(torch.tensor([0])).shape[1:]),
            "columns": None if self.problem.columns is None else list(self.problem.columns),
            "config": built.resolved,
            "data": self._data,
            "progress": progress.facts(),
            "records": [record_to_json(record) for record in progress.records],
            "timings": self.timings,
        }
        self.saved = self.folder.publish(tensors, facts)

    def _open(self, built: Built, data: dict[str, str]) -> Progress:
        """A fresh start, or where the newest generation stands."""
        progress = begin(built.network, built.method, built.plan)
        self.resumed = self.folder.newest()
        if self.resumed is None:
            self.folder.write_json("config.json", built.resolved)
            self.folder.write_json("environment.json", environment(built.plan.seed))
            return progress
        facts = self.resumed.facts
        refuse_changed_config(facts["config"], built.resolved)
        changed = sorted(name for name in {*facts["data"], *data} if facts["data"].get(name) != data.get(name))
        require(
            not changed,
            f"the data have changed since the run began: {', '.join(changed)}; use another folder, or the old data",
            InputDataError,
        )
        self.timings = list(facts["timings"])
        self.saved = self.resumed.number
        records = [record_from_json(row) for row in facts["records"]]
        return Progress.restore(progress.network, self.resumed.tensors, facts["progress"], records)

    def _count(self, moment: Moment, seconds: float) -> None:
        """Add the time to its stage: a pause with a record ends labelling, any other one a training step."""
        number = moment.record.round if moment.record is not None else moment.progress.round
        stage = "train" if moment.record is None else "label"
        for row in self.timings:
            if row["round"] == number and row["stage"] == stage:
                row["seconds"] += seconds
                return
        self.timings.append({"round": number, "stage": stage, "seconds": seconds})

    def _write_round(self, moment: Moment) -> None:
        record, verdict = moment.record, moment.verdict
        if record is None or verdict is None:
            return
        ids = self.problem.unlabelled.ids.tolist()
        name = f"labels/round-{record.round:03d}.parquet"
        self.folder.write_table(name, label_columns(verdict, ids, self.problem.schema))
        self.folder.write_jsonl("rounds.jsonl", [record_to_json(row) for row in moment.progress.records])
        self.folder.write_jsonl("timings.jsonl", self.timings)

    def _write_report(self, progress: Progress) -> None:
        self.folder.write_jsonl("quarantine.jsonl", [])
        self.folder.write_text("report.html", run_page(view_of(self.folder.path)))


def view_of(path: Path) -> RunView:
    """A run folder as the report reads it."""
    generation = read_newest(path)
    facts = generation.facts
    rounds = tuple(record_from_json(row) for row in facts["records"])
    timings = read_jsonl(path / "timings.jsonl") if (path / "timings.jsonl").exists() else facts["timings"]
    last = path / "labels" / f"round-{len(rounds) - 1:03d}.parquet"
    return RunView(
        config=facts["config"],
        environment=read_json(path / "environment.json"),
        rounds=rounds,
        timings=timings,
        labels=read_table(last) if last.exists() else None,
        status=str(facts["progress"]["status"]),
        best_round=kept_round(facts),
        classes=tuple(facts["classes"]),
    )


def kept_round(facts: dict[str, Any]) -> int:
    """The round whose model is kept: the last one, or the best one after a collapse."""
    if facts["progress"]["status"] == "collapsed":
        return int(facts["progress"]["best_round"])
    return max(len(facts["records"]) - 1, 0)


def environment(seed: int) -> dict[str, Any]:
    """Versions, machine type, threads and seed: what bit-identical results depend on. No names of people or hosts."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "device": "cpu",
        "threads": torch.get_num_threads(),
        "packages": {name: version_of(name) for name in PACKAGES},
        "commit": commit(),
        "seed": seed,
    }


def version_of(name: str) -> str | None:
    """The installed version, if any."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def commit() -> str | None:
    """The commit of the clone that runs, if it is one."""
    git = Path(__file__).resolve().parents[3] / ".git"
    try:
        head = (git / "HEAD").read_text().strip()
        return (git / head[5:]).read_text().strip() if head.startswith("ref: ") else head
    except OSError:
        return None
