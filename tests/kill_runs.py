"""Kill a fit with SIGKILL at random instants until it ends by itself, and compare its bytes with an undisturbed run.

    python tests/kill_runs.py [kills] [seed]

A fit saves after every step, so that each start gets further; after RESTARTS kills one is left alone.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

RESTARTS = 20
FIT = ("fit", "--dataset", "blobs", "--method", "em_basis", "--backbone", "mlp", "--seed", "3", "data.count=200",
       "hidden=32", "labels=draw", "carry=true", "rounds=3", "batch=32", "plan.source_epochs=6", "plan.epochs=4",
       "save_seconds=0")  # fmt: skip


@dataclass
class Trial:
    """One run folder: when it was killed (seconds after each start), where it stood, whether it ended alike."""

    instants: list[float] = field(default_factory=list)
    cursors: list[str] = field(default_factory=list)
    alike: bool = False


def start(path: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "embasis", *FIT, "-o", str(path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)


def finish(path: Path) -> float:
    """The seconds of a fit that is left alone."""
    began, process = time.monotonic(), start(path)
    _, error = process.communicate(timeout=280)
    if process.returncode:
        raise RuntimeError(f"fit ended with {process.returncode}: {error.decode()}")
    return time.monotonic() - began


def cursor(path: Path) -> str:
    """Where the run stands on the disk."""
    from embasis.errors import CorruptError
    from embasis.storage import read_newest

    try:
        facts = read_newest(path).facts["progress"]
    except CorruptError:
        return "nothing saved"
    return f"round {facts['round']} epoch {facts['epoch']} step {facts['step']} {facts['status']}"


def wait_for_a_save(path: Path, process: subprocess.Popen[bytes]) -> None:
    """Until this start has published something of its own, or has ended."""
    head = path / "HEAD"
    before = head.read_bytes() if head.exists() else b""
    while process.poll() is None and (not head.exists() or head.read_bytes() in (b"", before)):
        time.sleep(0.002)


def try_once(path: Path, draw: random.Random, longest: float, left: int) -> Trial:
    """Start and kill until a start ends by itself, or there are no kills left.

    Every third instant may be any from the start of the process on, imports and report included; the others come
    after the first save of that start, so that most hit training, labelling and publishing.
    """
    trial = Trial()
    while len(trial.instants) < min(left, RESTARTS):
        process, began = start(path), time.monotonic()
        if anywhere := draw.random() < 1 / 3:
            instant = draw.uniform(0, longest)
        else:
            wait_for_a_save(path, process)
            instant = draw.uniform(0, longest / 4)
        try:
            process.communicate(timeout=instant)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            trial.instants.append(time.monotonic() - began)
            trial.cursors.append(f"{cursor(path)} ({'any instant' if anywhere else 'after a save'})")
            continue
        if process.returncode:
            raise RuntimeError(f"fit ended with {process.returncode}")
        return trial
    finish(path)
    return trial


def kill_runs(folder: Path, kills: int, seed: int) -> list[Trial]:
    """Trials until there were so many kills in all."""
    from folder_runs import digests

    draw, trials = random.Random(seed), list[Trial]()
    longest = finish(folder / "undisturbed")
    expected = digests(folder / "undisturbed")
    print(f"undisturbed: {longest:.1f} s, {len(expected)} artefacts")
    while (done := sum(len(trial.instants) for trial in trials)) < kills:
        path = folder / f"trial-{len(trials)}"
        trial = try_once(path, draw, longest, kills - done)
        trial.alike = digests(path) == expected
        trials.append(trial)
        for instant, place in zip(trial.instants, trial.cursors, strict=True):
            print(f"trial {len(trials)}: killed after {instant:.3f} s at {place}")
        print(f"trial {len(trials)}: {len(trial.instants)} kills, {'bit-identical' if trial.alike else 'DIFFERENT'}")
    return trials


def main() -> None:
    kills, seed = (int(word) for word in (*sys.argv[1:], *("20", "0")[len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as folder:
        trials = kill_runs(Path(folder), kills, seed)
    print(f"{kills} kills in {len(trials)} runs: {sum(trial.alike for trial in trials)} ended bit-identical")
    sys.exit(not all(trial.alike for trial in trials))


if __name__ == "__main__":
    main()
