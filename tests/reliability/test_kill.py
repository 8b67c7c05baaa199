"""SIGKILL at random instants and at system calls: every resume ends bit-identical to an undisturbed run."""

from __future__ import annotations

from pathlib import Path

import pytest

from folder_runs import digests
from forked import Zygote
from kill_runs import MATRIX, PUBLISH, TINY, kill_a_fit, kill_a_publish, kill_runs, undisturbed
from storage_runs import run_with
from traced import why_not


@pytest.fixture(scope="module")
def _traced() -> None:
    if reason := why_not():
        pytest.skip(reason)


def test_a_fit_that_is_killed_at_random_instants_ends_bit_for_bit_as_the_undisturbed_one(
    tmp_path: Path, zygote: Zygote
) -> None:
    trials = list(kill_runs(zygote, tmp_path, MATRIX, kills=6, seed=0, places=3))
    assert sum(len(trial.instants) for trial in trials) >= 6
    assert all(trial.alike for trial in trials)
    assert all(trial.forward for trial in trials), "a saved step was lost"
    assert len({place for trial in trials for place in trial.cursors}) > 2, "the kills must not all hit one place"


@pytest.mark.usefixtures("_traced")
def test_a_publish_that_is_killed_at_any_system_call_leaves_whole_generations(tmp_path: Path, zygote: Zygote) -> None:
    assert kill_a_publish(zygote, tmp_path) > 20


@pytest.mark.usefixtures("_traced")
def test_a_fit_that_is_killed_at_a_system_call_ends_as_the_undisturbed_one(tmp_path: Path, zygote: Zygote) -> None:
    killed, alike = kill_a_fit(zygote, tmp_path, step=25)
    assert killed > 3
    assert alike == killed


# --- the proof that these tests are not blind

IN_PLACE = "from embasis.storage.atomic import Disk\nDisk.put = lambda self, path, data: open(path, 'wb').write(data)\n"
"""A HEAD that is written in its place, so that for an instant it is empty."""


@pytest.mark.usefixtures("_traced")
def test_a_head_that_is_written_in_place_is_found_out_by_a_kill(
    tmp_path: Path, zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kill_runs.PUBLISH", IN_PLACE + PUBLISH)
    with pytest.warns(UserWarning, match="HEAD is missing or damaged"):
        kill_a_publish(zygote, tmp_path, ("write",))


def test_a_run_with_another_seed_is_not_alike(tmp_path: Path, zygote: Zygote) -> None:
    expected, _ = undisturbed(zygote, tmp_path / "one", TINY)
    assert undisturbed(zygote, tmp_path / "again", TINY)[0] == expected
    other, _ = undisturbed(zygote, tmp_path / "other", (*TINY, "seed=1"))
    assert {"facts", "tensor network/weight"} & {name for name in expected if other.get(name) != expected[name]}
    assert digests(run_with(tmp_path / "plain", 1)) != expected
