"""A run that has ended: its labels, and where the user's data are that it has labelled."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embasis.data.class_labels import quote_names
from embasis.data.images.files import describe_os_error, printable_path, unescape_name
from embasis.data.images.scan import is_list, resolve_list
from embasis.data.saved_dataset import find_saved_dataset
from embasis.data.segmentation.labels import BadMap, read_png_numbers
from embasis.data.shards import TAR, shard_kind
from embasis.errors import CorruptError, InputDataError, UntrustedError, quote, require
from embasis.inputs import InputKind, count_pictures, kind_of_run
from embasis.report.collect import kept_round, labels_name
from embasis.runs.checkpoint import read_run
from embasis.runs.review_sources import TableCells, read_table_cells
from embasis.runs.row_labels import LABEL_COLUMNS
from embasis.storage import SealedFiles
from embasis.storage.label_map_folder import StoredMaps, open_stored_maps

MAP_COLUMNS = ("id", "file", "width", "height")
NONE_TRUSTED = "no label of the run is trusted; --all exports every label"
TRUSTED_VALUE = 255
NO_CLASS, STRANGE = -1, -2
"""Of pixels: without a class, and with a number that is no class."""


@dataclass(frozen=True)
class Finished:
    """A run that has ended, and the round whose model it keeps."""

    files: SealedFiles
    kind: InputKind
    round: int
    classes: tuple[str, ...]
    pictures: int = 0
    """Unlabelled ones of a run on label maps."""


def open_run_table(run: Finished, table: str, ids: Sequence[str]) -> TableCells:
    """The values of a run's rows, from the table that it has labelled."""
    data = read_data_settings(read_run(run.files.path).facts)
    id = None if data.get("id") is None else str(data["id"])
    cells = read_table_cells(Path(table), str(data.get("label", "label")), id)
    cells.require_rows(ids)
    return cells


