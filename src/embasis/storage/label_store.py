"""The label distributions of a run's rounds on the disk: written shard by shard, named when complete, read with care.

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

import errno
import math
import os
import re
from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch

from embasis.distributed import current_world
from embasis.errors import CorruptError, NumericalError, ResourceError, require
from embasis.storage import atomic
from embasis.storage.checkpoints import (
    SITES_FOLDER,
    encode_sealed,
    installed_version,
    is_label_store,
    make_seal,
    read_sealed,
    refuse_newer,
    require_seal,
    sha256,
)
from embasis.types import PackedLabels

if TYPE_CHECKING:
    from embasis.storage.run_folder import RunFolder

RowPlaces = np.ndarray[Any, np.dtype[np.int64]]

LABEL_STORE_SCHEMA = 1
INDEX, GRIDS, MAGIC = "index.json", "grids.bin", b"embgrid\n"
SHARD_BYTES = 2**24
"""A shard is at most that long, unless one row alone is longer."""
MOST_CLASSES = 256
MOST_SITES = 2**31
"""Of one row."""


class DiskLabelStore:
    """The stores of a run's rounds, below `sites` in its folder; a RunFolder must be locked to change them."""

    def __init__(self, folder: RunFolder | Path | str) -> None:
        self._run = None if isinstance(folder, str | Path) else folder
        self.path = (Path(folder) if isinstance(folder, str | Path) else folder.path) / SITES_FOLDER

    def write(self, number: int, parts: Iterator[PackedLabels]) -> StoredLabels:
        """The store of a round, on the disk when this returns; an older one of that number goes first.

        Rows come in their order. No more than a shard of them is in memory. A failure leaves nothing."""
        home = self._home(number, change=True)
        temp = atomic.temp_path(home.parent)
        with self._writing(home):
            atomic.disk.make(home.parent, None if self._run is None else self._run.path)
            if home.exists():
                ours = is_label_store(home)
                require(ours, f"cannot write {home}: other files are there; move them away", ResourceError)
                atomic.disk.delete(home)
        try:
            with self._writing(home):
                atomic.disk.mkdir(temp)
            writer = _ShardWriter(temp, number, lambda: self._writing(home))
            for part in parts:  # whose own failures are none of `home`
                writer.add(part)
            writer.finish()
            with self._writing(home):
                atomic.disk.rename(temp, home)
                atomic.disk.sync(home.parent)
            if self._run is not None:
                self._run.seals[self._index(number)] = make_seal(atomic.read_bytes(home / INDEX))
            current_world().agree(0)  # other processes read it from here on
            return open_store(home, number, checked=True)
        except BaseException:
            for path in (temp, home):
                atomic.disk.discard(path)
            raise

    def read(self, number: int) -> StoredLabels:
        """The store of a round, whose every byte is the written one; CorruptError when damaged or incomplete."""
        home, name = self._home(number), self._index(number)
        if self._run is not None:
            path, seals = home / INDEX, self._run.seals
            require(name in seals, f"{path} is no file of the newest generation", CorruptError)
            require_seal(atomic.read_bytes(path), seals[name], path)
        return open_store(home, number)

    def keep(self, numbers: Collection[int]) -> None:
        """Remove the stores of other rounds; folders with anything else in them stay."""
        self._home(0, change=True)
        if self._run is not None:
            # No generation from now on names the others, which a crash may have deleted before.
            kept, seals = {self._index(number) for number in numbers}, self._run.seals
            self._run.seals = {n: seals[n] for n in seals if n in kept or not n.startswith(f"{SITES_FOLDER}/")}
        for name in sorted(os.listdir(self.path)) if self.path.is_dir() else ():
            match, home = re.fullmatch(r"round-([0-9]{3,})", name), self.path / name
            if match and int(match[1]) not in numbers and is_label_store(home):
                with self._writing(home):
                    atomic.disk.delete(home)

    def _index(self, number: int) -> str:
        """What the run calls the file that vouches for all others of a round."""
        return f"{SITES_FOLDER}/round-{number:03d}/{INDEX}"

    def _home(self, number: int, change: bool = False) -> Path:
        """The folder of a round, which no link may lead to."""
        if change and self._run is not None:
            self._run.require_lock()
        home = self.path / f"round-{number:03d}"
        for path in (self.path, home):
            atomic.refuse_link(path)
        return home

    def _writing(self, home: Path) -> AbstractContextManager[None]:
        return atomic.explain_write_errors(home, "" if self._run is None else self._run.describe_kept())


