"""The command that trains in a run folder: fit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from embasis.cli.console import Work, echo, typed
from embasis.cli.image_options import given_flags, image_flags, is_image_side, named, options_of, refuse_images
from embasis.cli.looking import counted
from embasis.cli.mapping import load_mapped
from embasis.cli.training_loop import train
from embasis.errors import ConfigError, InputDataError, known, quoted, require

if TYPE_CHECKING:
    from embasis.config import Config
    from embasis.engine.state import TrainState
    from embasis.runs.run import TrainingRun
    from embasis.types import Problem

TABLES = ("labelled", "unlabelled", "test")
INPUTS = {
    "labelled": "the labelled side", "unlabelled": "the unlabelled side", "test": "the test side",
    "corrections": "the corrections", "classes": "the classes",
}  # fmt: skip
"""What a run reads and never writes to, in words."""


@click.command(cls=Work)
@click.argument("labelled", required=False)
@click.argument("unlabelled", required=False)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("-o", "--output", required=True, metavar="RUN", help="The run folder: a new one, or one to go on with.")
@click.option("--test", metavar="PATH", help="A labelled table or folder to score on; never used for training.")
@click.option("--corrections", metavar="PATH", help="Rows of UNLABELLED that a person has labelled: see above.")
@click.option("--dataset", metavar="NAME", help="A named data set instead of LABELLED and UNLABELLED.")
@click.option("--method", metavar="NAME", help="See `embasis list methods`.  [default: em_basis]")
@click.option("--backbone", metavar="NAME", help="See `embasis list backbones`.  [default: by the data]")
@click.option("--config", "config_file", metavar="FILE", help="Settings as .toml, or a run's config.json.")
@click.option("--preset", metavar="NAME", help="Settings that come with embasis, such as paper-office31.")
@click.option("--label", metavar="COLUMN", help="The column of classes.  [default: label]")
@click.option("--id", "id_", metavar="COLUMN", help="The column of row ids.  [default: id, if there is one]")
@click.option("--classes", metavar="FILE", help="Label maps: what they mean.  [default: LABELLED/classes.toml]")
@click.option("--seed", type=int, help="[default: 0]")
@click.option("--root", metavar="DIR", help="Folder of data packs, for --dataset.  [default: $EMBASIS_DATA]")
@click.option("--allow-change", multiple=True, metavar="KEY", help="Go on although this setting has changed.")
@click.option("--accept-data-change", is_flag=True, help="Go on although rows have changed.")
@image_flags
@click.option("--forbid-leakage", is_flag=True, help="A test row or image that is a labelled one too is an error.")
def fit(
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
    """Train on LABELLED, adapt to UNLABELLED, round by round.

    Both are tables, or both are images: LABELLED a folder with a sub-folder for
    each class, UNLABELLED a folder of images at any depth; or .csv files with
    columns path and label. Settings of images: images.depth=frozen, partial or
    full, images.cache=DIR, network.weights=FILE, data.budget=SHARE.

    With label maps (semantic segmentation) LABELLED has images/ and labels/, a
    PNG of class numbers or colours for each image, and a classes.toml that names
    them. Settings: maps.size=PIXELS, maps.crop_height, network.backbone=NAME.

    --corrections is a .csv or .parquet file with columns id (or path) and label,
    as predict and export write them; with a column corrected only the rows where
    it is filled count. For label maps it is a folder of PNG named like their
    pictures. These rows are labelled ones of this run, and no score sees them.

    The same command again goes on where the run was; with other settings or rows
    only if --allow-change KEY or --accept-data-change says so, and the report
    says that it did. For more rounds: --allow-change plan.rounds.

    Labels in UNLABELLED, if there are any, are used for scores only. Settings are
    key=value words; they win over options, options over the file of --config, and
    that over --preset.

    \b
    Examples:
      embasis fit labelled.csv unlabelled.csv -o run
      embasis fit labelled.npz unlabelled.npz -o run --method cbst rounds=3
      embasis fit a.csv b.csv -o run --test c.csv --backbone mlp hidden=64
      embasis fit photos paintings -o run
      embasis fit photos paintings -o run images.depth=full
      embasis fit rendered streets -o run --classes classes.toml
      embasis fit photos paintings -o run-2 --corrections labels.csv
      embasis fit --dataset digits -o run
    """
    from embasis import config as settings

    given = tuple(word for word in (labelled, unlabelled) if word is not None)
    tables: dict[str, Any] = {"dataset": dataset, "root": root}
    if dataset is not None or (preset is not None and all("=" in word for word in given)):
        overrides = (*given, *overrides)
    elif len(given) == 1:
        raise click.UsageError(f"two are needed, LABELLED and UNLABELLED; got one: {quoted(labelled)}")
    else:
        tables |= {"labelled": labelled, "unlabelled": unlabelled}
    tables |= {"test": test, "label": label, "id": id_, "classes": classes, "corrections": corrections}
    tables |= given_flags(**flags)
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
    from embasis.data.datasets.domain_sets import where
    from embasis.storage import require_apart

    data = config.data
    inputs = {words: str(data[key]) for key, words in INPUTS.items() if key in data}
    if "dataset" in data and "labelled" not in data:
        inputs = {"the folder of data packs": str(where(data.get("root")))}
    require_apart(output, inputs, folder=True, run=True)
    cache = str(config.images.get("cache") or os.environ.get("EMBASIS_CACHE") or "")
    if cache:
        require_apart(cache, inputs, what="feature cache")


def load_data(config: Config) -> tuple[Problem, Config]:
    """The problem that [data] names, and the config with names of files in place of their paths."""
    import msgspec

    from embasis.benchmark.compare import one_problem
    from embasis.config import IMAGE_DATA
    from embasis.data.datasets.domain_sets import where
    from embasis.data.images.folders import without_folders

    data = dict(config.data)
    if "dataset" in data and "labelled" not in data:
        rule = "corrections are for data of your own, LABELLED and UNLABELLED, not for a named data set"
        require("corrections" not in data, rule, ConfigError)
        _, problem = one_problem(str(data["dataset"]), config.seed, None, data)
        problem = without_folders(problem, where(data.pop("root", None)))
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
    from embasis.data.images.folders import load_images, without_folders
    from embasis.data.segmentation.folders import are_map_folders
    from embasis.data.tables.pair import load_pair
    from embasis.runs.preflight import require_cache_place

    sides = {key: str(data[key]) for key in TABLES if key in data}
    label, id_ = str(data.get("label", "label")), data.get("id")
    kinds = {key: is_image_side(path) for key, path in sides.items()}
    if not any(kinds.values()):
        refuse_images(data)
        forbid = options_of({key: data[key] for key in data if key == "forbid_leakage"}).forbid_leakage
        require("classes" not in data, "classes are for label maps, the tables have none", ConfigError)
        id_ = None if id_ is None else str(id_)
        problem = load_pair(**sides, label=label, id=id_, forbid_leakage=forbid)
        return without_folders(corrected(problem, data), *sides.values(), data.get("corrections"))
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
    return without_folders(corrected(problem, data), *sides.values(), data.get("corrections"))


def corrected(problem: Problem, data: dict[str, Any]) -> Problem:
    """The problem with the rows that a person has labelled on its labelled side."""
    from embasis.runs.corrections import corrected_problem

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
        echo(f"{kept}: the best one by {run.prepare().plan.choose}")
    what, suffix = ("sites", "") if maps else ("labels", ".parquet")
    echo(
        f"done: {counted(progress.records[-1].round, 'round')}, {last.trusted:,} of {last.unlabelled:,} {what} trusted"
    )
    echo(f"wrote {path / 'report.html'} and {path / 'labels' / f'round-{last.round:03d}{suffix}'}")
    command = f"embasis predict {typed(path)}"
    what = f"pictures with: {command} PICTURES -o maps" if maps else f"rows with: {command} INPUT -o labels.csv"
    echo(f"label other {what}")
