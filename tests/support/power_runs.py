"""What tests share: what a disk holds after a power loss."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_tables import embasis
from embasis import storage
from embasis.errors import EmbasisError
from embasis.storage import RunFolder, atomic, read_newest
from folder_runs import digests
from kill_runs import TINY
from power import Recorder, plant, some_states, states
from storage_runs import state, temps


def recorded(root: Path, publishes: int = 3, blind: tuple[str, ...] = ()) -> Recorder:
    """Publishes, call by call."""
    root.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atomic, "disk", recorder := Recorder(root, blind))
        with RunFolder(root) as run:
            for value in range(1, publishes + 1):
                recorder.done(run.publish(state(value), {"value": value}))
    return recorder


def broken_promises(recorder: Recorder, folder: Path, often: int = 20) -> Iterator[str]:
    """What is wrong with each disk that there can be after a power loss; '' if nothing is."""
    for count, (promised, tree) in enumerate(states(recorder)):
        path = plant(folder / "disk", tree)
        yield looked_at(path, promised, go_on=count % often == 0)
        shutil.rmtree(path)


def looked_at(path: Path, promised: int, go_on: bool) -> str:
    """What is wrong, if anything."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if promised:
                found = read_newest(path)
                if found.number < promised or found.facts != {"value": found.number}:
                    return f"generation {promised} was promised, {found.number} is there"
            if go_on:
                with RunFolder(path) as run:
                    number = run.publish(state(9), {"value": 9})
                if temps(path) or read_newest(path).number != number:
                    return "the next publish is not clean"
    except (EmbasisError, Warning) as error:
        return str(error)
    return ""


def fit_states(tmp_path: Path, most: int, seed: int) -> tuple[int, int]:
    """A fit after a power loss at so many instants; how many there were, and how many ended alike."""
    root = tmp_path / "run"
    root.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("embasis.runs.run.run_page", lambda view: "page")
        patch.setattr(atomic, "disk", recorder := Recorder(root))
        assert embasis(*TINY, "-o", root).exit_code == 0
        patch.setattr(atomic, "disk", storage.Disk())
        patch.setattr(storage.Disk, "fsync", staticmethod(lambda handle: None))
        expected, alike = digests(root), 0
        for tree in some_states(recorder, most, seed):
            path = plant(tmp_path / "disk", tree)
            result = embasis(*TINY, "-o", path)
            alike += result.exit_code == 0 and digests(path) == expected
            shutil.rmtree(path)
    return most, alike
