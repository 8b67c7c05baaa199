"""SIGKILL and SIGTERM while a network of images is trained: every resume ends bit-identical to an undisturbed run."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from deep_runs import MODULES, deep, deep_trials
from folder_runs import digests
from forked import Zygote
from kill_runs import cursor, placed, undisturbed
from signal_runs import orphans
from storage_runs import temps


@pytest.mark.parametrize("depth", ["partial", "full"])
def test_a_deep_fit_that_is_killed_and_stopped_at_random_instants_ends_as_the_undisturbed_one(
    tmp_path: Path, zygote: Zygote, depth: str
) -> None:
    trials = list(deep_trials(zygote, tmp_path, depth, workers=0, kills=3, seed=1))
    assert sum(len(trial.instants) for trial in trials) == 3
    assert all(trial.alike for trial in trials)
    assert all(trial.forward for trial in trials), "a saved step was lost"
    assert not temps(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("depth", ["partial", "full"])
def test_a_deep_fit_whose_worker_reads_ends_as_the_undisturbed_one(tmp_path: Path, zygote: Zygote, depth: str) -> None:
    trials = list(deep_trials(zygote, tmp_path, depth, workers=1, kills=4, seed=2))
    assert all(trial.alike and trial.forward for trial in trials)
    assert not any(orphans(pid) for trial in trials for pid in trial.pids)
    assert not temps(tmp_path)


# --- the proof that these tests are not blind


KILLED = """
import os, signal
from embasis.cli import main
from embasis.engine import train
whole, left = train.take_step, [4]
def take_step(*arguments):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(*arguments)
train.take_step = take_step
main(words, prog_name="embasis")
"""
FORGETFUL = """
from embasis.cli import main
from embasis.engine.state import TrainState
whole = TrainState.restore
def restore(*arguments):
    progress = whole(*arguments)
    progress.restored_optimisers = {}
    return progress
TrainState.restore = restore
main(words, prog_name="embasis")
"""


def test_a_deep_resume_that_forgets_the_optimiser_is_found_out(tmp_path: Path, zygote: Zygote) -> None:
    words = deep(tmp_path, "partial")
    expected, _ = undisturbed(zygote.know(*MODULES), tmp_path / "whole", words)
    again = placed(words, tmp_path / "run")
    assert zygote.run(tmp_path / "log", *again, code=KILLED).code == -signal.SIGKILL
    assert cursor(tmp_path / "run") == (0, 1, 0)
    assert zygote.run(tmp_path / "log", *again, code=FORGETFUL).code in (
        0,
        6,
    )  # the labels may be so bad as to collapse
    assert digests(tmp_path / "run") != expected
