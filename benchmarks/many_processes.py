"""How much faster several processes are: seconds of each stage of a fit with one process and with N, one thread each.

    python -m benchmarks.many_processes [N] [KEY=VALUE ...]

Both fits have the same settings (eight parts a step), so they end with the same bits, which is checked. Wall time says
something on an otherwise idle machine only; processor seconds of each process are given beside it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from embasis.runs.checkpoint import read_run

FIT = ("fit", "--dataset", "digits", "--backbone", "small_cnn", "rounds=1", "source_epochs=2", "plan.epochs=1",
       "plan.accumulate_steps=8", "save_seconds=600")  # fmt: skip
STAGES = ("train", "label")


def fit_with(size: int, path: Path, words: tuple[str, ...]) -> tuple[dict[str, float], float]:
    """Seconds of each stage by the run's own account, and the processor seconds of the busiest process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    ranks = []
    for rank in range(size):
        place = {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        command = [sys.executable, "-m", "embasis", *FIT, *words, "-o", str(path)]
        environment = {**os.environ, **place, "OMP_NUM_THREADS": "1"}
        ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL))
    processor = []
    for rank in ranks:
        _, status, usage = os.wait4(rank.pid, 0)
        rank.returncode = os.waitstatus_to_exitcode(status)
        assert rank.returncode == 0, f"rank ended with {rank.returncode}"
        processor.append(usage.ru_utime + usage.ru_stime)
    seconds = dict.fromkeys(STAGES, 0.0)
    for line in (path / "timings.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["stage"] in seconds:
            seconds[row["stage"]] += row["seconds"]
    return seconds, max(processor)


def main(words: list[str]) -> None:
    """Print a line for each stage."""
    size = int(words.pop(0)) if words and words[0].isdecimal() else 2
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        one, alone = fit_with(1, Path(folder) / "one", tuple(words))
        many, busiest = fit_with(size, Path(folder) / "many", tuple(words))
        left, right = (read_run(Path(folder) / name) for name in ("one", "many"))
        same = all(bool((left.tensors[name] == right.tensors[name]).all()) for name in left.tensors)
    for stage in STAGES:
        gain = one[stage] / many[stage]
        print(f"{stage:6} 1 process {one[stage]:7.2f} s, {size} processes {many[stage]:7.2f} s: {gain:.2f} ×")
    what = "processor seconds with start and reading"
    print(f"{what}: {alone:.1f} alone, {busiest:.1f} of the busiest: {alone / busiest:.2f} ×")
    print(
        f"bits are {'equal' if same else 'DIFFERENT'}; {time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
