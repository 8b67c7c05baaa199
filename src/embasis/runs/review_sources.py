"""What a person sees of an item: the values of a row, or a picture, from the data that the run has labelled.

A run keeps no paths of the user's machine, so the data are named again. Pictures are decoded and encoded anew: no byte
of the user's files goes to the page.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

from embasis.data.class_labels import quote_names
from embasis.data.formats import LARGEST_TABLE, read_column_names, read_columns, read_csv_rows, refuse_unreadable
from embasis.data.images.files import ImageFile, describe_os_error, printable_path
from embasis.data.images.header import UnreadableImage
from embasis.data.images.pixels import decode
from embasis.data.saved_dataset import find_saved_dataset, list_saved_cells
from embasis.data.tables import EXPECTED_TABLE, read_raw, require_different
from embasis.errors import InputDataError, quote, require
from embasis.report.collect import PNG_SIDE, fit_size, resize_picture
from embasis.report.page import picture_kind
from embasis.resources import require_memory
from embasis.storage.picture_formats import encode_rgb_png

SHOWN_SIDE, SHOWN_QUALITY = 1280, 90
"""Pixels of the long side of a picture that is shown, and its quality as JPEG."""
LONG_NUMBER = re.compile(r"-?[0-9]*\.[0-9]{7,}(e-?[0-9]{1,3})?", re.ASCII)
MOST_SHOWN_VALUES = 400
"""Columns of a row that are shown."""


@dataclass(frozen=True)
class ShownPicture:
    """A picture as the page gets it."""

    kind: str
    """`png` or `jpeg`."""
    data: bytes


def encode_shown(pixels: Tensor) -> ShownPicture:
    """uint8 (3, H, W) for the page: PNG where it is tiny, since it is shown enlarged, else JPEG without metadata."""
    small = resize_picture(pixels, fit_size(pixels.shape[1:], SHOWN_SIDE))
    if max(small.shape[1:]) <= PNG_SIDE:
        return ShownPicture("png", encode_rgb_png(small))
    out = io.BytesIO()
    Image.fromarray(small.permute(1, 2, 0).contiguous().numpy()).save(out, "JPEG", quality=SHOWN_QUALITY)
    return ShownPicture("jpeg", out.getvalue())


def read_shown(file: ImageFile) -> ShownPicture:
    """The picture in a file, or in a part of one; an InputDataError says why it cannot be shown."""
    try:
        return encode_shown(decode(file.read()))
    except UnreadableImage as error:
        raise InputDataError(f"{file.name}: {error}") from error
    except OSError as error:
        raise InputDataError(f"{file.name}: {describe_os_error(error)}") from error


def show_stored(pictures: Mapping[str, bytes]) -> Callable[[str], ShownPicture]:
    """The small pictures that a run keeps for its report, by name."""

    def show(name: str) -> ShownPicture:
        data = pictures.get(name)
        kind = picture_kind(data)
        if data is None or kind is None:
            raise InputDataError("the run keeps no picture of it; name the folder of images, too")
        return ShownPicture(kind, data)

    return show


@dataclass(frozen=True, eq=False)
class TableCells:
    """A table as its file has it: names of columns, and the cells of each row by its id."""

    path: Path
    columns: tuple[str, ...]
    rows: Mapping[str, Sequence[Any]]

    def __call__(self, id: str) -> list[tuple[str, str]]:
        """The values of a row, as text."""
        cells = [(name, format_cell(cell)) for name, cell in zip(self.columns, self.rows[id], strict=True)]
        rest = [("…", f"{len(cells) - MOST_SHOWN_VALUES:,} more columns")] if len(cells) > MOST_SHOWN_VALUES else []
        return cells[:MOST_SHOWN_VALUES] + rest

    def require_rows(self, ids: Sequence[str]) -> None:
        """All rows of the run are in the table."""
        lacking = [id for id in ids if id not in self.rows]
        count = f"{len(lacking):,} of {len(ids):,} rows of the run are not there"
        rule = f"{printable_path(self.path)}: {count}: {quote_names(lacking, 3)}; name the run's UNLABELLED"
        require(not lacking, rule)


def format_cell(cell: Any) -> str:
    """A value as people read it."""
    text = "" if cell is None else str(cell)
    is_long = isinstance(cell, float) or LONG_NUMBER.fullmatch(text)
    return f"{float(cell):.6g}" if is_long else text


def read_table_cells(path: Path, label: str, id: str | None) -> TableCells:
    """The values of a table as they are written; its labels, which are for scores alone, are left out."""
    suffix, dataset = path.suffix.lower(), find_saved_dataset(path)
    if dataset is not None:
        return _index_cells(path, *list_saved_cells(dataset), label, id)
    with refuse_unreadable(path):
        size = path.stat().st_size
        require(path.is_file() and size > 0, f"{path}: is no table; {EXPECTED_TABLE}")
        require(size <= LARGEST_TABLE, f"{path}: has {size} bytes, at most {LARGEST_TABLE} are read")
        require_memory(4 * size, str(path), "review a table of fewer rows")
        if suffix not in (".csv", ".parquet"):
            table = read_raw(path, label, id)
            flat = table.x.reshape(len(table.x), -1)
            ids = map(str, range(len(flat)) if table.ids is None else table.ids.tolist())
            columns = table.columns or tuple(map(str, range(flat.shape[1])))
            return TableCells(path, columns, dict(zip(ids, flat.tolist(), strict=True)))
        names, rows = _list_csv_cells(path) if suffix == ".csv" else _list_parquet_cells(path)
    return _index_cells(path, names, rows, label, id)


def _index_cells(path: Path, names: list[str], rows: Sequence[Any], label: str, id: str | None) -> TableCells:
    """The cells of each row by its id."""
    require_different(names, path)
    require(id is None or id in names, f"{path}: no id column {quote(id)}; columns: {quote_names(names)}")
    key = names.index(id or "id") if (id or "id") in names else None
    shown = [place for place, name in enumerate(names) if place != key and name != label]
    cells = {
        str(number if key is None else row[key]).strip(): [row[place] for place in shown]
        for number, row in enumerate(rows)
    }
    return TableCells(path, tuple(names[place] for place in shown), cells)


def _list_csv_cells(path: Path) -> tuple[list[str], list[Sequence[Any]]]:
    lines = list(read_csv_rows(path))
    require(len(lines) > 1, f"{path}: no rows")
    (_, header), *body = lines
    for line, cells in body:
        rule = f"{path}: line {line} has {len(cells)} fields, the header has {len(header)}"
        require(len(cells) == len(header), rule)
    return header, [cells for _, cells in body]


def _list_parquet_cells(path: Path) -> tuple[list[str], list[Sequence[Any]]]:
    require_different(read_column_names(path), path)
    columns = read_columns(path)
    return list(columns), list(zip(*columns.values(), strict=True))
