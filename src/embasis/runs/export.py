"""The labels of a finished run for the next tool: a table, a folder of images by class, a COCO file, or tasks.

What is exported are the labels of the round whose model is kept; unless all are asked for, the trusted ones.
"""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embasis.data.class_labels import quote_names
from embasis.data.images.files import describe_os_error, printable_path, unescape_name
from embasis.data.images.scan import is_list, resolve_list
from embasis.data.segmentation.labels import BadMap, read_png_numbers
from embasis.errors import ConfigError, CorruptError, InputDataError, UntrustedError, quote, require
from embasis.inputs import IMAGE_KIND, MAP_KIND, TABLE_KIND, InputKind, count_pictures, kind_of_run
from embasis.report.collect import kept_round, labels_name
from embasis.runs.checkpoint import read_run
from embasis.runs.predict import LABEL_COLUMNS
from embasis.runs.review_sources import TableCells, read_table_cells
from embasis.storage import SealedFiles, encode_table, require_apart, write_output
from embasis.storage.annotation_tasks import PredictedTask, encode_tasks, labelling_interface
from embasis.storage.class_folder import ExportedImage, write_class_folder
from embasis.storage.label_map_folder import StoredMaps, open_stored_maps
from embasis.storage.picture_formats import Picture, encode_coco, find_regions

MAP_COLUMNS = ("id", "file", "width", "height")
EXPORT_FORMATS = {
    "csv": (".csv", (TABLE_KIND, IMAGE_KIND)),
    "parquet": (".parquet", (TABLE_KIND, IMAGE_KIND)),
    "folder": ("", (IMAGE_KIND,)),
    "coco": (".json", (MAP_KIND,)),
    "label-studio": (".json", (TABLE_KIND, IMAGE_KIND)),
}
"""The ending of the output, and the kinds of runs that can be exported so."""
NONE_TRUSTED = "no label of the run is trusted; --all exports every label"
TRUSTED_VALUE = 255


@dataclass(frozen=True)
class Finished:
    """A run that has ended, and the round whose model it keeps."""

    files: SealedFiles
    kind: InputKind
    round: int
    classes: tuple[str, ...]
    pictures: int = 0
    """Unlabelled ones of a run on label maps."""


@dataclass(frozen=True)
class ExportOptions:
    """What is written of a run's labels, and how."""

    form: str
    """A key of EXPORT_FORMATS."""
    everything: bool = False
    """Whether untrusted labels are written, too."""
    images: str | None = None
    """`folder`: the run's folder or list of unlabelled images, whose paths a run does not keep."""
    copy: bool = False
    """`folder`: copies in place of links."""
    table: str | None = None
    """`label-studio`: the run's unlabelled table, whose values a run does not keep."""


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


def export_labels(
    run: str, output: str, options: ExportOptions, show: Callable[[int, int], None] = lambda done, total: None
) -> ExportSummary:
    """Write the labels of a finished run; `show` gets how many pictures have been read, and how many there are."""
    images, form = options.images, options.form
    require(form in EXPORT_FORMATS, f"form must be one of {', '.join(EXPORT_FORMATS)}, got {quote(form)}", ConfigError)
    named = "the folder of images" if images is not None and os.path.isdir(images) else "the list of images"
    inputs = {"the run folder": run, named: images, "the table": options.table}
    require_apart(output, inputs, folder=form == "folder")
    finished, out = read_finished_run(Path(run)), Path(output)
    refuse_form(finished.kind, output, options)
    if form == "coco":
        return write_coco(finished, out, options.everything, show)
    if form == "label-studio":
        return write_tasks(finished, out, options.table)
    columns = label_table(finished, options.everything)
    if form == "folder":
        items = image_items(columns, str(images))
        folders = write_class_folder(out, items, finished.classes, options.copy)
        return ExportSummary(finished.round, len(items), folders)
    write_output(out, encode_table(columns, EXPORT_FORMATS[form][0]))
    return ExportSummary(finished.round, len(columns["id"]))


