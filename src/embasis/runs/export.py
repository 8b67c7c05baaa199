"""A finished run for the next tool: its labels as a table, folder of images by class, COCO file or tasks; its model.

What is exported is of the round whose model is kept; of labels, unless all are asked for, the trusted ones.
"""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from embasis.data.images.files import unescape_name
from embasis.errors import ConfigError, InputDataError, quote, require
from embasis.inputs import IMAGE_KIND, MAP_KIND, TABLE_KIND, InputKind
from embasis.runs.checkpoint import read_run
from embasis.runs.cvat import write_cvat
from embasis.runs.finished_run import (
    NONE_TRUSTED,
    ExportSummary,
    Finished,
    iter_class_maps,
    label_table,
    locate_images,
    open_run_table,
    read_finished_run,
)
from embasis.runs.model import load_model
from embasis.runs.onnx_model import encode_onnx
from embasis.runs.torch_model import encode_plain
from embasis.storage import encode_table, require_apart, write_output
from embasis.storage.annotation_tasks import PredictedTask, encode_tasks, labelling_interface
from embasis.storage.class_folder import ExportedImage, write_class_folder, write_model_folder
from embasis.storage.picture_formats import Picture, encode_coco, find_regions

EXPORT_FORMATS = {
    "csv": (".csv", (TABLE_KIND, IMAGE_KIND)),
    "parquet": (".parquet", (TABLE_KIND, IMAGE_KIND)),
    "folder": ("", (IMAGE_KIND,)),
    "coco": (".json", (MAP_KIND,)),
    "cvat": (".zip", (MAP_KIND,)),
    "label-studio": (".json", (TABLE_KIND, IMAGE_KIND)),
    "onnx": (".onnx", (TABLE_KIND, IMAGE_KIND, MAP_KIND)),
    "torch": ("", (TABLE_KIND, IMAGE_KIND)),
}
"""The ending of the output, and the kinds of runs that can be exported so."""
FOLDER_FORMS, MODEL_FORMS = ("folder", "torch"), ("onnx", "torch")
"""Those that are folders; those that are the model itself, and not its labels."""


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


def export_labels(
    run: str, output: str, options: ExportOptions, show: Callable[[int, int], None] = lambda done, total: None
) -> ExportSummary:
    """Write the labels, or the model, of a finished run; `show` gets how many pictures have been read, of how many."""
    images, form = options.images, options.form
    require(form in EXPORT_FORMATS, f"form must be one of {', '.join(EXPORT_FORMATS)}, got {quote(form)}", ConfigError)
    named = "the folder of images" if images is not None and os.path.isdir(images) else "the list of images"
    inputs = {"the run folder": run, named: images, "the table": options.table}
    require_apart(output, inputs, folder=form in FOLDER_FORMS)
    finished, out = read_finished_run(Path(run)), Path(output)
    refuse_form(finished.kind, output, options)
    if form in MODEL_FORMS:
        write_model(Path(run), out, form)
        return ExportSummary(finished.round, 0)
    if form == "coco":
        return write_coco(finished, out, options.everything, show)
    if form == "cvat":
        return write_cvat(finished, out, options.everything, show)
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
    rule = f"--all is for labels, got --as {form}, which is the model"
    require(form not in MODEL_FORMS or not options.everything, rule, ConfigError)
    needed = form == "label-studio" and kind is TABLE_KIND
    rule = f"--table is for --as label-studio of a run on a table, got --as {form} of {kind.words}"
    require(needed or options.table is None, rule, ConfigError)
    lacking = "--as label-studio needs --table, the table that the run has labelled: a run keeps no values of it"
    require(not needed or options.table is not None, lacking, ConfigError)
    hint = "a run keeps no paths of your machine"
    lacking = f"--as folder needs --images, the run's folder or list of images: {hint}"
    require(form != "folder" or options.images is not None, lacking, ConfigError)


def write_model(run: Path, out: Path, form: str) -> None:
    """The model of the round that is kept: an ONNX file, or a folder for torch."""
    stored = read_run(run)
    model = load_model(stored.facts, stored.tensors, run, sealed=stored.sealed)
    if form == "onnx":
        write_output(out, encode_onnx(model))
    else:
        write_model_folder(out, encode_plain(model))


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


def describe_choice(everything: bool) -> str:
    """Which labels are exported, in words."""
    return "trusted or not" if everything else "trusted"


def image_items(columns: Mapping[str, list[Any]], images: str) -> list[ExportedImage]:
    """Each labelled image with its file below the folder `images`, or in that list; all of them are there."""
    names = [str(id) for id in columns["id"]]
    paths = locate_images(names, images)
    return [ExportedImage(id, str(label), paths[id]) for id, label in zip(names, columns["label"], strict=True)]


def read_labelled_pictures(run: Finished, everything: bool) -> Iterator[Picture]:
    """Each picture with the regions of its labels, in the order of the run's table."""
    for id, _, classes in iter_class_maps(run, everything):
        height, width = classes.shape
        yield Picture(id, height, width, find_regions(classes))
