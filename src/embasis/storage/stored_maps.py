"""Reading a folder of maps (label_map_folder.py): no map, and no table, whose bytes are not those that were written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embasis.errors import CorruptError, UntrustedError, quoted, require
from embasis.storage.atomic import parse_json, read_bytes
from embasis.storage.checkpoints import encode_sealed, sha256
from embasis.storage.label_map_folder import MAP_DIGESTS, MAP_MARKER, MAPS_KIND, is_map_path
from embasis.storage.sealed import SEAL_CURE, SealedFiles
from embasis.storage.tables import parse_table

LARGEST_MAP_MARKER = 1 << 24
_LINE = re.compile(r"(\\?)([0-9a-f]{64})  (.+)", re.DOTALL)


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
        require(is_map_path(name), f"path escapes the folder of maps: {quoted(name)}", UntrustedError)
        for folder in (self.home / kind / name).relative_to(self.home).parents:
            link = self.home / folder
            require(not link.is_symlink(), f"{link} is a symbolic link; links are not followed", UntrustedError)
        return self.read(f"{kind}/{name}")

    def table(self) -> dict[str, list[Any]]:
        """The line of each picture."""
        return parse_table(self.read("maps.parquet"), self.home / "maps.parquet")

    def read(self, name: str) -> bytes:
        """A file of the folder, if its bytes are those that were written."""
        path = self.home / name
        data = read_bytes(path)
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
    facts = parse_json(data := files.read(f"{name}/{MAP_MARKER}", LARGEST_MAP_MARKER), home / MAP_MARKER)
    whole = isinstance(facts, dict) and facts.pop("seal", None) and encode_sealed(facts) == data
    require(whole, f"{home / MAP_MARKER}: the seal is broken", CorruptError)
    whole = facts.get("what") == MAPS_KIND and facts.get("complete") is True
    require(whole, f"{home}: the maps are not all there", CorruptError)
    return StoredMaps(home, facts, _read_digests(home, facts["digests"]) if "digests" in facts else None)


def _read_digests(home: Path, digest: object) -> dict[str, str]:
    """Name → hash, from the list that maps.json vouches for."""
    path = home / MAP_DIGESTS
    data = read_bytes(path)
    require(sha256(data) == digest, f"{path}: sha256 differs; {SEAL_CURE}", CorruptError)
    found = [_LINE.fullmatch(line) for line in data.decode("utf-8", "replace").split("\n")[:-1]]
    require(all(found), f"{path} is malformed", CorruptError)
    names = ((line[3].replace("\\\\", "\\") if line[1] else line[3], line[2]) for line in found if line)
    return dict(names)
