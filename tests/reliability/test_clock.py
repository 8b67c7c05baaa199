"""A clock that is set back, while a run goes on or between two: nothing is measured by it or depends on it."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime
from pathlib import Path

import pytest
import torch

from cli_tables import embasis
from embasis.storage import read_newest
from folder_runs import digests
from forked import Zygote
from kill_runs import TINY

LONG = (*TINY, "rounds=2", "source_epochs=3", "save_seconds=0")
BACKWARDS = """
import os, sys, time
import datetime as times
from embasis.storage import run_folder
year, stop = int(words.pop()), int(words.pop())
now = times.datetime(year, 1, 1, tzinfo=times.UTC)
class Clock(times.datetime):
    @classmethod
    def now(cls, zone=None):  # an hour earlier whenever somebody looks
        global now
        now -= times.timedelta(hours=1)
        return now
run_folder.datetime = Clock
time.time = lambda: Clock.now().timestamp()
time.time_ns = lambda: int(1e9 * time.time())
time.localtime = lambda seconds=None: time.gmtime(time.time() if seconds is None else seconds)
from embasis.engine import train
whole, steps = train.take_step, []
def take_step(*arguments):
    steps.append(1)
    if len(steps) == stop:
        os._exit(9)
    return whole(*arguments)
train.take_step = take_step
sys.argv = ["embasis", *words]
from embasis.__main__ import main
main()
"""
"""The command with a clock that runs backwards from a year on; it dies at the step of that number."""


def stamps(path: Path) -> list[datetime]:
    return [datetime.fromisoformat(line.split(" ")[0]) for line in (path / "log.txt").read_text().splitlines()]


def seconds(path: Path) -> list[float]:
    lines = [json.loads(line) for line in (path / "timings.jsonl").read_text().splitlines()]
    return [row["seconds"] for row in [*lines, *read_newest(path).facts["timings"]]]


def test_a_clock_that_runs_backwards_changes_no_byte_and_no_duration(tmp_path: Path, zygote: Zygote) -> None:
    assert zygote.run(tmp_path / "log", *LONG, "-o", tmp_path / "usual").code == 0
    run = tmp_path / "run"
    assert zygote.run(tmp_path / "log", *LONG, "-o", run, 0, 2026, code=BACKWARDS).code == 0
    assert digests(run) == digests(tmp_path / "usual")
    assert min(seconds(run)) >= 0
    assert stamps(run) == sorted(stamps(run))


@pytest.mark.parametrize("later", [2001, 1971])
def test_a_run_goes_on_with_files_of_the_future(tmp_path: Path, zygote: Zygote, later: int) -> None:
    assert zygote.run(tmp_path / "log", *LONG, "-o", tmp_path / "usual").code == 0
    run = tmp_path / "run"
    assert zygote.run(tmp_path / "log", *LONG, "-o", run, 5, 2100, code=BACKWARDS).code == 9
    future = datetime(2100, 1, 1).timestamp()
    for path in [run, *run.rglob("*")]:
        os.utime(path, (future, future))
    again = zygote.run(tmp_path / "log", *LONG, "-o", run, 0, later, code=BACKWARDS)
    assert (again.code, again.stderr) == (0, "")
    assert again.stdout.startswith("resumed round 2 from generation 6; ")
    assert digests(run) == digests(tmp_path / "usual")
    assert min(seconds(run)) >= 0
    reported = zygote.run(tmp_path / "log", "report", run, 0, later, code=BACKWARDS)
    assert (reported.code, reported.stderr) == (0, "")


def test_an_owner_since_a_time_to_come_is_named(tmp_path: Path, zygote: Zygote) -> None:
    run = tmp_path / "run"
    first = zygote.run(tmp_path / "log", *LONG, "-o", run, 5, 2100, code=BACKWARDS)
    assert first.code == 9
    assert (run / "lock").read_text().endswith('"since": "2099-12-31T23:00:00+00:00"}')
    assert f"; process {first.pid}, which had locked the folder, is gone\n" in embasis(*LONG, "-o", run).stdout


@pytest.mark.parametrize("when", [0.0, 5e9])
def test_weights_are_imported_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: float
) -> None:
    """A machine without a battery wakes up in 1970; archives know the years 1980 to 2107."""
    torch.save({"weight": torch.ones(2)}, tmp_path / "net.pt")
    monkeypatch.chdir(tmp_path)
    usual = time.localtime
    monkeypatch.setattr("zipfile.time.localtime", lambda seconds=None: usual(when))
    result = embasis("import-weights", "net.pt", "-o", "net.safetensors")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("wrote net.safetensors: 1 tensor, ")