class _ShardWriter:
    """Collects rows into shards."""

    def __init__(self, folder: Path, number: int, writing: Callable[[], AbstractContextManager[None]]) -> None:
        self.folder, self.number, self.writing = folder, number, writing
        self.count = 0
        self.form: tuple[int, int] | None = None
        """Classes and dimensions: those of the first row."""
        self.grids = array("i")
        self.shards: list[dict[str, object]] = []
        self.buffer, self.waiting = bytearray(), 0
        """The records of so many rows, not yet on the disk."""

    def add(self, part: PackedLabels) -> None:
        """The next row."""
        self._check(part)
        sites, classes = part.mean.shape
        if self.buffer and len(self.buffer) + sites * record_bytes(classes) > SHARD_BYTES:
            self._flush()
        for tensor in (part.uncertainty, part.mean, part.between, part.network):
            self.buffer += tensor.detach().cpu().numpy().tobytes()
        self.grids.extend(part.grid)
        self.count += 1
        self.waiting += 1

    def finish(self) -> None:
        """The last shard, the grids and the index."""
        require(self.form is not None, f"round {self.number}: there are no rows to keep")
        classes, dimensions = self.form or (0, 0)
        self._flush()
        grids = MAGIC + self.grids.tobytes()
        facts = {"rows": self.count, "classes": classes, "dimensions": dimensions, "round": self.number}
        writer = {"schema": LABEL_STORE_SCHEMA, "version": installed_version()}
        index = {**writer, **facts, "shards": self.shards, "grids": sha256(grids)}
        with self.writing():
            atomic.disk.create(self.folder / GRIDS, grids)
            atomic.disk.create(self.folder / INDEX, encode_sealed(index))
            atomic.disk.sync(self.folder)

    def _flush(self) -> None:
        path, data = shard_path(self.folder, len(self.shards)), bytes(self.buffer)
        self.buffer = bytearray()
        digest = sha256(data)
        with self.writing():
            atomic.disk.expect_room(self.folder, len(data))
            atomic.disk.create(path, data)
            if atomic.hash_file(path) != digest:
                raise OSError(errno.EIO, "read back wrong")
        self.shards.append({"rows": self.waiting, "bytes": len(data), "sha256": digest})
        self.waiting = 0

    def _check(self, part: PackedLabels) -> None:
        """Refuse what could not be read again as it is."""
        where = f"round {self.number}, row {part.row}"
        require(part.row == self.count, f"{where}: row {self.count} is due")
        sites, classes = math.prod(part.grid), part.mean.shape[-1]
        forms = [(tuple(t.shape), t.dtype) for t in (part.mean, part.between, part.uncertainty, part.network)]
        wide: tuple[int, ...] = (sites, classes)
        expected = [(wide, torch.float16), (wide, torch.uint8), (wide[:1], torch.float32), (wide[:1], torch.uint8)]
        require(forms == expected, f"{where}: not the packed labels of a grid {part.grid}")
        require(0 < sites < MOST_SITES and 0 < classes <= MOST_CLASSES, f"{where}: {sites} sites, {classes} classes")
        self.form = self.form or (classes, len(part.grid))
        require(self.form == (classes, len(part.grid)), f"{where}: other classes or another grid than in row 0")
        for values in (part.mean, part.uncertainty):
            if not torch.isfinite(values.sum(dtype=torch.float64)):  # many times quicker than a test of each value
                bad = int((~torch.isfinite(values)).sum())
                raise NumericalError(f"{where}: {bad:,} non-finite value{'' if bad == 1 else 's'}")


def shard_path(home: Path, number: int) -> Path:
    """The file of one shard."""
    return home / f"{number:06d}.shard"


def record_bytes(classes: int) -> int:
    """Bytes of one site."""
    return 3 * classes + 5


@dataclass(frozen=True, eq=False)
class StoredLabels(Sequence[PackedLabels]):
    """The rows of one round; `store[i]` is row i, read from its shard now."""

    home: Path
    classes: int
    grids: RowPlaces
    """(N, D)"""
    shard: RowPlaces
    """(N): the shard of each row"""
    offset: RowPlaces
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
    try:
        with open(os.open(path, atomic.READ_FLAGS), "rb") as file:
            file.seek(offset)
            count = file.readinto(data)
    except OSError as error:
        raise CorruptError(f"cannot read {path}: {error.strerror}") from error
    require(count == size, f"{path}: the file is cut off", CorruptError)
    return data


def open_store(home: Path, number: int, checked: bool = False) -> StoredLabels:
    """The store in a folder; unless its shards were `checked` before, they are read once for that."""
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
    index = read_sealed(path)
    schema, shards = index.get("schema"), index.get("shards")
    refuse_newer(schema, LABEL_STORE_SCHEMA, str(index.get("version")), str(home))
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


def _read_grids(home: Path, index: dict[str, Any]) -> RowPlaces:
    """The grid of each row; sizes are checked before anything is multiplied or allocated."""
    path, shape = home / GRIDS, (index["rows"], index["dimensions"])
    size = len(MAGIC) + 4 * math.prod(shape)
    data = atomic.read_bytes(path, range(size, size + 1))
    require(sha256(data) == index.get("grids"), f"{path}: sha256 differs", CorruptError)
    grids = np.frombuffer(data, "<i4", offset=len(MAGIC)).reshape(shape).astype(np.int64)
    sites = grids.astype(np.float64).prod(1)
    good = (grids >= 1).all() and sites.max() < MOST_SITES and sites.sum() < 2**52
    require(good and data.startswith(MAGIC), f"{path} is malformed", CorruptError)
    return grids


def _check_shard(path: Path, size: int, digest: str | None) -> None:
    """Refuse a file of another length before it is read, then one of other bytes."""
    try:
        length = os.lstat(path).st_size
    except OSError as error:
        raise CorruptError(f"cannot read {path}: {error.strerror}") from error
    require(length == size, f"{path}: {length:,} of {size:,} bytes", CorruptError)
    require(digest is None or atomic.hash_file(path) == digest, f"{path}: sha256 differs", CorruptError)
