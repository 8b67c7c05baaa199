"""Generations as they lie on the disk: manifest and HEAD, both sealed, and reading that believes neither."""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embasis.errors import CorruptError, EmbasisWarning, IncompatibleError, UntrustedError, quoted, require
from embasis.storage.atomic import encode_json, parse_json, read_bytes

if TYPE_CHECKING:
    from torch import Tensor

CHECKPOINT_SCHEMA = 1
UNKNOWN_VERSION = "0+unknown"
TENSORS, FACTS, MANIFEST = "tensors.safetensors", "facts.json", "manifest.json"
LARGEST_MANIFEST = 1 << 26


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


def read_sealed(path: Path, most: int = 1 << 20) -> Any:
    """The object in a sealed file of less than `most` bytes, without its seal."""
    value = parse_json(data := read_bytes(path, range(most)), path)
    whole = isinstance(value, dict) and value.pop("seal", None) and encode_sealed(value) == data
    require(whole, f"{path}: the seal is broken", CorruptError)
    return value


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
    parent = folder / "generations"
    require(not parent.is_symlink(), f"{parent} is a symbolic link; links are not followed", UntrustedError)
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


def installed_version() -> str:
    """The version of embasis; a copy that was never installed has none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("embasis") or UNKNOWN_VERSION
    except PackageNotFoundError:
        return UNKNOWN_VERSION


def load_generation(folder: Path, number: int) -> Generation:
    """A generation whose every byte is the published one; anything else is refused before it is interpreted."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    home = generation_folder(folder, number)
    require(not home.is_symlink(), f"{home} is a symbolic link; links are not followed", UntrustedError)
    manifest = read_sealed(home / MANIFEST, LARGEST_MANIFEST)
    schema, files, named = manifest.get("schema"), manifest.get("files"), manifest.get("generation")
    if type(schema) is int and schema > CHECKPOINT_SCHEMA:
        writer = f"generation {number} was written by embasis {manifest.get('version')} (schema {schema})"
        raise IncompatibleError(f"{writer}, this is {installed_version()} (schema up to {CHECKPOINT_SCHEMA})")
    require(type(schema) is int and type(files) is dict, f"{home / MANIFEST} is malformed", CorruptError)
    require(named == number, f"{home / MANIFEST} belongs to generation {named}", CorruptError)
    sealed = manifest.get("sealed")
    known = sealed is None or (type(sealed) is dict and all(map(is_seal, sealed.values())))
    require(known, f"{home / MANIFEST} is malformed", CorruptError)
    data = {}
    for name, entry in files.items():
        require(re.fullmatch(r"\w[\w.-]*", name), f"path escapes run folder: {quoted(name)}", UntrustedError)
        size: Any = entry.get("bytes") if type(entry) is dict else None
        require(type(size) is int and name in (TENSORS, FACTS), f"{home / MANIFEST} is malformed", CorruptError)
        data[name] = read_bytes(home / name, range(size, size + 1))
        require(sha256(data[name]) == entry.get("sha256"), f"{home / name}: sha256 differs", CorruptError)
    require(len(data) == 2, f"{home / MANIFEST} is malformed", CorruptError)
    try:
        tensors = dict(sorted(load(data[TENSORS]).items()))
    except (SafetensorError, ValueError, LookupError, TypeError, RuntimeError) as error:
        raise CorruptError(f"{home / TENSORS}: {error}") from error
    facts = parse_json(data[FACTS], home / FACTS)
    count = manifest.get("tensors")
    require(len(tensors) == count, f"{home / TENSORS}: {len(tensors)} of {count} tensors", CorruptError)
    require(isinstance(facts, dict), f"{home / FACTS}: not a JSON object", CorruptError)
    return Generation(number, tensors, facts, sealed)


def find_newest(folder: Path) -> Generation | None:
    """The newest whole generation, with a warning if a newer one is damaged; None before the first."""
    while True:
        head, numbers = read_head(folder), list_generations(folder)
        if head == 0 or not (numbers or os.path.lexists(folder / "HEAD")):
            return None
        found, problems = None, [] if head else [f"{folder / 'HEAD'} is missing or damaged"]
        for number in sorted({head} | {n for n in numbers if n < head} if head else numbers, reverse=True):
            try:
                found = load_generation(folder, number)
                break
            except CorruptError as error:
                problems.append(str(error))
        if problems and read_head(folder) != head:
            continue  # a publish came between and rotated what we were reading
        if found is None:
            raise CorruptError(f"{folder} holds no whole generation: {'; '.join(problems)}")
        if problems:
            message = f"{'; '.join(problems)}; generation {found.number} is used"
            warnings.warn(message, EmbasisWarning, stacklevel=3)
        return found


def read_newest(path: Path | str) -> Generation:
    """The newest whole generation, for readers without the lock; a publish at the same time does no harm."""
    found = find_newest(Path(path))
    if found is None:
        raise CorruptError(f"{path} holds no finished generation; is it a run folder?")
    return found


def read_generation(path: Path | str, number: int) -> Generation:
    """That generation and no other: a damaged one is refused."""
    there = list_generations(Path(path))
    found = ", ".join(map(str, there)) or "none"
    require(number in there, f"{path} has no generation {number}; there are: {found}", CorruptError)
    return load_generation(Path(path), number)
