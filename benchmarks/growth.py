"""How a fit grows with rows, features and classes: exponents of processor time, and memory beside the features.

    OMP_NUM_THREADS=1 python -m benchmarks.growth              # a few minutes: rows up to 100,000
    OMP_NUM_THREADS=1 python -m benchmarks.growth --whole      # rows up to 1,000,000
    OMP_NUM_THREADS=1 python -m benchmarks.growth --axes rows

| axis | sizes | the others stay at |
| --- | --- | --- |
| rows | 1,000 … 100,000 (--whole: 1,000,000) | 32 features, 10 classes |
| features | 10 … 4,096 | 4,000 rows, 10 classes |
| classes | 2 … 345 | 4,000 rows, 512 features |

Rows are drawn around a mean for each class, half of them labelled, the other half moved and unlabelled. Each size is
fitted in a process of its own with two rounds of self-training: EMBasisClassifier(rounds=2).fit(X, y, unlabelled=Xt).
Time is `time.process_time` of the fit after a small one has warmed up. Memory is what the peak (VmHWM) rose by from
before the features were made, in units of these features (float32): 1 are the caller's own.

The work is rows × features × components, and components follow from rows and classes (methods/em_basis/start.py). The
exponent is log(time ratio) / log(work ratio) of the two largest sizes, where what every fit costs is small beside the
rest. Goals: at most 1.1 on every axis; at most 3 times the features in memory, where they are 64 MB or more.
"""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from embasis.api.classifier import EMBasisClassifier
from embasis.errors import EmbasisWarning
from embasis.methods.em_basis.start import ClassMeans

GOAL_EXPONENT, GOAL_MEMORY, LARGE_BYTES = 1.1, 3.0, 64_000_000


@dataclass(frozen=True)
class Size:
    """Of one fit; half of the rows are labelled."""

    rows: int
    features: int
    classes: int

    @property
    def bytes(self) -> int:
        """Of the features of both sides."""
        return 4 * self.rows * self.features

    @property
    def components(self) -> int:
        """Of the basis."""
        return self.classes * ClassMeans().components_per_class_for(self.rows, self.classes)

    @property
    def work(self) -> float:
        """rows × features × components."""
        return float(self.rows) * self.features * self.components


AXES = {
    "rows": tuple(Size(rows, 32, 10) for rows in (1_000, 10_000, 30_000, 100_000, 1_000_000)),
    "features": tuple(Size(4_000, features, 10) for features in (10, 64, 256, 1_024, 2_048, 4_096)),
    "classes": tuple(Size(4_000, 512, classes) for classes in (2, 10, 40, 120, 345)),
}


def draw_table(size: Size) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]]:
    """Labelled rows, their classes, and unlabelled rows of another place."""
    draw = np.random.default_rng(0)
    means = draw.normal(size=(size.classes, size.features)).astype(np.float32)
    count = size.rows // 2
    y = np.arange(count) % size.classes
    sides = []
    for shift in (0.0, 0.5):
        x = draw.standard_normal((count, size.features), dtype=np.float32)
        for start in range(0, count, 10_000):  # no second copy of all rows
            x[start : start + 10_000] += means[y[start : start + 10_000]] * np.float32(1 - shift / 2) + np.float32(
                shift
            )
        sides.append(x)
    return sides[0], y, sides[1]


def peak_bytes() -> int:
    """The most memory that this process has had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found is not None
    return 1024 * int(found[1])


def measure(size: Size) -> tuple[float, float]:
    """Processor seconds of a fit, and by how many times its features memory rose; in this process."""
    warnings.simplefilter("ignore", EmbasisWarning)
    x, y, other = draw_table(Size(200, 8, 2))
    EMBasisClassifier(rounds=2, random_state=0).fit(x, y, unlabelled=other)
    before = peak_bytes()
    x, y, other = draw_table(size)
    began = time.process_time()
    EMBasisClassifier(rounds=2, random_state=0).fit(x, y, unlabelled=other)
    return time.process_time() - began, (peak_bytes() - before) / size.bytes


def measure_apart(size: Size) -> tuple[float, float]:
    """The same in a process of its own."""
    one = f"{size.rows}x{size.features}x{size.classes}"
    command = [sys.executable, "-m", "benchmarks.growth", "--one", one]
    seconds, memory = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-2:]
    return float(seconds), float(memory)


def exponent_of(sizes: list[Size], seconds: list[float]) -> float:
    """By which power of the work time grows between the two largest sizes."""
    return math.log(seconds[-1] / seconds[-2]) / math.log(sizes[-1].work / sizes[-2].work)


def print_axis(name: str, sizes: list[Size]) -> bool:
    """A table of one axis; whether both goals are reached."""
    print(f"\n{name}\n{'rows':>10}{'features':>10}{'classes':>9}{'components':>12}{'seconds':>10}{'× features':>12}")
    seconds, reached = list[float](), True
    for size in sizes:
        taken, memory = measure_apart(size)
        seconds.append(taken)
        counted = size.bytes >= LARGE_BYTES
        reached = reached and (not counted or memory <= GOAL_MEMORY)
        kept = f"{memory:12.2f}" if counted else f"{'–':>12}"
        shape = f"{size.rows:10,}{size.features:10,}{size.classes:9,}{size.components:12,}"
        print(f"{shape}{taken:10.2f}{kept}", flush=True)
    exponent = exponent_of(sizes, seconds)
    print(f"exponent of {name}: {exponent:.2f} (goal: at most {GOAL_EXPONENT})", flush=True)
    return reached and exponent <= GOAL_EXPONENT


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--axes", default=",".join(AXES), help="separated by commas")
    parser.add_argument("--whole", action="store_true", help="rows up to 1,000,000")
    parser.add_argument("--one", help="ROWSxFEATURESxCLASSES: measure this size in this process")
    given = parser.parse_args()
    if given.one:
        rows, features, classes = map(int, given.one.split("x"))
        print(*measure(Size(rows, features, classes)))
        return 0
    print(f"whole fits with two rounds, processor seconds, {torch.get_num_threads()} threads of torch")
    reached = []
    for name in given.axes.split(","):
        sizes = [size for size in AXES[name] if given.whole or size.rows <= 100_000]
        reached.append(print_axis(name, sizes))
    print(f"goals reached on {sum(reached)} of {len(reached)} axes")
    return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())
