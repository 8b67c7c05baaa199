"""`embasis fit`: training in a run folder, from the data to the last round."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import msgspec

from embasis import config as settings
from embasis.benchmark.compare import load_problem
from embasis.cli.console import counted, echo, typed
from embasis.cli.image_options import is_image_side, named, options_of, refuse_images
from embasis.cli.mapping import load_mapped
from embasis.cli.training_loop import train
from embasis.config import IMAGE_DATA, Config
from embasis.data.datasets.domain_sets import find_data_folder
from embasis.data.images.folders import load_images, strip_folders
from embasis.data.segmentation.folders import are_map_folders
from embasis.data.tables.pair import load_pair
from embasis.engine.state import TrainState
from embasis.errors import ConfigError, InputDataError, known, quoted, require
from embasis.runs.corrections import corrected_problem
from embasis.runs.preflight import require_cache_place
from embasis.runs.run import TrainingRun
from embasis.storage import require_apart
from embasis.types import Problem

TABLES = ("labelled", "unlabelled", "test")
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
    problem, config = load_data(config)
    train(problem, config, Path(output), allow_change, accept_data_change, print_summary)


def refuse_places(config: Config, output: str) -> None:
    """Neither the run nor a feature cache that was named goes where the data are."""
    data = config.data
    inputs = {words: str(data[key]) for key, words in INPUTS.items() if key in data}
    if "dataset" in data and "labelled" not in data:
        inputs = {"the folder of data packs": str(find_data_folder(data.get("root")))}
    require_apart(output, inputs, folder=True, run=True)
    cache = str(config.images.get("cache") or os.environ.get("EMBASIS_CACHE") or "")
    if cache:
        require_apart(cache, inputs, what="feature cache")


def load_data(config: Config) -> tuple[Problem, Config]:
    """The problem that [data] names, and the config with names of files in place of their paths."""
    data = dict(config.data)
    if "dataset" in data and "labelled" not in data:
        rule = "corrections are for data of your own, LABELLED and UNLABELLED, not for a named data set"
        require("corrections" not in data, rule, ConfigError)
        _, problem = load_problem(str(data["dataset"]), config.seed, None, data)
        problem = strip_folders(problem, find_data_folder(data.pop("root", None)))
        return problem, msgspec.structs.replace(config, data=data)
    names = (*TABLES, "label", "id", "classes", "corrections", *IMAGE_DATA)
    for key in data:
        require(key in names, f"unknown data setting {quoted(key)}; known: {known(names)}", ConfigError)
    require(
        "labelled" in data and "unlabelled" in data,
        "name two tables or folders, LABELLED and UNLABELLED, or --dataset",
        ConfigError,
    )
    paths = (*TABLES, "classes", "corrections")
    plain = {key: named(str(value)) if key in paths else value for key, value in data.items()}
    return two_sides(data, config), msgspec.structs.replace(config, data=plain)


def two_sides(data: dict[str, Any], config: Config) -> Problem:
    """The problem of two tables, or of two folders or lists of images."""
    sides = {key: str(data[key]) for key in TABLES if key in data}
    label, id_ = str(data.get("label", "label")), data.get("id")
    kinds = {key: is_image_side(path) for key, path in sides.items()}
    if not any(kinds.values()):
        refuse_images(data)
        forbid = options_of({key: data[key] for key in data if key == "forbid_leakage"}).forbid_leakage
        require("classes" not in data, "classes are for label maps, the tables have none", ConfigError)
        id_ = None if id_ is None else str(id_)
        problem = load_pair(**sides, label=label, id=id_, forbid_leakage=forbid)
        return strip_folders(corrected(problem, data), *sides.values(), data.get("corrections"))
    odd = [sides[key] for key, images in kinds.items() if not images and os.path.exists(sides[key])]
    rule = f"images and tables cannot be mixed; no folder or list of images: {', '.join(odd)}"
    require(not odd, rule, InputDataError)
    if are_map_folders(**sides):
        odd = [name for name in ("label", "id") if name in data]
        require(not odd, f"label maps have no columns, so none can be named: {', '.join(odd)}", ConfigError)
        return load_mapped(data, sides)
    require("classes" not in data, "classes are for label maps, the images have none", ConfigError)
    require_cache_place(config)
    problem = load_images(**sides, label=label, options=options_of(data))
    return strip_folders(corrected(problem, data), *sides.values(), data.get("corrections"))


def corrected(problem: Problem, data: dict[str, Any]) -> Problem:
    """The problem with the rows that a person has labelled on its labelled side."""
    if "corrections" not in data:
        return problem
    label, id_ = str(data.get("label", "label")), data.get("id")
    path, unlabelled = str(data["corrections"]), str(data["unlabelled"])
    return corrected_problem(problem, path, unlabelled, label, None if id_ is None else str(id_))


def print_summary(run: TrainingRun, progress: TrainState) -> None:
    """What was written, and how to go on."""
    path, last, maps = run.folder.path, progress.final_record, run.prepare().maps is not None
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
