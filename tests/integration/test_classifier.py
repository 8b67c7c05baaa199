"""EMBasisClassifier: scikit-learn's habits, the marks of unlabelled rows, and the same records as a config gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from embasis import EMBasisClassifier, self_train
from embasis.config import load
from embasis.data.table_pair import load_pair
from embasis.errors import EmbasisWarning
from embasis.runs.parts import build
from embasis.runs.run import TrainingRun
from embasis.storage import RunFolder
from embasis.types import Arrays, LabelSchema, Problem
from estimator_rows import marked, sides

MLP: dict[str, Any] = {"network": "mlp", "settings": {"plan.source_epochs": 25, "hidden": 16}}


@pytest.mark.filterwarnings("ignore::embasis.errors.EmbasisWarning")
@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API")
@parametrize_with_checks([EMBasisClassifier()])
def test_scikit_learn_finds_no_fault(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)


# --- what may be given


def test_rows_of_minus_one_are_unlabelled_and_get_labels() -> None:
    x, y, truth = marked()
    model = EMBasisClassifier(random_state=0).fit(x, y)
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.score(x, truth) > 0.94
    assert (model.transduction_[y >= 0] == y[y >= 0]).all()
    assert (model.transduction_[y < 0] >= 0).mean() == pytest.approx(
        0.8, abs=0.05
    )  # 0.2 and 0.1 for each of six rounds
    assert (model.labeled_iter_[y >= 0] == 0).all()
    trusted = model.transduction_ >= 0
    assert (model.labeled_iter_[trusted] >= 0).all()
    assert (model.labeled_iter_[y < 0] != 0).all()
    assert model.labeled_iter_.max() <= model.n_iter_ + 1


def test_rows_of_another_place_follow_those_of_x() -> None:
    x, y, other, truth = sides()
    model = EMBasisClassifier(random_state=0).fit(x, y, unlabelled=other)
    assert model.transduction_.shape == model.labeled_iter_.shape == (300,)
    assert (model.transduction_[:150] == y).all()
    found = model.transduction_[150:]
    assert (found[found >= 0] == truth[found >= 0]).mean() > 0.95
    assert model.n_iter_ == 6
    assert model.termination_condition_ == "max_iter"


def test_minus_one_and_rows_of_another_place_can_be_given_together() -> None:
    x, y, _ = marked()
    other = sides()[2]
    model = EMBasisClassifier(random_state=0).fit(x, y, unlabelled=other)
    assert len(model.transduction_) == 300
    assert (model.labeled_iter_[:150][y >= 0] == 0).all()
    assert (model.labeled_iter_[150:] != 0).all()


def test_labels_may_be_words() -> None:
    x, y, other, truth = sides()
    names = np.array(["ant", "bee", "cat"])
    model = EMBasisClassifier(random_state=0).fit(x, names[y], unlabelled=other)
    numbers = EMBasisClassifier(random_state=0).fit(x, y, unlabelled=other)
    assert (model.predict(other) == names[numbers.predict(other)]).all()
    assert model.score(other, names[truth]) == numbers.score(other, truth)
    assert set(model.transduction_.tolist()) <= {"ant", "bee", "cat", -1}


def test_words_and_the_mark_minus_one_can_be_mixed() -> None:
    x, y, _ = marked()
    mixed = np.where(y >= 0, np.array(["ant", "bee", "cat"], dtype=object)[y], -1)
    model = EMBasisClassifier(random_state=0).fit(x, mixed)
    assert model.classes_.tolist() == ["ant", "bee", "cat"]
    assert (model.labeled_iter_ == 0).sum() == (y >= 0).sum()


def test_minus_one_and_one_are_two_classes_and_it_is_said() -> None:
    x, y, _, _ = sides(classes=2)
    with pytest.warns(EmbasisWarning) as caught:
        model = EMBasisClassifier(random_state=0).fit(x, np.where(y == 0, -1, 1))
    assert [str(warning.message) for warning in caught] == [
        "y holds only −1 and np.int64(1): read as two classes, not as unlabelled rows",
        "no unlabelled rows: training is supervised only",
    ]
    assert model.classes_.tolist() == [-1, 1]
    assert model.termination_condition_ == "no_unlabelled"
    assert (model.n_iter_, len(model.records_)) == (0, 1)


def test_a_frame_with_named_columns_is_remembered() -> None:
    x, y, other, _ = sides()
    frame = pd.DataFrame(x, columns=[f"f{i}" for i in range(8)])
    model = EMBasisClassifier(random_state=0).fit(frame, y, unlabelled=pd.DataFrame(other, columns=frame.columns))
    assert model.feature_names_in_.tolist() == frame.columns.tolist()
    assert (model.predict(frame) == EMBasisClassifier(random_state=0).fit(x, y, unlabelled=other).predict(x)).all()
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[frame.columns[::-1]])


# --- what comes out


def test_the_prediction_is_the_most_probable_class() -> None:
    x, y, other, _ = sides()
    model = EMBasisClassifier(random_state=0).fit(x, y, unlabelled=other)
    probability = model.predict_proba(other)
    assert (model.predict(other) == model.classes_[probability.argmax(1)]).all()
    assert np.allclose(probability.sum(1), 1, atol=1e-12)


def test_the_variance_of_a_label_has_two_parts() -> None:
    x, y, other, _ = sides()
    found = EMBasisClassifier(random_state=0).fit(x, y, unlabelled=other).label_distribution(other)
    assert np.allclose(found.between + found.within, found.mean * (1 - found.mean), atol=1e-6)
    assert (found.between >= 0).all()
    assert np.allclose(found.uncertainty, (found.between + found.within).sum(1), atol=1e-6)


def test_the_basis_has_three_unit_rows_for_each_class() -> None:
    x, y, other, _ = sides()
    model = EMBasisClassifier(random_state=0).fit(x, y, unlabelled=other)
    assert model.basis_.shape == (9, 8)
    assert np.allclose(np.linalg.norm(model.basis_, axis=1), 1, atol=1e-5)
    assert EMBasisClassifier(components_per_class=2, random_state=0).fit(x, y, unlabelled=other).basis_.shape == (6, 8)


@pytest.mark.parametrize("seed", range(3))
def test_self_training_improves_on_the_labelled_side_alone(seed: int) -> None:
    x, y, other, truth = sides(shift=4.0, seed=seed, separation=2.5, count=300)
    settings: dict[str, Any] = {"standardise": "none", "random_state": 0}
    alone = EMBasisClassifier(method="source_only", **settings).fit(x, y, unlabelled=other).score(other, truth)
    adapted = EMBasisClassifier(**settings).fit(x, y, unlabelled=other).score(other, truth)
    assert adapted > alone


@pytest.mark.parametrize("options", [{"method": "cbst"}, {"method": "pseudo_label"}, MLP, {**MLP, "method": "mrkld"}])
def test_other_methods_and_networks_are_one_word_away(options: dict[str, Any]) -> None:
    x, y, other, truth = sides()
    model = EMBasisClassifier(random_state=0, **options).fit(x, y, unlabelled=other)
    assert model.score(other, truth) > 0.9
    assert hasattr(model, "basis_") is ("method" not in options)


@pytest.mark.parametrize("options", [{}, MLP])
def test_the_same_seed_gives_the_same_model(options: dict[str, Any]) -> None:
    x, y, other, _ = sides()
    first, again = (
        EMBasisClassifier(random_state=7, **options).fit(x, y, unlabelled=other).predict_proba(other) for _ in range(2)
    )
    assert (first == again).all()


# --- scikit-learn's tools


def test_it_works_in_a_pipeline_and_can_be_cloned() -> None:
    x, y, truth = marked()
    pipe = make_pipeline(StandardScaler(), EMBasisClassifier(random_state=0))
    assert clone(pipe).fit(x, y).score(x, truth) > 0.94
    assert clone(EMBasisClassifier(keep_first=0.3, settings={"keep_max": 0.9})).get_params()["settings"] == {
        "keep_max": 0.9
    }


def test_a_grid_search_may_offer_numpy_numbers() -> None:
    x, y, _, _ = sides()
    grid = {"rounds": np.arange(2), "keep_first": np.array([0.1, 0.3], dtype=np.float32), "components_per_class": [1]}
    with pytest.warns(EmbasisWarning, match="no unlabelled rows"):
        search = GridSearchCV(EMBasisClassifier(random_state=0), grid, cv=2, error_score="raise").fit(x, y)
    assert search.best_score_ > 0.9


def test_prediction_before_fit_is_refused() -> None:
    with pytest.raises(NotFittedError):
        EMBasisClassifier().predict([[0.0, 1.0]])


# --- the same path as a config


def test_the_estimator_and_a_config_give_equal_records() -> None:
    x, y, other, _ = sides()
    model = EMBasisClassifier(random_state=3, keep_first=0.3, settings={"iterations": 3}).fit(x, y, unlabelled=other)
    problem = Problem(
        Arrays.of(torch.from_numpy(x).float(), torch.from_numpy(y)),
        Arrays.of(torch.from_numpy(other).float()),
        LabelSchema(("0", "1", "2")),
    )
    built = build(problem, load(None, ["seed=3", "keep_first=0.3", "iterations=3"]))
    assert list(self_train(built.problem, built.network, built.method, built.plan)) == model.records_


def test_the_estimator_and_a_run_folder_of_tables_give_equal_records(tmp_path: Any) -> None:
    x, y, other, _ = (part.astype(np.float32) if part.dtype.kind == "f" else part for part in sides())
    columns = [f"f{i}" for i in range(8)]
    pd.DataFrame(x, columns=columns).assign(label=y).to_parquet(tmp_path / "a.parquet")
    pd.DataFrame(other, columns=columns).to_parquet(tmp_path / "b.parquet")
    problem = load_pair(tmp_path / "a.parquet", tmp_path / "b.parquet")
    with RunFolder(tmp_path / "run") as folder:
        run = TrainingRun(problem, load(None, ["rounds=2", "seed=3"]), folder)
        records = [event.record for event in run.events() if event.record is not None]
    model = EMBasisClassifier(rounds=2, random_state=3).fit(x, y, unlabelled=other)
    assert records == model.records_
    assert run.model is not None
    mean = run.model.label(torch.from_numpy(other)).distribution.mean.numpy()
    assert np.allclose(mean, model.predict_proba(other), atol=1e-6)
