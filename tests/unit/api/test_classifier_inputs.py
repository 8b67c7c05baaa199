"""Bad and extreme input of EMBasisClassifier: one sentence, or a finite answer."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd
import pytest

from embasis import EMBasisClassifier
from embasis.errors import ConfigError, EmbasisWarning, InputDataError
from embasis.methods import METHODS
from estimator_rows import marked, sides


def fit(x: Any, y: Any, other: Any = None, **options: Any) -> EMBasisClassifier:
    return EMBasisClassifier(random_state=0, **options).fit(x, y, unlabelled=other)


@functools.cache
def usual() -> EMBasisClassifier:
    """The model of `sides` as they are; nobody fits it again."""
    x, y, other, _ = sides()
    return fit(x, y, other)


def says(kind: type[Exception], *arguments: Any, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        fit(*arguments, **options)
    assert isinstance(caught.value, ValueError)
    return str(caught.value)


def test_labels_that_cannot_be_learned_are_refused_in_one_sentence() -> None:
    x = np.random.default_rng(0).normal(size=(6, 3))
    one = "labelled: at least 2 classes are needed, got 1 class: [2]"
    assert says(InputDataError, x, [2] * 6) == one
    assert says(InputDataError, x, [-1] * 6) == (
        "all rows are unlabelled (−1): at least 2 classes are needed, got no class"
    )
    assert says(InputDataError, x, [0, 1, 0]) == "X and y must have one length, got 6 and 3"
    assert says(InputDataError, x, None) == "requires y to be passed, but the target y is None"
    assert says(InputDataError, x, [0, 1, 0, np.nan, np.inf, 1]) == "Input y contains NaN or inf in 2 rows"
    assert says(ValueError, x, np.linspace(0, 1, 6)).startswith("Unknown label type: continuous")


def test_values_that_are_no_numbers_are_refused() -> None:
    x = np.zeros((4, 2))
    x[1, 1] = np.nan
    assert "contains NaN" in says(ValueError, x, [0, 1, 0, 1])
    x[1, 1] = np.inf
    assert "contains infinity" in says(ValueError, x, [0, 1, 0, 1])
    assert "contains NaN" in says(ValueError, np.eye(4, 2), [0, 1, 0, 1], np.full((2, 2), np.nan))
    assert "complex" in says(ValueError, np.eye(4, 2) * 1j, [0, 1, 0, 1]).lower()
    assert says(InputDataError, np.eye(4, 2) * 1e39, [0, 1, 0, 1]) == (
        "X holds 2 values that are too large for float32 (over 3.4e38)"
    )


def masked(values: Any, *places: Any) -> Any:
    found = np.ma.array(values)
    for place in places:
        found[place] = np.ma.masked
    return found


FILL = "and masks are not read: fill them with values or leave their rows out"
MARK = "and masks are not read: rows without a label are marked −1 for fit and left out of score"


def test_masked_values_are_refused_wherever_they_are_given() -> None:
    """Read as arrays they would lose their mask, and what lies below it would count."""
    x, y, other, truth = sides()
    many = masked(x, (0, 1), (2, 3), (2, 4))
    assert says(InputDataError, many, y, other) == f"X has 3 masked values, {FILL}"
    assert says(InputDataError, x, y, masked(other, 7)) == f"unlabelled has 8 masked values, {FILL}"
    assert says(InputDataError, x, masked(y, 4), other) == f"y has 1 masked value, {MARK}"
    assert says(InputDataError, x, masked(np.array(["a", "b", "c"])[y], 4), other) == f"y has 1 masked value, {MARK}"
    assert says(InputDataError, x, [np.ma.masked, *y[1:].tolist()], other) == f"y has 1 masked value, {MARK}"
    assert says(InputDataError, list(many), y, other) == f"X has 3 masked values, {FILL}"
    model = usual()
    for ask in (model.predict, model.predict_proba, model.label_distribution, lambda rows: model.score(rows, truth)):
        with pytest.raises(InputDataError) as caught:
            ask(masked(other, (0, 0)))
        assert str(caught.value) == f"X has 1 masked value, {FILL}"
    with pytest.raises(InputDataError) as caught:
        model.score(other, masked(truth, 1, 2))
    assert str(caught.value) == f"y has 2 masked values, {MARK}"
    with pytest.raises(InputDataError) as caught:
        model.score(other, truth, sample_weight=masked(np.ones(len(truth)), 1))
    assert str(caught.value) == (
        "sample_weight has 1 masked value, and masks are not read: give the rows that shall not count the weight 0"
    )


def test_a_masked_array_with_nothing_masked_is_its_data() -> None:
    x, y, other, truth = sides()
    model = fit(masked(x), masked(y), masked(other))
    assert (model.predict_proba(masked(other)) == usual().predict_proba(other)).all()
    weight = np.linspace(1, 2, len(truth))
    assert model.score(masked(other), masked(truth), masked(weight)) == model.score(other, truth, weight)


@pytest.mark.parametrize("kind", ["Float64", "Int64"])
def test_a_gap_in_a_nullable_column_of_pandas_is_refused(kind: str) -> None:
    frame = pd.DataFrame({"a": pd.Series([1, 2, None, 4, 5, 6], dtype=kind), "b": range(6)})
    assert "contains NaN" in says(ValueError, frame, [0, 1] * 3)
    whole = frame.fillna(3)
    with pytest.warns(EmbasisWarning, match="no unlabelled rows"):
        model = fit(whole, [0, 1] * 3)
    with pytest.raises(ValueError, match="contains NaN"):
        model.predict(frame)


def test_rows_of_another_width_are_refused() -> None:
    x, y, other, _ = sides()
    expected = "X has 7 features, but EMBasisClassifier is expecting 8 features as input"
    assert says(ValueError, x, y, other[:, :7]).startswith(expected)
    with pytest.raises(ValueError, match=expected):
        usual().predict(other[:, :7])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rounds": -1}, "plan.rounds must be at least 0, got -1"),
        ({"rounds": 2.5}, "plan.rounds must be a whole number, got 2.5"),
        ({"rounds": "two"}, "plan.rounds must be a whole number, got 'two'"),
        ({"keep_first": 0.0}, "keep_first must be in (0, 1], got 0.0"),
        (
            {"keep_first": 0.9, "keep_max": 0.5},
            "keep_max must be 0 (what is expected to be right) or in [keep_first, 1] = [0.9, 1], got 0.5",
        ),
        ({"sharpness": -1.0}, "sharpness must be at least 0, got -1.0"),
        ({"weight_decay": -1.0}, "plan.weight_decay must be at least 0, got -1.0"),
        ({"standardise": "both"}, "standardise must be one of domain, joint, none, got 'both'"),
        (
            {"network": "lstm"},
            "unknown network 'lstm'; known: adapter, deeplab_v2, efficientnet_lite0, extra_trees, fast_segment, "
            "hist_gradient_boosting, linear, mlp, random_forest, small_cnn, small_fcn, timm",
        ),
        ({"network": "small_cnn"}, "small_cnn needs images (channels, height, width), got shape (8,)"),
        ({"settings": {"plan.seed": 3}}, None),
        (
            {"settings": {"plans.rounds": 3}},
            "unknown table 'plans'; did you mean plan? known: align, data, images, maps, method, network, plan",
        ),
    ],
)
def test_a_setting_out_of_its_range_is_refused_in_one_sentence(options: dict[str, Any], sentence: str | None) -> None:
    x, y, other, _ = sides()
    found = says(ConfigError, x, y, other, **options)
    assert found == sentence or (
        sentence is None and found.startswith("unknown plan setting 'seed'; known: accumulate")
    )


def test_an_unknown_method_is_answered_with_the_known_ones() -> None:
    x, y, other, _ = sides()
    assert says(ConfigError, x, y, other, method="crst") == (
        f"unknown method 'crst'; did you mean cbst? known: {', '.join(sorted(METHODS))}"
    )


def test_more_components_than_rows_are_refused() -> None:
    x, y, other, _ = sides()
    assert says(InputDataError, x, y, other, components_per_class=101) == (
        "components_per_class = 101 asks for 303 components, but there are only 300 rows"
    )


@pytest.mark.parametrize("scale", [1e30, 1e-30, 1e10])
def test_the_scale_of_the_features_does_not_matter(scale: float) -> None:
    x, y, other, truth = sides()
    model = fit(x * scale, y, other * scale)
    assert (model.predict(other * scale) == usual().predict(other)).mean() > 0.98
    assert np.isfinite(model.predict_proba(other * scale)).all()
    assert model.score(other * scale, truth) > 0.9


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.int64])
def test_numbers_of_any_width_are_read(kind: type) -> None:
    x, y, other, truth = sides()
    model = fit((x * 8).astype(kind), y, (other * 8).astype(kind))
    assert model.score((other * 8).astype(kind), truth) > 0.95
    assert model.predict_proba(other[:3] * 8).dtype == np.float64


def test_columns_that_never_change_do_no_harm() -> None:
    x, y, other, truth = sides()
    wide, wide_other = (np.hstack([part, np.full((len(part), 2), 7e5)]) for part in (x, other))
    model = fit(wide, y, wide_other)
    assert np.isfinite(model.predict_proba(wide_other)).all()
    assert model.score(wide_other, truth) == usual().score(other, truth)


def test_features_that_are_all_alike_give_an_answer_and_no_nan() -> None:
    found = fit(np.ones((9, 2)), [0, 1, 2] * 3, np.ones((5, 2))).label_distribution(np.ones((2, 2)))
    assert all(np.isfinite(part).all() for part in found)


def test_a_single_feature_and_repeated_rows_give_an_answer() -> None:
    x = np.repeat([[-1.0], [1.0]], 6, axis=0)
    model = fit(x, [0] * 6 + [1] * 6, x + 0.25)
    assert model.predict([[-1.0], [1.5]]).tolist() == [0, 1]
    assert np.isfinite(model.basis_).all()


def test_one_row_of_each_class_is_enough() -> None:
    x, _, truth = marked()
    y = np.full(len(truth), -1)
    y[:3] = truth[:3]
    assert fit(x, y).score(x, truth) > 0.6


def test_no_unlabelled_row_is_said_and_training_is_supervised() -> None:
    x, y, _, _ = sides()
    with pytest.warns(EmbasisWarning) as caught:
        model = fit(x, y)
    assert [str(warning.message) for warning in caught] == ["no unlabelled rows: training is supervised only"]
    assert (model.termination_condition_, model.n_iter_) == ("no_unlabelled", 0)
    assert (model.transduction_ == y).all()
    assert (model.labeled_iter_ == 0).all()


def test_nothing_trusted_ends_the_rounds() -> None:
    x, y, other, _ = sides(separation=0.1)
    model = fit(x, y, other, method="pseudo_label", settings={"threshold": 1.0})
    assert (model.termination_condition_, model.n_iter_) == ("no_change", 0)
    assert (model.transduction_[150:] == -1).all()
    assert (model.labeled_iter_[150:] == -1).all()
