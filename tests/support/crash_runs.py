"""Crash, restart, crash again: owners of a run folder that are killed at their N-th call, and then power fails.

A kill leaves what was written in the memory of the system: it is seen by the next owner, and yet is not safe from a
power loss until somebody syncs it. So the calls of all owners of a folder are one recording (`power.py`), from which
each disk is made that there can be when power fails at any instant after the first kill.
"""

from __future__ import annotations

import os
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from embasis.storage import RunFolder, atomic, read_newest, run_folder
from power import Call, Recorder, plant, states
from storage_runs import state, temps

Look = Callable[[Path, int, bool], str]
OFTEN = 50
"""Of so many disks one is also published to again."""


class Killed(BaseException):
    """As after `kill -9`: nothing more is done to the disk, whoever tries to clean up."""


@dataclass
class Mortal(Recorder):
    """A recorder whose process dies as it begins a call."""

    left: int = -1
    """Calls until then; negative: it does not die."""
    dead: bool = False

    def __post_init__(self) -> None:
        for name in ("open", "write", "truncate", "fsync", "rename", "replace", "mkdir", "unlink", "rmdir"):
            setattr(self, name, self._counted(getattr(self, name)))

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self.dead = self.dead or self.left == 0
            if self.dead:
                raise Killed
            self.left -= 1
            return call(*arguments)

        return counted

    def take_up(self) -> None:
        """What is in the folder already came through a power loss, so it is safe."""
        for top, names, plain in os.walk(self.root):
            for name in names:
                self._made(Path(top, name), folder=True)
            for name in plain:
                node = self._made(path := Path(top, name), folder=False)
                self.calls.append(Call("data", node, other=path.read_bytes()))
        self.calls += [Call("sync", node) for node in (0, *self._names.values())]


def own(recorder: Mortal, left: int = -1) -> bool:
    """A process that takes the folder and publishes once; whether it lived."""
    recorder.left, recorder.dead, run = left, False, RunFolder(recorder.root)
    try:
        with run:
            found = run.newest()
            number = 1 + (found.number if found else 0)
            recorder.done(run.publish(state(number), {"value": number}))
            assert run.taken_over is None or run.taken_over == os.getpid()
        return True
    except Killed:
        if run._lock is not None:  # the system closes it when a process dies
            run_folder._held.discard(run)
            os.close(run._lock)
        return False


def lives(recorder: Mortal) -> str:
    """What is wrong when the next owner does its work undisturbed; '' if nothing is."""
    before = newest_in(recorder.root)
    whole = own(recorder) and newest_in(recorder.root) == before + 1 and not temps(recorder.root)
    return "" if whole else f"the owner after a kill left {sorted(os.listdir(recorder.root / 'generations'))}"


def newest_in(root: Path) -> int:
    return read_newest(root).number


def begin(recorder: Mortal) -> None:
    """Two generations, so that the next publish deletes one."""
    assert own(recorder)
    assert own(recorder)


def kill_points(home: Path) -> int:
    """How many calls there are in a publish of an owner who opens the folder and leaves it."""
    with recording(home / "counted") as recorder:
        begin(recorder)
        assert own(recorder, 10**6)
        return 10**6 - recorder.left


class recording:  # noqa: N801 — used as a statement
    """A new folder at `root`, or the disk that is there, whose every call is recorded; removed afterwards."""

    def __init__(self, root: Path, blind: tuple[str, ...] = ()) -> None:
        self.recorder, self.patch = Mortal(root, blind), pytest.MonkeyPatch()

    def __enter__(self) -> Mortal:
        if not self.recorder.root.exists():
            self.recorder.root.mkdir()
        self.recorder.take_up()
        self.patch.setattr(atomic, "disk", self.recorder)
        return self.recorder

    def __exit__(self, *_: object) -> None:
        self.patch.undo()
        shutil.rmtree(self.recorder.root)


def crash_twice(home: Path, first: int, second: int, look: Look, blind: tuple[str, ...] = ()) -> Iterator[str]:
    """Killed at those calls of two owners, a third one lives, then power fails at any instant since the first kill."""
    with recording(home / "run", blind) as recorder:
        begin(recorder)
        own(recorder, first)
        since = len(recorder.calls)
        own(recorder, second)
        yield lives(recorder)
    yield from after_power_loss(recorder, home, since, 0, look)


def power_then_kill(home: Path, draw: random.Random, points: int, look: Look) -> Iterator[str]:
    """Power fails within a publish; the next owner of that disk is killed, another one lives, and power fails again."""
    with recording(home / "run") as recorder:
        begin(recorder)
        own(recorder, draw.randrange(points))
    promised, tree = draw.choice(list(states(recorder, start=len(recorder.calls))))
    with recording(plant(home / "run", tree)) as again:
        since = len(again.calls)
        own(again, draw.randrange(points))
        yield lives(again)
    yield from after_power_loss(again, home, since, promised, look)


def after_power_loss(recorder: Mortal, home: Path, since: int, promised: int, look: Look) -> Iterator[str]:
    """What is wrong with each disk; '' if nothing is.

    A reader sees no temporary file: disks that differ in those alone are one, but of all OFTEN-th ones, which somebody
    cleans."""
    seen = set[tuple[int, frozenset[tuple[str, bytes | None]]]]()
    for count, (number, tree) in enumerate(states(recorder, start=since, promised=promised)):
        key = (number, frozenset(item for item in tree.items() if "tmp" not in item[0] and item[0] != "lock"))
        if key in seen and count % OFTEN:
            yield ""
            continue
        seen.add(key)
        path = plant(home / "disk", tree)
        yield look(path, number, count % OFTEN == 0)
        shutil.rmtree(path)


def crashes(home: Path, kills: int, losses: int, look: Look, seed: int = 0) -> Iterator[str]:
    """So many sequences that begin with a kill, at all calls of a publish if there are enough, or with a power loss."""
    draw, points = random.Random(seed), kill_points(home)
    first = draw.sample(range(points), points)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(kills):
            yield from crash_twice(home, first[number % points], draw.randrange(points + 5), look)
        for _ in range(losses):
            yield from power_then_kill(home, draw, points, look)
