"""Power loss, in pure Python: every call that changed the disk is recorded; what was not synced may be lost.

After a power loss a disk holds what was synced, and of the rest any part, in any order: a name without its content, the
second of two renames without the first, half of a write. `states` gives such disks for each instant of a recording.

| call | is safe from |
| --- | --- |
| write, truncate of a file | fsync of that file on |
| create, rename, delete of a name | fsync of its folder on |
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embasis.storage import Disk

ROOT = 0
ALL = 6
"""Up to so many calls that may be lost, every way of losing them is tried; of more, MOST ways."""
MOST = 40


@dataclass(frozen=True)
class Call:
    """kind: link (folder, name, node) · drop (folder, name) · move (folder, name, new name) · data (node, bytes) ·
    empty (node) · sync (node) · done (number of a publish that has returned)."""

    kind: str
    node: int
    name: str = ""
    other: Any = None


@dataclass
class Recorder(Disk):
    """Does what it is told, and writes it down; `root` is the folder that is watched, empty at the start."""

    root: Path
    blind: tuple[str, ...] = ()
    """Syncs that are forgotten: "file", "folder". The proof that the replay can find something."""
    calls: list[Call] = field(default_factory=list)
    _names: dict[tuple[int, str], int] = field(default_factory=dict)
    _folders: set[int] = field(default_factory=lambda: {ROOT})
    _open: dict[int, int] = field(default_factory=dict)
    _next: int = 1

    def _at(self, path: Path | str) -> tuple[int, str]:
        """Folder and name."""
        *parents, name = Path(path).relative_to(self.root).parts
        node = ROOT
        for part in parents:
            node = self._names[node, part]
        return node, name

    def _made(self, path: Path | str, folder: bool) -> int:
        place, node = self._at(path), self._next
        self._next += 1
        self._names[place] = node
        if folder:
            self._folders.add(node)
        self.calls.append(Call("link", place[0], place[1], node))
        return node

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:  # type: ignore[override]
        new = bool(flags & os.O_CREAT) and not os.path.lexists(path)
        handle = os.open(path, flags, mode)
        if Path(path) == self.root:
            self._open[handle] = ROOT
        elif Path(path).is_relative_to(self.root):
            self._open[handle] = self._made(path, folder=False) if new else self._names[self._at(path)]
        return handle

    def close(self, handle: int) -> None:  # type: ignore[override]
        self._open.pop(handle, None)
        os.close(handle)

    def write(self, handle: int, data: Any) -> int:  # type: ignore[override]
        written = os.write(handle, data)
        self.calls.append(Call("data", self._open[handle], other=bytes(data[:written])))
        return written

    def truncate(self, handle: int, length: int) -> None:  # type: ignore[override]
        os.ftruncate(handle, length)
        self.calls.append(Call("empty", self._open[handle]))

    def fsync(self, handle: int) -> None:  # type: ignore[override]
        node = self._open.get(handle)
        if node is not None and ("folder" if node in self._folders else "file") not in self.blind:
            self.calls.append(Call("sync", node))

    def rename(self, old: Any, new: Any) -> None:  # type: ignore[override]
        os.rename(old, new)
        (folder, name), (other, target) = self._at(old), self._at(new)
        assert folder == other, "a temp is a sibling of its target"
        self._names[folder, target] = self._names.pop((folder, name))
        self.calls.append(Call("move", folder, name, (target, self._names[folder, target])))

    replace = rename  # type: ignore[assignment]

    def mkdir(self, path: Any, mode: int = 0o777) -> None:  # type: ignore[override]
        os.mkdir(path, mode)
        if Path(path).is_relative_to(self.root) and Path(path) != self.root:
            self._made(path, folder=True)

    def unlink(self, path: Any) -> None:  # type: ignore[override]
        os.unlink(path)
        self._dropped(path)

    def rmdir(self, path: Any) -> None:  # type: ignore[override]
        os.rmdir(path)
        self._dropped(path)

    def _dropped(self, path: Any) -> None:
        place = self._at(path)
        del self._names[place]
        self.calls.append(Call("drop", *place))

    def done(self, number: int) -> None:
        """A publish has returned: from here on its generation must be there."""
        self.calls.append(Call("done", ROOT, other=number))


def pending(calls: list[Call]) -> list[int]:
    """Calls that may be lost."""
    synced: set[int] = set()
    found = []
    for at in range(len(calls) - 1, -1, -1):
        call = calls[at]
        if call.kind == "sync":
            synced.add(call.node)
        elif call.kind != "done" and call.node not in synced:
            found.append(at)
    return found[::-1]


def tree_after(calls: list[Call], folders: set[int], share: dict[int, float]) -> dict[str, bytes | None]:
    """The disk, path → bytes (None = a folder), if of each call this share came through; 1 where nothing is said."""
    names: dict[tuple[int, str], int] = {}
    data: dict[int, bytes] = {}
    for at, call in enumerate(calls):
        part = share.get(at, 1.0)
        if not part or call.kind in ("sync", "done"):
            continue
        if call.kind == "link":
            names[call.node, call.name] = call.other
        elif call.kind == "drop":
            names.pop((call.node, call.name), None)
        elif call.kind == "move":
            names.pop((call.node, call.name), None)
            names[call.node, call.other[0]] = call.other[1]
        elif call.kind == "empty":
            data[call.node] = b""
        else:
            data[call.node] = data.get(call.node, b"") + call.other[: int(part * len(call.other))]
    return dict(_below(ROOT, "", names, data, folders))


def _below(
    node: int, path: str, names: dict[tuple[int, str], int], data: dict[int, bytes], folders: set[int]
) -> Iterator[tuple[str, bytes | None]]:
    for (parent, name), child in names.items():
        if parent == node:
            where = f"{path}{name}"
            yield where, None if child in folders else data.get(child, b"")
            if child in folders:
                yield from _below(child, f"{where}/", names, data, folders)


def ways(lost: list[int], calls: list[Call], draw: random.Random) -> Iterator[dict[int, float]]:
    """What of the calls that may be lost comes through."""
    parts = [(0.0, 0.5, 1.0) if calls[at].kind == "data" else (0.0, 1.0) for at in lost]
    if len(lost) <= ALL:
        yield from (dict(zip(lost, chosen, strict=True)) for chosen in itertools.product(*parts))
        return
    yield dict.fromkeys(lost, 0.0)
    yield {}
    for at in lost:
        yield {**dict.fromkeys(lost, 1.0), at: 0.0}
        yield {**dict.fromkeys(lost, 0.0), at: 1.0}
    for _ in range(MOST):
        yield {at: draw.choice(part) for at, part in zip(lost, parts, strict=True)}


def states(
    recorder: Recorder, seed: int = 0, start: int = 0, promised: int = 0
) -> Iterator[tuple[int, dict[str, bytes | None]]]:
    """Every different disk after a power loss at any instant, with the last publish that had returned by then.

    `start`: at an instant after so many calls; `promised`: what had returned before the recording began."""
    seen, draw = set[Any](), random.Random(seed)
    for length in range(len(recorder.calls) + 1):
        calls = recorder.calls[:length]
        if calls and calls[-1].kind == "done":
            promised = calls[-1].other
        if length < start:
            continue
        for share in ways(pending(calls), calls, draw):
            tree = tree_after(calls, recorder._folders, share)
            if (key := (promised, frozenset(tree.items()))) not in seen:
                seen.add(key)
                yield promised, tree


def some_states(recorder: Recorder, count: int, seed: int) -> Iterator[dict[str, bytes | None]]:
    """So many disks after a power loss at random instants: of a long recording there are too many to try all."""
    draw = random.Random(seed)
    for _ in range(count):
        calls = recorder.calls[: draw.randint(0, len(recorder.calls))]
        shares = {at: draw.choice((0.0, 0.5, 1.0) if calls[at].kind == "data" else (0.0, 1.0)) for at in pending(calls)}
        yield tree_after(calls, recorder._folders, shares)


def plant(folder: Path, tree: dict[str, bytes | None]) -> Path:
    """A disk like that."""
    folder.mkdir(parents=True)
    for name, data in sorted(tree.items()):
        path = folder / name
        if data is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return folder
