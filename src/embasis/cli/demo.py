"""`embasis demo`: methods on data that embasis brings along."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch

from embasis import config as settings
from embasis.benchmark.compare import RunKey, run_comparison, score_run
from embasis.benchmark.scores import summarise_runs, text_table
from embasis.cli.benchmark_commands import FIVE_METHODS
from embasis.cli.compare import comparison_files, require_folder, view_outcome, write_files
from embasis.cli.console import echo
from embasis.cli.fit import train
from embasis.cli.progress import progress_bar
from embasis.config import Config
from embasis.engine.state import TrainState
from embasis.errors import ConfigError, InputDataError
from embasis.inputs.load import load_dataset
from embasis.report import RunView
from embasis.runs.checkpoint import read_run_view
from embasis.runs.run import TrainingRun
from embasis.types import Problem

TASKS: dict[str, tuple[str, tuple[str, ...], dict[str, Any], str]] = {
    "digits": (
        "small_cnn",
        tuple(FIVE_METHODS.split(",")),
        {},
        "labelled: digits drawn from strokes; unlabelled: real handwritten digits",
    ),
    "scenes": (
        "small_fcn",
        ("source_only", "em_basis"),
        {"rounds": 4},
        "labelled: drawn digits in made-up scenes; unlabelled: handwriting on photographs",
    ),
}
"""Network, methods (ours last), what is not as usual in the plan, and what goes in."""
COUNTED = {2: "Two", 5: "Five"}


def run_demo(task: str, output: str | None, seed: int) -> None:
    """Train each method on the task, em_basis in a run folder, and write one table and one page of them all."""
    network, names, plan, description = TASKS[task]
    out = Path(output or {"digits": "demo-run"}.get(task, f"demo-{task}"))
    require_folder(out)
    others, mine = names[:-1], names[-1]
    tables: dict[str, Any] = {"data": {"dataset": task}, "method": {"name": mine}, "network": {"name": network}}
    config = settings.load(top={"seed": seed}, plan=plan, **tables)
    echo(description)
    rows, views = [], list[RunView]()
    shared = msgspec.structs.replace(config, method={})  # each method has its defaults
    with limit_threads(), progress_bar(others[0], len(others)) as show:
        for done, outcome in enumerate(run_comparison(task, others, [seed], shared), 1):
            score = outcome.score
            rows.append(score)
            views.append(view_outcome(outcome))
            figure = f"accuracy {score.accuracy:.3f}" if score.mean_iou is None else f"mIoU {score.mean_iou:.3f}"
            echo(f"{score.method}: {figure}, {score.seconds:.0f} s")
            show(done, names[done])
    _, problem = load_dataset(task, seed, None, {})
    with limit_threads():
        run, progress = train_in_free_folder(problem, config, out, mine)
    seconds = sum(float(row["seconds"]) for row in run.timings)
    rows.append(score_run(RunKey(task, "", mine, seed), progress.final_record, seconds, problem.schema.names))
    views.append(read_run_view(run.folder.path))
    write_files(out, comparison_files(f"{COUNTED[len(names)]} methods on {task}", rows, views))
    echo(f"\n{text_table(summarise_runs(rows))}")
    echo(f"the run of {mine}: {run.folder.path}, with a page of its own")
    echo(f"report: {(out / 'report.html').resolve().as_uri()}")


@contextmanager
def limit_threads() -> Iterator[None]:
    """Torch with one thread, unless OMP_NUM_THREADS says otherwise.

    A network this small gains a third by a second thread on an idle machine, and loses a factor of ten on a busy one,
    where its threads wait for each other at every layer.
    """
    before = torch.get_num_threads()
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def train_in_free_folder(problem: Problem, config: Config, out: Path, name: str) -> tuple[TrainingRun, TrainState]:
    """Train in out/name, or in out/name-2 … where the folder before is of another seed or an older embasis."""
    first = name
    for number in itertools.count(2):
        path = out / name
        try:
            return train(problem, config, path)
        except (ConfigError, InputDataError) as error:
            name = f"{first}-{number}"
            if not path.exists():
                raise
            echo(f"{path}: {error}; {out / name} is used instead", err=True)
    raise AssertionError("count never ends")
