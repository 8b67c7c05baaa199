"""What the commands do with folders and lists of images: read them once, with a bar, and stop when asked to."""

from __future__ import annotations

import os
from typing import Any, Protocol

from embasis import config as settings
from embasis.benchmark.compare import iter_problems
from embasis.cli.console import echo, progress_bar
from embasis.config import Config
from embasis.data.images.files import ImageFile
from embasis.data.images.folders import ImageOptions, require_budget
from embasis.data.images.scan import is_list, scan_file, scan_folder, scan_list
from embasis.errors import ConfigError, InputDataError, Interrupted, require
from embasis.inputs.image_inputs import ImageInputs, is_images, open_image_inputs
from embasis.runs.model import Model, label_columns
from embasis.runs.preflight import require_cache
from embasis.types import Problem

MOST_NAMED = 5
"""Files that a sentence names one by one."""


class Signal(Protocol):
    """Whether the user wants to stop."""

    code: int


def is_image_side(path: str) -> bool:
    """A folder, or a table with a column of paths."""
    return os.path.isdir(path) or (os.path.isfile(path) and is_list(path))


def options_of(data: dict[str, Any]) -> ImageOptions:
    """The image options among the settings of [data]."""
    given = {name: value for name, value in data.items() if name in settings.IMAGE_DATA}
    return ImageOptions(**settings.bind("data", ImageOptions, given, settings.IMAGE_DATA))


def read_images(problem: Problem, front: ImageInputs, config: Config, stop: Signal) -> Problem:
    """The problem with features or prepared images in place of files; what was read before is not read again."""
    first, seen = True, 0
    with progress_bar("reading images", 1) as show:
        for done, total in front.cache_features(problem):
            if first:
                require_cache(front, total - done)
                echo(reading_line(done, total, front))
                first = False
            seen = total
            show(done / max(total, 1), f"reading images: {done:,} of {total:,}")
            if stop.code:
                there = f"{done:,} of {total:,} images are in the feature cache"
                kept = there if front.cache is not None else "nothing is kept"
                raise Interrupted(f"interrupted while reading images; {kept}; the same command goes on", stop.code)
    if front.cache is not None:
        front.reader.close()  # training reads features only
    ready = front.feature_problem(problem)
    require_budget(ready.rejected, seen + len(problem.rejected), options_of(config.data).budget)
    return ready


def read_beforehand(dataset: str, config: Config, root: str | None) -> None:
    """Fill the feature cache with all images of a data set, with a bar, so that a comparison can begin at once."""
    front: ImageInputs | None = None
    with progress_bar("reading images", 1) as show:
        for pair, problem in iter_problems(dataset, config.seed, root, config.data):
            if not is_images(problem):
                return
            front = front or open_image_inputs(config)
            if front.cache is None:
                return
            for done, total in front.cache_features(problem):
                show(done / max(total, 1), f"reading images, {pair or dataset}: {done:,} of {total:,}")
    if front is not None:
        front.reader.close()


def reading_line(done: int, total: int, front: ImageInputs) -> str:
    """What is about to be read, and what is not any more."""
    name, depth = front.network["name"], front.plan.depth
    if front.cache is None:
        return f"{total:,} different images, {name}, {depth}: each is read once before training"
    return f"{total:,} different images, {name}, {depth}: {done:,} of them are in the feature cache"


def say_notes(problem: Problem) -> None:
    """What the user should know of the data before training."""
    for note in problem.notes:
        echo(f"note: {note}")
    if problem.rejected:
        named = "; ".join(f"{item.name}: {item.reason}" for item in problem.rejected[:MOST_NAMED])
        more = len(problem.rejected) - MOST_NAMED
        rest = f"; and {more:,} more" if more > 0 else ""
        count = "1 file is" if len(problem.rejected) == 1 else f"{len(problem.rejected):,} files are"
        echo(f"note: {count} not used (all are in quarantine.jsonl): {named}{rest}")


def files_of(path: str, follow_links: bool) -> tuple[list[ImageFile], dict[str, str]]:
    """The images of a folder, of a list, or the one that is named; and why others cannot be read."""
    if os.path.isdir(path):
        scan = scan_folder(path, follow_links=follow_links)
    elif os.path.isfile(path) and is_image_side(path):
        scan = scan_list(path, follow_links=follow_links)[0]
    else:
        table = os.path.isfile(path) and path.lower().endswith((".csv", ".npy", ".npz", ".parquet"))
        hint = "name a folder, an image, or a .csv with a column path"
        require(not table, f"{path}: is a table without a column path, the run labels images; {hint}", InputDataError)
        scan = scan_file(path)
    rejected = {item.name: item.reason for item in scan.rejected}
    require(
        scan.files, f"{path}: no image can be read: {'; '.join(rejected.values()) or 'there is none'}", InputDataError
    )
    return list(scan.files), rejected


def label_files(model: Model, path: str, follow_links: bool) -> dict[str, list[Any]]:
    """The table of labels for the images of `path`, in the order of their names; unreadable ones have none."""
    files, rejected = files_of(path, follow_links)
    columns: dict[str, list[Any]] = {}
    done = 0
    with progress_bar("labelling images", 1) as show:
        for good, verdict, broken in model.files(files):
            rejected |= broken
            done += len(good) + len(broken)
            show(done / len(files), f"labelling images: {done:,} of {len(files):,}")
            if verdict is not None:
                part = label_columns(verdict, [file.name for file in good], model.schema)
                for name, column in part.items():
                    columns.setdefault(name, []).extend(column)
    reasons = "; ".join(f"{name}: {reason}" for name, reason in list(rejected.items())[:MOST_NAMED])
    require(columns, f"{path}: no image can be read: {reasons}", InputDataError)
    for name in rejected:
        for key, column in columns.items():
            column.append({"id": name, "trusted": False}.get(key))
    order = sorted(range(len(columns["id"])), key=columns["id"].__getitem__)
    columns = {name: [column[row] for row in order] for name, column in columns.items()}
    if rejected:
        named = "; ".join(f"{name}: {reason}" for name, reason in list(rejected.items())[:MOST_NAMED])
        count = "1 file" if len(rejected) == 1 else f"{len(rejected):,} files"
        echo(f"warning: {count} could not be read and got no label: {named}", err=True)
    return columns


def refuse_images(data: dict[str, Any]) -> None:
    """Image options with tables are a mistake."""
    odd = [name for name in data if name in settings.IMAGE_DATA and name != "forbid_leakage"]
    require(not odd, f"data settings for images, but the data are tables: {', '.join(odd)}", ConfigError)


def named(path: str) -> str:
    """A path as a run folder may show it: its last part."""
    return os.path.basename(os.path.realpath(path)) or "/"
