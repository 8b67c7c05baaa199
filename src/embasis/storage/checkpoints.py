"""Checkpoints as they lie on the disk: generations, and the files that a run hands out, each known by its seal.

A seal is the size and the sha256 of a file, or the sha256 within a JSON file of its own content; manifest and HEAD are
sealed so, and reading believes neither. A file that a run hands out is written, then the generation that names it is
published. Its name holds the number of its round, so no file that an earlier generation names is written over by other
bytes: a reader without the lock may trust both.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embasis.errors import CorruptError, EmbasisWarning, IncompatibleError, UntrustedError, quote, require
from embasis.storage.atomic import encode_json, hash_file, parse_json, parse_stored_table, read_bytes, refuse_link

if TYPE_CHECKING:
    from torch import Tensor

CHECKPOINT_SCHEMA = 1
UNKNOWN_VERSION = "0+unknown"
TENSORS, FACTS, MANIFEST = "tensors.safetensors", "facts.json", "manifest.json"
LARGEST_MANIFEST = 1 << 26
SITES_FOLDER = "sites"
"""The folder of a run's label stores (label_store.py)."""
SEALED_PATHS = ("labels", "basis", "gallery", "rows", "sites", "backbone.safetensors")
"""What a run seals beside its generations: these files, and all below these folders. Every other file of a run can be
written again from the facts of its generation, and is never read."""
SEAL_CURE = "the fit command that made the run makes it again if it can"


@dataclass(frozen=True, eq=False)
class Generation:
    """One published state of a run: named tensors and plain facts."""

    number: int
    tensors: dict[str, Tensor]
    facts: dict[str, Any]
    sealed: dict[str, Any] | None = None
    """Name → bytes and sha256 of each file that the run had handed out; None in generations of 0.1.0."""


def sha256(data: bytes) -> str:
    """The hash that manifests and seals hold, in hex."""
    return hashlib.sha256(data).hexdigest()


def encode_sealed(value: Mapping[str, object]) -> bytes:
    """A JSON object with the hash of its own content."""
    return encode_json({**value, "seal": sha256(encode_json(value, "seal"))}, "seal")


def parse_sealed(data: bytes, path: Path) -> dict[str, Any]:
    """The object in the bytes of a sealed file, without its seal."""
    value = parse_json(data, path)
    whole = isinstance(value, dict) and value.pop("seal", None) and encode_sealed(value) == data
    require(whole, f"{path}: the seal is broken", CorruptError)
    return dict(value)


def read_sealed(path: Path, most: int = 1 << 20) -> dict[str, Any]:
    """The object in a sealed file of less than `most` bytes, without its seal."""
    return parse_sealed(read_bytes(path, range(most)), path)


def make_seal(data: bytes) -> dict[str, Any]:
    """Size and hash, by which a manifest knows a file."""
    return {"bytes": len(data), "sha256": sha256(data)}


def require_seal(data: bytes, seal: Mapping[str, Any], path: Path) -> bytes:
    """The bytes, if they are those that were sealed."""
    size = seal.get("bytes")
    require(len(data) == size, f"{path}: {len(data):,} of {size:,} bytes; {SEAL_CURE}", CorruptError)
    require(sha256(data) == seal.get("sha256"), f"{path}: sha256 differs; {SEAL_CURE}", CorruptError)
    return data


def is_seal(entry: object) -> bool:
    """Whether this is the size and hash of a file."""
    if type(entry) is not dict or {*entry} != {"bytes", "sha256"}:
        return False
    return type(entry["bytes"]) is int and entry["bytes"] >= 0 and type(entry["sha256"]) is str


def generation_folder(folder: Path, number: int) -> Path:
    """The folder of a generation."""
    return folder / "generations" / f"{number:06d}"


def list_generations(folder: Path) -> list[int]:
    """Generations by name, whole or not, oldest first."""
    refuse_link(parent := folder / "generations")
    names = [name for name in (os.listdir(parent) if parent.is_dir() else ()) if re.fullmatch("[0-9]{6,}", name)]
    return sorted(int(name) for name in names if name == f"{int(name):06d}")


def read_head(folder: Path) -> int | None:
    """The number in HEAD; None if it is missing or damaged."""
    try:
        number = read_sealed(folder / "HEAD").get("generation")
    except CorruptError:
        return None
    return number if type(number) is int and number >= 0 else None


def is_checkpoint_part(path: Path) -> bool:
    """A file, or a folder with nothing in it that a publish did not put there: what we may delete."""
    if path.is_symlink() or not path.is_dir():
        return path.is_file() and not path.is_symlink()
    return {*os.listdir(path)} <= {TENSORS, FACTS, MANIFEST}


def is_label_store(path: Path) -> bool:
    """A folder with nothing in it but what a label store (label_store.py) put there: what we may delete."""
    own = re.compile(r"index\.json|grids\.bin|[0-9]{6}\.shard")
    return path.is_dir() and not path.is_symlink() and all(map(own.fullmatch, os.listdir(path)))


