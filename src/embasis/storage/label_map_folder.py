"""A folder of maps: for each picture labels/NAME, confidence/NAME, variance/NAME, trusted/NAME, and a table of all.

`maps.json` says whose folder it is and how to read the maps: it comes first, and says at the end that all are there.
`maps.sha256` has the hash of every file, as `sha256sum -c maps.sha256` reads it; `maps.json` has the hash of that list.
Each file is whole or not there; that they are on the disk is awaited once, at the end, for all of them together.
`StoredMaps` reads no map, and no table, whose bytes are not those that were written.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from embasis.errors import CheckpointError, ConfigError, CorruptError, UntrustedError, quote, require
from embasis.storage import atomic
from embasis.storage.checkpoints import (
    SEAL_CURE,
    SealedFiles,
    encode_sealed,
    installed_version,
    make_seal,
    parse_sealed,
    read_sealed,
    sha256,
)
from embasis.storage.picture_formats import choose_written_ids, encode_grey_png, encode_label_png
from embasis.types import ClassTable

if TYPE_CHECKING:
    from embasis.storage.atomic import Column
    from embasis.storage.run_folder import RunFolder

MAP_MARKER, MAP_DIGESTS, MAPS_KIND = "maps.json", "maps.sha256", "embasis maps"
MAP_KINDS = ("labels", "confidence", "variance", "trusted")
LONGEST_PART, LONGEST_NAME = 255, 1024
LARGEST_MAP_MARKER = 1 << 24
MAP_SCALES = {
    "confidence": "round(255 p), p = probability of the label",
    "variance": "round(255 v / (1 - 1/C)), v = sum of p (1 - p) over the C classes",
    "trusted": "255 = trusted, 0 = not",
}
_DIGEST_LINE = re.compile(r"(\\?)([0-9a-f]{64})  (.+)", re.DOTALL)


def make_map_names(names: Sequence[str]) -> list[str]:
    """The file names of the maps of these pictures, one each, in sub-folders as given.

    NAME.jpg becomes NAME.png; those that would share a name keep their whole names, NAME.jpg.png; names that cannot be
    a path, or that even then collide, become `map-` and a hash. A different picture never has the same file."""
    short = [_replace_suffix(name) for name in names]
    alike = Counter(name.casefold() for name in short)
    whole = [f"{name}.png" if alike[new.casefold()] > 1 else new for name, new in zip(names, short, strict=True)]
    again = Counter(whole)
    folders = {"/".join(parts[:depth]) for parts in (n.split("/") for n in whole) for depth in range(1, len(parts))}
    good = [is_map_path(name) and again[name] == 1 and name not in folders for name in whole]
    used = {name for name, kept in zip(whole, good, strict=True) if kept} | folders
    return [new if kept else _hash_name(name, used) for name, new, kept in zip(names, whole, good, strict=True)]


def _replace_suffix(name: str) -> str:
    """The name with its ending replaced."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{os.path.splitext(last)[0]}.png"


def is_map_path(name: str) -> bool:
    """Whether a name is that of a file below a folder, on any file system of ours."""
    parts = name.split("/")
    try:
        sizes = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:
        return False
    plain = all(char >= " " and not "\x7f" <= char <= "\x9f" for char in name)
    fits = min(sizes) >= 1 and max(sizes) <= LONGEST_PART and sum(sizes) + len(sizes) <= LONGEST_NAME
    return plain and fits and not any(part in (".", "..") or atomic.TEMP_NAME.fullmatch(part) for part in parts)


def _hash_name(name: str, used: set[str]) -> str:
    """A safe name that is not used yet; now it is."""
    names = (f"map-{digest}.png" for digest in atomic.iter_name_hashes(name, 8))
    safe = next(name for name in names if name not in used)
    used.add(safe)
    return safe


