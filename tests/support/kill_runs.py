"""Kill a fit with SIGKILL until it ends by itself, and compare its bytes with an undisturbed run.

    python tests/support/kill_runs.py [kills] [seed]

A fit saves after every step, so that each start gets further; after RESTARTS kills one is left alone. Kills come at
random instants, or at the N-th write-class system call where strace can send them. Of a fit on images some of the
signals may be SIGTERM, which saves and leaves.
"""

from __future__ import annotations

import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from embasis.errors import CorruptError
from embasis.storage import RunFolder, read_newest
from folder_runs import digests
from forked import Child, Zygote
from storage_runs import present, run_with, state, temps
from traced import CALLS, points, signalled

RESTARTS = 20
MOST = 10
MATRIX = ("fit", "--dataset", "blobs", "--method", "em_basis_paper", "--backbone", "mlp", "--seed", "3",
          "data.count=100", "hidden=32", "rounds=3", "batch_size=32", "plan.source_epochs=4", "plan.epochs=2",
          "save_seconds=0")  # fmt: skip
PICTURES = ("fit", "--dataset", "digits", "--method", "cbst", "--seed", "3", "data.count=100", "rounds=2",
            "batch_size=50", "plan.source_epochs=2", "plan.epochs=1", "save_seconds=0")  # fmt: skip
TINY = ("fit", "--dataset", "blobs", "data.count=24", "rounds=1", "--backbone", "linear", "source_epochs=1", "epochs=1",
        "save_seconds=1000")  # fmt: skip
BESIDE = "BESIDE-"
"""In a word of a command: the run folder's own path follows, so that each run has its own cache of features."""
Cursor = tuple[int, int, int]


@dataclass
class Trial:
    """One run folder: when it was killed (seconds after each start), where it stood, whether it ended alike."""

    instants: list[float] = field(default_factory=list)
    cursors: list[Cursor] = field(default_factory=list)
    """Round, epoch and step on the disk after each kill; (−1, 0, 0) before the first save."""
    pids: list[int] = field(default_factory=list)
    """The processes that were ended; each has led a session, in which nobody may be left."""
    alike: bool = False

    @property
    def forward(self) -> bool:
        """Whether no kill lost anything that an earlier one had left: no round, and no saved step."""
        return self.cursors == sorted(self.cursors)


def cursor(path: Path) -> Cursor:
    """Where the run stands on the disk."""
    try:
        facts = read_newest(path).facts["progress"]
    except CorruptError:
        return -1, 0, 0
    return facts["round"], facts["epoch"], facts["step"]


def placed(words: tuple[str, ...], path: Path) -> tuple[str, ...]:
    """The command of a run in that folder; what it keeps beside the folder is its own, too."""
    return (*(word.replace(BESIDE, f"{path}-") for word in words), "-o", str(path))


def undisturbed(zygote: Zygote, path: Path, words: tuple[str, ...]) -> tuple[dict[str, str], float]:
    """What a fit that is left alone leaves, and its seconds."""
    began = time.monotonic()
    child = zygote.run(path.with_suffix(".log"), *placed(words, path))
    assert child.code == 0, child.stderr
    return digests(path), time.monotonic() - began


def ended(child: Child, number: signal.Signals) -> bool:
    """Whether it ended by that signal and not by itself; what is no kill leaves with one line and its code."""
    if number == signal.SIGKILL:
        return child.end() == -signal.SIGKILL
    child.send(number)
    code = child.wait(60)
    assert code in (0, 128 + number, -number), f"{number.name}: {code} {child.stderr}"
    assert len(child.stderr.splitlines()) <= 1, child.stderr
    return code != 0


def try_once(
    zygote: Zygote,
    path: Path,
    words: tuple[str, ...],
    draw: random.Random,
    longest: float,
    left: int,
    numbers: tuple[signal.Signals, ...] = (signal.SIGKILL,),
) -> Trial:
    """Start and kill until a start ends by itself, or there are no kills left: then one is left alone.

    Every third instant may be any of a whole run, the report included; the others come early, so that a run is killed
    many times, also while it opens its folder."""
    trial, log = Trial(), path.with_suffix(".log")
    while len(trial.instants) < min(left, RESTARTS):
        child, began = zygote.start(log, *placed(words, path)), time.monotonic()
        code = child.wait(draw.uniform(0, longest if draw.random() < 1 / 3 else longest / 4))
        if code is not None:
            assert code == 0, child.stderr
            return trial
        if ended(child, draw.choice(numbers)):
            trial.pids.append(child.pid)
            trial.instants.append(time.monotonic() - began)
            trial.cursors.append(cursor(path))
    child = zygote.run(log, *placed(words, path))
    assert child.code == 0, child.stderr
    return trial