def installed_version() -> str:
    """The version of embasis; a copy that was never installed has none."""
    try:
        return importlib.metadata.version("embasis") or UNKNOWN_VERSION
    except importlib.metadata.PackageNotFoundError:
        return UNKNOWN_VERSION


def refuse_newer(schema: object, newest: int, writer: str, source: str) -> None:
    """Refuse what a later release wrote in a form that this one does not know."""
    if type(schema) is int and schema > newest:
        written = f"{source} was written by embasis {writer} (schema {schema})"
        raise IncompatibleError(f"{written}, this is {installed_version()} (schema up to {newest})")


def load_generation(folder: Path, number: int) -> Generation:
    """A generation whose every byte is the published one; anything else is refused before it is interpreted."""
    import safetensors.torch

    home = generation_folder(folder, number)
    refuse_link(home)
    manifest = _read_manifest(home, number)
    data = _read_contents(home, manifest["files"])
    try:
        tensors = dict(sorted(safetensors.torch.load(data[TENSORS]).items()))
    except (safetensors.SafetensorError, ValueError, LookupError, TypeError, RuntimeError) as error:
        raise CorruptError(f"{home / TENSORS}: {error}") from error
    facts = parse_json(data[FACTS], home / FACTS)
    count = manifest.get("tensors")
    require(len(tensors) == count, f"{home / TENSORS}: {len(tensors)} of {count} tensors", CorruptError)
    require(isinstance(facts, dict), f"{home / FACTS}: not a JSON object", CorruptError)
    return Generation(number, tensors, facts, manifest.get("sealed"))


def _read_manifest(home: Path, number: int) -> dict[str, Any]:
    """The manifest of a generation, as far as it can be believed without the files that it names."""
    path = home / MANIFEST
    manifest = read_sealed(path, LARGEST_MANIFEST)
    schema, named = manifest.get("schema"), manifest.get("generation")
    refuse_newer(schema, CHECKPOINT_SCHEMA, str(manifest.get("version")), f"generation {number}")
    require(type(schema) is int and type(manifest.get("files")) is dict, f"{path} is malformed", CorruptError)
    require(named == number, f"{path} belongs to generation {named}", CorruptError)
    seals = manifest.get("sealed")
    known = seals is None or (type(seals) is dict and all(map(is_seal, seals.values())))
    require(known, f"{path} is malformed", CorruptError)
    return manifest


def _read_contents(home: Path, files: Mapping[str, Any]) -> dict[str, bytes]:
    """The bytes of a generation's two files, if they are those that its manifest names."""
    malformed, data = f"{home / MANIFEST} is malformed", dict[str, bytes]()
    for name, seal in files.items():
        require(re.fullmatch(r"\w[\w.-]*", name), f"path escapes run folder: {quote(name)}", UntrustedError)
        size: Any = seal.get("bytes") if type(seal) is dict else None
        require(type(size) is int and name in (TENSORS, FACTS), malformed, CorruptError)
        data[name] = read_bytes(home / name, range(size, size + 1))
        require(sha256(data[name]) == seal.get("sha256"), f"{home / name}: sha256 differs", CorruptError)
    require(len(data) == 2, malformed, CorruptError)
    return data


def find_newest(folder: Path) -> Generation | None:
    """The newest whole generation, with a warning if a newer one is damaged; None before the first."""
    while True:
        head, numbers = read_head(folder), list_generations(folder)
        if head == 0 or not (numbers or os.path.lexists(folder / "HEAD")):
            return None
        problems = [] if head else [f"{folder / 'HEAD'} is missing or damaged"]
        newest = None
        for number in sorted({head} | {n for n in numbers if n < head} if head else numbers, reverse=True):
            try:
                newest = load_generation(folder, number)
                break
            except CorruptError as error:
                problems.append(str(error))
        if problems and read_head(folder) != head:
            continue  # a publish came between and rotated what we were reading
        if newest is None:
            raise CorruptError(f"{folder} holds no whole generation: {'; '.join(problems)}")
        if problems:
            message = f"{'; '.join(problems)}; generation {newest.number} is used"
            warnings.warn(message, EmbasisWarning, stacklevel=3)
        return newest


def read_newest(path: Path | str) -> Generation:
    """The newest whole generation, for readers without the lock; a publish at the same time does no harm."""
    newest = find_newest(Path(path))
    if newest is None:
        begun = (Path(path) / "HEAD").is_file()
        rule = "nothing of its run is saved yet; go on with embasis fit"
        raise CorruptError(f"{path}: {rule}" if begun else f"{path} holds no finished generation; is it a run folder?")
    return newest


def read_generation(path: Path | str, number: int) -> Generation:
    """That generation and no other: a damaged one is refused."""
    numbers = list_generations(Path(path))
    names = ", ".join(map(str, numbers)) or "none"
    require(number in numbers, f"{path} has no generation {number}; there are: {names}", CorruptError)
    return load_generation(Path(path), number)


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
        return parse_stored_table(self.read(name), self.path / name)

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
