"""Learners for a large table: accuracy and calibration on the unlabelled side.

    python -m benchmarks.learners [--rows 100000] [--seeds 0 1 2] [--only NAME …] [--threads 0]

The table: rows with 20 features of two places and two classes. The class is a function of ten of the features, with
products, waves and thresholds. The places differ twice: the unlabelled side has other shares of four kinds of rows (a
covariate shift), and each of its columns has another unit and another zero. How far apart the kinds are (0.3) was
chosen once, so that gradient boosting and logistic regression have the accuracies of the table that the question came
from, 0.914 and 0.67; our own score was not looked at for that.

| name | what |
| --- | --- |
| linear, mlp | EMBasisClassifier(network=…).fit(X, y, unlabelled=Xt) |
| boosting | HistGradientBoostingClassifier() on the labelled side, each side scaled by itself |
| self-training | SelfTrainingClassifier(HistGradientBoostingClassifier()), each side scaled by itself |
| ours | EMBasisClassifier(estimator=HistGradientBoostingClassifier()).fit(X, y, unlabelled=Xt) |

ECE: the expected calibration error in 15 bins of equal width (docs/metrics.md). NLL: the mean negative log likelihood
of the true classes. Seconds are of the whole call on this machine, beside whatever else runs on it.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from threadpoolctl import threadpool_limits

from embasis import EMBasisClassifier
from embasis.functional.calibration import expected_calibration_error, reliability_bins

FEATURES, KINDS = 20, 4
Numbers = NDArray[Any]


class Table(NamedTuple):
    """Labelled rows and their classes; unlabelled rows, and their true classes, which nothing but scores sees."""

    x: Numbers
    y: Numbers
    other: Numbers
    truth: Numbers


def make_table(rows: int, seed: int) -> Table:
    """So many rows on each side."""
    draw = np.random.default_rng(seed)
    centres = draw.normal(0, 0.3, (KINDS, FEATURES))
    shares = np.array([[0.4, 0.3, 0.2, 0.1], [0.15, 0.25, 0.25, 0.35]])
    latent, classes = [], []
    for share in shares:
        x = centres[draw.choice(KINDS, rows, p=share)] + draw.normal(size=(rows, FEATURES))
        latent.append(x)
        classes.append((class_score(x) > 0).astype(np.int64))
    units, zeros = np.exp(draw.normal(0, 0.7, FEATURES)), draw.normal(0, 2, FEATURES)
    return Table(latent[0], classes[0], latent[1] * units + zeros, classes[1])


def class_score(x: Numbers) -> Numbers:
    """Positive for one class: products, waves and thresholds of ten features."""
    score = 1.2 * x[:, 0] * x[:, 1] + 1.5 * np.sin(2 * x[:, 2]) + np.abs(x[:, 3]) - 0.8
    score += np.where(x[:, 4] > 0, x[:, 5], -x[:, 6]) + 0.7 * x[:, 7] + 0.8 * (x[:, 8] ** 2 - 1) * (x[:, 9] > 0.3)
    return np.asarray(score)


def fit_ours(table: Table, seed: int, **settings: Any) -> Numbers:
    """Probabilities of the unlabelled rows by EMBasisClassifier."""
    model = EMBasisClassifier(random_state=seed, **settings).fit(table.x, table.y, unlabelled=table.other)
    return model.predict_proba(table.other)


def fit_scaled(table: Table, seed: int, self_trained: bool) -> Numbers:
    """Probabilities of the unlabelled rows by gradient boosting, with each side scaled by itself."""
    x, other = (StandardScaler().fit_transform(side) for side in (table.x, table.other))
    learner = HistGradientBoostingClassifier(random_state=seed)
    if not self_trained:
        return np.asarray(learner.fit(x, table.y).predict_proba(other))
    marks = np.concatenate([table.y, np.full(len(other), -1)])
    return np.asarray(SelfTrainingClassifier(learner).fit(np.concatenate([x, other]), marks).predict_proba(other))


LEARNERS: dict[str, Callable[[Table, int], Numbers]] = {
    "linear": lambda table, seed: fit_ours(table, seed),
    "mlp": lambda table, seed: fit_ours(table, seed, network="mlp"),
    "boosting": lambda table, seed: fit_scaled(table, seed, False),
    "self-training": lambda table, seed: fit_scaled(table, seed, True),
    "ours": lambda table, seed: fit_ours(table, seed, estimator=HistGradientBoostingClassifier()),
}


def score(p: Numbers, truth: Numbers) -> dict[str, float]:
    """Accuracy, ECE and negative log likelihood of probabilities."""
    right = torch.from_numpy(p.argmax(1) == truth)
    bins = reliability_bins(torch.from_numpy(p.max(1)).float(), right)
    likelihood = p[np.arange(len(truth)), truth].clip(1e-12)
    return {
        "accuracy": float(right.double().mean()),
        "ECE": expected_calibration_error(bins),
        "NLL": float(-np.log(likelihood).mean()),
    }


def main() -> None:
    """Print a line for each learner and seed, then the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", choices=list(LEARNERS), default=list(LEARNERS))
    parser.add_argument("--threads", type=int, default=0, help="0 = as the libraries choose")
    chosen = parser.parse_args()
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    warnings.simplefilter("ignore")
    found: dict[str, list[dict[str, float]]] = {name: [] for name in chosen.only}
    with threadpool_limits(chosen.threads or None):
        for seed in chosen.seeds:
            table = make_table(chosen.rows, seed)
            for name in chosen.only:
                start = time.perf_counter()
                scores = score(LEARNERS[name](table, seed), table.truth)
                scores["seconds"] = time.perf_counter() - start
                found[name].append(scores)
                print(seed, name, " ".join(f"{key} {value:.4f}" for key, value in scores.items()), flush=True)
    print("\n| learner | accuracy | ECE | NLL | seconds |\n| --- | ---: | ---: | ---: | ---: |")
    for name, rows in found.items():
        means = [statistics.mean(row[key] for row in rows) for key in ("accuracy", "ECE", "NLL", "seconds")]
        print(f"| {name} | {means[0]:.4f} | {means[1]:.4f} | {means[2]:.4f} | {means[3]:.0f} |")


if __name__ == "__main__":
    main()
