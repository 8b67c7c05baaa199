"""R1: kill -9 at 100 random instants, and at every write-class system call of a publish and of a whole fit."""

from __future__ import annotations

import tempfile
from pathlib import Path

from goals import Result

from forked import Zygote
from kill_runs import MATRIX, PICTURES, kill_a_fit, kill_a_publish, kill_runs
from traced import why_not

KILLS = {"matrix": (MATRIX, 80), "pictures": (PICTURES, 20)}


def run() -> Result:
    with tempfile.TemporaryDirectory() as folder, Zygote() as zygote:
        home, trials = Path(folder), []
        for number, (name, (words, kills)) in enumerate(KILLS.items()):
            (home / name).mkdir()
            trials += list(kill_runs(zygote, home / name, words, kills, seed=number))
        kills = sum(len(trial.instants) for trial in trials)
        alike, lost = sum(trial.alike for trial in trials), sum(not trial.forward for trial in trials)
        figure = f"{kills} random kills in {len(trials)} runs: {alike} bit-identical, {lost} lost a saved step"
        held = kills >= 100 and alike == len(trials) and not lost
        if reason := why_not():
            return Result(False, f"{figure}; {reason}")
        (home / "calls").mkdir()
        publish = kill_a_publish(zygote, home / "calls")
        killed, same = kill_a_fit(zygote, home / "calls")
        figure += f"; every write-class call of a publish ({publish}) and of a fit ({killed}): {same} bit-identical"
        return Result(held and publish > 20 and killed > 100 and same == killed, figure)
