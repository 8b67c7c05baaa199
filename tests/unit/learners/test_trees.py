"""Learners of trees: what is stored says what scikit-learn says, and damaged trees are refused."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from torch import Tensor

from embasis.errors import ConfigError, CorruptError, InputDataError
from embasis.learners import LEARNERS
from embasis.learners.trees import TreeNetwork
from embasis.networks.learner import FitKey, WeightedRows

LIVE: dict[str, Any] = {
    "hist_gradient_boosting": HistGradientBoostingClassifier(random_state=4, max_depth=512),
    "random_forest": RandomForestClassifier(random_state=4, max_depth=512, min_samples_leaf=5),
    "extra_trees": ExtraTreesClassifier(random_state=4, max_depth=512, min_samples_leaf=5),
}


def rows(classes: int, count: int = 400) -> WeightedRows:
    draw = np.random.default_rng(classes)
    x = draw.normal(size=(count, 5)).astype(np.float32)
    score = x[:, 0] * x[:, 1] + 0.3 * draw.normal(size=count)
    y = np.digitize(score, np.quantile(score, np.arange(1, classes) / classes))
    return WeightedRows(*(torch.from_numpy(part) for part in (x, y, draw.uniform(0.5, 2, count))))


def fitted(name: str, classes: int = 2) -> TreeNetwork:
    network: TreeNetwork = LEARNERS[name]((5,), classes)
    network.fit_rows(rows(classes), FitKey(0, 4))
    return network


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("name", list(LEARNERS))
def test_stored_trees_say_what_scikit_learn_says(name: str, classes: int) -> None:
    data, network = rows(classes), fitted(name, classes)
    x = np.random.default_rng(9).normal(size=(1500, 5)).astype(np.float32)
    live = LIVE[name].fit(data.x.double().numpy(), data.y.numpy(), sample_weight=data.weight.numpy())
    expected = live.predict_proba(x.astype(np.float64))
    np.testing.assert_allclose(network.probability(torch.from_numpy(x)).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("name", list(LEARNERS))
def test_the_rows_beside_a_row_change_no_bit_of_its_answer(name: str) -> None:
    network, x = fitted(name, 3), torch.randn(600, 5)
    whole = network.probability(x)
    assert torch.equal(whole[100:200], network.probability(x[100:200]))


@pytest.mark.parametrize("name", list(LEARNERS))
def test_trees_survive_being_taken_out_put_back_copied_and_pickled_by_their_user(name: str) -> None:
    network, x = fitted(name), torch.randn(50, 5)
    again: TreeNetwork = LEARNERS[name]((5,), 2)
    again.load_state_dict(network.state_dict())
    for other in (again, copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert torch.equal(other.probability(x), network.probability(x))
    assert all(tensor.isfinite().all() for tensor in network.state_dict().values())


def test_a_class_with_one_row_stops_no_early_stopping() -> None:
    data = rows(3, 11_000)  # from 10,000 rows on scikit-learn parts each class in two
    y = torch.where(data.y == 2, 1, data.y)
    y[7] = 2
    network: TreeNetwork = LEARNERS["hist_gradient_boosting"]((5,), 3, max_iter=3)
    network.fit_rows(WeightedRows(data.x, y, data.weight), FitKey(0, 4))
    assert network.probability(data.x[:3]).shape == (3, 3)


def test_a_class_without_a_row_is_refused() -> None:
    network: TreeNetwork = LEARNERS["random_forest"]((5,), 3)
    with pytest.raises(InputDataError, match=r"^every class needs a labelled row for a learner to be fitted$"):
        network.fit_rows(rows(2), FitKey(0, 4))


DAMAGED = "the learner's trees are damaged: "


def cut(name: str) -> Any:
    return lambda held: held.update({name: held[name][:-1]})


def put(name: str, value: float) -> Any:
    def change(held: dict[str, Tensor]) -> None:
        held[name] = held[name].clone()
        held[name].view(-1)[0] = value

    return change


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda held: held.update(threshold=held["threshold"].float()), "threshold is torch.float32"),
        (cut("value"), "value have other sizes than feature"),
        (cut("branches"), "branches have other sizes than feature"),
        (lambda held: held.update(baseline=torch.zeros(2).double()), "100 trees with 2 baselines for 2 classes"),
        (put("value", float("nan")), "a threshold or a value is not finite"),
        (put("threshold", float("inf")), "a threshold or a value is not finite"),
        (put("feature", 5), "a feature is not there"),
        (put("feature", -1), "a feature is not there"),
        (put("branches", 10_000_000), "a node leads to none below it"),
        (put("branches", -1), "a node leads to none below it"),
        (put("roots", 10_000_000), "a node leads to none below it"),
    ],
)
def test_tensors_that_are_no_trees_are_refused(change: Any, sentence: str) -> None:
    held = dict(fitted("hist_gradient_boosting").state_dict())
    change(held)
    with pytest.raises(CorruptError) as caught:
        LEARNERS["hist_gradient_boosting"]((5,), 2).load_state_dict(held)
    assert str(caught.value) == DAMAGED + sentence


def test_a_chain_that_would_take_hours_is_refused() -> None:
    count = 2000
    chain = torch.arange(1, count + 1, dtype=torch.int32)
    chain[-1] = count - 1
    held = {
        "feature": torch.zeros(count, dtype=torch.int32), "threshold": torch.zeros(count).double(),
        "branches": torch.stack([chain, chain], 1), "roots": torch.zeros(1, dtype=torch.int32),
        "value": torch.zeros(count, 1).double(), "baseline": torch.zeros(1).double(),
    }  # fmt: skip
    with pytest.raises(CorruptError, match=r"^the learner's trees are damaged: they are deeper than 512$"):
        LEARNERS["hist_gradient_boosting"]((5,), 2).load_state_dict(held)


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("hist_gradient_boosting", {"max_iter": 0}, "learner.max_iter must be at least 1, got 0"),
        ("hist_gradient_boosting", {"learning_rate": 0.0}, "learner.learning_rate must be positive, got 0.0"),
        ("hist_gradient_boosting", {"max_leaf_nodes": 1}, "learner.max_leaf_nodes must be at least 2, got 1"),
        ("random_forest", {"n_estimators": 0}, "learner.n_estimators must be at least 1, got 0"),
        ("extra_trees", {"max_depth": 513}, "learner.max_depth must be 0 (no limit) or in 1 … 512, got 513"),
    ],
)
def test_a_setting_out_of_its_range_is_refused_in_one_sentence(name: str, settings: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LEARNERS[name]((5,), 2, **settings)
    assert str(caught.value) == sentence
