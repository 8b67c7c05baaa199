"""`embasis fit`: training in a run folder, from the data to the last round."""

from __future__ import annotations

import os
from pathlib import Path

import click

from embasis import config as settings
from embasis.cli.console import echo, format_count, quote_path
from embasis.cli.training_loop import train
from embasis.config import Config
from embasis.data.datasets.domain_sets import find_data_folder
from embasis.engine.state import TrainState
from embasis.errors import quote
from embasis.inputs.load import load_problem
from embasis.runs.run import TrainingRun
from embasis.storage import require_apart

INPUT_NAMES = {
    "labelled": "the labelled side", "unlabelled": "the unlabelled side", "test": "the test side",
    "corrections": "the corrections", "classes": "the classes",
}  # fmt: skip
"""What a run reads and never writes to: key of [data] → its name in sentences."""


def train_run(
    labelled: str | None,
    unlabelled: str | None,
    overrides: tuple[str, ...],
    output: str,
    method: str | None,
    backbone: str | None,
    config_file: str | None,
    preset: str | None,
    seed: int | None,
    allow_change: tuple[str, ...],
    accept_data_change: bool,
    **data: str | bool | None,
) -> None:
    """Load both sides and train in the run folder until the run ends; `data` are options that are keys of [data]."""
    given = tuple(word for word in (labelled, unlabelled) if word is not None)
    if data["dataset"] is not None or (preset is not None and all("=" in word for word in given)):
        overrides = (*given, *overrides)
    elif len(given) == 1:
        raise click.UsageError(f"two are needed, LABELLED and UNLABELLED; got one: {quote(labelled)}")
    else:
        data |= {"labelled": labelled, "unlabelled": unlabelled}
    config = settings.load(
        config_file,
        overrides,
        top={} if seed is None else {"seed": seed},
        preset=preset,
        method={"name": method},
        network={"name": backbone},
        data={key: None if value is False else value for key, value in data.items()},
    )
    require_free_places(config, output)
    problem, config = load_problem(config)
    train(problem, config, Path(output), allow_change, accept_data_change, print_summary)


def require_free_places(config: Config, output: str) -> None:
    """Refuse a run folder or a feature cache in the place of the data."""
    data = config.data
    inputs = {name: str(data[key]) for key, name in INPUT_NAMES.items() if key in data}
    if "dataset" in data and "labelled" not in data:
        inputs = {"the folder of data packs": str(find_data_folder(data.get("root")))}
    require_apart(output, inputs, folder=True, run=True)
    cache = str(config.images.get("cache") or os.environ.get("EMBASIS_CACHE") or "")
    if cache:
        require_apart(cache, inputs, what="feature cache")


def print_summary(run: TrainingRun, progress: TrainState) -> None:
    """Print what was written, and how to go on."""
    path, last, kind = run.folder.path, progress.final_record, run.prepare().inputs.kind
    for note in progress.records[-1].notes:
        echo(note)
    if progress.kept_round is not None:
        kept = f"round {progress.kept_round} of {progress.records[-1].round} is kept"
        echo(f"{kept}: the best one by {run.prepare().plan.keep_round}")
    rounds = format_count(progress.records[-1].round, "round")
    echo(f"done: {rounds}, {last.trusted:,} of {last.unlabelled:,} {kind.label_unit} trusted")
    echo(f"wrote {path / 'report.html'} and {path / 'labels' / f'round-{last.round:03d}{kind.labels_suffix}'}")
    echo(f"label other {kind.row_unit} with: embasis predict {quote_path(path)} {kind.predict_arguments}")
