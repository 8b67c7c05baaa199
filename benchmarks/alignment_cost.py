"""What a training step of each alignment method costs, in steps of source_only.

    python -m benchmarks.alignment_cost [--methods dan,mcd] [--steps 20]

One batch of 128 rows a side of `digits`, `small_cnn`, one thread. Times are the processor's, so that waiting for one
that others use counts nothing. Methods take their steps in turn; a ratio is the median over turns of the quotient of
two times of the same turn, so that caches that others fill slow both. Reading rows and making views is not timed,
`settle` after a step is. Methods that do not take rows, and restyling, are left out.
Goal: at most 1.3 × the passes that comparators.md counts for a method.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable

import torch

from embasis.config import load
from embasis.data.datasets.digit_sets import digits
from embasis.engine.epoch import batches_of, rows_of_epoch
from embasis.engine.self_train import begin
from embasis.engine.train import make_trainer, take_step
from embasis.methods import ALIGNMENT, METHODS
from embasis.runs.parts import build

COUNTED = {
    "dan": 2.0, "dann": 2.0, "mcc": 2.0, "jan": 2.0, "cdan": 2.0, "mdd": 2.2, "simnet": 2.7, "adda": 3.0,
    "mean_teacher": 3.0, "gta": 5.0, "mcd": 6.0, "adr": 6.0,
}  # fmt: skip
"""Passes of a step, counted, in units of a step of source_only."""
GOAL = 1.3


def step_of(name: str) -> Callable[[], None]:
    """A step of a method on one batch that stays the same."""
    own = {"restyle": 0.0} if METHODS[name](10).restyle is not None else {}
    made = build(digits(count=1800), load(method={"name": name, **own}, network={"name": "small_cnn"}))
    state = begin(made.network, made.method, made.plan)
    state.round = made.method.align.begins if made.method.align is not None else 0
    state.network.train()
    trainer = make_trainer(made.problem, made.method, made.plan, state)
    pairs = rows_of_epoch(made.problem, made.method, made.plan, state)
    batch = next(batches_of(made.problem, made.plan, state, pairs, trainer.aligner))
    trainer.tau, state.step = 0.5, 1  # `settle` counts from one

    def step() -> None:
        take_step(trainer, batch)
        trainer.settle("step", len(pairs))

    return step


def measure(names: list[str], turns: int) -> dict[str, list[float]]:
    """Seconds of each step; the first three turns are not counted."""
    steps = {name: step_of(name) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(turns + 3):
        for name, step in steps.items():
            began = time.process_time()
            step()
            if turn >= 3:
                seconds[name].append(time.process_time() - began)
    return seconds


def main() -> int:
    takes = [name for name, recipe in ALIGNMENT.items() if (align := recipe(10).align) and "rows" in align.takes]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--methods", default=",".join(takes))
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    torch.set_num_threads(1)
    seconds = measure(["source_only", *given.methods.split(",")], given.steps)
    print(f"torch {torch.__version__}, one thread, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'':14}{'ms':>8}{'ratio':>8}{'counted':>9}{'÷ counted':>11}")
    over = 0
    for name, values in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(values, seconds["source_only"], strict=True))
        counted = COUNTED.get(name)
        line = f"{name:14}{statistics.median(values) * 1e3:8.1f}{ratio:8.2f}"
        print(line + (f"{counted:9.1f}{ratio / counted:11.2f}" if counted else f"{'–':>9}{'–':>11}"))
        over += counted is not None and ratio > GOAL * counted
    print(f"over {GOAL} × what is counted: {over}")
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main())
