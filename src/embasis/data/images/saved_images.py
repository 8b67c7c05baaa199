"""Images in a data set of Hugging Face that was saved on disk: parts of its `.arrow` files.

| row | what happens |
| --- | --- |
| a struct with the bytes of an image | an image called `row-00000017`, by its number among all rows |
| without bytes, maybe with the path or address of a file elsewhere | refused, counted and named: nothing is fetched |

The bytes lie in the file as they are, so an image is known by its place there, is hashed and looked at once, and is
decoded where files of folders are: by a worker, under its limits.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from embasis.data.arrow_stream import ArrowFile, BadArrow, ReadBatch, refuse_bad_arrow
from embasis.data.class_labels import label_names, quote_names
from embasis.data.column_kinds import ColumnKinds, load_arrow
from embasis.data.formats import list_values
from embasis.data.images.files import Collector, Scan, printable_path
from embasis.data.saved_dataset import SavedDataset
from embasis.errors import quote, require

NO_BYTES = "has no bytes in the data set"
ROW_DIGITS = 8


def row_name(number: int) -> str:
    """What an image is called by the number of its row."""
    return f"row-{number:0{ROW_DIGITS}d}"


def scan_saved_images(dataset: SavedDataset, label: str) -> tuple[Scan, tuple[str, ...] | None]:
    """The images of a data set, and their labels in the order of `Scan.files`, if it has a column of labels."""
    several = f"{dataset.name}: has {len(dataset.images)} columns of images: {quote_names(dataset.images)}"
    cure = "save it with one of them (remove_columns)"
    require(len(dataset.images) == 1, f"{several}; {cure}")
    files, (image,) = dataset.open(), dataset.images
    names = files[0].schema.names
    require(image in names, f"{dataset.name}: no column {quote(image)}; columns: {quote_names(names)}")
    collector, labels, first = Collector(dataset.root), dict[str, str](), 0
    for file, batch in dataset.iter_batches(files):
        with refuse_bad_arrow(printable_path(file.path)):
            marks = _read_labels(dataset, batch.rows, label) if label in names else []
            places = list_places(batch, image)
        for number, (place, length, path) in enumerate(places):
            name = row_name(first + number)
            collector.seen += 1
            if length < 0:
                collector.reject(name, NO_BYTES + (f", it names {quote(path)}" if path else ""), "refused")
            else:
                collector.examine(name, file.path, place, length)
            if marks:
                labels[name] = marks[number]
        first += batch.rows.num_rows
    scan = _describe_rows(collector.scan(), dataset, files, {image, label})
    return scan, tuple(labels[file.name] for file in scan.files) if label in names else None


def saved_columns(dataset: SavedDataset) -> list[str]:
    """The names of all columns."""
    return list(dataset.open()[0].schema.names)


def _describe_rows(scan: Scan, dataset: SavedDataset, files: list[ArrowFile], used: set[str]) -> Scan:
    """The scan, with a note on columns that are not read."""
    others = {*files[0].schema.names} - used
    unread = (f"{dataset.name}: columns that are not read: {quote_names(others)}",) if others else ()
    return replace(scan, notes=(*unread, *scan.notes))


def _read_labels(dataset: SavedDataset, rows: Any, label: str) -> list[str]:
    """The labels of a batch, by name."""
    pa = load_arrow()
    column = dataset.name_classes(rows.select([label]))
    kinds = ColumnKinds.of(column.schema)
    require(label in kinds.flat, f"{dataset.name}: labels must be text or integers, got {kinds.types[label]}")
    return label_names(list_values(pa.chunked_array([column.column(label)]), Path(dataset.root)), dataset.name)


def list_places(batch: ReadBatch, image: str) -> list[tuple[int, int, str]]:
    """Where the bytes of each row's image lie in the file, how many they are (−1 = none), and the path that it names;
    BadArrow where the column is none of images."""
    pa = load_arrow()
    column = batch.rows.column(image)
    kind = column.type
    is_picture = pa.types.is_struct(kind) and {"bytes", "path"} <= {field.name for field in kind}
    if not is_picture or column.offset:
        raise BadArrow(f"column {quote(image)} must hold bytes and path, got {kind}")
    data, paths = column.field("bytes"), column.field("path")
    if not (pa.types.is_binary(data.type) or pa.types.is_large_binary(data.type)) or data.offset:
        raise BadArrow(f"the bytes of column {quote(image)} must be binary, got {data.type}")
    _, offsets, values = data.buffers()
    if not len(data):
        return []
    width = np.int64 if pa.types.is_large_binary(data.type) else np.int32
    bounds = np.frombuffer(offsets, width, len(data) + 1).tolist()
    start = batch.find_place(values) if values is not None and values.size else 0
    held = (data.is_valid().to_numpy(False) & column.is_valid().to_numpy(False)).tolist()
    named = paths.to_pylist() if pa.types.is_string(paths.type) else [None] * len(data)
    lengths = [after - before if there else -1 for before, after, there in zip(bounds, bounds[1:], held, strict=False)]
    return [(start + at, length, path or "") for at, length, path in zip(bounds, lengths, named, strict=False)]
