"""R1: kill -9 at 100 random instants, and at every write-class system call of a publish and of a whole fit.

Networks of images that are trained in part or as a whole are killed and stopped in turn, without and with a worker."""

from __future__ import annotations

import tempfile
from pathlib import Path

from goals import Result

from deep_runs import deep_trials
from forked import Zygote
from kill_runs import MATRIX, PICTURES, Trial, kill_a_fit, kill_a_publish, kill_runs
from signal_runs import orphans
from traced import why_not

KILLS = {"matrix": (MATRIX, 80), "pictures": (PICTURES, 20)}
DEEP = {("partial", 0): 12, ("full", 0): 10, ("partial", 1): 5, ("full", 1): 5}
"""Depth and workers, and signals for each."""


def kill_deep(zygote: Zygote, home: Path) -> tuple[str, bool]:
    """The figure, and whether it held."""
    trials = list[Trial]()
    for number, ((depth, workers), kills) in enumerate(DEEP.items()):
        trials += deep_trials(zygote, home, depth, workers, kills, seed=number)
    signals, alike = sum(len(trial.instants) for trial in trials), sum(trial.alike for trial in trials)
    lost = sum(not trial.forward for trial in trials)
    left = sum(orphans(pid) for trial in trials for pid in trial.pids)
    runs = f"{signals} kills and stops in {len(trials)} runs of partial and full depth"
    figure = f"{runs}: {alike} bit-identical, {lost} lost a saved step, {left} orphans"
    return figure, signals >= sum(DEEP.values()) and alike == len(trials) and not lost and not left


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
        (home / "deep").mkdir()
        deep, sound = kill_deep(zygote, home / "deep")
        figure, held = f"{figure}; {deep}", held and sound
        if reason := why_not():
            return Result(False, f"{figure}; {reason}")
        (home / "calls").mkdir()
        publish = kill_a_publish(zygote, home / "calls")
        killed, same = kill_a_fit(zygote, home / "calls")
        figure += f"; every write-class call of a publish ({publish}) and of a fit ({killed}): {same} bit-identical"
        return Result(held and publish > 20 and killed > 100 and same == killed, figure)
