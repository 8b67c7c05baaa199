"""A data set of Hugging Face as its `save_to_disk` leaves it, read without that library.

| file | what is taken from it |
| --- | --- |
| `state.json` | the names of the `.arrow` files, in their order; they lie in the same folder, or are refused |
| `dataset_info.json` | which columns are classes (ClassLabel, with their names), and which are images |
| `data-….arrow` | the rows, as `arrow_stream` reads them |
| `dataset_dict.json` | the folder is a DatasetDict: of several splits one has to be named |

Numbers of a ClassLabel become its names; −1 and nothing are rows without a label. Nothing that is stored as Python
objects is read, and no file that these do not name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from embasis.data.arrow_stream import SAVE_AGAIN, ArrowFile, ReadBatch, open_arrow, refuse_bad_arrow
from embasis.data.class_labels import quote_names
from embasis.data.column_kinds import ColumnKinds, load_arrow
from embasis.data.formats import LARGEST_TABLE, read_text, refuse_unreadable
from embasis.data.images.files import is_hidden, printable_path
from embasis.data.tables import (
    TableData,
    WantedColumns,
    convert_arrow,
    find_typed_roles,
    require_different,
    require_unique,
)
from embasis.errors import InputDataError, quote, require, shorten
from embasis.resources import require_memory
from embasis.types import PathLike

STATE, INFO, SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"
LARGEST_INFO = 2**24
"""Bytes of a file of these; one with the names of twenty thousand classes has a million."""
MOST_FILES = 10**5


class _DataFile(msgspec.Struct):
    filename: str


class _State(msgspec.Struct):
    files: list[_DataFile] = msgspec.field(name="_data_files")
    indices: list[Any] | None = msgspec.field(name="_indices_data_files", default=None)


class _Info(msgspec.Struct):
    features: dict[str, Any] | None = None


class _Splits(msgspec.Struct):
    splits: list[str]


@dataclass(frozen=True, eq=False)
class SavedDataset:
    """The folder of a data set: its files, the names of the classes of its columns, and its columns of images."""

    root: str
    files: tuple[str, ...]
    classes: Mapping[str, tuple[str, ...]]
    images: tuple[str, ...]

    @property
    def name(self) -> str:
        """How messages call it."""
        return printable_path(self.root)

    def open(self) -> list[ArrowFile]:
        """All files by their headers; each has the columns of the first."""
        opened = list[ArrowFile]()
        for path in self.files:
            with refuse_unreadable(Path(path)), refuse_bad_arrow(printable_path(path)):
                file = open_arrow(path)
                opened.append(file)
                require_different(file.schema.names, Path(path))
                same = file.schema.equals(opened[0].schema)
                names = ", ".join(map(printable_path, (path, opened[0].path)))
            require(same, f"{names}: have different columns; {SAVE_AGAIN}")
        require(sum(file.rows for file in opened), f"{self.name}: no rows")
        return opened

    def iter_batches(self, files: list[ArrowFile]) -> Iterator[tuple[ArrowFile, ReadBatch]]:
        """The batches of all files in their order, each with its file."""
        for file in files:
            with refuse_unreadable(Path(file.path)), refuse_bad_arrow(printable_path(file.path)):
                for batch in file.iter_batches():
                    yield file, batch

    def name_classes(self, rows: Any) -> Any:
        """Arrow rows in which numbers of classes are their names."""
        pa = load_arrow()
        for name in (name for name in self.classes if name in rows.schema.names):
            known, column = self.classes[name], rows.column(name)
            whole = pa.types.is_integer(column.type)
            require(whole, f"{self.name}: column {quote(name)} is one of classes, and has {column.type}; {SAVE_AGAIN}")
            numbers = column.cast(pa.int64()).fill_null(-1).to_numpy()
            rule = f"{self.name}: column {quote(name)} has a class of number {numbers.max(initial=-1)}"
            require(numbers.max(initial=-1) < len(known), f"{rule}, and names {len(known):,}; {SAVE_AGAIN}")
            places = pa.array(numbers.astype("int32"), mask=numbers < 0)
            named = pa.DictionaryArray.from_arrays(places, pa.array(known, pa.string()))
            rows = rows.set_column(rows.schema.get_field_index(name), name, named)
        return rows


def find_saved_dataset(path: PathLike) -> SavedDataset | None:
    """The data set in a folder; None where there is none, an InputDataError where it cannot be used."""
    root = os.fspath(path)
    if os.path.isfile(os.path.join(root, SPLITS)):
        root = _choose_split(root)
    if not all(os.path.isfile(os.path.join(root, name)) for name in (STATE, INFO)):
        return None
    shown, state = printable_path(root), _read_json(root, STATE, _State)
    old = f"{shown}: has an index of its rows, as old releases saved it; {SAVE_AGAIN} with today's"
    require(not state.indices, old)
    names = [file.filename for file in state.files]
    many = f"{shown}: has {len(names):,} files, at most {MOST_FILES:,} are read"
    require(len(names) <= MOST_FILES, many)
    for name in names:
        plain = name == os.path.basename(name) and not is_hidden(name) and "\0" not in name
        require(plain, f"{shown}/{STATE}: names the file {quote(name)}, which does not lie beside it; {SAVE_AGAIN}")
    features = _read_json(root, INFO, _Info).features or {}
    classes = {name: _class_names(root, name, kind) for name, kind in features.items() if _is_a(kind, "ClassLabel")}
    images = tuple(name for name, kind in features.items() if _is_a(kind, "Image"))
    return SavedDataset(root, tuple(os.path.join(root, name) for name in names), classes, images)


def _choose_split(root: str) -> str:
    """The folder of the only split; an InputDataError names them where there are several."""
    shown, splits = printable_path(root), _read_json(root, SPLITS, _Splits).splits
    plain = [name for name in splits if name == os.path.basename(name) and name not in ("", ".", "..")]
    require(plain == splits and splits, f"{shown}/{SPLITS}: names no splits that lie beside it; {SAVE_AGAIN}")
    rule = f"{shown}: is a data set in {len(splits)} splits: {quote_names(splits)}; name one of them"
    require(len(splits) == 1, f"{rule}, such as {shown}/{splits[0]}")
    return os.path.join(root, splits[0])


def _read_json(root: str, name: str, kind: type[Any]) -> Any:
    path = Path(root, name)
    with refuse_unreadable(path):
        try:
            return msgspec.json.decode(read_text(path, largest=LARGEST_INFO), type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
            text = f"{printable_path(path)}: not as save_to_disk writes it: {shorten(str(error))}; {SAVE_AGAIN}"
            raise InputDataError(text) from error


def _is_a(feature: Any, kind: str) -> bool:
    return isinstance(feature, dict) and feature.get("_type") == kind


def _class_names(root: str, column: str, feature: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of a column's classes, each a class of its own."""
    names = feature.get("names")
    known = isinstance(names, list) and all(isinstance(name, str) for name in names) and len({*names}) == len(names)
    rule = f"{printable_path(root)}/{INFO}: the classes of column {quote(column)} must have a name each"
    require(known, f"{rule}, all different; {SAVE_AGAIN}")
    return tuple(names or ())


