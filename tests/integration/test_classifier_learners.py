"""EMBasisClassifier(estimator=…): any classifier of scikit-learn learns in the place of a network."""

from __future__ import annotations

import io
import pickle
from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from embasis import EMBasisClassifier
from embasis.errors import ConfigError, EmbasisWarning
from estimator_rows import marked, sides

LEARNERS = [LogisticRegression(), HistGradientBoostingClassifier(max_iter=20), RandomForestClassifier(n_estimators=10)]


@pytest.mark.filterwarnings("ignore::embasis.errors.EmbasisWarning")
@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API")
@parametrize_with_checks([EMBasisClassifier(estimator=learner, rounds=2) for learner in LEARNERS])
def test_scikit_learn_finds_no_fault(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)


class Noting(LogisticRegression):
    """Logistic regression that notes what each fit was given."""

    seen: ClassVar[list[tuple[int, np.ndarray, Any]]] = []

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Noting:
        Noting.seen.append((len(X), np.asarray(y), sample_weight))
        return super().fit(X, y, sample_weight)


def rings(count: int, seed: int, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two classes that no plane and no distance to a few points tells apart: signs of a product."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(count, 6))
    return x * spread + spread - 1, (x[:, 0] * x[:, 1] > 0).astype(int)


# --- parameters


def test_parameters_of_the_learner_are_parameters_of_the_model() -> None:
    model = EMBasisClassifier(estimator=HistGradientBoostingClassifier(max_iter=7))
    assert model.get_params()["estimator__max_iter"] == 7
    assert "estimator__max_iter" not in model.get_params(deep=False)
    model.set_params(estimator__max_iter=9)
    assert model.estimator.max_iter == 9
    copy = clone(model)
    assert copy.estimator is not model.estimator
    assert copy.get_params()["estimator__max_iter"] == 9


def test_a_grid_search_goes_over_parameters_of_the_learner() -> None:
    x, y, _ = marked()
    known = y >= 0
    model = EMBasisClassifier("source_only", estimator=DecisionTreeClassifier())
    search = GridSearchCV(model, {"estimator__max_depth": [1, 5]}, cv=2)  # one split cannot tell three classes apart
    with pytest.warns(EmbasisWarning, match="no unlabelled rows"):
        search.fit(x[known], y[known])
    assert search.best_params_ == {"estimator__max_depth": 5}


def test_the_learner_that_is_given_is_not_fitted_itself() -> None:
    x, y, other, truth = sides()
    learner = LogisticRegression()
    model = EMBasisClassifier(estimator=learner, random_state=0).fit(x, y, unlabelled=other)
    assert not hasattr(learner, "classes_")
    assert model.score(other, truth) > 0.95


def test_a_seed_makes_one_model_of_a_learner_that_draws() -> None:
    x, y, other, _ = sides()
    fits = [
        EMBasisClassifier(estimator=ExtraTreesClassifier(5), rounds=2, random_state=seed).fit(x, y, unlabelled=other)
        for seed in (0, 0, 1)
    ]
    first, again, another = (model.predict_proba(other) for model in fits)
    assert (first == again).all()
    assert (first != another).any()


def test_a_random_state_of_the_learner_stays() -> None:
    x, y, other, _ = sides()
    fits = [
        EMBasisClassifier(estimator=ExtraTreesClassifier(5, random_state=3), rounds=1, random_state=seed)
        .fit(x, y, unlabelled=other)
        ._model.progress.network.fits[1]
        for seed in (0, 1)
    ]
    assert [fit.random_state for fit in fits] == [3, 3]


def test_a_fitted_model_survives_the_pickle_of_its_user() -> None:
    x, y, other, _ = sides()
    model = EMBasisClassifier(estimator=HistGradientBoostingClassifier(max_iter=5), rounds=1, random_state=0)
    model.fit(x, y, unlabelled=other)
    again = pickle.load(io.BytesIO(pickle.dumps(model)))
    assert (again.predict_proba(other) == model.predict_proba(other)).all()


def test_a_pipeline_is_a_learner_and_its_last_step_gets_the_weights() -> None:
    Noting.seen.clear()
    x, y, other, truth = sides()
    learner = make_pipeline(StandardScaler(), Noting())
    model = EMBasisClassifier(estimator=learner, rounds=1, random_state=0).fit(x, y, unlabelled=other)
    assert model.score(other, truth) > 0.95
    assert all(weight is not None for _, _, weight in Noting.seen)


# --- what a learner is fitted to


def test_trusted_rows_weigh_as_much_as_the_labelled_ones_together() -> None:
    Noting.seen.clear()
    x, y, other, _ = sides()
    model = EMBasisClassifier(estimator=Noting(), rounds=2, random_state=0).fit(x, y, unlabelled=other)
    assert [rows for rows, _, _ in Noting.seen] == [
        150 + part for part in (0, *[r.trusted for r in model.records_[:-1]])
    ]
    for _, labels, weight in Noting.seen:
        assert (labels[:150] == y).all()
        assert (weight[:150] == 1).all()
        assert weight[150:].sum() == pytest.approx(150 if len(weight) > 150 else 0)


def test_the_weight_of_pseudo_labels_is_the_methods() -> None:
    Noting.seen.clear()
    x, y, other, _ = sides()
    settings = {"method.unlabelled_weight": 0.25}
    EMBasisClassifier(estimator=Noting(), rounds=1, settings=settings, random_state=0).fit(x, y, unlabelled=other)
    assert Noting.seen[-1][2][150:].sum() == pytest.approx(0.25 * 150)


def test_a_soft_label_is_a_row_for_each_class_that_it_may_have() -> None:
    Noting.seen.clear()
    x, y = rings(150, 0)  # of which a plane knows nothing
    model = EMBasisClassifier("lrent", estimator=Noting(), rounds=1, random_state=0).fit(x, y, unlabelled=x + 1)
    rows, labels, weight = Noting.seen[-1]
    assert rows == 150 + 2 * model.records_[0].trusted
    assert weight[150:].sum() == pytest.approx(150)
    assert labels[150:].tolist() == [0, 1] * model.records_[0].trusted


def test_a_learner_without_weights_counts_all_rows_alike_and_it_is_said() -> None:
    x, y, other, truth = sides()
    with pytest.warns(EmbasisWarning) as caught:
        model = EMBasisClassifier(estimator=KNeighborsClassifier(), random_state=0).fit(x, y, unlabelled=other)
    assert [str(warning.message) for warning in caught] == [
        "the fit of KNeighborsClassifier takes no sample_weight, so trusted labels count as much as true ones, each "
        "row once, whatever method.unlabelled_weight says"
    ]
    assert model.score(other, truth) > 0.95


# --- held-out rows judge a learner


def test_where_no_distance_shows_the_classes_the_learner_labels_alone() -> None:
    x, y = rings(600, 0)
    other, truth = rings(600, 1, spread=3.0)
    model = EMBasisClassifier(estimator=HistGradientBoostingClassifier(), rounds=2, random_state=0)
    model.fit(x, y, unlabelled=other)
    left, right = (StandardScaler().fit_transform(rows) for rows in (x, other))
    alone = HistGradientBoostingClassifier().fit(left, y).score(right, truth)
    assert model.score(other, truth) > alone - 0.03
    assert "validation" in model.records_[0].scores
    notes = {note for record in model.records_ for note in record.notes}
    assert notes & {
        "held-out rows are labelled better without the basis, so the learner labels alone in this round",
        *(note for note in notes if note.startswith("the basis hardly agrees with the network")),
    }


def test_where_distances_show_the_classes_the_basis_stays_beside_the_learner() -> None:
    x, y, other, truth = sides(count=900)
    model = EMBasisClassifier(estimator=RandomForestClassifier(10), rounds=2, random_state=0)
    model.fit(x, y, unlabelled=other)
    assert "validation" in model.records_[0].scores
    assert [note for note in model.records_[0].notes if "labels alone" in note] == []
    assert model.score(other, truth) > 0.95


def test_few_labelled_rows_are_all_learned_from() -> None:
    x, y, other, _ = sides()
    model = EMBasisClassifier(estimator=LogisticRegression(), rounds=1, random_state=0).fit(x, y, unlabelled=other)
    assert "validation" not in model.records_[0].scores


def test_the_user_decides_how_many_rows_are_held_out() -> None:
    Noting.seen.clear()
    x, y, other, _ = sides(count=900)
    settings = {"plan.holdout": 0.0}
    EMBasisClassifier(estimator=Noting(), rounds=0, settings=settings, random_state=0).fit(x, y, unlabelled=other)
    assert Noting.seen[0][0] == len(x)


def test_the_best_round_by_held_out_rows_is_kept_with_its_learner() -> None:
    x, other = rings(600, 0)[0], rings(600, 1, spread=3.0)[0]
    anew = np.random.default_rng(0).integers(2, size=600)  # there is nothing to learn, so any round may be the best
    learner = HistGradientBoostingClassifier(max_iter=20)
    model = EMBasisClassifier("cbst", estimator=learner, rounds=3, random_state=0).fit(x, anew, unlabelled=other)
    scores = [record.scores["validation"] for record in model.records_]
    best = max(number for number, score in enumerate(scores) if score == max(scores))
    progress = model._model.progress
    assert best < 3, "a test of the round that is kept needs one that is not the last"
    assert progress.model_round == best
    assert int(progress.network.fit_number) == best
    assert model.predict(other).shape == (600,)


# --- what is refused


class Scoreless(ClassifierMixin, BaseEstimator):
    """A classifier without probabilities."""

    def fit(self, X: Any, y: Any) -> Scoreless:
        return self


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"estimator": LinearSVC()},
            "estimator LinearSVC has no predict_proba: wrap it, as in estimator=CalibratedClassifierCV(LinearSVC()), "
            "or take one that has",
        ),
        (
            {"estimator": Scoreless()},
            "estimator Scoreless has no predict_proba: wrap it, as in estimator=CalibratedClassifierCV(Scoreless()), "
            "or take one that has",
        ),
        (
            {"estimator": LinearRegression()},
            "estimator must be a classifier of scikit-learn, as in estimator=HistGradientBoostingClassifier(), got "
            "LinearRegression",
        ),
        (
            {"estimator": "hist_gradient_boosting"},
            "estimator must be a classifier of scikit-learn, as in estimator=HistGradientBoostingClassifier(), got str",
        ),
        (
            {"estimator": LogisticRegression, "rounds": 0},
            "estimator must be a classifier of scikit-learn, as in estimator=HistGradientBoostingClassifier(), got "
            "<class 'sklearn.linear_model._logistic.LogisticRegression'>",
        ),
        (
            {"estimator": LogisticRegression(), "network": "mlp"},
            "estimator = LogisticRegression and network = 'mlp' are two learners for one model: leave one out",
        ),
        (
            {"estimator": LogisticRegression(), "settings": {"network.hidden": 3}},
            "settings of a network do nothing for estimator = LogisticRegression: hidden; they are parameters of "
            "LogisticRegression itself",
        ),
        (
            {"estimator": LogisticRegression(), "method": "mrkld"},
            "mrkld has a loss of the network's own predictions, and a learner is fitted without gradients: take "
            "em_basis, cbst, pseudo_label or source_only, or a network: network.name=mlp",
        ),
        (
            {"estimator": LogisticRegression(), "method": "entropy"},
            "entropy has a loss of the network's own predictions, and a learner is fitted without gradients: take "
            "em_basis, cbst, pseudo_label or source_only, or a network: network.name=mlp",
        ),
        (
            {"estimator": LogisticRegression(), "method": "em_basis_paper"},
            "em_basis_paper trains a block of weights for its first basis, and a learner is fitted without gradients: "
            "take em_basis, cbst, pseudo_label or source_only, or a network: network.name=mlp",
        ),
        (
            {"estimator": LogisticRegression(), "method": "dann"},
            "dann changes what a network is trained by, and a learner is fitted without gradients: take em_basis, "
            "cbst, pseudo_label or source_only, or a network: network.name=mlp",
        ),
    ],
)
def test_what_cannot_learn_is_refused_in_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    x, y, other, _ = sides()
    with pytest.raises(ConfigError) as caught:
        EMBasisClassifier(**settings).fit(x, y, unlabelled=other)
    assert str(caught.value) == sentence


def test_the_cure_for_a_learner_without_probabilities_works() -> None:
    x, y, other, truth = sides()
    learner = CalibratedClassifierCV(LinearSVC())
    model = EMBasisClassifier(estimator=learner, rounds=1, random_state=0).fit(x, y, unlabelled=other)
    assert model.score(other, truth) > 0.95


@pytest.mark.parametrize("method", ["em_basis", "cbst", "pseudo_label", "source_only", "lrent"])
def test_methods_that_need_no_gradients_train_a_learner(method: str) -> None:
    x, y, other, truth = sides()
    model = EMBasisClassifier(method, estimator=LogisticRegression(), rounds=2, random_state=0)
    assert model.fit(x, y, unlabelled=other).score(other, truth) > 0.9
