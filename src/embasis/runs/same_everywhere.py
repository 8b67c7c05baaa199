"""What the processes of one command must have in common, compared before the first of them computes anything.

A process that has other settings, data or versions than the first one would compute parts of another result.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch

from embasis.distributed import World, current_world
from embasis.errors import ConfigError, InputDataError, require
from embasis.runs.checkpoint import PACKAGES, describe_environment, package_version, read_run
from embasis.storage.checkpoints import Generation


def compare_facts(settings: str, data: Mapping[str, str]) -> None:
    """An error of all processes where one of them has other settings, data or versions than the first; `data` are
    hashes by what they are called in sentences."""
    world = current_world()
    if world.size == 1:
        return
    own = [hash_text(settings), data, describe_versions()]
    each = [json.loads(text) for text in world.collect_texts(json.dumps(own))]
    for rank, (words, hashes, versions) in enumerate(each):
        name = name_process(world, rank)
        other = f"{name} has other settings than rank 0"
        require(words == each[0][0], f"{other}; start all with the same command", ConfigError)
        other = f"{name} runs other versions than rank 0 ({describe_difference(each[0][2], versions)})"
        require(versions == each[0][2], f"{other}; install the same on every host", ConfigError)
        sides = ", ".join(side for side in sorted({*hashes, *each[0][1]}) if hashes.get(side) != each[0][1].get(side))
        other = f"{name} reads other data than rank 0: {sides}"
        require(hashes == each[0][1], f"{other}; all must read the same files", InputDataError)


def read_same_run(run: str, number: int | None) -> Generation:
    """A generation of a run folder, the same for all processes: that which the first one finds."""
    world = current_world()
    stored = read_run(run, number) if world.is_first else None
    found = world.collect_texts("" if stored is None else str(stored.number))[0]
    return read_run(run, int(found)) if stored is None else stored


def hash_text(text: str) -> str:
    """What is compared of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def hash_generation(stored: Generation) -> str:
    """What is compared of a state of a run: all of its tensors, and its facts."""
    digest = hashlib.sha256(json.dumps(stored.facts, sort_keys=True).encode())
    for name in sorted(stored.tensors):
        value = stored.tensors[name].contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def describe_versions() -> dict[str, str]:
    """The versions of what results depend on, and the hash of the code that runs."""
    versions = {name: str(package_version(name)) for name in PACKAGES}
    return {**versions, "python": str(describe_environment(0)["python"]), "sources": hash_sources()}


def hash_sources() -> str:
    """The hash of the code that runs."""
    package = Path(__file__).resolve().parents[1]
    total = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        total.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return total.hexdigest()[:16]


def describe_difference(first: Mapping[str, str], other: Mapping[str, str]) -> str:
    """The packages whose versions differ."""
    names = [name for name in first if first[name] != other.get(name)]
    return ", ".join(f"{name} {other.get(name)} instead of {first[name]}" for name in names)


def name_process(world: World, rank: int) -> str:
    """A process for a sentence."""
    return f"rank {rank}" if world.peers is None else world.peers.name(rank)
