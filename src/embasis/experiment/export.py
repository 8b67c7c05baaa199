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

from embasis.data.image.files import name_bytes, shown
from embasis.data.image.lists import is_list, listed_paths
from embasis.data.image.sniff import Unreadable
from embasis.data.maps.png import png_numbers
from embasis.data.problem import listed
from embasis.errors import ConfigError, CorruptError, InputDataError, UntrustedError, require
from embasis.experiment.facts import read_run
from embasis.experiment.folder import kept_round
from embasis.storage import read_table
from embasis.storage.coco import Picture, regions_of
from embasis.storage.link_folder import Item
from embasis.storage.map_folder import read_map, read_marker

COLUMNS = ("id", "label", "probability", "between", "within", "uncertainty", "trusted")
MAP_COLUMNS = ("id", "file", "width", "height")
KINDS = {"table": "a table", "images": "images", "maps": "pictures with label maps"}
"""What a run may have labelled, for sentences."""
NONE_TRUSTED = "no label of the run is trusted; --all exports every label"
TRUSTED = 255


@dataclass(frozen=True)
class Finished:
    """A run that has ended, and the round whose model it keeps."""

    path: Path
    kind: str
    """A key of KINDS."""
    round: int
    classes: tuple[str, ...]
    pictures: int = 0
    """Unlabelled ones of a run on label maps."""

    @property
    def labels(self) -> Path:
        """The labels of the round that is kept: a folder of maps, or a table."""
        return self.path / "labels" / f"round-{self.round:03d}{'' if self.kind == 'maps' else '.parquet'}"


def finished_run(path: Path) -> Finished:
    """The run in a folder; refused while it goes on."""
    facts = read_run(path).facts
    try:
        kind = "maps" if facts.get("maps") else "images" if facts.get("backbone") else "table"
        pictures = int((facts.get("maps") or {}).get("pictures", 0))
        found = Finished(path, kind, kept_round(facts), tuple(map(str, facts["classes"])), pictures)
        running = facts["progress"]["status"] == "running"
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptError(f"{path}: the run's facts do not describe a run: {error}") from error
    require(not running, f"{path}: the run has not ended yet; go on with embasis fit", CorruptError)
    return found


def require_outside(run: Path, out: Path) -> None:
    """An export never writes into the run."""
    home, place = os.path.realpath(run), os.path.realpath(out)
    outside = os.path.commonpath([home, place]) != home
    require(outside, f"output {out} lies in the run folder {run}; name a place outside of it", ConfigError)


def label_table(run: Finished, everything: bool) -> dict[str, list[Any]]:
    """The rows of the labels, in the order of the run."""
    columns = read_table(run.labels)
    _require_columns(columns, COLUMNS, run.labels)
    strange = {str(label) for label in columns["label"]} - {*run.classes}
    require(not strange, f"{run.labels}: labels that are no class of the run: {listed(strange)}", CorruptError)
    rows = [row for row, trusted in enumerate(columns["trusted"]) if trusted is True or everything]
    require(rows, NONE_TRUSTED, InputDataError)
    return {name: [columns[name][row] for row in rows] for name in COLUMNS}


def _require_columns(columns: Mapping[str, list[Any]], wanted: tuple[str, ...], path: Path) -> None:
    lacking = [name for name in wanted if name not in columns]
    require(not lacking, f"{path}: columns are missing: {', '.join(lacking)}", CorruptError)


def image_items(columns: Mapping[str, list[Any]], images: str) -> list[Item]:
    """Each labelled image with its file below the folder `images`, or in that list; all of them are there."""
    require(os.path.exists(images), f"{shown(images)}: no such folder or list", InputDataError)
    folder = os.path.isdir(images)
    require(folder or is_list(images), f"{shown(images)}: is no folder and no list of images", InputDataError)
    where = below(images) if folder else listed_paths(images).get
    found = [(str(id), where(str(id))) for id in columns["id"]]
    lacking = [id for id, path in found if path is None or not os.path.isfile(path)]
    count = f"{len(lacking):,} of {len(found):,} images of the run are not there"
    require(not lacking, f"{shown(images)}: {count}: {listed(lacking, 3)}", InputDataError)
    return [Item(id, str(label), str(path)) for (id, path), label in zip(found, columns["label"], strict=True)]


def below(root: str) -> Callable[[str], str]:
    """The path of an image of a folder by its name; a name that leads out of the folder is refused."""
    top = os.path.abspath(root)

    def path_of(name: str) -> str:
        parts = os.fsdecode(name_bytes(name)).split("/")
        inside = not any(part in ("", ".", "..") or "\0" in part for part in parts)
        require(inside, f"path escapes the folder of images: {name!r}", UntrustedError)
        return os.path.join(top, *parts)

    return path_of


def require_other_folder(images: str, out: Path) -> None:
    """An export never writes among the images."""
    if os.path.isdir(images):
        top, place = os.path.realpath(images), os.path.realpath(out)
        rule = f"output {out} lies in the folder of images {shown(images)}; name a place outside of it"
        require(os.path.commonpath([top, place]) != top, rule, ConfigError)


def labelled_pictures(run: Finished, everything: bool) -> Iterator[Picture]:
    """Each picture with the regions of its labels, in the order of the run's table."""
    home = run.labels
    marker = read_marker(home)
    numbers = class_numbers(marker, run)
    table = read_table(home / "maps.parquet")
    _require_columns(table, MAP_COLUMNS, home / "maps.parquet")
    for id, file, width, height in zip(*(table[name] for name in MAP_COLUMNS), strict=True):
        labels = _plane(home, "labels", str(file), (height, width))
        classes = numbers[labels]
        require((classes != STRANGE).all(), f"{home / 'labels' / str(file)}: a number that is no class", CorruptError)
        if not everything:
            classes = np.where(_plane(home, "trusted", str(file), (height, width)) == TRUSTED, classes, UNKNOWN)
        yield Picture(str(id), int(height), int(width), regions_of(classes))


UNKNOWN, STRANGE = -1, -2


def class_numbers(marker: Mapping[str, Any], run: Finished) -> NDArray[np.int64]:
    """The class of each number that a label map may have."""
    numbers = np.full(2**16, STRANGE, np.int64)
    try:
        numbers[int(marker["unknown"])] = UNKNOWN
        names = [str(entry["name"]) for entry in marker["classes"]]
        for place, entry in enumerate(marker["classes"]):
            numbers[int(entry["value"])] = place
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise CorruptError(f"{run.labels}: maps.json does not name the classes: {error}") from error
    require(tuple(names) == run.classes, f"{run.labels}: maps.json has other classes than the run", CorruptError)
    return numbers


def _plane(home: Path, kind: str, name: str, size: tuple[Any, Any]) -> NDArray[Any]:
    """The numbers of one map."""
    try:
        found = png_numbers(read_map(home, kind, name))
    except Unreadable as error:
        raise CorruptError(f"{home / kind / name}: {error}") from error
    same = found.shape == size
    require(same, f"{home / kind / name}: has another size than maps.parquet says", CorruptError)
    return found
