"""`EMBasisClassifier().fit` beside scikit-learn's `SelfTrainingClassifier(LogisticRegression())` on the same rows.

    python -m benchmarks.estimator_speed [--repeats 3] [--width 1280] [--threads 0]

The rows: 7 classes in 1,280 ReLU-like features (as a pooled convolutional network gives), 1,670 labelled and 2,048
unlabelled ones with a shift and another scale; fixed seed. Each fit is timed whole, with checks and conversions.

| name | call |
| --- | --- |
| embasis −1 | EMBasisClassifier().fit(X, y), −1 on the unlabelled rows |
| embasis unlabelled= | EMBasisClassifier().fit(X, y, unlabelled=Xt) |
| self-training | SelfTrainingClassifier(LogisticRegression(max_iter=1000)).fit(X, y), −1 on the unlabelled rows |
| self-training scaled | the same on rows scaled by StandardScaler, which is inside the time |

Repeats are interleaved; a ratio is the median over repeats of the quotient of two times of the same repeat. Where
others work on the same cores, `--threads 1` compares the work without the waiting of threads.
Goal: both embasis calls no slower than self-training as it comes. The accuracies are on the unlabelled rows and no
claim: the rows are made up.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np
import sklearn
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from threadpoolctl import threadpool_limits

from embasis.api.classifier import EMBasisClassifier

LABELLED, UNLABELLED, CLASSES = 1670, 2048, 7
REFERENCE = "self-training"


def rows(width: int, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """X with the labelled rows first, y with −1 on the others, and the truth."""
    draw = np.random.default_rng(seed)
    count = LABELLED + UNLABELLED
    truth = draw.integers(0, CLASSES, count)
    latent = 40
    centres = draw.normal(size=(CLASSES, latent)) * 0.45
    hidden = centres[truth] + draw.normal(size=(count, latent))
    hidden[LABELLED:] += draw.normal(size=latent) * 0.5
    mixing = draw.normal(size=(latent, width)) / latent**0.5
    noise = draw.normal(size=(count, width)) * 0.8
    x = hidden @ mixing + noise + draw.normal(size=width) * 0.5 - 0.5
    x[LABELLED:] = x[LABELLED:] * draw.uniform(0.6, 1.4, width) + draw.normal(size=width) * 0.3
    marked = truth.copy()
    marked[LABELLED:] = -1
    return np.maximum(x, 0).astype(np.float32), marked, truth


def fits(
    x: NDArray[np.float32], y: NDArray[np.int64]
) -> dict[str, Callable[[], EMBasisClassifier | SelfTrainingClassifier | Pipeline]]:
    """What is timed."""
    left, right, known = x[:LABELLED], x[LABELLED:], y[:LABELLED]

    def self_training() -> SelfTrainingClassifier:
        return SelfTrainingClassifier(LogisticRegression(max_iter=1000))

    return {
        "embasis −1": lambda: EMBasisClassifier().fit(x, y),
        "embasis unlabelled=": lambda: EMBasisClassifier().fit(left, known, unlabelled=right),
        REFERENCE: lambda: self_training().fit(x, y),
        "self-training scaled": lambda: make_pipeline(StandardScaler(), self_training()).fit(x, y),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--threads", type=int, default=0, help="of torch and of numpy's BLAS; 0 = their defaults")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
        threadpool_limits(given.threads)
    warnings.simplefilter("ignore", ConvergenceWarning)
    x, y, truth = rows(given.width)
    timed = fits(x, y)
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    accuracy: dict[str, float] = {}
    EMBasisClassifier(rounds=1).fit(x[::10], y[::10])  # what torch loads on its first call is not part of a fit
    for _ in range(given.repeats):
        for name, fit in timed.items():
            began = time.perf_counter()
            model = fit()
            seconds[name].append(time.perf_counter() - began)
            accuracy[name] = float((model.predict(x[LABELLED:]) == truth[LABELLED:]).mean())
    print(f"fit on {LABELLED} labelled + {UNLABELLED} unlabelled rows × {given.width} features, {CLASSES} classes")
    print(
        f"torch {torch.__version__} with {torch.get_num_threads()} threads, scikit-learn {sklearn.__version__}, load "
        f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; medians of {given.repeats} interleaved repeats"
    )
    print(f"{'':22}{'s':>7}{'best s':>8}{'× self-training':>17}{'accuracy':>10}")
    ratios = {}
    for name, values in seconds.items():
        ratios[name] = statistics.median(a / b for a, b in zip(values, seconds[REFERENCE], strict=True))
        median = statistics.median(values)
        print(f"{name:22}{median:7.2f}{min(values):8.2f}{ratios[name]:17.2f}{accuracy[name]:10.3f}")
    reached = all(ratio <= 1 for name, ratio in ratios.items() if name.startswith("embasis"))
    print(f"goal (no slower than self-training): {'reached' if reached else 'NOT reached'}")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
