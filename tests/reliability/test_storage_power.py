"""Power loss: what was not synced is dropped or reordered, and the newest generation that was promised is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from crash_runs import crash_twice, crashes, kill_points
from power_runs import broken_promises, fit_states, looked_at, recorded
from storage_runs import do_not_wait


def test_after_a_power_loss_at_any_instant_the_promised_generation_is_there(tmp_path: Path) -> None:
    found = list(broken_promises(recorded(tmp_path / "run"), tmp_path))
    assert set(found) == {""}
    assert len(found) > 300


@pytest.mark.parametrize("blind", ["file", "folder"])
def test_a_publish_that_does_not_sync_is_found_out(tmp_path: Path, blind: str) -> None:
    assert any(broken_promises(recorded(tmp_path / "run", 2, (blind,)), tmp_path))


# --- crash, restart, crash again


def test_a_kill_a_restart_another_kill_and_a_power_loss_keep_the_promised_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    do_not_wait(monkeypatch)
    found = list(crashes(tmp_path, kills=3, losses=2, look=looked_at))
    assert set(found) == {""}
    assert len(found) > 300


@pytest.mark.parametrize("blind", ["file", "folder"])
def test_owners_that_do_not_sync_are_found_out_after_two_kills(tmp_path: Path, blind: str) -> None:
    points = kill_points(tmp_path)
    assert any(any(crash_twice(tmp_path, at, at, looked_at, (blind,))) for at in range(0, points, 5))


# --- a whole fit


def test_a_fit_goes_on_after_a_power_loss_and_ends_as_the_undisturbed_one(tmp_path: Path) -> None:
    count, alike = fit_states(tmp_path, 6, seed=1)
    assert (count, alike) == (6, 6)
