"""R2: every call to the disk in a whole fit fails, in five ways, once and for ever; and power fails at any instant.

Power also fails after kills at every call of a publish, restarts and second kills, and after an earlier power loss."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from goals import Result

from cli_tables import embasis
from crash_runs import crashes, kill_points
from fault_runs import CODES, artefacts, sweep
from kill_runs import TINY
from power_runs import broken_promises, fit_states, looked_at, recorded
from storage_runs import do_not_wait, make_runs_fast


def run() -> Result:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        home, problems, faults = Path(folder), list[str](), 0
        disks = list(broken_promises(recorded(home / "power", 4), home))
        (home / "crashes").mkdir()
        do_not_wait(patch)
        again = list(crashes(home / "crashes", kill_points(home / "crashes"), 10, looked_at))
        (home / "fit").mkdir()
        count, alike = fit_states(home / "fit", 80, seed=0)
        make_runs_fast(patch)
        assert embasis(*TINY, "-o", home / "undisturbed").exit_code == 0
        expected = artefacts(home / "undisturbed")
        for name in CODES:
            for forever in (False, True):
                found = list(sweep(home, name, forever, expected))
                faults += len(found)
                problems += [problem for problem in found if problem]
    bad, worse = sum(map(bool, disks)), sum(map(bool, again))
    for problem in problems[:10]:
        print(problem)
    figure = (
        f"{faults:,} injected faults: {len(problems)} exceptions; {len(disks):,} disks after a power loss: {bad} "
        f"without the promised generation; {len(again):,} after two kills, or after another power loss: {worse} "
        f"without it; {alike} of {count} fits went on bit-identical"
    )
    held = not problems and not bad and not worse and alike == count
    return Result(held and faults > 1000 and len(again) > 10_000, figure)
