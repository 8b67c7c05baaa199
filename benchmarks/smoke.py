"""Every method from data to a last round, as short as can be: does all of it run?

    python -m benchmarks.smoke

Each method of METHODS on `blobs` (90 rows a side) and on `digits` (200 virtual digits), one round of one epoch, in one
thread; then both recipes of the paper's method by the command line. One line each; exit code 1 if any fails. The
accuracies of one epoch say nothing about the methods.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
import traceback

import torch

from embasis import config
from embasis.data import DATASETS
from embasis.engine.self_train import self_train
from embasis.methods import METHODS
from embasis.runs.parts import build
from embasis.types import Problem

DATA = {"blobs": {"count": 90}, "digits": {"count": 200}}
PLAN = {"rounds": 1, "source_epochs": 1, "epochs": 1}
COMMAND = ("compare", "digits", "--methods", "em_basis,em_basis_paper", "--seeds", "1", "data.count=200",
           *(f"plan.{key}={value}" for key, value in PLAN.items()))  # fmt: skip


def run(problem: Problem, method: str) -> float:
    """The accuracy after the last round; every number of the records must be finite."""
    built = build(problem, config.load(None, (), top={"seed": 0, "method": {"name": method}, "plan": dict(PLAN)}))
    records = list(self_train(built.problem, built.network, built.method, built.plan))
    last = records[-1].evaluation
    if last is None or not all(math.isfinite(value) for value in (last.accuracy, last.nll, last.ece, records[-1].loss)):
        raise ArithmeticError(f"a record is not finite or not evaluated: {records[-1]}")
    return last.accuracy


def main() -> int:
    torch.set_num_threads(1)
    began, failed = time.perf_counter(), 0
    for data, settings in DATA.items():
        problem = DATASETS[data](**settings)
        for method in METHODS:
            start = time.perf_counter()
            try:
                accuracy = run(problem, method)
            except Exception:
                failed += 1
                print(f"{data:8}{method:14} FAILED\n{traceback.format_exc()}")
            else:
                print(f"{data:8}{method:14} accuracy {accuracy:.3f}  {time.perf_counter() - start:5.1f} s")
    print(f"embasis {' '.join(COMMAND)}", flush=True)
    failed += subprocess.run([sys.executable, "-m", "embasis", *COMMAND], check=False).returncode != 0
    count = len(DATA) * len(METHODS) + 1
    print(f"{count - failed} of {count} finished in {time.perf_counter() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
