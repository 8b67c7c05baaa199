"""A run with label maps that is stopped, killed or hit by a full disk ends as if nothing had happened."""

from __future__ import annotations

import errno
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_tables import ENVIRONMENT, PROGRAM, embasis
from embasis import storage
from embasis.engine import labels
from embasis.engine import round as round_module
from embasis.runs import run as folder
from embasis.storage import RunFolder, atomic, read_newest
from embasis.storage.label_map_folder import LabelMapFolder
from embasis.storage.label_store import DiskLabelStore
from folder_runs import digests
from map_folder_runs import command, fitted, sides
from signal_runs import interrupt_and_go_on

OFTEN, SELDOM = "save_seconds=0", "save_seconds=1000"


pytestmark = pytest.mark.usefixtures("fast_runs", "usual_signals")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sides(tmp_path_factory.mktemp("signals"))


@pytest.fixture(scope="module")
def undisturbed(home: Path) -> Callable[..., dict[str, str]]:
    """What an undisturbed run leaves; how often it saves is in its settings, and nowhere else."""
    found: dict[tuple[str, ...], dict[str, str]] = {}

    def of(*words: str) -> dict[str, str]:
        if words not in found:
            found[words] = artefacts(fitted(home, home / f"undisturbed {len(found)}", *words))
        return found[words]

    return of


def artefacts(run: Path) -> dict[str, str]:
    """All that must be alike; error.json tells of the failure that there was."""
    return {name: value for name, value in digests(run).items() if name != "error.json"}


def goes_on(home: Path, run: Path, *words: str) -> dict[str, str]:
    return artefacts(fitted(home, run, *words))


def test_all_artefacts_are_compared(undisturbed: Any) -> None:
    names = undisturbed(SELDOM).keys()
    kinds = ("labels", "confidence", "variance", "trusted")
    maps = {f"labels/round-00{number}/{kind}/4 ü.png" for number in range(3) for kind in kinds}
    tables = {f"labels/round-00{number}/maps.{end}" for number in range(3) for end in ("json", "parquet")}
    assert (
        maps
        | tables
        | {f"gallery/round-002/{name}" for name in ("index.json", "00-picture.png")}
        | {"rounds.jsonl", "facts"}
        <= names
    )
    assert {"sites/round-002/000000.shard", "sites/round-002/grids.bin", "sites/round-002/index.json"} <= names


# --- signals


@pytest.mark.parametrize(
    ("number", "code", "at", "where"),
    [
        (signal.SIGINT, 130, 1, "round 0 epoch 0 step 1"),
        (signal.SIGINT, 130, 5, "round 1 epoch 0 step 1"),
        (signal.SIGTERM, 143, 11, "round 2 epoch 1 step 1"),
    ],
)
def test_a_signal_in_any_round_ends_bit_identical(
    home: Path, tmp_path: Path, undisturbed: Any, number: int, code: int, at: int, where: str
) -> None:
    run = tmp_path / "run"
    interrupt_and_go_on(command(home, run, SELDOM), run, number, at, code, where)
    assert artefacts(run) == undisturbed(SELDOM)


@pytest.mark.parametrize(("at", "round_"), [(1, 0), (3, 2)])
def test_a_signal_while_labels_are_written_ends_bit_identical(
    home: Path, tmp_path: Path, undisturbed: Any, at: int, round_: int
) -> None:
    run, whole, seen = tmp_path / "run", labels.label_maps, list[int]()

    def label_maps(*arguments: Any) -> Iterator[Any]:
        seen.append(1)
        for part in whole(*arguments):
            if len(seen) == at and part.row == 5:
                signal.raise_signal(signal.SIGINT)
            yield part

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labels, "label_maps", label_maps)
        result = embasis(*command(home, run, SELDOM))
    assert result.exit_code == 130
    assert f"saved round {round_ + 1} epoch 0 step 0 in {run}" in result.stderr
    assert goes_on(home, run, SELDOM) == undisturbed(SELDOM)


# --- crashes between two writes: the labels of the round before are needed to go on


class Crash(BaseException):
    """The process is gone."""