class LabelMapFolder:
    """Maps of many pictures in one folder, which is new, empty or was written by us; else ConfigError.

    Inside `with` maps are written; it ends with all of them on the disk, or with what was written until the failure."""

    def __init__(self, path: Path | str, table: ClassTable, run: RunFolder | None = None) -> None:
        self.path, self.table = Path(path), table
        self.stale = 0
        """Maps of earlier pictures that are still there: known when all is written."""
        self._run, self._root = run, self.path if run is None else run.path
        self._kept = "" if run is None else run.describe_kept()
        self._ready: set[Path] = set()
        self._names: set[str] = set()
        self._hashes: dict[str, str] = {}
        """Name below the folder → sha256 of each file that was written."""
        self._marker = (self.path / MAP_MARKER).relative_to(self._root).as_posix()
        self._is_ours = run is not None and self._marker in run.seals
        """Whether the folder is known to be ours, even with a marker that is damaged."""
        if not self._is_ours:
            require_own_maps(self.path)

    def __enter__(self) -> LabelMapFolder:
        self._require_lock()
        if not self._is_ours:
            require_own_maps(self.path)
        self._make(self.path)
        for path in _list_map_files(self.path):
            if atomic.TEMP_NAME.fullmatch(path.name):
                atomic.disk.discard(path)
        self._mark(complete=False)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            os.sync()  # once: to wait for each of thousands of files takes as long as to label them
            labels = self.path / MAP_KINDS[0]
            self.stale = sum(path.relative_to(labels).as_posix() not in self._names for path in _list_map_files(labels))
            listed = format_digests(self._hashes)
            self._put(self.path / MAP_DIGESTS, listed)
            marker = self._mark(complete=True, digests=sha256(listed))
            if self._run is not None:
                self._run.seals[self._marker] = make_seal(marker)

    def write(self, name: str, labels: Tensor, confidence: Tensor, variance: Tensor, trusted: Tensor) -> None:
        """The maps of one picture, uint8 (H, W) each, scaled as MAP_SCALES says; `name` is one of `make_map_names`."""
        shapes = [tuple(values.shape) for values in (labels, confidence, variance, trusted)]
        require(len({*shapes}) == 1, f"maps of {name}: sizes differ: {shapes}")
        self.write_encoded(name, encode_maps(self.table, labels, confidence, variance, trusted))

    def write_encoded(self, name: str, contents: Sequence[bytes]) -> None:
        """The same of maps that are encoded already, in the order of MAP_KINDS."""
        require(is_map_path(name), f"path escapes the folder of maps: {quote(name)}", UntrustedError)
        for kind, data in zip(MAP_KINDS, contents, strict=True):
            path = self.path / kind / name
            self._require_lock()
            self._make(path.parent)
            self._put(path, data, wait=False)
            self._hashes[f"{kind}/{name}"] = sha256(data)
        self._names.add(name)

    def write_table(self, columns: Mapping[str, Column], suffix: str = ".csv") -> Path:
        """The table of all pictures: maps.csv or maps.parquet."""
        target, data = self.path / f"maps{suffix}", atomic.encode_table(columns, suffix)
        self._put(target, data)
        self._hashes[target.name] = sha256(data)
        return target

    def _mark(self, complete: bool, **more: str) -> bytes:
        """Write maps.json; what it holds."""
        ids, unknown = choose_written_ids(self.table)
        classes = [{"name": name, "value": number} for name, number in zip(self.table.names, ids, strict=True)]
        facts = {"what": MAPS_KIND, "version": installed_version(), "complete": complete, "unknown": unknown}
        data = encode_sealed({**facts, **more, "classes": classes, "scales": MAP_SCALES})
        self._put(self.path / MAP_MARKER, data)
        return data

    def _put(self, path: Path, data: bytes, wait: bool = True) -> None:
        """A file, whole or not at all; without `wait` nobody waits yet for its arrival on the disk."""
        with atomic.explain_write_errors(path, self._kept):
            atomic.disk.put(path, data, wait)

    def _make(self, folder: Path) -> None:
        """A folder that no link below the root leads to."""
        if folder not in self._ready:
            below = folder.relative_to(self._root).parts
            for path in (self._root.joinpath(*below[:depth]) for depth in range(1, len(below) + 1)):
                atomic.refuse_link(path)
            with atomic.explain_write_errors(folder, self._kept):
                atomic.disk.make(folder, None if self._run is None else self._root)
            self._ready.add(folder)

    def _require_lock(self) -> None:
        if self._run is not None:
            self._run.require_lock()


def encode_maps(
    table: ClassTable, labels: Tensor, confidence: Tensor, variance: Tensor, trusted: Tensor
) -> tuple[bytes, ...]:
    """The files of the maps of one picture, in the order of MAP_KINDS."""
    return (
        encode_label_png(labels, table),
        encode_grey_png(confidence),
        encode_grey_png(variance),
        encode_grey_png(trusted, flat=True),
    )


