"""Steps of a scikit-learn Pipeline change X alone: where `unlabelled` misses them, that is said with its cure."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from embasis import EMBasisClassifier
from embasis.errors import EmbasisWarning

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)) * 50 + 7
Y = (X[:, 0] > 7).astype(int)
OTHER = RNG.normal(size=(40, 3)) * 50 + 20
SENTENCE = (
    "the Pipeline's steps before this classifier ({}) have changed X and not `unlabelled`; with "
    "sklearn.set_config(enable_metadata_routing=True), set_fit_request(unlabelled=True) and Pipeline(…, "
    'transform_input=["unlabelled"]) they change both; or give rows that you have passed through the steps yourself'
)


def make() -> EMBasisClassifier:
    return EMBasisClassifier(random_state=0, rounds=1)


def warnings_of(model: Pipeline, **given: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as met:
        warnings.simplefilter("always")
        model.fit(X, Y, **given)
    return [str(each.message) for each in met if issubclass(each.category, EmbasisWarning)]


def test_steps_that_unlabelled_misses_are_named() -> None:
    model = make_pipeline(StandardScaler(), make())
    assert warnings_of(model, embasisclassifier__unlabelled=OTHER) == [SENTENCE.format("standardscaler")]


def test_steps_of_a_pipeline_around_a_pipeline_are_named() -> None:
    inner = Pipeline([("nothing", "passthrough"), ("last", make())])
    model = Pipeline([("scale", StandardScaler()), ("inner", inner)])
    assert warnings_of(model, inner__last__unlabelled=OTHER) == [SENTENCE.format("scale")]


@pytest.mark.parametrize("step", ["passthrough", None])
def test_nothing_is_said_where_no_step_changes_anything(step: str | None) -> None:
    assert warnings_of(Pipeline([("nothing", step), ("last", make())]), last__unlabelled=OTHER) == []


def test_rows_marked_as_unlabelled_go_through_the_steps() -> None:
    model = make_pipeline(StandardScaler(), make())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(np.concatenate([X, OTHER]), np.concatenate([Y, np.full(len(OTHER), -1)]))


def test_with_the_cure_both_sides_go_through_the_steps_and_nothing_is_said() -> None:
    scaler = StandardScaler().fit(X)
    expected = make().fit(scaler.transform(X), Y, unlabelled=scaler.transform(OTHER))
    with sklearn.config_context(enable_metadata_routing=True):
        last = make().set_fit_request(unlabelled=True)
        model = Pipeline([("scale", StandardScaler()), ("last", last)], transform_input=["unlabelled"])
        assert warnings_of(model, unlabelled=OTHER) == []
        found = model.predict_proba(OTHER)
    assert np.array_equal(found, expected.predict_proba(scaler.transform(OTHER)))


def test_a_fit_outside_of_a_pipeline_says_nothing() -> None:
    class Holder:
        """Neither a Pipeline nor a step of one."""

        def fit(self) -> None:
            make().fit(X, Y, unlabelled=OTHER)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Holder().fit()
