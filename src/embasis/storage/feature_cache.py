"""Features of images on disk by the hash of the image's bytes, so that no image is decoded twice; restyled rows too.

A cache folder belongs to one frozen network and one way of preparing images, or to one restyler and what it has
learned; `key` names both. It holds shards, files of a few hundred rows in safetensors form (`digest` N 16, `rows` N …),
each named after the sha256 of its content: so a shard is whole or not there, several processes may add at the same
time, and a damaged one is found out, left alone with a warning, and its rows are computed again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from embasis.errors import CorruptError, EmbasisWarning, ResourceError, require
from embasis.storage import atomic

DIGEST_BYTES = 16
SHARD_NAME = re.compile(r"([0-9a-f]{64})\.shard")
SHARD_DTYPES = {"F32": "<f4", "F16": "<f2", "U8": "|u1"}
LONGEST_SHARD_HEADER = 10_000
CACHE_ADVICE = "images.cache=DIR or EMBASIS_CACHE names another folder for features"


@dataclass(frozen=True)
class CacheKind:
    """What a cache holds: the name of its folder, what becomes of rows that are damaged, and what helps if it fails."""

    name: str
    repair: str
    advice: str


FEATURES = CacheKind("features", "its images are read again", CACHE_ADVICE)
RESTYLED = CacheKind(
    "restyled", "its pictures are restyled again", f"{CACHE_ADVICE.removesuffix('features')}restyled pictures"
)


def cache_folder(given: str = "") -> Path:
    """Where features are kept: as given, else EMBASIS_CACHE, else the user's cache folder."""
    if folder := given or os.environ.get("EMBASIS_CACHE"):
        return Path(folder)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    rule = "there is no folder for features: this user has no home; images.cache=DIR or EMBASIS_CACHE names one"
    require(not home.startswith("~"), rule, ResourceError)
    return Path(home) / "embasis"


def require_cache_usable(folder: Path) -> None:
    """Refuse a folder in which nothing is kept yet and nothing can be; nothing is written."""
    place = folder / "features"
    try:
        if place.is_dir() and os.listdir(place):
            return  # all may be there that is needed
        while not os.path.lexists(place) and place != place.parent:
            place = place.parent
        os.stat(place)
        with_room = os.access(place, os.W_OK | os.X_OK)
        reason = "" if place.is_dir() and with_room else "Permission denied" if place.is_dir() else "Not a directory"
    except OSError as error:
        reason = str(error.strerror)
    require(not reason, f"cannot write {folder}: {place}: {reason}; {CACHE_ADVICE}", ResourceError)


@dataclass(frozen=True)
class Shard:
    """Where the rows of one shard lie in its file."""

    path: Path
    offset: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return math.prod(self.shape) * int(self.dtype[-1])


