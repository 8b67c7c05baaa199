"""A store of label distributions as it lies on the disk, and reading that does not believe it.

| file of RUN/sites/round-003/ | content |
| --- | --- |
| 000000.shard, … | records of rows 0, 1, …, one behind the other, until 16 MiB are full |
| grids.bin | 8 bytes that say what it is; then int32 (N, D), the grid of each row |
| index.json | sealed: rows N, classes C, dimensions D; of each shard rows, bytes and sha256; sha256 of grids.bin |

A record of S sites is uncertainty float32 (S), mean float16 (S, C), between uint8 (S, C), network uint8 (S), all
little-endian: 3·C + 5 bytes a site. Where it begins follows from the grids before it, so no index can point elsewhere.
Every byte is checked when a store is opened. Then rows are read by their byte ranges, without mapping files: memory
does not grow with the number of rows.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from embasis.errors import CorruptError, IncompatibleError, require
from embasis.storage.atomic import read_bytes
from embasis.storage.checkpoints import installed_version, read_sealed, sha256
from embasis.storage.feature_cache import hash_file

if TYPE_CHECKING:
    import numpy as np

    from embasis.types import PackedLabels

    Column = np.ndarray[Any, np.dtype[np.int64]]

LABEL_STORE_SCHEMA = 1
INDEX, GRIDS, MAGIC = "index.json", "grids.bin", b"embgrid\n"
MOST_CLASSES = 256
MOST_SITES = 2**31
"""Of one row."""
_STORE_FILES = re.compile(r"index\.json|grids\.bin|[0-9]{6}\.shard")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def shard_path(home: Path, number: int) -> Path:
    """The file of one shard."""
    return home / f"{number:06d}.shard"


def record_bytes(classes: int) -> int:
    """Bytes of one site."""
    return 3 * classes + 5


def is_store(path: Path) -> bool:
    """A folder with nothing in it but what a shelf put there: what we may delete."""
    return path.is_dir() and not path.is_symlink() and all(map(_STORE_FILES.fullmatch, os.listdir(path)))


@dataclass(frozen=True, eq=False)
class StoredLabels(Sequence["PackedLabels"]):
    """The rows of one round; `store[i]` is row i, read from its shard now."""

    home: Path
    classes: int
    grids: Column
    """(N, D)"""
    shard: Column
    """(N): the shard of each row"""
    offset: Column
    """(N): where its record begins there"""

    def __len__(self) -> int:
        return len(self.shard)

    @overload
    def __getitem__(self, row: int) -> PackedLabels: ...

    @overload
    def __getitem__(self, row: slice) -> list[PackedLabels]: ...

    def __getitem__(self, row: int | slice) -> PackedLabels | list[PackedLabels]:
        rows = range(len(self))[row]
        return self._row(rows) if isinstance(rows, int) else [self._row(number) for number in rows]

    def _row(self, row: int) -> PackedLabels:
        import torch

        from embasis.types import PackedLabels

        grid, c = tuple(self.grids[row].tolist()), self.classes
        sites = math.prod(grid)
        data = read_range(shard_path(self.home, int(self.shard[row])), int(self.offset[row]), sites * record_bytes(c))

        def part(dtype: torch.dtype, start: int, width: int) -> torch.Tensor:
            return torch.frombuffer(data, dtype=dtype, offset=start * sites, count=width * sites).view(sites, width)

        mean, between = part(torch.float16, 4, c), part(torch.uint8, 4 + 2 * c, c)
        return PackedLabels(
            row, grid, mean, between, part(torch.float32, 0, 1)[:, 0], part(torch.uint8, 4 + 3 * c, 1)[:, 0]
        )


def read_range(path: Path, offset: int, size: int) -> bytearray:
    """These bytes of a file."""
    data = bytearray(size)
    rest = memoryview(data)
    try:
        handle = os.open(path, _READ)
        try:
            while rest and (count := os.preadv(handle, [rest], offset + size - len(rest))):
                rest = rest[count:]
        finally:
            os.close(handle)
    except OSError as error:
        raise CorruptError(f"cannot read {path}: {error.strerror}") from error
    require(not rest, f"{path}: the file is cut off", CorruptError)
    return data


def open_store(home: Path, number: int, checked: bool = False) -> StoredLabels:
    """The store in a folder; unless its shards were `checked` before, they are read once for that."""
    import numpy as np

    index = _read_index(home, number)
    grids, shards = _read_grids(home, index), index["shards"]
    shard = np.repeat(np.arange(len(shards)), [entry["rows"] for entry in shards])
    ends = np.cumsum(grids.prod(1) * record_bytes(index["classes"]))
    starts = np.concatenate([[0], ends[:-1]])
    lasts = np.cumsum([entry["rows"] for entry in shards]) - 1
    before = np.concatenate([[0], ends[lasts][:-1]])
    for position, (entry, size) in enumerate(zip(shards, (ends[lasts] - before).tolist(), strict=True)):
        require(entry["bytes"] == size, f"{home / INDEX} is malformed", CorruptError)
        _check_shard(shard_path(home, position), size, None if checked else entry["sha256"])
    return StoredLabels(home, index["classes"], grids, shard, starts - before[shard])


def _read_index(home: Path, number: int) -> dict[str, Any]:
    """The index, as far as it can be believed without the files it speaks of."""
    path = home / INDEX
    index: dict[str, Any] = read_sealed(path)
    schema, shards = index.get("schema"), index.get("shards")
    if type(schema) is int and schema > LABEL_STORE_SCHEMA:
        writer = f"{home} was written by embasis {index.get('version')} (schema {schema})"
        raise IncompatibleError(f"{writer}, this is {installed_version()} (schema up to {LABEL_STORE_SCHEMA})")
    limits = {"rows": range(1, 2**31), "classes": range(1, MOST_CLASSES + 1), "dimensions": range(9)}
    known = all(type(index.get(name)) is int and index[name] in limit for name, limit in limits.items())
    known = known and schema == LABEL_STORE_SCHEMA and type(shards) is list and all(map(_is_shard_entry, shards))
    known = known and sum(entry["rows"] for entry in shards or ()) == index["rows"]
    require(known, f"{path} is malformed", CorruptError)
    require(index.get("round") == number, f"{path} belongs to round {index.get('round')}", CorruptError)
    return index


def _is_shard_entry(entry: object) -> bool:
    """Whether a shard has rows, a size and a hash."""
    if type(entry) is not dict or {*entry} != {"rows", "bytes", "sha256"}:
        return False
    return type(entry["rows"]) is int and entry["rows"] >= 1 and type(entry["bytes"]) is int


def _read_grids(home: Path, index: dict[str, Any]) -> Column:
    """The grid of each row; sizes are checked before anything is multiplied or allocated."""
    import numpy as np

    path, shape = home / GRIDS, (index["rows"], index["dimensions"])
    size = len(MAGIC) + 4 * math.prod(shape)
    data = read_bytes(path, range(size, size + 1))
    require(sha256(data) == index.get("grids"), f"{path}: sha256 differs", CorruptError)
    grids = np.frombuffer(data, "<i4", offset=len(MAGIC)).reshape(shape).astype(np.int64)
    sites = grids.astype(np.float64).prod(1)
    good = (grids >= 1).all() and sites.max() < MOST_SITES and sites.sum() < 2**52
    require(good and data.startswith(MAGIC), f"{path} is malformed", CorruptError)
    return grids


def _check_shard(path: Path, size: int, digest: str | None) -> None:
    """Refuse a file of another length before it is read, then one of other bytes."""
    try:
        found = os.lstat(path).st_size
    except OSError as error:
        raise CorruptError(f"cannot read {path}: {error.strerror}") from error
    require(found == size, f"{path}: {found:,} of {size:,} bytes", CorruptError)
    require(digest is None or hash_file(path) == digest, f"{path}: sha256 differs", CorruptError)
