"""Where the label distributions of a run's rounds lie: written shard by shard, named when complete."""

from __future__ import annotations

import errno
import math
import os
import re
from array import array
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from embasis.errors import NumericalError, ResourceError, UntrustedError, require
from embasis.storage import atomic
from embasis.storage.atomic import explain_write_errors, read_bytes, temp_path
from embasis.storage.checkpoints import encode_sealed, installed_version, sha256
from embasis.storage.feature_cache import hash_file
from embasis.storage.label_store_format import (
    GRIDS,
    INDEX,
    LABEL_STORE_SCHEMA,
    MAGIC,
    MOST_CLASSES,
    MOST_SITES,
    StoredLabels,
    is_store,
    open_store,
    record_bytes,
    shard_path,
)

if TYPE_CHECKING:
    from embasis.storage.run_folder import RunFolder
    from embasis.types import PackedLabels

SITES_FOLDER = "sites"
"""The folder of all stores in a run folder."""
SHARD_BYTES = 2**24
"""A shard is at most that long, unless one row alone is longer."""


class DiskLabelStore:
    """The stores of a run's rounds, below `sites` in its folder; in a RunFolder only its owner may change them."""

    def __init__(self, folder: RunFolder | Path | str) -> None:
        self._run = None if isinstance(folder, str | Path) else folder
        self.path = (Path(folder) if isinstance(folder, str | Path) else folder.path) / SITES_FOLDER

    def write(self, number: int, parts: Iterator[PackedLabels]) -> StoredLabels:
        """The store of a round, on the disk when this returns; an older one of that number goes first.

        Rows come in their order. No more than a shard of them is in memory. A failure leaves nothing."""
        home = self._home(number, change=True)
        temp = temp_path(home.parent)
        with self._writing(home):
            atomic.disk.make(home.parent, None if self._run is None else self._run.path)
            self._remove(home)
        try:
            self._fill(temp, home, number, parts)
            with self._writing(home):
                atomic.disk.rename(temp, home)
                atomic.disk.sync(home.parent)
            if self._run is not None:
                self._run.note_file(self._index(number), read_bytes(home / INDEX))
            return open_store(home, number, checked=True)
        except BaseException:
            for path in (temp, home):
                atomic.disk.discard(path)
            raise

    def read(self, number: int) -> StoredLabels:
        """The store of a round, whose every byte is the written one; CorruptError when damaged or incomplete."""
        home = self._home(number)
        if self._run is not None:
            self._run.require_sealed(self._index(number))
        return open_store(home, number)

    def keep(self, numbers: Collection[int]) -> None:
        """Remove the stores of other rounds; folders with anything else in them stay."""
        self._home(0, change=True)
        if self._run is not None:
            self._run.forget_files(f"{SITES_FOLDER}/", {self._index(number) for number in numbers})
        for name in sorted(os.listdir(self.path)) if self.path.is_dir() else ():
            found, home = re.fullmatch(r"round-([0-9]{3,})", name), self.path / name
            if found and int(found[1]) not in numbers and is_store(home):
                with self._writing(home):
                    atomic.disk.delete(home)

    def _index(self, number: int) -> str:
        """What the run calls the file that vouches for all others of a round."""
        return f"{SITES_FOLDER}/round-{number:03d}/{INDEX}"

    def _home(self, number: int, change: bool = False) -> Path:
        """The folder of a round, which no link may lead to."""
        if change and self._run is not None:
            self._run._require_lock()
        home = self.path / f"round-{number:03d}"
        for path in (self.path, home):
            require(not path.is_symlink(), f"{path} is a symbolic link; links are not followed", UntrustedError)
        return home

    def _remove(self, home: Path) -> None:
        if home.exists():
            require(is_store(home), f"cannot write {home}: other files are there; move them away", ResourceError)
            atomic.disk.delete(home)

    def _fill(self, temp: Path, home: Path, number: int, parts: Iterator[PackedLabels]) -> None:
        """All files of a store; only our own calls of the system are reported as failures of `home`."""
        with self._writing(home):
            atomic.disk.mkdir(temp)
        writer = _ShardWriter(temp, number, lambda: self._writing(home))
        for part in parts:
            writer.add(part)
        writer.finish()

    def _writing(self, home: Path) -> AbstractContextManager[None]:
        return explain_write_errors(home, "" if self._run is None else self._run._kept())


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
        index = {
            "schema": LABEL_STORE_SCHEMA,
            "version": installed_version(),
            **facts,
            "shards": self.shards,
            "grids": sha256(grids),
        }
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
            if hash_file(path) != digest:
                raise OSError(errno.EIO, "read back wrong")
        self.shards.append({"rows": self.waiting, "bytes": len(data), "sha256": digest})
        self.waiting = 0

    def _check(self, part: PackedLabels) -> None:
        """Refuse what could not be read again as it is."""
        import torch

        where = f"round {self.number}, row {part.row}"
        require(part.row == self.count, f"{where}: row {self.count} is due")
        sites, classes = math.prod(part.grid), part.mean.shape[-1]
        found = [(tuple(t.shape), t.dtype) for t in (part.mean, part.between, part.uncertainty, part.network)]
        wide: tuple[int, ...] = (sites, classes)
        wanted = [(wide, torch.float16), (wide, torch.uint8), (wide[:1], torch.float32), (wide[:1], torch.uint8)]
        require(found == wanted, f"{where}: not the packed labels of a grid {part.grid}")
        require(0 < sites < MOST_SITES and 0 < classes <= MOST_CLASSES, f"{where}: {sites} sites, {classes} classes")
        self.form = self.form or (classes, len(part.grid))
        require(self.form == (classes, len(part.grid)), f"{where}: other classes or another grid than in row 0")
        for values in (part.mean, part.uncertainty):
            if not torch.isfinite(values.sum(dtype=torch.float64)):  # many times quicker than to look at each value
                bad = int((~torch.isfinite(values)).sum())
                raise NumericalError(f"{where}: {bad:,} non-finite value{'' if bad == 1 else 's'}")
