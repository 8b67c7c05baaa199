"""One side of images, whatever it comes in: a folder, a list, tar shards, or a data set saved on disk."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

from embasis.data.class_labels import quote_names
from embasis.data.images.files import ImageFile, printable_path
from embasis.data.images.samples import ImageSide
from embasis.data.images.saved_images import saved_columns, scan_saved_images
from embasis.data.images.scan import scan_folder, scan_list
from embasis.data.images.tar_shards import LABELS_IGNORED, open_tar_shards
from embasis.data.saved_dataset import find_saved_dataset
from embasis.data.shards import TAR, describe_records, find_shards, shard_kind
from embasis.errors import quote, require
from embasis.types import PathLike


def scan_side(path: PathLike, label: str, follow_links: bool) -> ImageSide:
    """The images of a side, with the labels that a list or a saved data set has."""
    if (dataset := find_saved_dataset(path)) is not None:
        return ImageSide(*scan_saved_images(dataset, label), is_folder=False)
    if shard_kind(path) == TAR:
        return _scan_shards(path, follow_links)
    if os.path.splitext(os.fspath(path))[1].lower() in (".csv", ".parquet") and not os.path.isdir(path):
        scan, labels = scan_list(path, label=label, follow_links=follow_links)
        return ImageSide(scan, None if labels is None else tuple(labels), is_folder=False)
    return ImageSide(scan_folder(path, follow_links=follow_links))


def _scan_shards(path: PathLike, follow_links: bool) -> ImageSide:
    """The images of tar shards, with a record of each shard."""
    shards = open_tar_shards(find_shards(path, follow_links))
    records = tuple(shard.record() for shard in shards.manifest.shards)
    notes = (describe_records(path, records), *shards.notes)
    return ImageSide(replace(shards.scan(), shards=records, notes=notes))


def scan_labelled(path: PathLike, label: str, follow_links: bool) -> ImageSide:
    """A side that must be labelled, by class folders or by a column of labels."""
    shown = printable_path(path)
    if (dataset := find_saved_dataset(path)) is not None:
        columns = saved_columns(dataset)
        rule = f"{shown}: no label column {quote(label)}; columns: {quote_names(columns)}"
        require(label in columns, f"{rule}; --label names another")
    rule = f"{shown}: {LABELS_IGNORED}; unpack them to a folder for each class, or name a list of images"
    require(dataset is not None or shard_kind(path) != TAR, rule)
    side = scan_side(path, label, follow_links)
    if not side.is_folder:
        text = f"{side.name}: no label column {quote(label)}; a list of labelled images needs one"
        require(side.labels is not None, text)
        return side
    loose = {file.name: "lies in no class folder" for file in side.scan.files if "/" not in file.name}
    hint = "expected is <folder>/<class>/<image>, or a list with a column of labels"
    require(len(loose) < len(side.scan.files), f"{side.name}: no image lies in a class folder; {hint}")
    inside = side.without(loose, "scan", "refused")
    return replace(inside, labels=tuple(top_folder(file) for file in inside.scan.files))


def top_folder(file: ImageFile) -> str:
    """The first-level sub-folder of a file: its class."""
    return sys.intern(file.name.partition("/")[0])  # a million files share a few
