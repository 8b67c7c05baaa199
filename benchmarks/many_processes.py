"""How much faster several processes are: each stage of a fit, and a call of predict, with one process and with N.

    python -m benchmarks.many_processes [N] [KEY=VALUE ...]

| stage | what |
| --- | --- |
| train | training steps of digits, small_cnn, eight parts a step |
| label | features, fit of the labeller (which every process does), labels, scores |
| predict | PICTURES image files, EfficientNet-Lite0 with random weights at 224 pixels, nothing cached: to a table |

All have one thread a process. Both numbers of processes end with the same bits, which is checked. Seconds of the clock
say something on an otherwise idle machine only; beside them stand processor seconds, of the busiest process: what the
clock would say if no process had to wait. Start and imports are in neither.
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
from typing import Any

import numpy as np
import torch
from PIL import Image

from embasis import config as settings
from embasis.cli import console
from embasis.cli.fit import train
from embasis.cli.predict import predict_labels
from embasis.distributed import join
from embasis.distributed.meeting import leave
from embasis.inputs.load import load_problem
from embasis.runs.checkpoint import read_run
from embasis.runs.run import TrainingRun
from embasis.terminal import end_at_once

DIGITS = ("network.name=small_cnn", "plan.rounds=1", "plan.source_epochs=2", "plan.epochs=1")
IMAGES = ("network.name=timm:efficientnet_lite0", "network.pretrained=false", "network.size=224", "images.workers=0",
          "images.depth=frozen", "plan.rounds=0")  # fmt: skip
COMMON = ("plan.accumulate_steps=8", "save_seconds=600")
PICTURES = 1000
STAGES = ("train", "label", "predict")


def draw_pictures(home: Path) -> None:
    """Folders of noise: two classes, and new pictures."""
    draw = np.random.default_rng(0)
    names = [f"classes/{name}/{number}.jpg" for name in "ab" for number in range(8)]
    names += [f"others/{number}.jpg" for number in range(16)]
    names += [f"new/{number:04d}.jpg" for number in range(PICTURES)]
    for name in names:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 255, (240, 320, 3), dtype=np.uint8)).save(home / name)


def work(home: Path, words: tuple[str, ...]) -> None:
    """The rank of a process: fit and predict; the first one prints the seconds of each stage."""
    clock, processor = dict.fromkeys(STAGES, 0.0), dict.fromkeys(STAGES, 0.0)
    usual, last = TrainingRun._count, [time.process_time()]

    def count(run: TrainingRun, event: Any, seconds: float) -> None:
        stage, now = "train" if event.record is None else "label", time.process_time()
        clock[stage] += seconds
        processor[stage] += now - last[0]
        last[0] = now
        usual(run, event, seconds)

    with join() as world, console.silence():
        run_fit(home / f"images {world.size}", IMAGES, {"labelled": home / "classes", "unlabelled": home / "others"})
        TrainingRun._count = count  # type: ignore[method-assign]
        last[0] = time.process_time()
        run_fit(home / f"digits {world.size}", (*DIGITS, *words), {"dataset": "digits"})
        began, used = time.monotonic(), time.process_time()
        table = str(home / f"labels {world.size}.csv")
        run, new = str(home / f"images {world.size}"), str(home / "new")
        predict_labels(run, new, table, None, None, None, None, 0, False, None, (1.0,), False, None)
        world.agree(0)
        clock["predict"], processor["predict"] = time.monotonic() - began, time.process_time() - used
        busiest = world.largest(torch.tensor([processor[stage] for stage in STAGES], dtype=torch.float64))
        if world.is_first:
            (home / f"seconds {world.size}").write_text(json.dumps([list(clock.values()), busiest.tolist()]))
        leave(world)


def run_fit(path: Path, words: tuple[str, ...], data: dict[str, Any]) -> None:
    """A fit by the functions of the command."""
    given = {key: str(value) for key, value in data.items()}
    problem, config = load_problem(settings.load(None, (*COMMON, *words), data=given))
    train(problem, config, path)


def start(size: int, home: Path, words: tuple[str, ...]) -> list[list[float]]:
    """Seconds of each stage, by the clock and by the processor, with so many processes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    command = [sys.executable, "-m", "benchmarks.many_processes", "--in", str(home), *words]
    common = {**os.environ, "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
              "OMP_NUM_THREADS": "1", "EMBASIS_CACHE": str(home / f"cache {size}")}  # fmt: skip
    ranks = [subprocess.Popen(command, env={**common, "RANK": str(rank)}) for rank in range(size)]
    assert [rank.wait() for rank in ranks] == [0] * size
    seconds: list[list[float]] = json.loads((home / f"seconds {size}").read_text())
    return seconds


def main(words: list[str]) -> None:
    """Print a line for each stage."""
    size = int(words.pop(0)) if words and words[0].isdecimal() else 2
    with tempfile.TemporaryDirectory() as folder:
        home, began = Path(folder), time.monotonic()
        draw_pictures(home)
        one, many = start(1, home, tuple(words)), start(size, home, tuple(words))
        left, right = (read_run(home / f"digits {number}") for number in (1, size))
        same = all(bool((left.tensors[name] == right.tensors[name]).all()) for name in left.tensors)
        same &= (home / "labels 1.csv").read_bytes() == (home / f"labels {size}.csv").read_bytes()
    for place, stage in enumerate(STAGES):
        for kind, alone, shared in zip(("clock", "processor"), one, many, strict=True):
            gain = alone[place] / shared[place]
            print(f"{stage:8} {kind:10} 1: {alone[place]:7.2f} s, {size}: {shared[place]:7.2f} s: {gain:.2f} ×")
    print(
        f"bits are {'equal' if same else 'DIFFERENT'}; {time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--in"]:
        work(Path(sys.argv[2]), tuple(sys.argv[3:]))
        end_at_once(0)
    else:
        main(sys.argv[1:])
