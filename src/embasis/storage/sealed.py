"""The files that a run hands out, each with the size and hash that the run's generations know it by.

A file is written, then the generation that names it is published. Its name holds the number of its round, so no file
that an earlier generation names is written over by other bytes: a reader without the lock may trust both.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embasis.errors import CorruptError, require
from embasis.storage.atomic import parse_json, read_bytes
from embasis.storage.checkpoints import encode_sealed, installed_version, read_sealed, sha256
from embasis.storage.feature_cache import hash_file
from embasis.storage.tables import parse_table

SEALED_PATHS = ("labels", "basis", "gallery", "rows", "sites", "backbone.safetensors")
"""What is sealed: these files, and all below these folders. Every other file of a run can be written again from the
facts of its generation, and is never read."""
SEAL_CURE = "the fit command that made the run makes it again if it can"


def make_seal(data: bytes) -> dict[str, Any]:
    """What a generation writes down of a file."""
    return {"bytes": len(data), "sha256": sha256(data)}


def require_seal(data: bytes, entry: Mapping[str, Any], path: Path) -> bytes:
    """The bytes, if they are those that were written."""
    size = entry.get("bytes")
    require(len(data) == size, f"{path}: {len(data):,} of {size:,} bytes; {SEAL_CURE}", CorruptError)
    require(sha256(data) == entry.get("sha256"), f"{path}: sha256 differs; {SEAL_CURE}", CorruptError)
    return data


class SealedFiles:
    """The files of a run folder as one of its generations knows them; none is read whose bytes are others."""

    def __init__(self, path: Path, seals: Mapping[str, Mapping[str, Any]] | None) -> None:
        self.path = path
        self._seals = seals
        """None in folders of 0.1.0, which knew no seals: those are read as they are."""

    def __contains__(self, name: str) -> bool:
        return (self.path / name).is_file() if self._seals is None else name in self._seals

    def read(self, name: str, largest: int = 1 << 62) -> bytes:
        """All bytes of a file."""
        path = self.path / name
        if self._seals is None:
            return read_bytes(path, range(largest + 1))
        require(name in self._seals, f"{path} is no file of the newest generation", CorruptError)
        require(os.path.lexists(path), f"{path} is missing; {SEAL_CURE}", CorruptError)
        data = read_bytes(path, range(largest + 1))
        return require_seal(data, self._seals[name], path)

    def table(self, name: str) -> dict[str, list[Any]]:
        """The columns of a table."""
        return parse_table(self.read(name), self.path / name)

    def json(self, name: str, largest: int) -> Any:
        """The value in a JSON file of at most so many bytes."""
        return parse_json(self.read(name, largest), self.path / name)

    def fits(self, name: str, data: bytes) -> bool:
        """Whether these are the bytes that a file must have."""
        return self.seal(name) == sha256(data)

    def check(self, name: str) -> None:
        """CorruptError unless the file is there as it was written; it is read piece by piece."""
        path, known = self.path / name, self.seal(name)
        require(path.is_file() and not path.is_symlink(), f"{path} is missing", CorruptError)
        require(known is None or hash_file(path) == known, f"{path}: sha256 differs; {SEAL_CURE}", CorruptError)

    def seal(self, name: str) -> str | None:
        """The hash that a file must have; None where none is known."""
        return None if self._seals is None or name not in self._seals else str(self._seals[name]["sha256"])


def sealed_json(value: Mapping[str, Any]) -> bytes:
    """A JSON object that vouches for itself: for what is written after the last generation."""
    return encode_sealed({"version": installed_version(), **value})


def read_sealed_json(path: Path, largest: int) -> dict[str, Any]:
    """The inverse; CorruptError when a byte is another one."""
    return dict(read_sealed(path, largest + 1))