def crash_before(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, at: int) -> None:
    """End the process as the call of that number begins."""
    whole, seen = getattr(owner, name), list[int]()

    def call(*arguments: Any, **more: Any) -> Any:
        seen.append(1)
        if len(seen) == at:
            raise Crash
        return whole(*arguments, **more)

    monkeypatch.setattr(owner, name, call)


PLACES = {
    "the shelf is not begun": (DiskLabelStore, "write", 3),
    "the shelf is written": (round_module, "summarise_labels", 3),
    "older shelves are forgotten": (DiskLabelStore, "keep", 3),
    "nothing of the round is written": (folder.TrainingRun, "_write_round", 3),
    "some maps are written": (LabelMapFolder, "write_encoded", 12 * 2 + 5),
    "the table of maps is not written": (LabelMapFolder, "write_table", 3),
    "the gallery is not written": (folder, "map_gallery_files", 3),
    "all is written": (folder.TrainingRun, "save", 15),
    "the generation is not named": (RunFolder, "_rotate", 15),
}


QUICK = ("the shelf is written", "nothing of the round is written", "some maps are written", "all is written")


@pytest.mark.parametrize(
    "place", [pytest.param(place, marks=() if place in QUICK else pytest.mark.slow) for place in PLACES]
)
def test_a_crash_at_the_end_of_a_round_loses_no_labels_of_the_round_before(
    home: Path, tmp_path: Path, undisturbed: Any, place: str
) -> None:
    run, (owner, name, at) = tmp_path / "run", PLACES[place]
    with pytest.MonkeyPatch.context() as patch:
        crash_before(patch, owner, name, at)
        with pytest.raises(Crash):
            fitted(home, run, OFTEN)
    assert read_newest(run).facts["progress"]["round"] in (2, 3)
    assert goes_on(home, run, OFTEN) == undisturbed(OFTEN)


def test_a_damaged_newest_generation_leaves_the_labels_that_the_one_before_needs(
    home: Path, tmp_path: Path, undisturbed: Any
) -> None:
    run = fitted(home, tmp_path / "run", OFTEN)
    last = sorted((run / "generations").iterdir())[-1] / "tensors.safetensors"
    data = bytearray(last.read_bytes())
    data[-1] ^= 1
    last.write_bytes(data)
    assert goes_on(home, run, OFTEN) == undisturbed(OFTEN)


class Small(storage.Disk):
    """A disk that is full after so many writes."""

    calls, most = 0, 1 << 60

    def write(self, *arguments: Any) -> Any:  # type: ignore[override]
        Small.calls += 1
        if Small.calls > Small.most:
            raise OSError(errno.ENOSPC, "No space left on device")
        return storage.Disk.write(*arguments)


def test_a_full_disk_is_one_sentence_and_the_same_command_goes_on(home: Path, tmp_path: Path, undisturbed: Any) -> None:
    run, expected = tmp_path / "run", undisturbed(SELDOM)
    for most in (3, 40, 60, 100):  # of 180 or so: each start gets a little further
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(atomic, "disk", Small())
            Small.calls, Small.most = 0, most
            result = embasis(*command(home, run, SELDOM))
        assert result.exit_code == 5, result.output
        assert "No space left on device; " in result.stderr
        assert len(result.stderr.splitlines()) == 1
    assert goes_on(home, run, SELDOM) == expected


# --- kill -9


def killed(words: tuple[str, ...], seconds: float) -> bool:
    """Whether the command was killed, after so many seconds from its first words on, before it ended."""
    with subprocess.Popen(
        [*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(seconds)
        if process.poll() is not None:
            return False
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        return True


@pytest.mark.slow
def test_a_run_that_is_killed_at_random_instants_ends_bit_identical(
    home: Path, tmp_path: Path, undisturbed: Any
) -> None:
    run, draw = tmp_path / "run", random.Random(4)
    kills = sum(killed(command(home, run, OFTEN, "maps.workers=1"), draw.uniform(0, 1.5)) for _ in range(12))
    assert kills > 3
    assert goes_on(home, run, OFTEN) == undisturbed(OFTEN)
