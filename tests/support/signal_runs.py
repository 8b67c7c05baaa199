"""A fit that is asked to stop again and again: how it ends each time, how long that takes, and what comes out."""

from __future__ import annotations

import random
import re
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cli_tables import embasis
from embasis.storage import read_newest
from folder_runs import digests, signal_at
from forked import Child, Zygote
from kill_runs import MATRIX, TINY, cursor
from storage_runs import temps
from traced import points, signalled

CODES = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGHUP: 143}
LONG = {"save_seconds=0": "save_seconds=1000", "plan.source_epochs=4": "plan.source_epochs=60",
        "plan.epochs=2": "plan.epochs=40"}  # fmt: skip
SELDOM = tuple(LONG.get(word, word) for word in MATRIX)
"""Training for seconds; saved after a round, and when it is asked to stop."""


MEASURED = """
import time
from embasis.cli import main
from embasis.runs.run import TrainingRun
from embasis.inputs.image_inputs import ImageInputs
count, fill, steps, publishes = TrainingRun._count, ImageInputs.cache_features, [], [0.0]
def timed(whole):
    def call(*arguments):
        began = time.monotonic()
        whole(*arguments)
        publishes[-1] += time.monotonic() - began
    return call
def _count(self, moment, seconds):
    steps.append(seconds - publishes[-1])  # what was written after the step before is no part of this one
    publishes.append(0.0)
    return count(self, moment, seconds)
def _fill(self, problem):
    began = time.monotonic()
    for done in fill(self, problem):
        steps.append(time.monotonic() - began)
        yield done
        began = time.monotonic()
TrainingRun._count, ImageInputs.cache_features = _count, _fill
TrainingRun.save, TrainingRun._write_round = timed(TrainingRun.save), timed(TrainingRun._write_round)
try:
    main(words, prog_name="embasis")
finally:
    print("longest step and publish", max(steps) + max(publishes), flush=True)
"""


@dataclass(frozen=True)
class Stopped:
    """One signal: its number, to whom, and what came of it."""

    number: int
    group: bool
    twice: bool
    code: int
    """As a shell says it: 143 where a process died of SIGTERM itself, before it had anything to save."""
    seconds: float
    stderr: str
    orphans: int
    honest: bool = True
    """Whether the disk holds what it says was saved."""

    @property
    def right(self) -> bool:
        """The code of the signal and one line, or none where nothing had begun; or the run had ended."""
        lines = self.stderr.splitlines()
        plain = not lines or (len(lines) == 1 and lines[0].startswith("embasis: interrupted"))
        return self.code in (0, CODES[signal.Signals(self.number)]) and plain and self.honest


def members(session: int) -> int:
    """Living processes of a session: workers have process groups of their own, but no session."""
    count = 0
    for entry in (entry for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        try:
            state, _, _, found = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        count += int(found) == session and state != "Z"
    return count


def orphans(session: int, seconds: float = 5) -> int:
    """Processes of a session that are still there some seconds after its leader's end."""
    end = time.monotonic() + seconds
    while (count := members(session)) and time.monotonic() < end:
        time.sleep(0.02)
    return count


def stop_once(child: Child, number: int, instant: float, group: bool, twice: bool) -> Stopped | None:
    """A signal at that instant, and another 50 ms later if `twice`; None if the command had ended by itself."""
    if child.wait(instant) is not None:
        assert child.code == 0, child.stderr
        return None
    began = time.monotonic()
    child.send(number, group)
    if twice and child.wait(0.05) is None:
        child.send(number, group)
    code = child.wait(60)
    seconds = time.monotonic() - began
    if code is None:
        code = child.end()
    return Stopped(number, group, twice, 128 - code if code < 0 else code, seconds, child.stderr, orphans(child.pid))


def is_honest(path: Path, stderr: str) -> bool:
    """Whether the run stands on the disk where its last words say."""
    place = re.search(r"saved round (\d+) epoch (\d+) step (\d+) in ", stderr)
    return place is None or cursor(path) == tuple(map(int, place.groups()))


def stop_until_done(
    zygote: Zygote, path: Path, words: tuple[str, ...], draw: random.Random, longest: float, most: int
) -> Iterator[Stopped]:
    """Signals at random instants until the run has ended, or there were so many: then one start is left alone."""
    log = path.with_suffix(".log")
    for number in range(most):
        child = zygote.start(log, *words, "-o", path)
        which = draw.choice((signal.SIGTERM, signal.SIGINT))
        found = stop_once(child, which, draw.uniform(0, longest), draw.random() < 0.5, number % 7 == 6)
        if found is None:
            return
        yield replace(found, honest=is_honest(path, found.stderr))
        if found.code == 0:
            return
    last = zygote.run(log, *words, "-o", path)
    assert last.code == 0, last.stderr


def pictures(home: Path, workers: int) -> tuple[str, ...]:
    """A fit at full depth, so that pictures are read in every epoch by that many workers."""
    from image_runs import WORDS, sides

    if not (home / "photos").exists():
        sides(home)
    return ("fit", str(home / "photos"), str(home / "paintings"), *WORDS, "images.depth=full", f"images.cache={home}",
            f"images.workers={workers}", "rounds=2", "source_epochs=6", "epochs=4", "batch_size=8", "plan.lr=0.002",
            "source_lr=0.002", "save_seconds=1000")  # fmt: skip


def measured(zygote: Zygote, path: Path, words: tuple[str, ...]) -> tuple[dict[str, str], float, float]:
    """What an undisturbed fit leaves, its seconds, and those of its longest step and its longest publish together.

    A step is what is done between two looks at the flag: a batch that is read, trained on or labelled; the first one
    starts the workers."""
    began = time.monotonic()
    child = zygote.run(path.with_suffix(".log"), *words, "-o", path, code=MEASURED)
    assert child.code == 0, child.stderr
    return digests(path), time.monotonic() - began, float(child.stdout.split()[-1])


def alike(path: Path, expected: dict[str, str]) -> bool:
    """Whether a run ended as the undisturbed one, with nothing left behind."""
    return digests(path) == expected and not temps(path)


def term_at_calls(zygote: Zygote, folder: Path, step: int) -> tuple[int, int]:
    """SIGTERM at every step-th write-class call of a fit; how many, and how many ended with 143 and then alike."""
    whole = folder / "undisturbed"
    found = points(zygote.start(whole.with_suffix(".log"), *TINY, "-o", whole, paused=True), step)
    expected, good = digests(whole), 0
    for kind, at in found:
        path = folder / f"term-{kind}-{at}"
        child = zygote.start(path.with_suffix(".log"), *TINY, "-o", path, paused=True)
        code = signalled(child, signal.SIGTERM, (kind, at))
        again = zygote.run(path.with_suffix(".log"), *TINY, "-o", path)
        good += code in (0, 143, -signal.SIGTERM) and again.code == 0 and alike(path, expected)
    return len(found), good


def interrupt_and_go_on(words: Sequence[str], run: Path, number: int, at: int, code: int, where: str) -> None:
    """A signal within the step of number `at` saves the run at `where`; the same command goes on to the end."""
    with pytest.MonkeyPatch.context() as patch:
        signal_at(patch, number, at)
        result = embasis(*words)
    assert result.exit_code == code
    assert result.stderr == f"embasis: interrupted; saved {where} in {run}; the same command goes on\n"
    assert read_newest(run).facts["progress"]["status"] == "running"
    again = embasis(*words)
    assert again.exit_code == 0, again.output
    assert f"resumed round {where.split()[1]} from generation" in again.stdout
