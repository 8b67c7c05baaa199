"""Data in shards: many files of one kind that are one table, or one set of images.

| given | is |
| --- | --- |
| a folder with `.parquet` files at any depth, and no image | a table: the rows of all of them, by their names |
| a folder with `.tar` files at any depth, and no image | images (WebDataset's naming) |
| a list, .csv or .parquet with a column `path`, whose first path ends in `.parquet` or `.tar` | the same, as listed |

A manifest says of each shard how many bytes and rows it has and the number of its first row, so that a row has one
number whatever part of the input is read. Links are refused unless they are to be followed; hidden files are left out.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from embasis.data.formats import open_regular
from embasis.data.images.files import (
    IS_LINK,
    NOT_REGULAR,
    describe_os_error,
    is_hidden,
    lower_suffix,
    path_name,
    printable_path,
    unescape_name,
)
from embasis.data.images.header import SUFFIXES
from embasis.data.images.scan import is_list, iter_listed, require_no_address
from embasis.distributed import current_world
from embasis.errors import InputDataError, quote, require
from embasis.types import PathLike, ShardRecord

PARQUET, TAR = ".parquet", ".tar"
SHARD_KINDS = (PARQUET, TAR)
MOST_SHARDS = 10**6
HASHED_BYTES = 2**20
LINK_CURE = "name the files themselves in a list, a .csv with a column path"


@dataclass(frozen=True)
class ShardFile:
    """One shard before it is opened: its name below the folder, or as the list has it, and its path."""

    name: str
    path: str


@dataclass(frozen=True)
class ShardFolder:
    """The shards of a folder or list, of one kind, in their order."""

    root: str
    kind: str
    files: tuple[ShardFile, ...]


@dataclass(frozen=True)
class Shard:
    """One shard with its size, its rows, and the number of its first row among those of all shards."""

    name: str
    path: str
    bytes: int
    rows: int
    first: int

    def record(self) -> ShardRecord:
        """What a run keeps of it; the file is read once more for its hash."""
        digest = hashlib.sha256()
        with open_regular(self.path) as stream:
            while block := stream.read(HASHED_BYTES):
                digest.update(block)
        return ShardRecord(self.name, self.bytes, self.rows, self.first, digest.hexdigest())


@dataclass(frozen=True)
class ShardManifest:
    """All shards of an input."""

    root: str
    shards: tuple[Shard, ...]

    @classmethod
    def of(cls, root: str, files: tuple[ShardFile, ...], rows: list[int]) -> ShardManifest:
        """The manifest of shards with so many rows each."""
        firsts = accumulate(rows, initial=0)
        entries = zip(files, rows, firsts, strict=False)  # the last sum is the number of all rows
        sizes = [os.stat(file.path).st_size for file in files]
        shards = (
            Shard(file.name, file.path, size, count, first)
            for (file, count, first), size in zip(entries, sizes, strict=True)
        )
        return cls(root, tuple(shards))

    @property
    def fingerprint(self) -> str:
        """A hash of the names, sizes and rows of all shards."""
        facts = [f"{shard.name}\0{shard.bytes}\0{shard.rows}" for shard in self.shards]
        return hashlib.sha256("\n".join(facts).encode("utf-8", "surrogateescape")).hexdigest()

    @property
    def total(self) -> int:
        """The rows of all shards."""
        return self.shards[-1].first + self.shards[-1].rows if self.shards else 0

    def cut(self, rows: range) -> Iterator[tuple[Shard, range]]:
        """The shards that hold these rows, each with the numbers of the rows within it."""
        for shard in self.shards:
            first, last = max(rows.start - shard.first, 0), min(rows.stop - shard.first, shard.rows)
            if first < last:
                yield shard, range(first, last)

    def own_pieces(self, rows: range, size: int) -> Iterator[tuple[Shard, list[range]]]:
        """The shards that hold these rows, each with the pieces of at most `size` rows within it that this process
        reads: all of them, if it is alone."""
        world, number = current_world(), 0
        for shard, part in self.cut(rows):
            pieces = [range(first, min(first + size, part.stop)) for first in range(part.start, part.stop, size)]
            own = [piece for place, piece in enumerate(pieces, number) if world.owns(place)]
            number += len(pieces)
            if own:
                yield shard, own


def describe_records(root: PathLike, records: Sequence[ShardRecord]) -> str:
    """A sentence about the shards of an input; nothing where it has none."""
    rows = records[-1].first + records[-1].rows if records else 0
    shards = "1 shard" if len(records) == 1 else f"{len(records):,} shards"
    return f"{printable_path(root)}: {rows:,} rows in {shards}" if records else ""


def shard_kind(path: PathLike) -> str:
    """`.parquet` or `.tar` if a path leads to a folder or list of such shards; else nothing."""
    place = os.fspath(path)
    try:
        if os.path.isdir(place):
            return _folder_kind(place)
        if not os.path.isfile(place) or not is_list(place):
            return ""
        first = next((written for _, written in iter_listed(place) if written), "")
    except (InputDataError, OSError):
        return ""
    kind = lower_suffix(first)
    return kind if kind in SHARD_KINDS else ""


def find_shards(path: PathLike, follow_links: bool = False) -> ShardFolder:
    """The shards of a folder or list for which there is a `shard_kind`; an InputDataError where they are of two kinds,
    are named twice, or cannot be used."""
    place, kind = os.fspath(path), shard_kind(path)
    if os.path.isdir(place):
        files = sorted(_find_in_folder(place, kind, follow_links), key=lambda file: f"{file.name}/")
    else:
        files = list(_find_in_list(place, kind, follow_links))
    many = f"{printable_path(place)}: has {len(files):,} shards, at most {MOST_SHARDS:,} are read"
    require(len(files) <= MOST_SHARDS, many)
    return ShardFolder(place, kind, tuple(files))


def _iter_files(top: str) -> Iterator[tuple[os.DirEntry[str], str]]:
    """All that is no folder below a folder, with its name; without hidden entries.

    Neither links nor run folders are entered: what lies in a run is no data."""
    stack = [(top, "")]
    while stack:
        folder, prefix = stack.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                if is_hidden(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if not is_run(entry.path):
                        stack.append((entry.path, f"{prefix}{entry.name}/"))
                else:
                    yield entry, prefix + entry.name


def is_run(folder: str) -> bool:
    """Whether a folder is one of a run, by what no other one is likely to have together."""
    return all(os.path.exists(os.path.join(folder, name)) for name in ("HEAD", "generations"))


def _folder_kind(top: str) -> str:
    """The kind of the shards in a folder; nothing if there is none, or an image beside them."""
    kinds = set[str]()
    for _, name in _iter_files(top):
        kind = lower_suffix(name)
        if kind in SUFFIXES:
            return ""
        kinds |= {kind} & {*SHARD_KINDS}
    return min(kinds, default="")


def _find_in_folder(top: str, kind: str, follow_links: bool) -> Iterator[ShardFile]:
    shown = printable_path(top)
    try:
        for entry, name in _iter_files(top):
            other = lower_suffix(name)
            both = f"{shown}: has {kind} and {other} files; a folder of shards has one kind"
            require(other == kind or other not in SHARD_KINDS, both)
            if other == kind:
                yield _usable(path_name(name), entry.path, follow_links, f"{shown}/{path_name(name)}")
    except OSError as error:
        where = printable_path(error.filename or top)
        raise InputDataError(f"{where}: cannot be read: {describe_os_error(error)}") from error


def _find_in_list(path: str, kind: str, follow_links: bool) -> Iterator[ShardFile]:
    met, folder = set[str](), os.path.dirname(os.path.abspath(path))
    for where, written in iter_listed(path):
        place = f"{printable_path(path)}: {where}"
        require_no_address(written or "", place)
        rule = f"{place}: {quote(written)} is no {kind} file; a list of shards names nothing else"
        require(lower_suffix(written or "") == kind, rule)
        target = os.path.normpath(os.path.join(folder, os.fsdecode(unescape_name(written or ""))))
        require(target not in met, f"{place}: {quote(written)} is listed twice")
        met.add(target)
        yield _usable(written or "", target, follow_links, f"{place}: {printable_path(target)}")


def _usable(name: str, path: str, follow_links: bool, shown: str) -> ShardFile:
    """A shard that is a regular file; an InputDataError where it is none."""
    if follow_links:
        path = os.path.realpath(path)
    try:
        mode = os.lstat(path).st_mode
    except (OSError, ValueError) as error:
        reason = describe_os_error(error) if isinstance(error, OSError) else str(error)
        raise InputDataError(f"{shown}: {'no such file' if 'vanished' in reason else reason}") from error
    require(not stat.S_ISLNK(mode), f"{shown}: {IS_LINK}; {LINK_CURE}")
    require(stat.S_ISREG(mode), f"{shown}: {NOT_REGULAR}")
    return ShardFile(name, path)