def require_own_maps(path: Path) -> None:
    """Refuse a file, and a folder that holds what we did not write."""
    atomic.refuse_lost_link(path)
    require(path.is_dir() or not os.path.lexists(path), f"output {path} is a file; name a folder", ConfigError)
    there = sorted(name for name in (os.listdir(path) if path.is_dir() else ()) if not atomic.TEMP_NAME.fullmatch(name))
    first = f"{''.join(map(repr, there[:1]))}{f' and {len(there) - 1:,} more' if len(there) > 1 else ''}"
    text = f"output {path} holds files that are no maps of embasis: {first}; name a new or an empty folder"
    require(not there or _is_marked(path), text, ConfigError)


def _is_marked(path: Path) -> bool:
    try:
        return bool(read_sealed(path / MAP_MARKER).get("what") == MAPS_KIND)
    except CheckpointError:
        return False


def format_digests(hashes: Mapping[str, str]) -> bytes:
    """The hash and the name of each file, a line each, in the form of sha256sum; the same files give the same bytes.

    A backslash in a name is doubled, and the line then begins with one: so sha256sum writes it."""
    names = {name: name.replace("\\", "\\\\") for name in sorted(hashes)}
    return "".join(
        f"{'' if text == name else chr(92)}{hashes[name]}  {text}\n" for name, text in names.items()
    ).encode()


def _list_map_files(path: Path) -> list[Path]:
    """All files below a folder; links to folders are not entered."""
    return [Path(top, name) for top, _, plain in os.walk(path) for name in plain]


@dataclass(frozen=True, eq=False)
class StoredMaps:
    """The maps of a round of a run."""

    home: Path
    marker: Mapping[str, Any]
    """What maps.json says."""
    hashes: Mapping[str, str] | None
    """Name → sha256 of each file; None in folders of 0.1.0, which kept none."""

    def map(self, kind: str, name: str) -> bytes:
        """The bytes of one map; `name` is what the folder's table calls its file."""
        require(is_map_path(name), f"path escapes the folder of maps: {quote(name)}", UntrustedError)
        for folder in Path(kind, name).parents:
            atomic.refuse_link(self.home / folder)
        return self.read(f"{kind}/{name}")

    def table(self) -> dict[str, list[Any]]:
        """The line of each picture."""
        return atomic.parse_stored_table(self.read("maps.parquet"), self.home / "maps.parquet")

    def read(self, name: str) -> bytes:
        """A file of the folder, if its bytes are those that were written."""
        path = self.home / name
        data = atomic.read_bytes(path)
        same = self.hashes is None or self.hashes.get(name) == sha256(data)
        require(same, f"{path}: sha256 differs; {SEAL_CURE}", CorruptError)
        return data

    def check(self) -> None:
        """Read every file once; CorruptError names the first that is another one."""
        for name in self.hashes or ():
            self.read(name)


def open_stored_maps(files: SealedFiles, number: int) -> StoredMaps:
    """The maps of a round, which are all there."""
    name = f"labels/round-{number:03d}"
    home = files.path / name
    facts = parse_sealed(files.read(f"{name}/{MAP_MARKER}", LARGEST_MAP_MARKER), home / MAP_MARKER)
    whole = facts.get("what") == MAPS_KIND and facts.get("complete") is True
    require(whole, f"{home}: the maps are not all there", CorruptError)
    return StoredMaps(home, facts, _read_digests(home, facts["digests"]) if "digests" in facts else None)


def _read_digests(home: Path, digest: object) -> dict[str, str]:
    """Name → hash, from the list that maps.json vouches for."""
    path = home / MAP_DIGESTS
    data = atomic.read_bytes(path)
    require(sha256(data) == digest, f"{path}: sha256 differs; {SEAL_CURE}", CorruptError)
    lines = [_DIGEST_LINE.fullmatch(line) for line in data.decode("utf-8", "replace").split("\n")[:-1]]
    require(all(lines), f"{path} is malformed", CorruptError)
    return {line[3].replace("\\\\", "\\") if line[1] else line[3]: line[2] for line in lines if line}
