"""`embasis fit`: training in a run folder, from the data to the last round."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from embasis import config as settings
from embasis.cli.console import counted, echo, typed
from embasis.cli.training_loop import train
from embasis.config import Config
from embasis.data.datasets.domain_sets import find_data_folder
from embasis.engine.state import TrainState
from embasis.errors import quoted
from embasis.inputs.load import load_problem
from embasis.runs.run import TrainingRun
from embasis.storage import require_apart

INPUTS = {
    "labelled": "the labelled side", "unlabelled": "the unlabelled side", "test": "the test side",
    "corrections": "the corrections", "classes": "the classes",
}  # fmt: skip
"""What a run reads and never writes to, in words."""


def train_run(
    labelled: str | None,
    unlabelled: str | None,
    overrides: tuple[str, ...],
    output: str,
    test: str | None,
    corrections: str | None,
    dataset: str | None,
    method: str | None,
    backbone: str | None,
    config_file: str | None,
    preset: str | None,
    label: str | None,
    id_: str | None,
    classes: str | None,
    seed: int | None,
    root: str | None,
    allow_change: tuple[str, ...],
    accept_data_change: bool,
    **flags: bool,
) -> None:
    """Collect the settings, load both sides, and train in the run folder until the run ends."""
    given = tuple(word for word in (labelled, unlabelled) if word is not None)
    tables: dict[str, Any] = {"dataset": dataset, "root": root}
    if dataset is not None or (preset is not None and all("=" in word for word in given)):
        overrides = (*given, *overrides)
    elif len(given) == 1:
        raise click.UsageError(f"two are needed, LABELLED and UNLABELLED; got one: {quoted(labelled)}")
    else:
        tables |= {"labelled": labelled, "unlabelled": unlabelled}
    tables |= {"test": test, "label": label, "id": id_, "classes": classes, "corrections": corrections}
    tables |= {name: True for name, value in flags.items() if value}
    config = settings.load(
        config_file,
        overrides,
        top={} if seed is None else {"seed": seed},
        preset=preset,
        method={"name": method},
        network={"name": backbone},
        data=tables,
    )
    refuse_places(config, output)
    problem, config = load_problem(config)
    train(problem, config, Path(output), allow_change, accept_data_change, print_summary)


def refuse_places(config: Config, output: str) -> None:
    """Neither the run nor a feature cache that was named goes find_data_folder the data are."""
    data = config.data
    inputs = {words: str(data[key]) for key, words in INPUTS.items() if key in data}
    if "dataset" in data and "labelled" not in data:
        inputs = {"the folder of data packs": str(find_data_folder(data.get("root")))}
    require_apart(output, inputs, folder=True, run=True)
    cache = str(config.images.get("cache") or os.environ.get("EMBASIS_CACHE") or "")
    if cache:
        require_apart(cache, inputs, what="feature cache")


def print_summary(run: TrainingRun, progress: TrainState) -> None:
    """What was written, and how to go on."""
    path, last, maps = run.folder.path, progress.final_record, run.prepare().inputs.many_sites
    for note in progress.records[-1].notes:
        echo(note)
    if progress.kept_round is not None:
        kept = f"round {progress.kept_round} of {progress.records[-1].round} is kept"
        echo(f"{kept}: the best one by {run.prepare().plan.keep_round}")
    what, suffix = ("sites", "") if maps else ("labels", ".parquet")
    echo(
        f"done: {counted(progress.records[-1].round, 'round')}, {last.trusted:,} of {last.unlabelled:,} {what} trusted"
    )
    echo(f"wrote {path / 'report.html'} and {path / 'labels' / f'round-{last.round:03d}{suffix}'}")
    command = f"embasis predict {typed(path)}"
    what = f"pictures with: {command} PICTURES -o maps" if maps else f"rows with: {command} INPUT -o labels.csv"
    echo(f"label other {what}")
