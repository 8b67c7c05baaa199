"""Run folders for the tests of storage: made, looked at, and forged."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from embasis.storage import Disk, RunFolder

FILES = ("tensors.safetensors", "facts.json", "manifest.json")
CALLS = ("open", "close", "write", "fsync", "truncate", "rename", "replace", "mkdir", "rmdir", "unlink")


def do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of publishes would wait for the disk; that fsync is called at all is a test of its own."""
    monkeypatch.setattr(Disk, "fsync", staticmethod(lambda handle: None))


def make_runs_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting for the disk, and no page: drawing it takes longer than a small run."""
    do_not_wait(monkeypatch)
    monkeypatch.setattr(os, "sync", lambda: None)
    monkeypatch.setattr("embasis.runs.run.run_page", lambda view: "page")


class Faulty(Disk):
    """Fails from the N-th call on, once or for ever."""

    def __init__(self, at: int, code: int, forever: bool = False, kinds: tuple[str, ...] = CALLS) -> None:
        self.left, self.code, self.forever, self.fired = at, code, forever, False
        for name in kinds:
            setattr(self, name, self.wrap(name, getattr(Disk, name)))

    def wrap(self, name: str, call: Any) -> Any:
        def faulty(*args: Any) -> Any:
            self.left -= 1
            if self.left == 0 or (self.forever and self.left < 0):
                self.fired = True
                if name == "close":
                    call(*args)
                if self.code == 0:
                    return self.short(name, call, *args)
                raise OSError(self.code, os.strerror(self.code))
            return call(*args)

        return faulty

    def short(self, name: str, call: Any, *args: Any) -> Any:
        return call(args[0], args[1][: len(args[1]) // 2 + 1]) if name == "write" else call(*args)


def state(value: float) -> dict[str, torch.Tensor]:
    return {"network/weight": torch.full((3, 2), value), "count": torch.tensor(int(value))}


def run_with(path: Path, *values: float) -> Path:
    with RunFolder(path) as run:
        for value in values:
            run.publish(state(value), {"value": value})
    return path


def home(run: Path, number: int) -> Path:
    return run / "generations" / f"{number:06d}"


def present(run: Path) -> list[str]:
    return sorted(os.listdir(run / "generations"))


def temps(run: Path) -> list[Path]:
    return [path for path in run.rglob("*") if "tmp" in path.name]


def tree(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def sealed(value: dict[str, Any]) -> bytes:
    def dump(v: dict[str, Any]) -> bytes:
        return (json.dumps(v, sort_keys=True, indent=2) + "\n").encode()

    return dump({**value, "seal": hashlib.sha256(dump(value)).hexdigest()})


def forge(run: Path, number: int, **changes: Any) -> None:
    """A manifest that is sealed correctly and yet not ours."""
    path = home(run, number) / "manifest.json"
    value = json.loads(path.read_bytes())
    del value["seal"]
    path.write_bytes(sealed({**value, **changes}))


def forge_file(run: Path, number: int, name: str, data: bytes) -> None:
    """A file whose size and hash the manifest confirms."""
    (home(run, number) / name).write_bytes(data)
    files = json.loads((home(run, number) / "manifest.json").read_bytes())["files"]
    files[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    forge(run, number, files=files)
