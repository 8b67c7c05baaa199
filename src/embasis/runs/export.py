"""The labels of a finished run for the next tool: a table, a folder of images by class, or a COCO file.

What is exported are the labels of the round whose model is kept; unless all are asked for, the trusted ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embasis.data.class_labels import listed
from embasis.data.images.files import describe_os_error, printable_path, unescape_name
from embasis.data.images.header import UnreadableImage
from embasis.data.images.scan import is_list, resolve_list
from embasis.data.segmentation.png import read_png_numbers
from embasis.errors import CorruptError, InputDataError, UntrustedError, quoted, require
from embasis.report.collect import kept_round, labels_name
from embasis.runs.checkpoint_schema import read_run
from embasis.storage import SealedFiles, StoredMaps, open_stored_maps
from embasis.storage.class_folder import ExportedImage
from embasis.storage.coco import Picture, find_regions

COLUMNS = ("id", "label", "probability", "between", "within", "uncertainty", "trusted")
MAP_COLUMNS = ("id", "file", "width", "height")
KINDS = {"table": "a table", "images": "images", "maps": "pictures with label maps"}
"""What a run may have labelled, for sentences."""
NONE_TRUSTED = "no label of the run is trusted; --all exports every label"
TRUSTED = 255


@dataclass(frozen=True)
class Finished:
    """A run that has ended, and the round whose model it keeps."""

    files: SealedFiles
    kind: str
    """A key of KINDS."""
    round: int
    classes: tuple[str, ...]
    pictures: int = 0
    """Unlabelled ones of a run on label maps."""


def finished_run(path: Path) -> Finished:
    """The run in a folder; refused while it goes on."""
    newest = read_run(path)
    facts = newest.facts
    try:
        kind = "maps" if facts.get("maps") else "images" if facts.get("backbone") else "table"
        pictures = int((facts.get("maps") or {}).get("pictures", 0))
        found = Finished(
            SealedFiles(path, newest.sealed), kind, kept_round(facts), tuple(map(str, facts["classes"])), pictures
        )
        running = facts["progress"]["status"] == "running"
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptError(f"{path}: the run's facts do not describe a run: {error}") from error
    require(not running, f"{path}: the run has not ended yet; go on with embasis fit", CorruptError)
    return found


def label_table(run: Finished, everything: bool) -> dict[str, list[Any]]:
    """The rows of the labels, in the order of the run."""
    name = labels_name(run.round)
    columns, path = run.files.table(name), run.files.path / name
    _require_columns(columns, COLUMNS, path)
    strange = {str(label) for label in columns["label"]} - {*run.classes}
    require(not strange, f"{path}: labels that are no class of the run: {listed(strange)}", CorruptError)
    rows = [row for row, trusted in enumerate(columns["trusted"]) if trusted is True or everything]
    require(rows, NONE_TRUSTED, InputDataError)
    return {name: [columns[name][row] for row in rows] for name in COLUMNS}


def _require_columns(columns: Mapping[str, list[Any]], wanted: tuple[str, ...], path: Path) -> None:
    lacking = [name for name in wanted if name not in columns]
    require(not lacking, f"{path}: columns are missing: {', '.join(lacking)}", CorruptError)


def image_items(columns: Mapping[str, list[Any]], images: str) -> list[ExportedImage]:
    """Each labelled image with its file below the folder `images`, or in that list; all of them are there."""
    require(is_there(images), f"{printable_path(images)}: no such folder or list", InputDataError)
    folder = os.path.isdir(images)
    require(folder or is_list(images), f"{printable_path(images)}: is no folder and no list of images", InputDataError)
    open_ = not folder or os.access(images, os.R_OK | os.X_OK)
    require(open_, f"{printable_path(images)}: cannot be read: permission denied", InputDataError)
    where = below(images) if folder else resolve_list(images).get
    found = [(str(id), where(str(id))) for id in columns["id"]]
    lacking = [id for id, path in found if path is None or not (is_there(path) and os.path.isfile(path))]
    count = f"{len(lacking):,} of {len(found):,} images of the run are not there"
    require(not lacking, f"{printable_path(images)}: {count}: {listed(lacking, 3)}", InputDataError)
    return [ExportedImage(id, str(label), str(path)) for (id, path), label in zip(found, columns["label"], strict=True)]


def is_there(path: str) -> bool:
    """Whether there is such a file or folder; that nobody lets us look is another matter, and said."""
    try:
        os.stat(path)
    except PermissionError as error:
        raise InputDataError(f"{printable_path(path)}: cannot be read: {describe_os_error(error)}") from error
    except (OSError, ValueError):
        return False
    return True


def below(root: str) -> Callable[[str], str]:
    """The path of an image of a folder by its name; a name that leads out of the folder is refused."""
    top = os.path.abspath(root)

    def path_of(name: str) -> str:
        parts = os.fsdecode(unescape_name(name)).split("/")
        inside = not any(part in ("", ".", "..") or "\0" in part for part in parts)
        require(inside, f"path escapes the folder of images: {quoted(name)}", UntrustedError)
        return os.path.join(top, *parts)

    return path_of


def labelled_pictures(run: Finished, everything: bool) -> Iterator[Picture]:
    """Each picture with the regions of its labels, in the order of the run's table."""
    maps = open_stored_maps(run.files, run.round)
    numbers, table, home = class_numbers(maps, run.classes), maps.table(), maps.home
    _require_columns(table, MAP_COLUMNS, home / "maps.parquet")
    for id, file, width, height in zip(*(table[name] for name in MAP_COLUMNS), strict=True):
        labels = _plane(maps, "labels", str(file), (height, width))
        classes = numbers[labels]
        require((classes != STRANGE).all(), f"{home / 'labels' / str(file)}: a number that is no class", CorruptError)
        if not everything:
            classes = np.where(_plane(maps, "trusted", str(file), (height, width)) == TRUSTED, classes, UNKNOWN)
        yield Picture(str(id), int(height), int(width), find_regions(classes))


UNKNOWN, STRANGE = -1, -2


def class_numbers(maps: StoredMaps, classes: tuple[str, ...]) -> NDArray[np.int64]:
    """The class of each number that a label map may have."""
    numbers = np.full(2**16, STRANGE, np.int64)
    try:
        numbers[int(maps.marker["unknown"])] = UNKNOWN
        names = [str(entry["name"]) for entry in maps.marker["classes"]]
        for place, entry in enumerate(maps.marker["classes"]):
            numbers[int(entry["value"])] = place
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise CorruptError(f"{maps.home}: maps.json does not name the classes: {error}") from error
    require(tuple(names) == classes, f"{maps.home}: maps.json has other classes than the run", CorruptError)
    return numbers


def _plane(maps: StoredMaps, kind: str, name: str, size: tuple[Any, Any]) -> NDArray[Any]:
    """The numbers of one map."""
    path = maps.home / kind / name
    try:
        found = read_png_numbers(maps.map(kind, name))
    except UnreadableImage as error:
        raise CorruptError(f"{path}: {error}") from error
    require(found.shape == size, f"{path}: has another size than maps.parquet says", CorruptError)
    return found