class FeatureCache:
    """The rows of one frozen network or restyler; `add` writes a shard, everything else only reads.

    All shards are checked when it is opened; with `late` each one when `find` first meets it, for those who want a few
    rows of many."""

    def __init__(self, folder: Path | str, key: str, late: bool = False, kind: CacheKind = FEATURES) -> None:
        self.path, self.kind = Path(folder) / kind.name / key, kind
        self._late = late
        self._where: dict[bytes, tuple[Shard, int]] = {}
        self._known: set[str] = set()
        self._whole: dict[Path, bool] = {}
        try:
            self.refresh()
        except OSError as error:
            raise ResourceError(f"cannot read {self.path}: {error.strerror}; {kind.advice}") from error

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._where

    def refresh(self) -> None:
        """Take up the shards that are new on disk."""
        names = sorted(os.listdir(self.path)) if self.path.is_dir() else []
        for name in names:
            if SHARD_NAME.fullmatch(name) and name not in self._known:
                self._known.add(name)
                try:
                    self._take(self.path / name)
                except CorruptError as error:
                    warnings.warn(f"{error}; {self.kind.repair}", EmbasisWarning, stacklevel=3)

    def find(self, digests: Iterable[bytes]) -> set[bytes]:
        """Those of these images whose rows are there, in shards that are whole."""
        found = {digest for digest in digests if digest in self._where}
        if self._late:
            for path in {self._where[digest][0].path for digest in found} - self._whole.keys():
                self._whole[path] = is_whole_shard(path)
                if not self._whole[path]:
                    text = f"{path}: sha256 differs; {self.kind.repair}"
                    warnings.warn(text, EmbasisWarning, stacklevel=3)
        return {digest for digest in found if self._whole.get(self._where[digest][0].path, True)}

    def require_writable(self) -> None:
        """Refuse a folder that cannot be written to, before hours of work for it."""
        with atomic.explain_write_errors(self.path, f"; {self.kind.advice}"):
            atomic.disk.make(self.path)
            probe = atomic.temp_path(self.path)
            try:
                atomic.disk.create(probe, b"")
            finally:
                atomic.disk.discard(probe)

    def add(self, digests: Sequence[bytes], rows: Tensor) -> None:
        """A new shard with these rows, on the disk when this returns."""
        require(len(digests) == len(rows), f"cache: {len(digests)} digests for {len(rows)} rows")
        if not digests:
            return
        column = torch.frombuffer(bytearray(b"".join(digests)), dtype=torch.uint8).view(-1, DIGEST_BYTES)
        data = bytes(save({"digest": column, "rows": rows.detach().cpu().contiguous().clone()}))
        target = self.path / f"{hashlib.sha256(data).hexdigest()}.shard"
        with atomic.explain_write_errors(target, f"; {self.kind.advice}"):
            atomic.disk.make(self.path)
            atomic.disk.expect_room(self.path, len(data))
            if not is_whole_shard(target):
                atomic.disk.put(target, data)
        self._known.add(target.name)
        self._take(target)

    def rows(self, digests: Sequence[bytes]) -> Tensor:
        """The rows of these images, in this order, float32; bytes are bytes."""
        require(len(digests) > 0, "cache: no rows are asked for")
        missing = sum(digest not in self._where for digest in digests)
        require(not missing, f"cache {self.path}: {missing} of {len(digests)} rows are not there", CorruptError)
        first = self._where[digests[0]][0]
        out = np.empty((len(digests), *first.shape), np.uint8 if first.dtype == SHARD_DTYPES["U8"] else np.float32)
        by_shard: dict[Path, list[int]] = {}
        for position, digest in enumerate(digests):
            by_shard.setdefault(self._where[digest][0].path, []).append(position)
        for path, positions in by_shard.items():
            self._fill(out, path, [(position, *self._where[digests[position]]) for position in positions])
        return torch.from_numpy(out)

    def locate(self, digest: bytes) -> tuple[Path, int, int]:
        """The file in which a row lies, its first byte there, and its bytes."""
        shard, row = self._where[digest]
        return shard.path, shard.offset + row * shard.row_bytes, shard.row_bytes

    def _fill(self, out: Any, path: Path, wanted: list[tuple[int, Shard, int]]) -> None:
        """Rows of one shard into their places."""
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise ResourceError(f"cannot read {path}: {error.strerror}; the same command makes it again") from error
        try:
            for position, shard, row in wanted:
                alike = shard.shape == out.shape[1:] and (shard.dtype == SHARD_DTYPES["U8"]) == (out.dtype == np.uint8)
                require(alike, f"{path}: rows of another shape than in other shards", CorruptError)
                data = os.pread(handle, shard.row_bytes, shard.offset + row * shard.row_bytes)
                require(len(data) == shard.row_bytes, f"{path}: the file is cut off", CorruptError)
                out[position] = np.frombuffer(data, shard.dtype).reshape(shard.shape)
        finally:
            os.close(handle)

    def _take(self, path: Path) -> None:
        """Enter the rows of a shard whose bytes are those that its name says, which `late` leaves to `find`."""
        whole = self._late or atomic.hash_file(path) == path.name.removesuffix(".shard")
        require(whole, f"{path}: sha256 differs", CorruptError)
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            require(length <= LONGEST_SHARD_HEADER, f"{path}: a header of {length} bytes", CorruptError)
            try:
                header = json.loads(stream.read(length))
                digest, rows = header["digest"], header["rows"]
                count, *shape = (int(size) for size in rows["shape"])
                first, offset = (8 + length + int(part["data_offsets"][0]) for part in (digest, rows))
                shard = Shard(path, offset, tuple(shape), SHARD_DTYPES[rows["dtype"]])
                known = digest["shape"] == [count, DIGEST_BYTES] and digest["dtype"] == "U8"
            except (KeyError, TypeError, ValueError, RecursionError) as error:
                raise CorruptError(f"{path} is no shard of features: {error}") from error
            size, last = os.fstat(stream.fileno()).st_size, offset + count * shard.row_bytes
            fits = min(first, offset) >= 8 + length and max(first + count * DIGEST_BYTES, last) <= size
            require(known and fits and min(count, *shape, 0) == 0, f"{path} is no shard of features", CorruptError)
            stream.seek(first)
            column = stream.read(count * DIGEST_BYTES)
        for row in range(count):
            self._where.setdefault(column[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES], (shard, row))


def is_whole_shard(path: Path) -> bool:
    """Whether a shard is there and has the bytes that its name says: a damaged one is written again."""
    try:
        return atomic.hash_file(path) == path.name.removesuffix(".shard")
    except CorruptError:
        return False
