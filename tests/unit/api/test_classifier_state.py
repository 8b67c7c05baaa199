"""A fit that fails or is interrupted leaves EMBasisClassifier as it was: not fitted, or with its earlier model."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from embasis import EMBasisClassifier
from embasis.engine import train
from embasis.errors import ConfigError, EmbasisWarning, InputDataError, NumericalError
from estimator_rows import sides


def breaks_after(steps: int, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training stops with this error at its next step but so many."""
    whole, done = train.take_step, [0]

    def take_step(*arguments: Any) -> float:
        done[0] += 1
        if done[0] > steps:
            raise error
        return whole(*arguments)

    monkeypatch.setattr(train, "take_step", take_step)


def state(model: EMBasisClassifier) -> dict[str, Any]:
    """Every attribute but the constructor's parameters, as it is."""
    return {name: value for name, value in vars(model).items() if name not in model.get_params()}


def unchanged(model: EMBasisClassifier, before: dict[str, Any]) -> bool:
    after = state(model)
    return list(after) == list(before) and all(after[name] is before[name] for name in before)


@functools.cache
def fitted_once(rounds: int) -> EMBasisClassifier:
    x, y, other, _ = sides()
    return EMBasisClassifier(random_state=0, rounds=rounds).fit(x, y, unlabelled=other)


def fitted(rounds: int = 1) -> EMBasisClassifier:
    """A model of one's own to refit, fitted on `sides`."""
    return copy.deepcopy(fitted_once(rounds))


def other_sides() -> tuple[Any, Any, Any]:
    """Rows of another width, with names, and with other classes than `sides`."""
    x, y, other, _ = sides(classes=5, seed=1)
    columns = [f"f{i}" for i in range(8)] + ["f8"]
    wide, wide_other = (np.hstack([part, part[:, :1]]) for part in (x, other))
    return (
        pd.DataFrame(wide, columns=columns),
        np.array(list("vwxyz"))[y],
        pd.DataFrame(wide_other, columns=columns),
    )


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(1), NumericalError("the loss is nan"), MemoryError()]
)
@pytest.mark.parametrize("steps", [0, 6])
def test_a_refit_that_stops_in_training_keeps_the_earlier_model(
    steps: int, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, y, other, _ = sides()
    model = fitted(rounds=2)
    before, said = state(model), model.predict_proba(other)
    breaks_after(steps, error, monkeypatch)
    with pytest.raises(type(error)):
        model.fit(*other_sides())
    assert unchanged(model, before)
    assert (model.predict_proba(other) == said).all()
    assert model.predict(other).dtype == y.dtype
    monkeypatch.undo()
    x, y, other = other_sides()
    assert set(model.fit(x, y, unlabelled=other).predict(other)) == set("vwxyz")
    assert (model.n_features_in_, len(model.feature_names_in_)) == (9, 9)


def refuse(kind: type[Exception], *arguments: Any, **parameters: Any) -> Callable[[EMBasisClassifier], None]:
    def attempt(model: EMBasisClassifier) -> None:
        with pytest.raises(kind):
            model.set_params(**parameters).fit(*arguments)

    return attempt


X, Y, Z = np.random.default_rng(0).normal(size=(6, 3)), ["a", "b"] * 3, np.eye(4, 3)


@pytest.mark.parametrize(
    "attempt",
    [
        refuse(ConfigError, X, Y, Z, method="crst"),
        refuse(ConfigError, X, Y, Z, rounds=-1),
        refuse(InputDataError, X, Y, Z, components_per_class=101),
        refuse(InputDataError, X, ["a"] * 6, Z),
        refuse(ValueError, X, Y, np.full((4, 3), np.nan)),
        refuse(ValueError, X, Y, np.zeros((4, 2))),
        refuse(ValueError, pd.DataFrame(X, columns=["a", "b", "c"]), Y, pd.DataFrame(Z, columns=["c", "b", "a"])),
    ],
)
def test_a_refit_that_is_refused_keeps_the_earlier_model(attempt: Callable[[EMBasisClassifier], None]) -> None:
    other, model = sides()[2], fitted()
    before, said = state(model), model.predict_proba(other)
    attempt(model)
    assert unchanged(model, before)
    assert (model.predict_proba(other) == said).all()


def test_a_refit_that_fails_at_its_very_end_keeps_the_earlier_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted()
    before = state(model)
    monkeypatch.setattr(EMBasisClassifier, "_describe", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model.fit(*other_sides())
    assert unchanged(model, before)


def test_a_warning_that_is_turned_into_an_error_keeps_the_earlier_model() -> None:
    x, y, _, _ = sides()
    model = fitted()
    before = state(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error", EmbasisWarning)
        with pytest.raises(EmbasisWarning, match="no unlabelled rows"):
            model.fit(x[:, :3], np.where(y == 0, "a", "b"))
    assert unchanged(model, before)


def test_a_first_fit_that_is_interrupted_leaves_an_estimator_that_is_not_fitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y, other, _ = sides()
    breaks_after(3, KeyboardInterrupt(), monkeypatch)
    model = EMBasisClassifier(random_state=0)
    parameters = dict(vars(model))
    with pytest.raises(KeyboardInterrupt):
        model.fit(x, y, unlabelled=other)
    assert vars(model) == parameters
    with pytest.raises(NotFittedError):
        model.predict(other)


def test_a_refit_by_another_method_and_without_names_leaves_nothing_of_the_first() -> None:
    x, y, other = other_sides()
    model = EMBasisClassifier(random_state=0, rounds=1).fit(x, y, unlabelled=other)
    again = model.set_params(method="cbst").fit(x.to_numpy(), y, unlabelled=other.to_numpy())
    assert again is model
    assert not hasattr(model, "basis_")
    assert not hasattr(model, "feature_names_in_")


def test_warnings_of_a_fit_point_at_the_line_that_called_it() -> None:
    x, y, _, _ = sides(classes=2)
    with pytest.warns(EmbasisWarning) as caught:
        EMBasisClassifier(random_state=0, rounds=0).fit(x, np.where(y == 0, -1, 1))
    assert {warning.filename for warning in caught} == {__file__}
