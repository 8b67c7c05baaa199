"""`embasis export`: the labels of a finished run in the form that the next tool reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from embasis.cli.console import counted, echo, progress_bar
from embasis.errors import ConfigError, InputDataError, quoted, require
from embasis.runs.export import KINDS, NONE_TRUSTED, Finished, finished_run, image_items, label_table, labelled_pictures
from embasis.storage import encode_table, require_apart, write_output
from embasis.storage.class_folder import write_class_folder
from embasis.storage.coco import Picture, encode_coco

EXPORT_FORMATS = {
    "csv": (".csv", ("table", "images")),
    "parquet": (".parquet", ("table", "images")),
    "folder": ("", ("images",)),
    "coco": (".json", ("maps",)),
}
"""The ending of the output, and the kinds of runs that can be exported so."""


def export_labels(run: str, output: str, form: str, everything: bool, images: str | None, copy: bool) -> None:
    """Refuse what does not fit the run, then write its labels in the form that is named."""
    named = "the folder of images" if images is not None and os.path.isdir(images) else "the list of images"
    require_apart(output, {"the run folder": run, named: images}, folder=form == "folder")
    finished, out = finished_run(Path(run)), Path(output)
    suffix, kinds = EXPORT_FORMATS[form]
    others = [name for name, (_, fitting) in EXPORT_FORMATS.items() if finished.kind in fitting]
    suited = f"the run labelled {KINDS[finished.kind]}: --as {' or '.join(others)}"
    wanted = " or ".join(KINDS[kind] for kind in kinds)
    require(finished.kind in kinds, f"--as {form} is for runs on {wanted}, {suited}", ConfigError)
    rule = f"output must end in {suffix} for --as {form}, got {quoted(output)}"
    require(not suffix or out.suffix == suffix, rule, ConfigError)
    for name, given in (("--images", images is not None), ("--copy", copy)):
        require(form == "folder" or not given, f"{name} is for --as folder, got --as {form}", ConfigError)
    if form == "coco":
        return write_coco(finished, out, everything)
    if form == "folder":
        return write_folder(finished, out, everything, images, copy)
    columns = label_table(finished, everything)
    write_output(out, encode_table(columns, suffix))
    return echo(f"wrote {out}: {counted(len(columns['id']), 'label')} of round {finished.round}, {which(everything)}")


def which(everything: bool) -> str:
    """Which labels were asked for."""
    return "trusted or not" if everything else "trusted"


def write_folder(finished: Finished, out: Path, everything: bool, images: str | None, copy: bool) -> None:
    """The images by class."""
    hint = "a run keeps no paths of your machine"
    require(images is not None, f"--as folder needs --images, the run's folder or list of images: {hint}", ConfigError)
    assert images is not None
    items = image_items(label_table(finished, everything), images)
    folders = write_class_folder(out, items, finished.classes, copy)
    what = "copies of" if copy else "links to"
    echo(f"wrote {out}: {what} {counted(len(items), 'image')} in {counted(len(folders), 'class folder')}")
    for name, folder in folders.items():
        if folder.name != name:
            echo(f"note: class {quoted(name)} is in {folder}")


def write_coco(finished: Finished, out: Path, everything: bool) -> None:
    """The regions of all pictures."""
    pictures = regions = 0
    with progress_bar("reading maps", 1) as show:

        def counting() -> Iterator[Picture]:
            nonlocal pictures, regions
            for picture in labelled_pictures(finished, everything):
                pictures, regions = pictures + 1, regions + len(picture.regions)
                show(pictures / max(finished.pictures, 1), f"reading maps: {pictures:,} of {finished.pictures:,}")
                yield picture

        what = f"labels of round {finished.round} of an embasis run, {which(everything)}"
        data = encode_coco(what, version("embasis"), finished.classes, counting())
    require(regions, NONE_TRUSTED, InputDataError)
    write_output(out, data)
    echo(f"wrote {out}: {counted(regions, 'region')} in {counted(pictures, 'picture')}, {which(everything)}")
