"""Run folders and other processes: one owner, any number of readers, kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
import torch

from embasis import storage
from embasis.errors import RunLockedError
from embasis.storage import RunFolder, checkpoints, read_newest
from storage_runs import CALLS, do_not_wait, home, present, run_with, state, temps, tree


@pytest.fixture(autouse=True)
def fsync_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    do_not_wait(monkeypatch)


# Locks and readers

HOLD = """
import sys, time
from embasis.storage import RunFolder
with RunFolder(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_refused_until_the_first_is_dead(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"held\n"
        since = json.loads((tmp_path / "lock").read_bytes())["since"]
        before = tree(tmp_path)
        with pytest.raises(RunLockedError) as caught, RunFolder(tmp_path):
            pass
        assert str(caught.value) == (
            f"run folder {tmp_path} is locked by pid {owner.pid} since {since}; wait for it or choose another folder"
        )
        assert caught.value.exit_code == 7
        assert tree(tmp_path) == before
        owner.kill()
        owner.wait()
        with RunFolder(tmp_path) as run:
            assert run.taken_over == owner.pid
            assert run.publish(state(1), {}) == 1
    with RunFolder(tmp_path) as run:
        assert run.taken_over is None


FORK = """
import os, sys, time
from embasis.storage import RunFolder
with RunFolder(sys.argv[1]):
    worker = os.fork()
    if worker:
        time.sleep(60)
    print(os.getpid(), flush=True)
    time.sleep(60)
"""


def test_a_forked_worker_does_not_hold_the_lock_of_its_killed_parent(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", FORK, str(tmp_path)], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        worker = int(owner.stdout.readline())
        try:
            with pytest.raises(RunLockedError, match=f"is locked by pid {owner.pid} since "):
                RunFolder(tmp_path).__enter__()
            owner.kill()
            owner.wait()
            os.kill(worker, 0)  # it lives
            with RunFolder(tmp_path) as run:
                assert run.taken_over == owner.pid
        finally:
            os.kill(worker, signal.SIGKILL)


def test_a_run_folder_is_written_only_under_its_lock(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    with run:
        with pytest.raises(RunLockedError, match=f"is locked by pid {os.getpid()} since "):
            run.__enter__()
        run.publish(state(1), {})
    for act in (lambda: run.publish({}, {}), lambda: run.write_text("a", "b")):
        with pytest.raises(RunLockedError) as caught:
            act()
        assert str(caught.value) == (f"run folder {tmp_path} is not locked by this process; use it in a with statement")


def test_a_reader_during_publishes_sees_whole_generations(tmp_path: Path) -> None:
    run_with(tmp_path, 1)
    stop, seen = threading.Event(), []

    def publish() -> None:
        with RunFolder(tmp_path) as run:
            number = 2
            end = time.monotonic() + 1.5
            while time.monotonic() < end:
                run.publish({"w": torch.full((1000,), float(number))}, {"value": number})
                number += 1
        stop.set()

    writer = threading.Thread(target=publish)
    writer.start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        while not stop.is_set():
            found = read_newest(tmp_path)
            assert found.facts == {"value": found.number}
            assert found.number == 1 or found.tensors["w"].unique().tolist() == [found.number]
            seen.append(found.number)
    writer.join()
    assert seen == sorted(seen)
    assert len(set(seen)) > 10


def test_a_reader_begins_anew_when_its_generation_is_rotated_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_with(tmp_path, 1)
    load, calls = checkpoints.load_generation, []

    def overtaken(folder: Path, number: int) -> storage.Generation:
        calls.append(number)
        if len(calls) == 1:
            run_with(tmp_path, 2, 3)
        return load(folder, number)

    monkeypatch.setattr(checkpoints, "load_generation", overtaken)
    assert read_newest(tmp_path).number == 3
    assert not home(tmp_path, 1).exists()


# Kills

KILL = """
import os, signal, sys, torch
from embasis import storage
class Deadly(storage.Disk):
    pass
left = int(sys.argv[2])
def wrap(call):
    def deadly(*args):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args)
    return deadly
with storage.RunFolder(sys.argv[1]) as run:
    for name in sys.argv[3].split():
        setattr(Deadly, name, staticmethod(wrap(getattr(storage.Disk, name))))
    storage.atomic.disk = Deadly()
    run.publish({"w": torch.ones(2)}, {"value": 3})
"""


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_kill_9_at_any_call_of_a_publish_leaves_a_whole_generation(tmp_path: Path) -> None:
    """Forked, not started anew: a start of torch for each of the calls would take minutes."""
    for at in range(1, 200):
        path = run_with(tmp_path / f"{at}", 1, 2)
        child = os.fork()
        if child == 0:
            try:
                sys.argv = ["", str(path), str(at), " ".join(CALLS)]
                exec(KILL, {"__name__": "kill"})
                os._exit(0)
            finally:
                os._exit(1)
        status = os.waitpid(child, 0)[1]
        found = read_newest(path)
        assert found.facts == {"value": found.number}
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        with RunFolder(path) as run:
            assert run.taken_over == child
            assert run.ignored <= 2  # a generation and the HEAD that was to name it
            assert not temps(path)
            assert run.publish(state(4), {"value": 4}) == found.number + 1
        assert len(present(path)) == 2
    assert at > 25


# Races


def publish_often(path: Path, log: Path, times: int) -> None:
    """Publish so many times, whenever the lock is free; write down how often it was not, and each promised number."""
    numbers, refused = list[int](), 0
    while len(numbers) < times:
        try:
            with RunFolder(path) as run:
                numbers.append(run.publish({"w": torch.ones(2)}, {"owner": os.getpid()}))
        except RunLockedError:
            refused += 1
            time.sleep(0.0005)
    log.write_text(" ".join(map(str, [refused, *numbers])))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_of_two_processes_that_publish_at_the_same_time_each_number_has_one_owner(tmp_path: Path) -> None:
    path, children = run_with(tmp_path / "run", 1), dict[int, Path]()
    for name in ("a", "b"):
        if not (child := os.fork()):
            try:
                publish_often(path, tmp_path / name, 200)
                os._exit(0)
            finally:
                os._exit(1)
        children[child] = tmp_path / name
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
    owned = {child: [int(word) for word in log.read_text().split()] for child, log in children.items()}
    refused = [own.pop(0) for own in owned.values()]
    assert sum(refused) > 0, "they must have met"
    numbers = [number for own in owned.values() for number in own]
    assert sorted(numbers) == list(range(2, 402))
    newest = read_newest(path)
    assert newest.number == max(numbers)
    assert newest.number in owned[newest.facts["owner"]]
    assert len(present(path)) == 2
