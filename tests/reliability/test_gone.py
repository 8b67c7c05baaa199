"""A run folder that somebody deletes, moves or replaces under a fit: said in one sentence, and never made again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli_tables import embasis
from embasis.engine import train
from embasis.errors import ResourceError
from embasis.storage import Disk, RunFolder, atomic
from fault_runs import artefacts
from kill_runs import TINY
from map_folder_runs import command, sides
from storage_runs import CALLS, make_runs_fast, state

ROUNDS = (*TINY, "rounds=2")


def gone(path: Path | str) -> str:
    return (
        f"run folder {path} is gone: it or its lock was deleted, moved or replaced during the run; "
        "nothing is written at its old place; move it back and the same command goes on"
    )


class Thief(Disk):
    """Acts once, just before the N-th call to the disk of a run that has begun."""

    def __init__(self, at: int, path: Path, act: Callable[[], object]) -> None:
        self.left, self.begun, self.act, self.acted = at, path / "config.json", act, False
        for name in CALLS:
            setattr(self, name, self.wrap(getattr(Disk, name)))

    def wrap(self, call: Any) -> Any:
        def watched(*arguments: Any) -> Any:
            if not self.acted and self.begun.exists():
                self.left -= 1
                if self.left == 0:
                    self.acted = True
                    self.act()
            return call(*arguments)

        return watched


@pytest.mark.parametrize("kind", ["deleted", "moved"])
def test_a_folder_that_goes_at_any_call_to_the_disk_is_said_to_be_gone_and_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    make_runs_fast(monkeypatch)
    assert embasis(*ROUNDS, "-o", tmp_path / "usual").exit_code == 0
    calls = 0
    for at in range(1, 2000, 29):
        path, aside = tmp_path / f"run-{at}", tmp_path / f"aside-{at}"
        act = (
            (lambda path=path: shutil.rmtree(path)) if kind == "deleted" else (lambda a=path, b=aside: os.rename(a, b))
        )
        thief = Thief(at, path, act)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(atomic, "disk", thief)
            result = embasis(*ROUNDS, "-o", path)
        if not thief.acted:
            break
        calls += 1
        assert not path.exists(), at
        ended = "done: " in result.stdout  # it went as the last line was said
        assert (result.exit_code, result.stderr) == ((0, "") if ended else (5, f"embasis: {gone(path)}\n")), at
    assert calls > 5
    if kind == "moved":
        os.rename(tmp_path / "aside-59", tmp_path / "run-59")
        assert embasis(*ROUNDS, "-o", tmp_path / "run-59").exit_code == 0
        assert artefacts(tmp_path / "run-59") == artefacts(tmp_path / "usual")


def at_the_second_step(patch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do this while the run trains."""
    whole, steps = train.take_step, list[object]()

    def take_step(*arguments: Any) -> float:
        steps.append(arguments)
        if len(steps) == 2:
            act()
        return whole(*arguments)

    patch.setattr(train, "take_step", take_step)


@pytest.mark.parametrize("kind", ["another folder", "another run", "a file", "without its lock"])
def test_what_takes_the_place_of_a_run_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    make_runs_fast(monkeypatch)
    path = tmp_path / "run"

    def act() -> None:
        if kind == "without its lock":
            return (path / "lock").unlink()
        os.rename(path, tmp_path / "aside")
        if kind == "another folder":
            path.mkdir()
        elif kind == "another run":
            shutil.copytree(tmp_path / "aside", path)
        else:
            path.write_text("mine")
        return None

    at_the_second_step(monkeypatch, lambda: (act(), before.update(contents(path))))
    before: dict[str, bytes] = {}
    result = embasis(*ROUNDS, "source_epochs=3", "-o", path)
    assert (result.exit_code, result.stderr) == (5, f"embasis: {gone(path)}\n")
    assert contents(path) == before


def contents(path: Path) -> dict[str, bytes]:
    found = [path, *path.rglob("*")]
    return {str(file): file.read_bytes() for file in found if file.is_file()}


def test_a_run_with_label_maps_says_so_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_runs_fast(monkeypatch)
    sides(tmp_path)
    for at in range(1, 2000, 211):
        path = tmp_path / f"run-{at}"
        thief = Thief(at, path, lambda path=path: shutil.rmtree(path))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(atomic, "disk", thief)
            result = embasis(*command(tmp_path, path, "rounds=1", "epochs=1", "source_epochs=1"))
        if not thief.acted:
            break
        assert not path.exists(), at
        assert (result.exit_code, result.stderr) == (5, f"embasis: {gone(path)}\n"), at
    assert at > 300


def test_a_folder_that_is_there_is_asked_by_two_calls_and_one_that_is_not_raises(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run") as folder:
        folder.publish(state(1), {})
        os.rename(tmp_path / "run", tmp_path / "moved")
        for write in (lambda: folder.publish(state(2), {}), lambda: folder.write_text("labels/x", "y")):
            with pytest.raises(ResourceError) as raised:
                write()
            assert str(raised.value) == gone(tmp_path / "run")
        folder.log("nothing fails for want of a log")
        os.rename(tmp_path / "moved", tmp_path / "run")
        assert folder.publish(state(2), {}) == 2
    assert not (tmp_path / "moved").exists()
