"""R9: processes of one run are killed, stopped, interrupted, cut from their launcher; every sequence ends with the bits
of one undisturbed process, whatever the number of processes that goes on.

| trial | what must happen |
| --- | --- |
| kill -9 of a random rank | the others end with 8 in SECONDS |
| SIGTERM to a random rank | all end with 143 |
| SIGSTOP of a random rank | the others end with 8 in STOP_SECONDS |
| a pause of 5 s (SIGSTOP, SIGCONT) | nothing: all go on |
| kill -9 of a rank under torchrun --max-restarts | torchrun ends with 0 |
| kill -9 of torchrun itself | its processes end |

    R9_TRIALS=30 python tests/torture/run.py R9    # fewer trials than the 100 of the goal; the line says how many
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
from pathlib import Path

from goals import Result

from process_runs import Ended, fingerprint_of, run_ranks, start_ranks, time_survivors, wait_for, wait_for_log

FIT = ("fit", "--dataset", "blobs", "data.count=400", "rounds=2", "--backbone", "mlp", "source_epochs=6",
       "plan.epochs=4", "save_seconds=0.3", "plan.accumulate_steps=6")  # fmt: skip
SECONDS, STOP_SECONDS, TRAINING = 8.0, 25.0, 4.0
"""Until survivors are gone after a kill, and after a stop, on a loaded machine; the range of the random instants."""
BEGUN = "processes on 1 host"
KINDS = ("kill",) * 7 + ("term",) * 2 + ("stop", "pause")


def run() -> Result:
    trials, draw = int(os.environ.get("R9_TRIALS", "100")), random.Random(9)
    counts, faults, slowest, runs, same = Counter[str](), list[str](), 0.0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (ended,) = run_ranks(1, *FIT, "-o", home / "undisturbed")
        assert ended.code == 0, ended.stderr
        expected = fingerprint_of(home / "undisturbed")
        while sum(counts.values()) < trials:
            path, begun, done = home / f"run-{runs}", 0, False
            while not done:
                size = draw.choice((2, 2, 3))
                kind = draw.choice(KINDS) if sum(counts.values()) < trials else "none"
                ranks = start_ranks(size, *FIT, "-o", path)
                begun += 1
                if not wait_for_log(path, BEGUN, ranks, begun):
                    kind = "none"
                fault, seconds, done = disturb(ranks, kind, draw)
                slowest = max(slowest, seconds)
                counts[kind] += kind != "none"
                faults += [f"{kind} of {size}: {fault}"] if fault else []
                if fault:
                    print(kind, size, fault, flush=True)
                    break
            runs += 1
            same += fingerprint_of(path) == expected if done else 0
        torchrun, launchers = restart_by_torchrun(home, expected, max(trials // 20, 1)), kill_launchers(home, 2)
    named = ", ".join(f"{count} × {kind}" for kind, count in sorted(counts.items()))
    figure = (
        f"{named} in {runs} runs of 2 and 3 processes: {len(faults)} faults, {same} runs bit-identical to one process, "
        f"slowest survivor of a kill {slowest:.1f} s; torchrun restarted {torchrun}; launchers killed: {launchers}"
    )
    good = torchrun.split(" of ")[0] == torchrun.split(" of ")[1].split()[0] and launchers.endswith(" 0 left behind")
    return Result(not faults and same == runs and good, figure)


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
        late = f"took {seconds:.1f} s" if seconds > limit else ""
        return late or ("" if codes == {8} else describe(survivors)), seconds if kind == "kill" else 0.0, False
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