def kill_runs(
    zygote: Zygote,
    folder: Path,
    words: tuple[str, ...],
    kills: int,
    seed: int,
    numbers: tuple[signal.Signals, ...] = (signal.SIGKILL,),
    places: int = 1,
) -> Iterator[Trial]:
    """Trials until there were so many kills in all, and they hit so many places of a run.

    Where a kill hits is a matter of the clock, so on a fast machine a few kills may share one place: then there are
    more of them, up to MOST times as many as were wished for."""
    draw, done, number, hit = random.Random(seed), 0, 0, set[Cursor]()
    expected, longest = undisturbed(zygote, folder / "undisturbed", words)
    while done < kills or (len(hit) < places and done < MOST * kills):
        path = folder / f"trial-{number}"
        trial = try_once(zygote, path, words, draw, longest, max(kills - done, 1), numbers)
        trial.alike = digests(path) == expected
        done, number, hit = done + len(trial.instants), number + 1, hit | set(trial.cursors)
        yield trial


# --- at system calls

PUBLISH = """
import torch
from embasis.storage import RunFolder
with RunFolder(words[0]) as run:
    run.publish({"w": torch.ones(2)}, {"value": 3})
"""


def kill_a_publish(zygote: Zygote, folder: Path, kinds: tuple[str, ...] = CALLS) -> int:
    """SIGKILL at every write-class call of a publish; how many were killed.

    What each leaves is a whole generation, at least the one before, and the next owner goes on from there."""
    whole, log = run_with(folder / "whole", 1, 2), folder / "publish.log"
    found = points(zygote.start(log, whole, code=PUBLISH, paused=True))
    for point in (point for point in found if point[0] in kinds):
        path = run_with(folder / f"publish-{point[0]}-{point[1]}", 1, 2)
        child = zygote.start(log, path, code=PUBLISH, paused=True)
        assert signalled(child, signal.SIGKILL, point) == -signal.SIGKILL, child.stderr
        newest = read_newest(path)
        assert newest.number >= 2
        assert newest.facts == {"value": newest.number}
        with RunFolder(path) as run:
            assert run.ignored <= 2  # a generation and the HEAD that was to name it
            assert not temps(path)
            assert run.publish(state(4), {"value": 4}) == newest.number + 1
        assert len(present(path)) == 2
        shutil.rmtree(path)
    return len(found)


def kill_a_fit(zygote: Zygote, folder: Path, step: int = 1) -> tuple[int, int]:
    """SIGKILL at every step-th write-class call of a whole fit; how many were killed, and how many ended alike."""
    whole = folder / "undisturbed"
    found = points(zygote.start(whole.with_suffix(".log"), *TINY, "-o", whole, paused=True), step)
    expected, alike = digests(whole), 0
    for point in found:
        path = folder / f"fit-{point[0]}-{point[1]}"
        child = zygote.start(path.with_suffix(".log"), *TINY, "-o", path, paused=True)
        assert signalled(child, signal.SIGKILL, point) == -signal.SIGKILL, child.stderr
        alike += undisturbed(zygote, path, TINY)[0] == expected
        assert not temps(path)
        shutil.rmtree(path, ignore_errors=True)
    return len(found), alike


def main() -> None:
    kills, seed = (int(word) for word in (*sys.argv[1:], *("20", "0")[len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as folder, Zygote() as zygote:
        trials = list(kill_runs(zygote, Path(folder), MATRIX, kills, seed))
    for trial in trials:
        print(trial)
    print(f"{kills} kills in {len(trials)} runs: {sum(trial.alike for trial in trials)} ended bit-identical")
    sys.exit(not all(trial.alike for trial in trials))


if __name__ == "__main__":
    main()
