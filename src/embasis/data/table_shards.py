"""A table in `.parquet` shards: one by one where all rows are needed, and batch by batch where they are not.

| | rows in memory | ids are unique |
| --- | --- | --- |
| `read_any_table`, for fit and check | all | among all rows |
| `TableShards.batches`, for predict; several processes take pieces in turn | BATCH_ROWS | within each batch |

Columns are matched by name with those of the first shard, which has a column of labels or ids if and only if all have.
Rows without a column of ids have their number among the rows of all shards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from embasis.data.class_labels import quote_names
from embasis.data.formats import LARGEST_TABLE, ParquetTable, open_parquet, refuse_unreadable
from embasis.data.parts import rows_of_piece
from embasis.data.raw_columns import RawColumn
from embasis.data.saved_dataset import find_saved_dataset, read_saved_table
from embasis.data.shards import PARQUET, ShardFolder, ShardManifest, find_shards, shard_kind
from embasis.data.tables import (
    ColumnRoles,
    TableData,
    WantedColumns,
    convert_arrow,
    describe_table,
    find_columns,
    find_typed_roles,
    read_raw,
    require_unique,
)
from embasis.errors import quote, require
from embasis.resources import require_memory
from embasis.types import PathLike, ShardRecord

BATCH_ROWS = 2**13
"""Rows that are read together."""
PIECE_ROWS = 2**16
"""The most rows that one of several processes reads and labels before it hands them in."""


@dataclass(frozen=True, eq=False)
class TableShards:
    """The shards of a table, opened once to count their rows and compare their columns."""

    manifest: ShardManifest
    wanted: WantedColumns
    columns: tuple[str, ...]
    """The features, as the first shard has them."""

    def batches(self, rows: range) -> Iterator[tuple[TableData, bool]]:
        """Of these rows the pieces of this process, at most BATCH_ROWS rows at a time, each with whether it ends its
        piece; a table has the numbers of its rows, or their ids, as ids."""
        for shard, pieces in self.manifest.own_pieces(rows, rows_of_piece(len(rows), BATCH_ROWS, PIECE_ROWS)):
            path, at = Path(shard.path), pieces[0].start
            with refuse_unreadable(path), open_parquet(path, at_once=False) as file:
                roles = find_typed_roles(path, file, self.wanted)
                _require_rows(path, file, shard.rows)
                for first, rows_read in _iter_pieces(file, roles, pieces):
                    name = path if first == 0 else Path(f"{path} (counted from row {first} on)")
                    table = convert_arrow(name, file, rows_read, roles)
                    require_unique(table)
                    at, number = first + len(table.x), shard.first + first
                    ids = np.arange(number, number + len(table.x)) if table.ids is None else table.ids
                    yield replace(table, ids=ids), any(at == piece.stop for piece in pieces)
            short = f"{path}: has {at} of the {pieces[-1].stop} rows that it says"
            require(at == pieces[-1].stop, f"{short}; it is damaged, or was changed while it was read")

    def read(self) -> TableData:
        """All rows as one table."""
        count, size = self.manifest.total, 8 * self.manifest.total * len(self.columns)
        rule = f"{self.manifest.root}: takes {size} bytes unpacked, at most {LARGEST_TABLE} are read"
        require(size <= LARGEST_TABLE, f"{rule} to train on; train on some of the shards, predict labels all of them")
        require_memory(2 * size, self.manifest.root, "train on some of the shards; predict labels all of them")
        x, tables = np.empty((count, len(self.columns))), list[TableData]()
        for shard in (shard for shard in self.manifest.shards if shard.rows):
            table = read_raw(shard.path, *self.wanted[:2], dropped=self.wanted.dropped)
            require(len(table.x) == shard.rows, f"{shard.path}: was changed while it was read")
            rows = slice(shard.first, shard.first + shard.rows)
            places = find_columns(table, self.columns, self.manifest.shards[0].path)
            x[rows] = table.x if places is None else table.x[:, places]
            tables.append(replace(table, x=x[rows]))
        return self._join(x, tables)

    def _join(self, x: Any, tables: Sequence[TableData]) -> TableData:
        """The tables of all shards as one; x are their numbers."""
        labels = [table.labels for table in tables if table.labels is not None]
        ids = [table.ids for table in tables if table.ids is not None]
        cells = None
        if any(table.cells is not None for table in tables):
            raw = [describe_table(table).columns for table in tables]
            cells = {name: join_columns([columns[name] for columns in raw]) for name in self.columns}
        joined = TableData(
            Path(self.manifest.root),
            x,
            self.columns,
            [label for part in labels for label in part] if labels else None,
            np.concatenate(ids) if ids else None,
            cells=cells,
            dropped=tables[0].dropped,
        )
        require_unique(joined)
        return joined


def join_columns(parts: Sequence[RawColumn]) -> RawColumn:
    """A column of all shards; its cells are of one kind in all of them."""
    if parts[0].texts is not None:
        return RawColumn([text for part in parts for text in part.texts or ()])
    if parts[0].days is not None:
        return RawColumn(days=np.concatenate([part.days for part in parts if part.days is not None]))
    return RawColumn(numbers=np.concatenate([part.numbers for part in parts if part.numbers is not None]))


def open_table_shards(folder: ShardFolder, wanted: WantedColumns) -> TableShards:
    """Count the rows of all shards, of which each has the columns of the first."""
    counts, first = list[int](), None
    for shard in folder.files:
        path = Path(shard.path)
        with refuse_unreadable(path):
            require(path.stat().st_size > 0, f"{path}: the file is empty")
            with open_parquet(path, at_once=False) as file:
                roles, kinds = find_typed_roles(path, file, wanted), _kinds_of(file)
                first = first or (path, roles, kinds)
                _require_alike(path, roles, kinds, first)
                counts.append(int(file.file.metadata.num_rows))
    assert first is not None
    manifest = ShardManifest.of(folder.root, folder.files, counts)
    require(manifest.total > 0, f"{folder.root}: no rows")
    return TableShards(manifest, wanted, tuple(first[1].features))


def _kinds_of(file: ParquetTable) -> dict[str, str]:
    """What the cells of each column are, in words."""
    kinds = {"numbers": file.numeric, "text": file.texts, "dates": file.dates}
    return {name: kind for kind, names in kinds.items() for name in names}


def _require_alike(
    path: Path, roles: ColumnRoles, kinds: dict[str, str], first: tuple[Path, ColumnRoles, dict[str, str]]
) -> None:
    """A shard has the columns of the first one, and their cells are of the same kinds."""
    other, known, known_kinds = first
    find_columns(TableData(path, np.empty(0), tuple(roles.features)), known.features, other)
    for what, here, there in (("labels", roles.label, known.label), ("ids", roles.id, known.id)):
        lacking, having = (path, other) if here is None else (other, path)
        rule = f"{lacking}: no column of {what}, and {having} has one; write all shards with it or without"
        require((here is None) == (there is None), rule)
    for name in known.features:
        here, there = kinds[name], known_kinds[name]
        require(here == there, f"{path}: column {quote(name)} is {here}, in {other} it is {there}")


def _require_rows(path: Path, file: ParquetTable, rows: int) -> None:
    require(int(file.file.metadata.num_rows) == rows, f"{path}: was changed while it was read")


def _iter_pieces(file: ParquetTable, roles: ColumnRoles, pieces: Sequence[range]) -> Iterator[tuple[int, Any]]:
    """Arrow tables of these rows of a file, each with the number of its first row; none has rows of two pieces.

    Row groups without such rows are not read."""
    import pyarrow as pa

    for groups, at in _find_groups(file, pieces):
        for batch in file.file.iter_batches(BATCH_ROWS, row_groups=groups, columns=roles.used, use_threads=False):
            for piece in pieces:
                start, stop = max(piece.start - at, 0), min(piece.stop - at, batch.num_rows)
                if start < stop:
                    yield at + start, pa.Table.from_batches([batch.slice(start, stop - start)])
            at += batch.num_rows


def _find_groups(file: ParquetTable, pieces: Sequence[range]) -> Iterator[tuple[list[int], int]]:
    """The row groups that hold rows of the pieces, as many together as follow each other, and their first row."""
    groups, first, at = list[int](), 0, 0
    for group in range(file.file.metadata.num_row_groups):
        count = file.file.metadata.row_group(group).num_rows
        if any(at < piece.stop and at + count > piece.start for piece in pieces):
            first = first if groups else at
            groups.append(group)
        elif groups:
            yield groups, first
            groups = []
        at += count
    if groups:
        yield groups, first


def read_any_table(
    path: PathLike, label: str = "label", id: str | None = None, *, dropped: Collection[str] = ()
) -> tuple[TableData, tuple[ShardRecord, ...]]:
    """A table, and the shards that it came in, if it did; all of its rows are read."""
    if (dataset := find_saved_dataset(path)) is not None:
        rule = f"{dataset.name}: has images ({quote_names(dataset.images)}), where a table is expected"
        require(not dataset.images, rule)
        return read_saved_table(dataset, WantedColumns(label, id, tuple(dropped))), ()
    if shard_kind(path) != PARQUET:
        return read_raw(path, label, id, dropped=dropped), ()
    shards = open_table_shards(find_shards(path), WantedColumns(label, id, tuple(dropped)))
    return shards.read(), tuple(shard.record() for shard in shards.manifest.shards)
