"""Two sides in the wrong order: asked only after they were refused, so that the sentence can say what to do.

| a side looks | folder of images | list or table |
| --- | --- | --- |
| labelled | all images lie in two or more sub-folders | has a column, or an array, of labels |
| unlabelled | most images lie in no sub-folder, or all in one | has none |
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from embasis.data.formats import LARGEST_TABLE, open_pack, read_column_names, read_csv_header
from embasis.data.images.files import is_hidden, lower_suffix, printable_path
from embasis.data.images.header import SUFFIXES
from embasis.data.tables import LABEL_KEYS
from embasis.errors import InputDataError, quote, require


@contextmanager
def explain_swap(labelled: str, unlabelled: str, label: str) -> Iterator[None]:
    """What is refused inside is refused with the likelier reason first, where the sides look swapped."""
    try:
        yield
    except InputDataError as error:
        text = describe_swap(labelled, unlabelled, label)
        if not text:
            raise
        raise InputDataError(f"{text} (if they are not: {error})") from error


def describe_swap(labelled: str, unlabelled: str, label: str) -> str:
    """A sentence if the labelled side looks like an unlabelled one and the other way round; or nothing."""
    try:
        lacking = _describe_layout(labelled, label, has_labels=False)
        having = _describe_layout(unlabelled, label, has_labels=True) if lacking else ""
    except (InputDataError, OSError):
        return ""
    first, second = printable_path(labelled), printable_path(unlabelled)
    text = f"{first} and {second} look swapped: {second} {having}, {first} {lacking}; the labelled side comes first"
    return text if having else ""


def _describe_layout(path: str, label: str, has_labels: bool) -> str:
    """How a side that has labels, or has none, shows it; nothing if it does not."""
    if os.path.isdir(path):
        return _describe_folders(path, has_labels)
    name, keys = quote(label), {label}
    if Path(path).suffix.lower() == ".npz":
        keys = {label, *LABEL_KEYS}
    found = not keys.isdisjoint(_column_names(Path(path)))
    if found != has_labels:
        return ""
    return f"has a column {name}" if found else f"has no column {name}"


def _describe_folders(path: str, has_labels: bool) -> str:
    counts = _count_images(path)
    loose, folders, images = counts.pop("", 0), len(counts), counts.total()
    if has_labels:
        return f"has its images in {folders} folders" if folders > 1 and not loose else ""
    if loose > images:
        return "has most images in none"
    return "has all its images in one folder" if folders == 1 and not loose else ""


def _count_images(path: str) -> Counter[str]:
    """Images by the first-level sub-folder they lie in, "" for none; by their endings, nothing is opened."""
    counts = Counter[str]()
    for folder, folders, names in os.walk(path):
        folders[:] = [name for name in folders if not is_hidden(name)]
        below = os.path.relpath(folder, path).split(os.sep)[0]
        number = sum(lower_suffix(name) in SUFFIXES and not is_hidden(name) for name in names)
        if number:
            counts["" if below == "." else below] += number
    return counts


def _column_names(path: Path) -> list[str]:
    """The names of columns or arrays; an InputDataError where the file is no table."""
    kind = path.suffix.lower()
    if kind == ".npz":
        with open_pack(path, LARGEST_TABLE) as pack:
            return pack.names
    require(kind in (".csv", ".npy", ".parquet"), f"{path}: is no table")
    return read_column_names(path) if kind == ".parquet" else read_csv_header(path) if kind == ".csv" else []
