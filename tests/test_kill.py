"""SIGKILL at 20 random instants: every resume ends bit-identical to an undisturbed run."""

from __future__ import annotations

from pathlib import Path

import pytest

from kill_runs import kill_runs


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_fit_that_is_killed_at_random_instants_ends_bit_for_bit_as_the_undisturbed_one(tmp_path: Path) -> None:
    trials = kill_runs(tmp_path, kills=20, seed=0)
    assert sum(len(trial.instants) for trial in trials) == 20
    assert all(trial.alike for trial in trials)
    places = {place for trial in trials for place in trial.cursors}
    assert len(places) > 5, "the kills must not all hit one place"
