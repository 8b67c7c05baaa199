"""What plan.sum=fast costs in accuracy: float32 sums of gradients over processes beside exact ones.

    python -m benchmarks.fast_sums [N [SEEDS]]        # 2 processes, 5 seeds; digits, small_cnn of width 4

| figure | what it is |
| --- | --- |
| gradient | the largest |fast − exact| / |exact| (length of the whole gradient) of any step of an exact run |
| accuracy | hidden labels of the unlabelled side after the last round, exact and fast, each seed a pair |

Processes are real ones with gloo. The first kind of run is repeated as it is, so that a difference is one of the sums.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from statistics import mean

import torch
from torch import Tensor, nn

from embasis import config
from embasis.data import DATASETS
from embasis.distributed import current_world, join
from embasis.distributed.meeting import leave
from embasis.engine import train as training
from embasis.engine.self_train import train_rounds
from embasis.engine.step_parts import add_up_gradients
from embasis.runs.parts import build
from embasis.terminal import end_at_once
from embasis.types import Plan

WORDS = ("network.name=small_cnn", "network.width=4", "plan.rounds=1", "plan.source_epochs=2", "plan.epochs=1",
         "plan.accumulate_steps=8", "plan.batch_size=64")  # fmt: skip
ROWS = 1200
worst = [0.0]
"""The largest difference of a gradient up to now."""


def compare_gradients(
    gradients: Sequence[Sequence[Tensor]], weights: Sequence[nn.Parameter], count: int, plan: Plan
) -> None:
    """Add up in both ways, note how far they are apart, and go on with the exact sum."""
    sums = {}
    for kind in ("fast", "exact"):
        add_up_gradients(gradients, weights, count, replace(plan, sum=kind))
        sums[kind] = torch.cat([weight.grad.double().flatten() for weight in weights if weight.grad is not None])
    difference = float((sums["fast"] - sums["exact"]).norm() / sums["exact"].norm().clamp_min(1e-300))
    worst[0] = max(worst[0], difference)


def fit_digits(seed: int, kind: str) -> float:
    """Accuracy on the unlabelled side after the last round."""
    problem = DATASETS["digits"](seed=seed, count=ROWS)
    built = build(problem, config.load(None, (*WORDS, f"seed={seed}", f"plan.sum={kind}")))
    record = None
    for event in train_rounds(built.problem, built.network, built.method, built.plan):
        record = event.record or record
    assert record is not None
    assert record.evaluation is not None
    return float(record.evaluation.accuracy)


def work(seeds: int) -> None:
    """The runs of one process of several."""
    with join() as world:
        pairs = []
        for seed in range(seeds):
            training.add_up_gradients = compare_gradients  # type: ignore[attr-defined]
            exact = fit_digits(seed, "exact")
            training.add_up_gradients = add_up_gradients  # type: ignore[attr-defined]
            pairs.append((exact, fit_digits(seed, "fast")))
        if current_world().is_first:
            print(json.dumps({"worst": worst[0], "pairs": pairs}), flush=True)
        leave(world)


def main(size: int, seeds: int) -> None:
    """Start the processes, and print what they found."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = {**os.environ, "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
              "OMP_NUM_THREADS": "1"}  # fmt: skip
    command = [sys.executable, "-m", "benchmarks.fast_sums", str(size), str(seeds)]
    ranks = [
        subprocess.Popen(command, env={**common, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(size)
    ]
    first, *_ = [rank.communicate()[0] for rank in ranks]
    found = json.loads(first)
    exact, fast = (mean(column) for column in zip(*found["pairs"], strict=True))
    print(f"{size} processes, {seeds} seeds, digits, {ROWS:,} rows a side")
    print(f"gradient: at most {found['worst']:.1e} apart in a step (1e-6 wanted)")
    pairs = ", ".join(f"{one:.4f} {other:.4f}" for one, other in found["pairs"])
    print(f"accuracy: exact {exact:.4f}, fast {fast:.4f}: {100 * (fast - exact):+.2f} points (0.2 wanted); {pairs}")


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    if "RANK" in os.environ:
        work(numbers[1])
        end_at_once(0)
    else:
        main(*(numbers + [2, 5][len(numbers) :]))
