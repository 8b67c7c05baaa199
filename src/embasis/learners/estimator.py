"""Any classifier of scikit-learn as a learner, in memory: what it has learned is in the object that it is.

A run folder cannot keep it, since that would take a pickle; learners/trees.py has those that one can.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import clone, is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter
from torch import Tensor

from embasis.errors import ConfigError, CorruptError, EmbasisWarning, require
from embasis.networks.learner import FitKey, LearnerNetwork, WeightedRows


class EstimatorNetwork(LearnerNetwork):
    """A classifier that is cloned for each fit; the fits of the newest round and of the best one are kept.

    | buffer | shape | meaning |
    | --- | --- | --- |
    | fit_number | () | the round of the fit that answers; −1 before the first |
    """

    fit_number: Tensor

    def __init__(self, estimator: Any, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes)
        self.estimator = estimator
        self.weight_word = find_weight_word(estimator)
        self.fits: dict[int, Any] = {}
        self.register_buffer("fit_number", torch.tensor(-1))

    def fit_rows(self, rows: WeightedRows, key: FitKey) -> None:
        """A clone of the classifier, fitted to these rows."""
        learner = clone(self.estimator)
        seed_learner(learner, key.seed)
        words = {} if self.weight_word is None else {self.weight_word: to_numpy(rows.weight)}
        learner.fit(to_numpy(rows.x), rows.y.numpy(), **words)
        self.fits = {number: fit for number, fit in self.fits.items() if number == key.best}
        self.fits[key.round] = learner
        self.fit_number.fill_(key.round)

    def probability(self, x: Tensor) -> Tensor:
        """What `predict_proba` says, with a column for each class."""
        learner = self.fits.get(int(self.fit_number))
        require(learner is not None, f"the learner of round {int(self.fit_number)} is not there any more", CorruptError)
        assert learner is not None
        p = np.asarray(learner.predict_proba(to_numpy(x)), dtype=np.float64)
        whole = np.zeros((len(p), self.classes))
        whole[:, np.asarray(learner.classes_)] = p
        return torch.from_numpy(whole)


def to_numpy(rows: Tensor) -> NDArray[np.float64]:
    """Rows as scikit-learn computes with them."""
    return rows.double().numpy()


def seed_learner(learner: Any, seed: int) -> None:
    """Set each `random_state` of a learner and of its parts that is None; one that the user has set stays."""
    unset = [
        name for name, value in sorted(learner.get_params(deep=True).items())
        if value is None and (name == "random_state" or name.endswith("__random_state"))
    ]  # fmt: skip
    if unset:
        learner.set_params(**dict.fromkeys(unset, seed))


def refuse_estimator(estimator: Any) -> None:
    """A ConfigError for what is no classifier that gives probabilities."""
    name = type(estimator).__name__
    fits = hasattr(estimator, "fit") and hasattr(estimator, "get_params") and not isinstance(estimator, type)
    rule = "estimator must be a classifier of scikit-learn, as in estimator=HistGradientBoostingClassifier(), got"
    require(fits, f"{rule} {estimator if isinstance(estimator, type) else name}", ConfigError)
    require(is_classifier(estimator), f"{rule} {name}", ConfigError)
    cure = f"wrap it, as in estimator=CalibratedClassifierCV({name}()), or take one that has"
    require(hasattr(estimator, "predict_proba"), f"estimator {name} has no predict_proba: {cure}", ConfigError)


def find_weight_word(estimator: Any) -> str | None:
    """What `fit` calls the weights of rows; None where it takes none. In a Pipeline its last step takes them."""
    if not isinstance(estimator, Pipeline):
        return "sample_weight" if has_fit_parameter(estimator, "sample_weight") else None
    if get_config()["enable_metadata_routing"]:  # then only a request of the user's own leads them there
        return None
    name, last = estimator.steps[-1]
    word = find_weight_word(last)
    return None if word is None else f"{name}__{word}"


def warn_of_weights(estimator: Any) -> None:
    """Say that a learner counts all rows alike."""
    if find_weight_word(estimator) is not None:
        return
    what = f"the fit of {type(estimator).__name__} takes no sample_weight, so trusted labels count as much as true ones"
    text = f"{what}, each row once, whatever method.unlabelled_weight says"
    warnings.warn(EmbasisWarning(text), stacklevel=5)
