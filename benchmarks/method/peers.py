"""What a user would pick instead: scikit-learn's and skada's methods, as they come, on the same vectors.

| peer | what it does with the unlabelled side |
| --- | --- |
| logistic regression | nothing |
| self-training | takes its own labels over 0.9 for true, again and again |
| label spreading | spreads labels over the graph of 7 nearest neighbours of both sides |
| CORAL | gives the labelled side the covariance of the unlabelled one, then logistic regression |
| optimal transport | moves labelled rows onto unlabelled ones at the least cost, then logistic regression |
| subspace alignment | turns the principal directions of one side into those of the other, then logistic regression |

Rows come as em_basis gets them: vectors with each domain standardised by itself, pixels (0 … 1) as they are. skada is a
benchmark extra and is imported when it is asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
PENALTY = 0.1
"""C, the inverse strength of the penalty; one line of the table has scikit-learn's default of 1."""


@dataclass(frozen=True)
class Vectors:
    """The rows of a problem: labelled, unlabelled, and those that are judged (test rows, else the unlabelled ones)."""

    x: Floats
    y: NDArray[np.int64]
    unlabelled: Floats
    judged: Floats

    @property
    def both(self) -> tuple[Floats, NDArray[np.int64]]:
        """All rows, −1 on the unlabelled ones."""
        marks = np.full(len(self.unlabelled), -1)
        return np.concatenate([self.x, self.unlabelled]), np.concatenate([self.y, marks])


def linear(penalty: float = PENALTY) -> Any:
    """The classifier at the end of every peer."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=penalty, max_iter=2000)


def logistic(rows: Vectors) -> Floats:
    """The labelled side alone."""
    return np.asarray(linear().fit(rows.x, rows.y).predict_proba(rows.judged))


def plain_logistic(rows: Vectors) -> Floats:
    """The same with scikit-learn's default penalty."""
    return np.asarray(linear(1.0).fit(rows.x, rows.y).predict_proba(rows.judged))


def self_training(rows: Vectors) -> Floats:
    """scikit-learn's self-training on the same classifier."""
    from sklearn.semi_supervised import SelfTrainingClassifier

    return np.asarray(SelfTrainingClassifier(linear(), threshold=0.9).fit(*rows.both).predict_proba(rows.judged))


def label_spreading(rows: Vectors) -> Floats:
    """scikit-learn's label spreading; a row that no label reaches has even probabilities."""
    from sklearn.semi_supervised import LabelSpreading

    model = LabelSpreading(kernel="knn", n_neighbors=7).fit(*rows.both)
    if rows.judged is rows.unlabelled:
        found = np.asarray(model.label_distributions_)[len(rows.x) :]
    else:
        found = np.asarray(model.predict_proba(rows.judged))
    found = np.nan_to_num(found) + 1e-9
    return np.asarray(found / found.sum(1, keepdims=True))


def adapted(name: str, **settings: int) -> Callable[[Vectors], Floats]:
    """A pipeline of skada with the same classifier at its end: labelled rows are domain 1, the others −2.

    There are no more principal directions (`n_components`) than rows of a side."""

    def run(rows: Vectors) -> Floats:
        import skada

        x, y = rows.both
        domain = np.where(y >= 0, 1, -2)
        own = dict(settings)
        if "n_components" in own:
            own["n_components"] = min(own["n_components"], len(rows.x), len(rows.unlabelled), x.shape[1])
        model = getattr(skada, name)(linear(), **own).fit(x, y, sample_domain=domain)
        return np.asarray(model.predict_proba(rows.judged, sample_domain=np.full(len(rows.judged), -2)))

    return run


@dataclass(frozen=True)
class Peer:
    """A function of vectors to probabilities, what it is made with, and the package it needs."""

    run: Callable[[Vectors], Floats]
    words: tuple[str, ...] = (f"C={PENALTY}",)
    package: str = "sklearn"

    @property
    def there(self) -> bool:
        """Whether the package is installed."""
        return importlib.util.find_spec(self.package) is not None

    def load(self) -> None:
        """Import what it needs, so that it is not timed."""
        for name in ("sklearn.linear_model", "sklearn.semi_supervised", self.package):
            importlib.import_module(name)

    def __call__(self, rows: Vectors) -> Floats:
        """Class probabilities (n, C) of the judged rows."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of convergence, and of what their own libraries call old
            return self.run(rows)


PEERS: Mapping[str, Peer] = {
    "sklearn logistic regression": Peer(logistic),
    "sklearn logistic regression C 1": Peer(plain_logistic, ("C=1",)),
    "sklearn self-training": Peer(self_training, (f"C={PENALTY}", "threshold=0.9")),
    "sklearn label spreading": Peer(label_spreading, ("kernel=knn", "n_neighbors=7")),
    "skada CORAL": Peer(adapted("CORAL"), package="skada"),
    "skada optimal transport": Peer(adapted("OTMapping"), package="skada"),
    "skada subspace alignment": Peer(
        adapted("SubspaceAlignment", n_components=128, random_state=0),
        (f"C={PENALTY}", "n_components=128", "random_state=0"),
        "skada",
    ),
}
