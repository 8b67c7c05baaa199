"""Every method from data to a last round, as short as can be: does all of it run?

    python -m benchmarks.smoke

Each method of METHODS on every set that it takes: `blobs` (90 rows a side) with the network `adapter`, `digits` (200
virtual digits) and, if it takes nothing else, `scenes` (label maps, 6 pictures a side); one round of one epoch, in one
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
from embasis.benchmark.choice import leave_out
from embasis.data import DATASETS
from embasis.engine.self_train import self_train
from embasis.methods import METHODS
from embasis.runs.parts import build
from embasis.types import Problem

DATA = {
    "blobs": {"count": 90},
    "digits": {"count": 200},
    "scenes": {"labelled_rows": 6, "unlabelled_rows": 6, "test_rows": 2},
}
NETWORKS = {"blobs": "adapter", "digits": "small_cnn", "scenes": "small_fcn"}
PLAN = {"rounds": 1, "source_epochs": 1, "epochs": 1}
SHORT = {"cycada": {"steps": 3}, "fcan": {"iterations": 2}}
"""Settings that make a method short."""
COMMAND = ("compare", "digits", "--methods", "em_basis,em_basis_paper", "--seeds", "1", "data.count=200",
           *(f"plan.{key}={value}" for key, value in PLAN.items()))  # fmt: skip


def make_config(data: str, method: str = "source_only") -> config.Config:
    """The settings of one short run."""
    tables = {"method": {"name": method, **SHORT.get(method, {})}, "network": {"name": NETWORKS[data]}}
    return config.load(None, (), data={"dataset": data, **DATA[data]}, plan=dict(PLAN), **tables)


def run(problem: Problem, data: str, method: str) -> float:
    """The accuracy after the last round; every number of the records must be finite."""
    built = build(problem, make_config(data, method))
    records = list(self_train(built.problem, built.network, built.method, built.plan))
    last = records[-1].evaluation
    if last is None or not all(math.isfinite(value) for value in (last.accuracy, last.nll, last.ece, records[-1].loss)):
        raise ArithmeticError(f"a record is not finite or not evaluated: {records[-1]}")
    return last.accuracy


def choose_runs() -> list[tuple[str, str]]:
    """(data set, method): each method on the sets that it takes, on label maps only those that no other set takes."""
    runs = list[tuple[str, str]]()
    for data in DATA:
        names = leave_out(tuple(METHODS), (), make_config(data), None).names
        done = {method for _, method in runs} if data == "scenes" else set()
        runs += [(data, name) for name in names if name not in done]
    return runs


def main() -> int:
    torch.set_num_threads(1)
    began, failed = time.perf_counter(), 0
    problems = {data: DATASETS[data](**settings) for data, settings in DATA.items()}
    runs = choose_runs()
    for data, method in runs:
        start = time.perf_counter()
        try:
            accuracy = run(problems[data], data, method)
        except Exception:
            failed += 1
            print(f"{data:8}{method:14} FAILED\n{traceback.format_exc()}")
        else:
            print(f"{data:8}{method:14} accuracy {accuracy:.3f}  {time.perf_counter() - start:5.1f} s")
    missing = sorted({*METHODS} - {method for _, method in runs})
    print(*(f"{'':8}{method:14} FAILED: no set takes it" for method in missing), sep="\n", end="\n" if missing else "")
    failed += len(missing)
    print(f"embasis {' '.join(COMMAND)}", flush=True)
    failed += subprocess.run([sys.executable, "-m", "embasis", *COMMAND], check=False).returncode != 0
    count = len(runs) + len(missing) + 1
    print(f"{count - failed} of {count} finished in {time.perf_counter() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
