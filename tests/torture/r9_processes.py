"""R9: processes of one run are killed, stopped, interrupted, cut from their launcher; every sequence ends with the bits
of one undisturbed process, whatever the number of processes that goes on.

| trial | what must happen |
| --- | --- |
| kill -9 of a random rank | the others end with 8 in SECONDS |
| SIGTERM to a random rank | all end with 143 |
| SIGSTOP of a random rank | the others end with 8 in STOP_SECONDS |
| a pause of 5 s (SIGSTOP, SIGCONT) | nothing: all go on |
| 1, then 2, then 3, then 2 processes, stopped at random instants | the bits of one that nobody stopped |
| kill -9 of a rank under torchrun --max-restarts | torchrun ends with 0 |
| SIGSTOP of a rank under torchrun --max-restarts | training goes on in BACK_SECONDS |
| kill -9 of torchrun itself | its processes end |
| nothing at all, in 2 to 4 processes (same_bits.py) | the bits of one, and no pickle |

    R9_TRIALS=100 python tests/torture/run.py R9    # kills of the goal; 30 by default, and the line says how many
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import same_bits
from goals import Result

from process_runs import Ended, fingerprint_of, run_ranks, start_ranks, time_survivors, wait_for, wait_for_log

FIT = ("fit", "--dataset", "blobs", "data.count=400", "rounds=2", "--backbone", "mlp", "source_epochs=6",
       "plan.epochs=4", "save_seconds=0.3", "plan.accumulate_steps=6")  # fmt: skip
SECONDS, STOP_SECONDS, BACK_SECONDS, TRAINING = 8.0, 25.0, 75.0, 4.0
"""Until survivors are gone after a kill, and after a stop, and until a stopped run is back, on a loaded machine; the
range of the random instants."""
BEGUN = "processes on 1 host"
KINDS = ("kill",) * 12 + ("term",) * 2 + ("stop", "pause")
LATE = "took"
"""Begins what is said of survivors that ended as they should, but late: such a run goes on."""
LANES = int(os.environ.get("R9_LANES", "3"))
"""Runs that are disturbed at once: most of their time is waiting."""
SIZES = (1, 2, 3, 2)


def run() -> Result:
    trials = int(os.environ.get("R9_TRIALS", "30"))
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (ended,) = run_ranks(1, *FIT, "-o", home / "undisturbed")
        assert ended.code == 0, ended.stderr
        expected = fingerprint_of(home / "undisturbed")
        with ThreadPoolExecutor(LANES) as pool:
            shares = [len(range(lane, trials, LANES)) for lane in range(LANES)]
            lanes = list(pool.map(lambda lane: Lane(home, expected, lane, shares[lane]).run(), range(LANES)))
            sequences = max(trials // 5, 1)
            elastic = sum(pool.map(lambda number: change_size(home, expected, number), range(sequences)))
        torchrun, launchers = restart_by_torchrun(home, expected, max(trials // 20, 1)), kill_launchers(home, 2)
        back = stop_under_torchrun(home, expected)
    equal, bits = same_bits.compare(*((3, (2, 3, 4)) if trials >= 100 else (1, (2, 4))))
    counts, faults = (
        sum((lane.counts for lane in lanes), Counter[str]()),
        [fault for lane in lanes for fault in lane.faults],
    )
    named = ", ".join(f"{count} × {kind}" for kind, count in sorted(counts.items()))
    runs, same = sum(lane.runs for lane in lanes), sum(lane.same for lane in lanes)
    figure = (
        f"{named} in {runs} runs of 2 and 3 processes: {len(faults)} faults, {same} runs bit-identical to one process, "
        f"slowest survivor of a kill {max(lane.slowest for lane in lanes):.1f} s; {elastic} of {sequences} sequences "
        f"of 1, 2, 3, 2 processes bit-identical; torchrun restarted {torchrun}, and after a stop in {back:.0f} s; "
        f"launchers killed: {launchers}; {bits}"
    )
    good = torchrun.split(" of ")[0] == torchrun.split(" of ")[1].split()[0] and launchers.endswith(" 0 left behind")
    held = not faults and same == runs and elastic == sequences and back <= BACK_SECONDS and good and equal
    return Result(held, figure)


class Lane:
    """Runs one after the other, each disturbed again and again until it has ended, up to so many kills."""

    def __init__(self, home: Path, expected: dict[str, str], number: int, kills: int) -> None:
        self.home, self.expected, self.number, self.kills = home, expected, number, kills
        self.draw = random.Random(900 + number)
        self.counts, self.faults, self.slowest, self.runs, self.same = Counter[str](), list[str](), 0.0, 0, 0

    def run(self) -> Lane:
        """All of them."""
        while self.counts["kill"] < self.kills:
            path = self.home / f"run-{self.number}-{self.runs}"
            done = self._end(path)
            self.runs += 1
            self.same += fingerprint_of(path) == self.expected if done else 0
        return self

    def _end(self, path: Path) -> bool:
        """Disturb a run until it has ended; whether it did without a fault."""
        begun = 0
        while True:
            size = self.draw.choice((2, 2, 3))
            kind = self.draw.choice(KINDS) if self.counts["kill"] < self.kills else "none"
            ranks = start_ranks(size, *FIT, "-o", path)
            begun += 1
            if not wait_for_log(path, BEGUN, ranks, begun):
                kind = "none"
            fault, seconds, done = disturb(ranks, kind, self.draw)
            self.slowest = max(self.slowest, seconds)
            self.counts[kind] += kind != "none"
            if fault:
                self.faults.append(f"{kind} of {size}: {fault}")
                print(kind, size, fault, f"(load {os.getloadavg()[0]:.0f})", flush=True)
            if fault and not fault.startswith(LATE):
                return False
            if done:
                return True


def change_size(home: Path, expected: dict[str, str], number: int) -> bool:
    """Whether a run that is stopped and goes on with another number of processes, again and again, ends with the bits
    of one that nobody stopped."""
    path, draw = home / f"elastic-{number}", random.Random(9000 + number)
    for step, size in enumerate(SIZES, 1):
        before = log_size(path)
        ranks = start_ranks(size, *FIT, "-o", path)
        while log_size(path) == before and all(rank.poll() is None for rank in ranks):
            time.sleep(0.02)
        if step < len(SIZES):
            time.sleep(draw.uniform(0, TRAINING / 4))
            ranks[draw.randrange(size)].send_signal(signal.SIGTERM)
        ended = wait_for(ranks)
        if {each.code for each in ended} not in ([{0}] if step == len(SIZES) else [{0}, {143}]):
            print("elastic", size, describe(ended), flush=True)
            return False
    return fingerprint_of(path) == expected


def log_size(path: Path) -> int:
    """Bytes of a run's log; 0 while there is none."""
    return (path / "log.txt").stat().st_size if (path / "log.txt").exists() else 0


