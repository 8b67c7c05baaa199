"""Labels of every dtype through EMBasisClassifier: the same model, classes in the dtype of y, and room for −1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from embasis import EMBasisClassifier
from embasis.errors import EmbasisWarning, InputDataError
from estimator_rows import marked, sides

Convert = Callable[[Any], Any]
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]
WORDS: dict[str, Convert] = {
    "str": lambda y: y.astype(str),
    "objects": lambda y: y.astype(str).astype(object),
    "words and the number −1": lambda y: np.array([str(v) if v >= 0 else -1 for v in y], dtype=object),
    "pandas objects": lambda y: pd.Series(y.astype(str)).astype(object),
    "pandas string": lambda y: pd.Series(y.astype(str), dtype="string"),
    "pandas category": lambda y: pd.Series(y.astype(str)).astype("category"),
}


def fit(x: Any, y: Any, other: Any = None) -> EMBasisClassifier:
    return EMBasisClassifier(random_state=0, rounds=2).fit(x, y, unlabelled=other)


def same_model(one: EMBasisClassifier, other: EMBasisClassifier, x: Any) -> bool:
    return bool((one.predict_proba(x) == other.predict_proba(x)).all())


@pytest.mark.parametrize("kind", [*SIGNED, *UNSIGNED, *FLOATS])
def test_numbers_of_any_dtype_beside_rows_of_another_place(kind: str) -> None:
    x, y, other, truth = sides()
    model, plain = fit(x, y.astype(kind), other), fit(x, y, other)
    assert model.classes_.dtype == model.predict(other).dtype == np.dtype(kind)
    assert model.classes_.tolist() == [0, 1, 2]
    assert same_model(model, plain, other)
    assert model.score(other, truth.astype(kind)) == plain.score(other, truth) > 0.9
    assert model.transduction_.dtype == np.dtype("int64" if kind in UNSIGNED else kind)
    assert (model.transduction_ == plain.transduction_).all()
    assert (model.transduction_[150:] == -1).any()
    assert (model.labeled_iter_ == plain.labeled_iter_).all()


@pytest.mark.parametrize("kind", [*SIGNED, *FLOATS])
def test_numbers_of_any_dtype_with_rows_of_minus_one(kind: str) -> None:
    x, y, truth = marked()
    model, plain = fit(x, y.astype(kind)), fit(x, y)
    assert model.classes_.dtype == model.transduction_.dtype == model.predict(x).dtype == np.dtype(kind)
    assert same_model(model, plain, x)
    assert (model.transduction_ == plain.transduction_).all()
    assert (model.labeled_iter_ == plain.labeled_iter_).all()
    assert model.score(x, truth.astype(kind)) == plain.score(x, truth)


@pytest.mark.parametrize("kind", UNSIGNED)
def test_unsigned_labels_have_no_mark_so_all_rows_are_labelled(kind: str) -> None:
    x, y, _, _ = sides()
    y = y.astype(kind)
    y[y == 2] = np.iinfo(kind).max  # the bits of −1
    with pytest.warns(EmbasisWarning) as caught:
        model = fit(x, y)
    assert [str(warning.message) for warning in caught] == ["no unlabelled rows: training is supervised only"]
    assert model.classes_.tolist() == [0, 1, np.iinfo(kind).max]
    assert model.transduction_.tolist() == y.tolist()
    assert model.transduction_.dtype == np.dtype(object if kind == "uint64" else "int64")  # int64 cannot hold 2^64 − 1
    assert (model.labeled_iter_ == 0).all()


def test_booleans_are_two_classes_beside_rows_of_another_place() -> None:
    x, y, other, truth = sides()
    model = fit(x, y == 1, other)
    assert (model.classes_.dtype, model.classes_.tolist()) == (np.dtype(bool), [False, True])
    assert model.predict(other).dtype == np.dtype(bool)
    assert model.score(other, truth == 1) > 0.9
    assert set(model.transduction_.tolist()) == {False, True, -1}
    assert model.transduction_[:150].tolist() == (y == 1).tolist()
    with pytest.warns(EmbasisWarning, match="no unlabelled rows"):
        assert (fit(x, y == 1).labeled_iter_ == 0).all()


@pytest.mark.parametrize("convert", WORDS.values(), ids=WORDS)
def test_words_of_any_dtype_are_the_same_words(convert: Convert) -> None:
    x, y, other, truth = sides()
    model, plain = fit(x, convert(y), other), fit(x, y, other)
    assert model.classes_.tolist() == ["0", "1", "2"]
    assert same_model(model, plain, other)
    assert model.score(other, truth.astype(str)) == plain.score(other, truth)
    assert model.transduction_.tolist() == [str(v) if v >= 0 else -1 for v in plain.transduction_]
    x, y, truth = marked()
    model, plain = fit(x, convert(y)), fit(x, y)
    assert model.classes_.tolist() == ["0", "1", "2"]
    assert same_model(model, plain, x)
    assert model.transduction_.tolist() == [str(v) if v >= 0 else -1 for v in plain.transduction_]


@pytest.mark.parametrize("kind", ["Int64", "UInt8", "Float32", "boolean"])
def test_nullable_columns_of_pandas_without_a_gap_are_read(kind: str) -> None:
    x, y, other, truth = sides()
    y, truth = (y == 1, truth == 1) if kind == "boolean" else (y, truth)
    model, plain = fit(x, pd.Series(y, dtype=kind), other), fit(x, y, other)
    assert same_model(model, plain, other)
    assert model.score(other, truth.astype(float)) == plain.score(other, truth)


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        (pd.Series([0, 1, None, 1, 0, 1], dtype="Int64"), "Input y contains NaN or inf in 1 rows"),
        (pd.Series([True, None, True, False] * 2, dtype="boolean")[:6], "Input y contains NaN or inf in 2 rows"),
        (
            pd.Series(["a", None, "b", "a", "b", None], dtype="string"),
            "y has None, NaN or NA in 2 of 6 rows: mark unlabelled rows with −1 or leave them out",
        ),
        (
            np.array(["a", None, "b", float("nan"), "b", pd.NaT], dtype=object),
            "y has None, NaN or NA in 3 of 6 rows: mark unlabelled rows with −1 or leave them out",
        ),
        (
            np.array([-1, 1, 0, 1, 0, 1], dtype=object),
            "Unknown label type: y is an array of objects, whose labels must be words or −1, got 1: "
            "give numbers as numbers, y.astype(int), or all as words, y.astype(str)",
        ),
        (
            np.array(["a", "b", 3, "b", "a", -1], dtype=object),
            "Unknown label type: y is an array of objects, whose labels must be words or −1, got 3: "
            "give numbers as numbers, y.astype(int), or all as words, y.astype(str)",
        ),
    ],
)
def test_labels_that_are_missing_or_of_several_kinds_are_refused(y: Any, sentence: str) -> None:
    x = np.random.default_rng(0).normal(size=(6, 3))
    with pytest.raises(InputDataError) as caught:
        fit(x, y, x)
    assert str(caught.value) == sentence