def refuse_form(kind: InputKind, output: str, options: ExportOptions) -> None:
    """A ConfigError for a form, or an option of one, that does not fit the run."""
    form, (suffix, kinds) = options.form, EXPORT_FORMATS[options.form]
    others = [name for name, (_, fitting) in EXPORT_FORMATS.items() if kind in fitting]
    suited = f"the run labelled {kind.words}: --as {' or '.join(others)}"
    wanted = " or ".join(other.words for other in kinds)
    require(kind in kinds, f"--as {form} is for runs on {wanted}, {suited}", ConfigError)
    rule = f"output must end in {suffix} for --as {form}, got {quote(output)}"
    require(not suffix or Path(output).suffix == suffix, rule, ConfigError)
    for name, given in (("--images", options.images is not None), ("--copy", options.copy)):
        require(form == "folder" or not given, f"{name} is for --as folder, got --as {form}", ConfigError)
    needed = form == "label-studio" and kind is TABLE_KIND
    rule = f"--table is for --as label-studio of a run on a table, got --as {form} of {kind.words}"
    require(needed or options.table is None, rule, ConfigError)
    lacking = "--as label-studio needs --table, the table that the run has labelled: a run keeps no values of it"
    require(not needed or options.table is not None, lacking, ConfigError)
    hint = "a run keeps no paths of your machine"
    lacking = f"--as folder needs --images, the run's folder or list of images: {hint}"
    require(form != "folder" or options.images is not None, lacking, ConfigError)


def write_coco(run: Finished, out: Path, everything: bool, show: Callable[[int, int], None]) -> ExportSummary:
    """The regions of all pictures."""
    pictures = regions = 0

    def counted_pictures() -> Iterator[Picture]:
        nonlocal pictures, regions
        for picture in read_labelled_pictures(run, everything):
            pictures, regions = pictures + 1, regions + len(picture.regions)
            show(pictures, run.pictures)
            yield picture

    what = f"labels of round {run.round} of an embasis run, {describe_choice(everything)}"
    data = encode_coco(what, version("embasis"), run.classes, counted_pictures())
    require(regions, NONE_TRUSTED, InputDataError)
    write_output(out, data)
    return ExportSummary(run.round, regions, pictures=pictures)


def write_tasks(run: Finished, out: Path, table: str | None) -> ExportSummary:
    """A task for each label, trusted or not, the least sure first; for images with the address of its file."""
    columns = label_table(run, everything=True)
    rows = zip(*(columns[name] for name in ("id", "label", "probability", "uncertainty")), strict=True)
    ordered = sorted(((str(id), str(label), float(p), float(u)) for id, label, p, u in rows), key=lambda row: -row[3])
    cells = None if table is None else open_run_table(run, table, [id for id, *_ in ordered])
    tasks = (
        PredictedTask(id, {"image": local_address(id)} if cells is None else {"values": dict(cells(id))}, label, p)
        for id, label, p, _ in ordered
    )
    data = encode_tasks(tasks, f"embasis {version('embasis')}, round {run.round}")
    write_output(out, data)
    interface = labelling_interface(run.classes, "image" if cells is None else "values")
    return ExportSummary(run.round, len(ordered), interface=interface)


def local_address(name: str) -> str:
    """Where Label Studio finds an image below the folder that it may serve files from."""
    return f"/data/local-files/?d={urllib.parse.quote(unescape_name(name))}"


def open_run_table(run: Finished, table: str, ids: Sequence[str]) -> TableCells:
    """The values of a run's rows, from the table that it has labelled."""
    data = read_run(run.files.path).facts["config"]["data"]
    id = None if data.get("id") is None else str(data["id"])
    cells = read_table_cells(Path(table), str(data.get("label", "label")), id)
    cells.require_rows(ids)
    return cells


def describe_choice(everything: bool) -> str:
    """Which labels are exported, in words."""
    return "trusted or not" if everything else "trusted"


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


def image_items(columns: Mapping[str, list[Any]], images: str) -> list[ExportedImage]:
    """Each labelled image with its file below the folder `images`, or in that list; all of them are there."""
    names = [str(id) for id in columns["id"]]
    paths = find_images(names, images)
    return [ExportedImage(id, str(label), paths[id]) for id, label in zip(names, columns["label"], strict=True)]


def find_images(names: Sequence[str], images: str) -> dict[str, str]:
    """The file of each image of a run, below the folder `images` or in that list; an InputDataError if one is lost."""
    require(is_there(images), f"{printable_path(images)}: no such folder or list", InputDataError)
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


def read_labelled_pictures(run: Finished, everything: bool) -> Iterator[Picture]:
    """Each picture with the regions of its labels, in the order of the run's table."""
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
        yield Picture(str(id), int(height), int(width), find_regions(classes))


NO_CLASS, STRANGE = -1, -2


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