def read_data_settings(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a run's settings say of its data; a CorruptError where they say nothing that can be read."""
    data = facts["config"].get("data") if isinstance(facts.get("config"), Mapping) else None
    if not isinstance(data, Mapping):
        raise CorruptError("the run's settings have no table data: they are not as a run writes them")
    return data


def read_finished_run(path: Path) -> Finished:
    """The run in a folder; refused while it goes on."""
    newest = read_run(path)
    facts = newest.facts
    try:
        files, classes = SealedFiles(path, newest.sealed), tuple(map(str, facts["classes"]))
        run = Finished(files, kind_of_run(facts), kept_round(facts), classes, count_pictures(facts))
        running = facts["progress"]["status"] == "running"
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptError(f"{path}: the run's facts do not describe a run: {error}") from error
    require(not running, f"{path}: the run has not ended yet; go on with embasis fit", CorruptError)
    return run


def label_table(run: Finished, everything: bool) -> dict[str, list[Any]]:
    """The rows of the labels, in the order of the run."""
    name = labels_name(run.round)
    columns, path = run.files.table(name), run.files.path / name
    require_columns(columns, LABEL_COLUMNS, path)
    strange = {str(label) for label in columns["label"]} - {*run.classes}
    require(not strange, f"{path}: labels that are no class of the run: {quote_names(strange)}", CorruptError)
    rows = [row for row, trusted in enumerate(columns["trusted"]) if trusted is True or everything]
    require(rows, NONE_TRUSTED, InputDataError)
    return {name: [columns[name][row] for row in rows] for name in LABEL_COLUMNS}


def require_columns(columns: Mapping[str, list[Any]], wanted: tuple[str, ...], path: Path) -> None:
    """A CorruptError for a stored table that lacks one of these columns."""
    lacking = [name for name in wanted if name not in columns]
    require(not lacking, f"{path}: columns are missing: {', '.join(lacking)}", CorruptError)


def locate_images(names: Sequence[str], images: str) -> dict[str, str]:
    """The file of each image of a run, below the folder `images` or in that list; an InputDataError if one is lost."""
    require(is_there(images), f"{printable_path(images)}: no such folder or list", InputDataError)
    cure = "unpack each into a folder of its name, and name the folder around them"
    rule = f"{printable_path(images)}: images in tar shards are no files of their own; {cure}"
    require(shard_kind(images) != TAR, rule, InputDataError)
    rule = f"{printable_path(images)}: images in a saved data set are no files of their own; export --as csv names"
    saved = find_saved_dataset(images) is not None
    require(not saved, f"{rule} the row of each label (row-00000017 is dataset[17])", InputDataError)
    folder = os.path.isdir(images)
    require(folder or is_list(images), f"{printable_path(images)}: is no folder and no list of images", InputDataError)
    open_ = not folder or os.access(images, os.R_OK | os.X_OK)
    require(open_, f"{printable_path(images)}: cannot be read: permission denied", InputDataError)
    where = path_below(images) if folder else resolve_list(images).get
    paths = {name: where(name) for name in names}
    lacking = [name for name, path in paths.items() if path is None or not (is_there(path) and os.path.isfile(path))]
    count = f"{len(lacking):,} of {len(paths):,} images of the run are not there"
    require(not lacking, f"{printable_path(images)}: {count}: {quote_names(lacking, 3)}", InputDataError)
    return {name: str(path) for name, path in paths.items()}


def is_there(path: str) -> bool:
    """Whether there is such a file or folder; that nobody lets us look is another matter, and said."""
    try:
        os.stat(path)
    except PermissionError as error:
        raise InputDataError(f"{printable_path(path)}: cannot be read: {describe_os_error(error)}") from error
    except (OSError, ValueError):
        return False
    return True


def path_below(root: str) -> Callable[[str], str]:
    """The path of an image of a folder by its name; a name that leads out of the folder is refused."""
    top = os.path.abspath(root)

    def path_of(name: str) -> str:
        parts = os.fsdecode(unescape_name(name)).split("/")
        inside = not any(part in ("", ".", "..") or "\0" in part for part in parts)
        require(inside, f"path escapes the folder of images: {quote(name)}", UntrustedError)
        return os.path.join(top, *parts)

    return path_of


def iter_class_maps(run: Finished, everything: bool) -> Iterator[tuple[str, str, NDArray[np.int64]]]:
    """The id of each picture, the name of its map, and the class of each pixel, NO_CLASS where it is not wanted."""
    maps = open_stored_maps(run.files, run.round)
    numbers, table, home = class_numbers(maps, run.classes), maps.table(), maps.home
    require_columns(table, MAP_COLUMNS, home / "maps.parquet")
    for id, file, width, height in zip(*(table[name] for name in MAP_COLUMNS), strict=True):
        labels = read_plane(maps, "labels", str(file), (height, width))
        classes = numbers[labels]
        require((classes != STRANGE).all(), f"{home / 'labels' / str(file)}: a number that is no class", CorruptError)
        if not everything:
            classes = np.where(
                read_plane(maps, "trusted", str(file), (height, width)) == TRUSTED_VALUE, classes, NO_CLASS
            )
        yield str(id), str(file), classes


def class_numbers(maps: StoredMaps, classes: tuple[str, ...]) -> NDArray[np.int64]:
    """The class of each number that a label map may have."""
    numbers = np.full(2**16, STRANGE, np.int64)
    try:
        numbers[int(maps.marker["unknown"])] = NO_CLASS
        names = [str(entry["name"]) for entry in maps.marker["classes"]]
        for place, entry in enumerate(maps.marker["classes"]):
            numbers[int(entry["value"])] = place
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise CorruptError(f"{maps.home}: maps.json does not name the classes: {error}") from error
    require(tuple(names) == classes, f"{maps.home}: maps.json has other classes than the run", CorruptError)
    return numbers


def read_plane(maps: StoredMaps, kind: str, name: str, size: tuple[Any, Any]) -> NDArray[Any]:
    """The numbers of one map."""
    path = maps.home / kind / name
    try:
        numbers = read_png_numbers(maps.map(kind, name))
    except BadMap as error:
        raise CorruptError(f"{path}: {error}") from error
    require(numbers.shape == size, f"{path}: has another size than maps.parquet says", CorruptError)
    return numbers


@dataclass(frozen=True)
class ExportSummary:
    """What was written, for whoever prints it."""

    round: int
    """The round whose labels they are."""
    labels: int
    """Rows of the table, images in folders, or regions of pictures."""
    folders: Mapping[str, Path] = field(default_factory=dict)
    """`folder`: that of each class."""
    pictures: int = 0
    """`coco`: pictures with these regions."""
    interface: str = ""
    """`label-studio`: the labelling interface of a project that takes the tasks."""