def disturb(ranks: list[subprocess.Popen[str]], kind: str, draw: random.Random) -> tuple[str, float, bool]:
    """What went wrong, the seconds that survivors of a kill took, and whether the run has ended."""
    victim = draw.randrange(len(ranks))
    if kind != "none":
        time.sleep(draw.uniform(0, TRAINING))
    gone = kind == "none" or any(rank.poll() is not None for rank in ranks)
    if not gone and kind in ("kill", "stop"):
        ranks[victim].send_signal(signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
        limit = SECONDS if kind == "kill" else STOP_SECONDS
        survivors, seconds = time_survivors(ranks, victim, 2 * limit)
        if kind == "stop":
            ranks[victim].send_signal(signal.SIGCONT)
        wait_for([ranks[victim]])
        codes = {each.code for each in survivors}
        if codes == {0}:  # it was killed after its last word
            return "", 0.0, True
        late = f"{LATE} {seconds:.1f} s" if seconds > limit else ""
        return late if codes == {8} else describe(survivors), seconds if kind == "kill" else 0.0, False
    if not gone and kind == "pause":
        ranks[victim].send_signal(signal.SIGSTOP)
        time.sleep(5)
        ranks[victim].send_signal(signal.SIGCONT)
    if not gone and kind == "term":
        ranks[victim].send_signal(signal.SIGTERM)
    ended = wait_for(ranks)
    codes = {each.code for each in ended}
    right = codes == {0} or (kind == "term" and codes == {143})
    return "" if right else describe(ended), 0.0, codes == {0}


def describe(ended: list[Ended]) -> str:
    """Codes and last words."""
    return "; ".join(f"{each.code} {each.stderr.strip()[-300:]!r}" for each in ended)


def start_torchrun(path: Path) -> subprocess.Popen[str]:
    """torchrun with two processes and three restarts."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=3"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*command, "-m", "embasis", *FIT, "-o", str(path)], env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


def children(pid: int) -> list[int]:
    """Processes that one has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def restart_by_torchrun(home: Path, expected: dict[str, str], count: int) -> str:
    """How many of so many kills torchrun has survived, with the right bits."""
    good = 0
    for number in range(count):
        path = home / f"torchrun-{number}"
        launcher = start_torchrun(path)
        wait_for_log(path, BEGUN, [launcher])
        time.sleep(0.5)
        os.kill(children(launcher.pid)[number % 2], signal.SIGKILL)
        (ended,) = wait_for([launcher], 300)
        good += ended.code == 0 and fingerprint_of(path) == expected
        if ended.code:
            print(ended.stderr[-2000:], flush=True)
    return f"{good} of {count} killed runs"


def stop_under_torchrun(home: Path, expected: dict[str, str]) -> float:
    """Seconds from the stop of a rank until torchrun has the run back; infinite where it does not end as it should."""
    path = home / "stopped"
    launcher = start_torchrun(path)
    wait_for_log(path, BEGUN, [launcher])
    os.kill(children(launcher.pid)[1], signal.SIGSTOP)
    began = time.monotonic()
    back = wait_for_log(path, BEGUN, [launcher], 2)
    seconds = time.monotonic() - began
    (ended,) = wait_for([launcher], 300)
    good = back and ended.code == 0 and fingerprint_of(path) == expected
    if not good:
        print(ended.stderr[-2000:], flush=True)
    return seconds if good else float("inf")


def kill_launchers(home: Path, count: int) -> str:
    """How many processes outlive a launcher that is killed."""
    left = 0
    for number in range(count):
        path = home / f"launcher-{number}"
        launcher = start_torchrun(path)
        wait_for_log(path, BEGUN, [launcher])
        workers = children(launcher.pid)
        launcher.kill()
        launcher.communicate()
        deadline = time.monotonic() + STOP_SECONDS
        while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
            time.sleep(0.1)
        left += sum(Path(f"/proc/{pid}").exists() for pid in workers)
    return f"{count}, processes {left} left behind"
