"""Whole fits of small real tables beside one line of scikit-learn: processor seconds, one thread.

    OMP_NUM_THREADS=1 python -m benchmarks.table_speed [--repeats 3] [--data ../shared/data] [--threads 1]

| name | call |
| --- | --- |
| em_basis | EMBasisClassifier().fit(Xs, ys, unlabelled=Xt) |
| cbst | EMBasisClassifier(method="cbst").fit(Xs, ys, unlabelled=Xt) |
| scikit-learn | SelfTrainingClassifier(LogisticRegression(max_iter=1000)).fit(X, y) with −1 on the rows of Xt, |
|  | each side scaled by a StandardScaler of its own, which is inside the time |

The tables are pairs of places in the folder of real data (`EMBASIS_DATA`, or --data): people with phones, hospitals,
kinds of goods, speakers. The news of issue 21 are not in that folder. Seconds are `time.process_time`, so that what
others do on the machine counts little; repeats are interleaved, and a ratio is the median over repeats of the quotient
of two times of the same repeat. Goals: em_basis ≤ 2 × scikit-learn, and ≤ 1 × from 100,000 values on.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import sklearn
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from threadpoolctl import threadpool_limits

from embasis.api.classifier import EMBasisClassifier
from embasis.errors import EmbasisWarning

Table = tuple[str, NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]]
"""Name, rows and classes of the labelled place, rows of the other place."""
TABLES = (
    ("heart", "heart_disease.npz", (("cleveland", "hungarian"), ("hungarian", "cleveland"))),
    ("sensors", "wisdm_windows_feat.npz", (("s07", "s18"), ("s20", "s30"), ("s35", "s31"))),
    ("gas", "gas_drift.npz", (("batch01", "batch02"),)),
    ("reviews", "amazon400.npz", (("books", "dvd"), ("elec", "kitchen"))),
    ("speech", "fsdd_logmel.npz", (("george", "jackson"), ("nicolas", "theo"))),
)
"""Name, file, and pairs of places."""
MANY_VALUES = 100_000
GOAL, GOAL_OF_MANY = 2.0, 1.0


def read_tables(folder: Path) -> Iterator[Table]:
    """Every pair of places whose file is there."""
    for name, file, pairs in TABLES:
        if not (folder / file).is_file():
            print(f"{name}: no {folder / file}, left out")
            continue
        with np.load(folder / file, allow_pickle=False) as stored:
            x, y, place = stored["X"], stored["y"], stored["domain"]
        x = x.reshape(len(x), -1).astype(np.float32)
        classes = np.unique(y, return_inverse=True)[1].astype(np.int64)
        for first, second in pairs:
            here, there = place == first, place == second
            yield f"{name} {first} → {second}", x[here], classes[here], x[there]


def fits(table: Table) -> dict[str, Callable[[], object]]:
    """What is timed."""
    _, x, y, other = table

    def scikit_learn() -> SelfTrainingClassifier:
        rows = np.concatenate([StandardScaler().fit_transform(side) for side in (x, other)])
        marked = np.concatenate([y, np.full(len(other), -1)])
        return SelfTrainingClassifier(LogisticRegression(max_iter=1000)).fit(rows, marked)

    return {
        "scikit-learn": scikit_learn,
        "cbst": lambda: EMBasisClassifier(method="cbst", random_state=0).fit(x, y, unlabelled=other),
        "em_basis": lambda: EMBasisClassifier(random_state=0).fit(x, y, unlabelled=other),
    }


def measure(timed: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Processor seconds of each repeat."""
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(repeats):
        for name, body in timed.items():
            began = time.process_time()
            body()
            seconds[name].append(time.process_time() - began)
    return seconds


def ratio(seconds: dict[str, list[float]], name: str) -> float:
    """To scikit-learn, the median over repeats."""
    return statistics.median(a / b for a, b in zip(seconds[name], seconds["scikit-learn"], strict=True))


def print_row(table: Table, seconds: dict[str, list[float]]) -> bool:
    """One line of the table; whether its goal is reached."""
    name, x, _, other = table
    rows, width = len(x) + len(other), x.shape[1]
    goal = GOAL_OF_MANY if rows * width >= MANY_VALUES else GOAL
    medians = [statistics.median(seconds[each]) for each in ("scikit-learn", "cbst", "em_basis")]
    shape, reached = f"{rows:,} × {width:,}", ratio(seconds, "em_basis") <= goal
    times = "".join(f"{value:14.3f}" for value in medians)
    ratios = f"{ratio(seconds, 'cbst'):8.2f}{ratio(seconds, 'em_basis'):10.2f}"
    print(f"{name:29}{shape:>15}{times}{ratios}{goal:7.0f}  {'reached' if reached else 'NOT reached'}", flush=True)
    return reached


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("EMBASIS_DATA", "../shared/data")))
    parser.add_argument("--threads", type=int, default=1, help="of torch and of numpy's BLAS")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    threadpool_limits(given.threads)
    for kind in (ConvergenceWarning, EmbasisWarning, RuntimeWarning):
        warnings.simplefilter("ignore", kind)
    print(
        f"whole fits, processor seconds; torch {torch.__version__} with {torch.get_num_threads()} threads, "
        f"scikit-learn {sklearn.__version__}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; "
        f"medians of {given.repeats} interleaved repeats"
    )
    names = ("scikit-learn", "cbst", "em_basis")
    print(
        f"{'':29}{'rows × features':>15}{''.join(f'{name:>14}' for name in names)}{'× cbst':>8}{'× em':>10}{'goal':>7}"
    )
    reached, warm = [], False
    for table in read_tables(given.data):
        timed = fits(table)
        if not warm:  # what torch and scikit-learn load on their first call is no part of a fit
            warm = bool(measure(timed, 1))
        reached.append(print_row(table, measure(timed, given.repeats)))
    print(f"goal (≤ {GOAL:g} ×, ≤ {GOAL_OF_MANY:g} × from {MANY_VALUES:,} values on): {sum(reached)} of {len(reached)}")
    return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())
