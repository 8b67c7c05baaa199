"""The command that hands labels to the next tool: export."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from embasis.cli.console import Work, echo, progress_bar
from embasis.cli.looking import counted
from embasis.errors import ConfigError, InputDataError, quoted, require

if TYPE_CHECKING:
    from embasis.runs.export import Finished
    from embasis.storage.coco import Picture

FORMS = {
    "csv": (".csv", ("table", "images")),
    "parquet": (".parquet", ("table", "images")),
    "folder": ("", ("images",)),
    "coco": (".json", ("maps",)),
}
"""The ending of the output, and the kinds of runs that can be exported so."""


@click.command(cls=Work)
@click.argument("run")
@click.option("-o", "--output", required=True, metavar="OUT", help="A file .csv, .parquet or .json; a folder.")
@click.option("--as", "form", required=True, type=click.Choice([*FORMS]), help="What to write.")
@click.option("--all", "everything", is_flag=True, help="Every label, trusted or not.")
@click.option("--images", metavar="PATH", help="--as folder: the run's UNLABELLED; a run keeps no paths.")
@click.option("--copy", is_flag=True, help="--as folder: copy the images instead of linking to them.")
def export(run: str, output: str, form: str, everything: bool, images: str | None, copy: bool) -> None:
    """Write a finished run's trusted labels for other tools.

    Labels are those of the round that the run has kept. As csv or parquet: id,
    label, probability, between, within, uncertainty and trusted, as predict
    writes them. As folder, for runs on images: OUT/CLASS/NAME, links to the
    images below PATH. An OUT that holds anything but an earlier export is left
    alone. As coco, for runs with label maps: one region for each class of each
    picture, as run lengths with iscrowd=1; file_name is the picture's path.

    \b
    Examples:
      embasis export run -o labels.csv --as csv
      embasis export run -o sorted --as folder --images paintings
      embasis export run -o labels.json --as coco --all
    """
    from embasis.runs.export import KINDS, finished_run, label_table
    from embasis.storage import encode_table, require_apart, write_output

    named = "the folder of images" if images is not None and os.path.isdir(images) else "the list of images"
    require_apart(output, {"the run folder": run, named: images}, folder=form == "folder")
    found, out = finished_run(Path(run)), Path(output)
    suffix, kinds = FORMS[form]
    others = [name for name, (_, fitting) in FORMS.items() if found.kind in fitting]
    suited = f"the run labelled {KINDS[found.kind]}: --as {' or '.join(others)}"
    wanted = " or ".join(KINDS[kind] for kind in kinds)
    require(found.kind in kinds, f"--as {form} is for runs on {wanted}, {suited}", ConfigError)
    rule = f"output must end in {suffix} for --as {form}, got {quoted(output)}"
    require(not suffix or out.suffix == suffix, rule, ConfigError)
    for name, given in (("--images", images is not None), ("--copy", copy)):
        require(form == "folder" or not given, f"{name} is for --as folder, got --as {form}", ConfigError)
    if form == "coco":
        return write_coco(found, out, everything)
    if form == "folder":
        return write_folder(found, out, everything, images, copy)
    columns = label_table(found, everything)
    write_output(out, encode_table(columns, suffix))
    return echo(f"wrote {out}: {counted(len(columns['id']), 'label')} of round {found.round}, {which(everything)}")


def which(everything: bool) -> str:
    """Which labels were asked for."""
    return "trusted or not" if everything else "trusted"


def write_folder(found: Finished, out: Path, everything: bool, images: str | None, copy: bool) -> None:
    """The images by class."""
    from embasis.runs.export import image_items, label_table
    from embasis.storage.class_folder import write_class_folder

    hint = "a run keeps no paths of your machine"
    require(images is not None, f"--as folder needs --images, the run's folder or list of images: {hint}", ConfigError)
    assert images is not None
    items = image_items(label_table(found, everything), images)
    folders = write_class_folder(out, items, found.classes, copy)
    what = "copies of" if copy else "links to"
    echo(f"wrote {out}: {what} {counted(len(items), 'image')} in {counted(len(folders), 'class folder')}")
    for name, folder in folders.items():
        if folder.name != name:
            echo(f"note: class {quoted(name)} is in {folder}")


def write_coco(found: Finished, out: Path, everything: bool) -> None:
    """The regions of all pictures."""
    from importlib.metadata import version

    from embasis.runs.export import NONE_TRUSTED, labelled_pictures
    from embasis.storage import write_output
    from embasis.storage.coco import encode_coco

    pictures = regions = 0
    with progress_bar("reading maps", 1) as show:

        def counting() -> Iterator[Picture]:
            nonlocal pictures, regions
            for picture in labelled_pictures(found, everything):
                pictures, regions = pictures + 1, regions + len(picture.regions)
                show(pictures / max(found.pictures, 1), f"reading maps: {pictures:,} of {found.pictures:,}")
                yield picture

        what = f"labels of round {found.round} of an embasis run, {which(everything)}"
        data = encode_coco(what, version("embasis"), found.classes, counting())
    require(regions, NONE_TRUSTED, InputDataError)
    write_output(out, data)
    echo(f"wrote {out}: {counted(regions, 'region')} in {counted(pictures, 'picture')}, {which(everything)}")
