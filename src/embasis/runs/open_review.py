"""From a run folder, and the data that it has labelled, to a review."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embasis.data.class_labels import NO_LABEL, quote_names
from embasis.data.images.files import ImageFile
from embasis.data.images.saved_images import scan_saved_images
from embasis.data.saved_dataset import SavedDataset, find_saved_dataset
from embasis.data.segmentation.pairs import IMAGES, stem
from embasis.errors import ConfigError, CorruptError, InputDataError, require
from embasis.inputs import IMAGE_KIND, TABLE_KIND
from embasis.inputs.map_inputs import stored_class_table
from embasis.report.collect import labels_name, read_row_gallery
from embasis.runs.checkpoint import read_run
from embasis.runs.finished_run import (
    Finished,
    label_table,
    locate_images,
    open_run_table,
    read_data_settings,
    read_finished_run,
    require_columns,
)
from embasis.runs.review import Review, ReviewItem, RowReview
from embasis.runs.review_maps import MapFileInfo, MapReview
from embasis.runs.review_sources import ShownPicture, TableCells, read_shown, show_stored
from embasis.storage import require_apart
from embasis.storage.correction_files import CorrectionFile, CorrectionMaps
from embasis.storage.label_map_folder import open_stored_maps

CORRECTIONS_FILE, CORRECTIONS_FOLDER = "corrections.csv", "corrections"
"""Where decisions go unless another place is named, below the run folder."""
REVIEWED_MAP_COLUMNS = ("id", "file", "width", "height", "mean_confidence", "mean_variance", "trusted")


@dataclass(frozen=True)
class ReviewOptions:
    """What is reviewed, and where decisions go."""

    unlabelled: str | None = None
    """The run's UNLABELLED, whose path a run does not keep."""
    output: str | None = None
    """The file or folder of corrections; None = in the run folder."""
    follow_links: bool = False
    """Whether images may be symbolic links."""


def open_review(run: str, options: ReviewOptions) -> Review:
    """The review of a finished run, as far as it has come."""
    finished, facts = read_finished_run(Path(run)), read_run(Path(run)).facts
    data = read_data_settings(facts)
    own = "dataset" in data and "labelled" not in data
    rule = "corrections are for data of your own, LABELLED and UNLABELLED, not for a named data set"
    require(not own, f"{run}: the run is on a named data set; {rule}", ConfigError)
    folder = finished.kind.has_maps
    output = Path(options.output or Path(run) / (CORRECTIONS_FOLDER if folder else CORRECTIONS_FILE))
    named = {"the unlabelled side": options.unlabelled}
    if options.output is not None:
        require_apart(output, {"the run folder": run, **named}, folder=folder)
    if folder:
        return open_map_review(finished, facts, options, output)
    return open_row_review(finished, options, output)


def open_row_review(run: Finished, options: ReviewOptions, output: Path) -> RowReview:
    """A review of rows: of a table with their values, of images with their pictures."""
    columns = label_table(run, everything=True)
    names = ("label", "probability", "uncertainty", "trusted")
    rows = zip(*(columns[name] for name in ("id", *names)), strict=True)
    items = [ReviewItem(str(id), str(label), float(p), float(u), trusted is True) for id, label, p, u, trusted in rows]
    cells = open_values(run, items, options.unlabelled) if run.kind is TABLE_KIND else None
    pictures: Callable[[str], ShownPicture] | None = None
    if run.kind is IMAGE_KIND and options.unlabelled is not None:
        pictures = show_images([item.id for item in items], options.unlabelled, options.follow_links)
    elif run.kind is IMAGE_KIND:
        name = labels_name(run.round)
        _, stored = read_row_gallery(run.files, run.round, run.files.seal(name))
        items, pictures = [item for item in items if item.id in stored], show_stored(stored)
        rule = f"{run.files.path}: the run keeps no pictures; name the folder or list of images that it has labelled"
        require(items, rule, ConfigError)
    items.sort(key=lambda item: -item.uncertainty)
    return RowReview(run.files.path.name, run.classes, items, CorrectionFile(output), cells, pictures)


def open_values(run: Finished, items: list[ReviewItem], table: str | None) -> TableCells:
    """The values of the rows, from the table that the run has labelled."""
    hint = f"embasis review {run.files.path} UNLABELLED"
    rule = f"a run keeps no values of your table, so name the table that it has labelled: {hint}"
    require(table is not None, rule, ConfigError)
    return open_run_table(run, str(table), [item.id for item in items])


def show_images(names: list[str], images: str, follow_links: bool) -> Callable[[str], ShownPicture]:
    """What shows the image of each name, from the folder, list or saved data set that has all of them."""
    if (dataset := find_saved_dataset(images)) is not None:
        return show_saved(names, dataset)
    paths = locate_images(names, images)
    return lambda name: read_shown(ImageFile(name, os.path.realpath(paths[name]) if follow_links else paths[name], b""))


def show_saved(names: list[str], dataset: SavedDataset) -> Callable[[str], ShownPicture]:
    """What shows the image of each name, from a data set that was saved on disk."""
    files = {file.name: file for file in scan_saved_images(dataset, NO_LABEL)[0].files}
    lacking = [name for name in names if name not in files]
    count = f"{len(lacking):,} of {len(names):,} images of the run are not there"
    require(not lacking, f"{dataset.name}: {count}: {quote_names(lacking, 3)}; name the run's UNLABELLED")
    return lambda name: read_shown(files[name])


def open_map_review(run: Finished, facts: Mapping[str, Any], options: ReviewOptions, output: Path) -> MapReview:
    """A review of pictures with their label maps."""
    side = options.unlabelled
    hint = f"embasis review {run.files.path} UNLABELLED"
    rule = f"a run keeps no pictures of yours, so name the folder that it has labelled: {hint}"
    require(side is not None, rule, ConfigError)
    table, maps = stored_class_table(facts), open_stored_maps(run.files, run.round)
    rule = f"{run.files.path}: maps that are coded by the first of three 16-bit channels cannot be corrected here"
    require(table.coded != "first", rule, ConfigError)
    require(table.names == run.classes, f"{run.files.path}: the run's facts name other classes twice", CorruptError)
    columns = maps.table()
    require_columns(columns, REVIEWED_MAP_COLUMNS, maps.home / "maps.parquet")
    rows = zip(*(columns[name] for name in REVIEWED_MAP_COLUMNS), strict=True)
    items = [
        (ReviewItem(str(id), "", float(p), float(v), float(t) > 0.5), MapFileInfo(str(file), int(height), int(width)))
        for id, file, width, height, p, v, t in rows
        if stem(str(file)) in (str(id), stem(str(id)))  # a map of another name could not be matched to its picture
    ]
    require(items, f"{run.files.path}: no map is named like its picture, so none can be corrected", InputDataError)
    items.sort(key=lambda pair: -pair[0].uncertainty)
    below = os.path.join(str(side), IMAGES)
    pictures = show_images(
        [item.id for item, _ in items], below if os.path.isdir(below) else str(side), options.follow_links
    )
    return MapReview(run.files.path.name, maps, table, items, CorrectionMaps(output), pictures)