def read_saved_rows(dataset: SavedDataset) -> Any:
    """All rows of a table as Arrow has them, with names of classes; its size is checked before."""
    pa = load_arrow()
    files = dataset.open()
    rows, columns = sum(file.rows for file in files), max(1, len(files[0].schema.names))
    size = max(8 * rows * columns, sum(place.size for file in files for place in file.batches))
    require(size <= LARGEST_TABLE, f"{dataset.name}: takes {size} bytes, at most {LARGEST_TABLE} are read")
    require_memory(2 * size, dataset.name, "take fewer rows or columns")
    batches = [dataset.name_classes(batch.rows) for _, batch in dataset.iter_batches(files)]
    return pa.Table.from_batches(batches)


def read_saved_table(dataset: SavedDataset, wanted: WantedColumns) -> TableData:
    """The table in a saved data set."""
    path = Path(dataset.root)
    with refuse_bad_arrow(dataset.name):
        rows = read_saved_rows(dataset)
        kinds = ColumnKinds.of(rows.schema)
        roles = find_typed_roles(path, kinds, wanted)
        table = convert_arrow(path, kinds, rows, roles)
    require_unique(table)
    return table


def list_saved_cells(dataset: SavedDataset) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The columns with one value a row, and the values of all rows as they are."""
    with refuse_bad_arrow(dataset.name):
        rows = read_saved_rows(dataset)
        kinds = ColumnKinds.of(rows.schema)
        names = [name for name in kinds.names if name in kinds.flat]
        return names, list(zip(*(rows.column(name).to_pylist() for name in names), strict=True))
