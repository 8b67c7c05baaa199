"""`EMBasisClassifier`: self-training for arrays, with scikit-learn's habits.

The constructor stores, `fit` checks. Behind it stands the same path as behind the command line, so that the estimator
and a config with the same data and seed give equal records.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from embasis import config as settings
from embasis.api.estimator_inputs import EstimatorInputs
from embasis.data.class_labels import UNLABELLED_MARK, dtype_with_mark, split_labels
from embasis.data.problem import narrow_rows, refuse_masked
from embasis.data.standardise import find_fine_columns, settle_columns
from embasis.engine.labels import RowLabels
from embasis.engine.self_train import begin, train_rounds
from embasis.engine.state import BROUGHT_BACK
from embasis.errors import EmbasisWarning, InputDataError, require
from embasis.methods.em_basis.state import read_basis
from embasis.runs.model import TrainedModel, model_of_run
from embasis.runs.parts import build
from embasis.types import Arrays, Fine, LabelSchema, Problem, RoundRecord

FLOATS = [np.float64, np.float32]


class LabelMoments(NamedTuple):
    """The label distribution of each row: all (N, C), and one uncertainty (N) to rank by."""

    mean: NDArray[np.float64]
    between: NDArray[np.float64]
    within: NDArray[np.float64]
    uncertainty: NDArray[np.float64]


class EMBasisClassifier(ClassifierMixin, BaseEstimator):
    """Uncertainty-aware self-training on feature vectors.

    Rows whose label is −1 are unlabelled and taken as coming from the same place as the others; rows given as
    `unlabelled` come from another place and are standardised by themselves. Labels that are only −1 and one other
    value are read as two classes (with a warning): one class alone cannot be learned. Unsigned and boolean labels have
    no −1, so all of their rows are labelled. Masked arrays are rejected if a value is masked.

    Parameters
    ----------
    method : str, default "em_basis"
        Any of `embasis list methods`.
    network : str, default "linear"
        "linear" or "mlp", or a name of `embasis list learners`; nothing else beside `estimator`.
    rounds : int, default 6
        Rounds of self-training; 0 trains on the labelled rows only.
    components_per_class : int, default 0
        Components of the basis for each class; 0 = three, or fewer where rows are few.
    sharpness : float, default 0
        Concentration of the components; 0 = from the data.
    keep_first : float, default 0.2
        Share of each predicted class that is trusted in the first round.
    keep_max : float, default None
        The largest share that is trusted; None = as the method has it: for em_basis what is expected to be right.
    weight_decay : float, default 0.1
        Strength of the L2 penalty of the linear network.
    standardise : str, default "auto"
        "domain" (each side by itself), "joint", "none"; auto = domain for `unlabelled=`, joint for −1.
    settings : dict, default None
        Further settings by their dotted names, e.g. {"method.iterations": 5, "plan.epochs": 5}.
    random_state : int, RandomState or None
        Seed of everything that is drawn. The linear network draws nothing. Each `random_state` of `estimator` that is
        None is set from it; one that is set stays.
    estimator : classifier of scikit-learn with predict_proba, default None
        What learns from the rows in place of a network; a clone of it is fitted in each round, on the standardised
        rows, with trusted labels and their weights as `sample_weight`. None = `network`.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_
    basis_ : (K, d) the basis in standardised feature space (em_basis only)
    transduction_ : labels of the training rows, −1 where none is trusted; rows of `unlabelled` follow those of X.
        Its dtype is that of y; int64 where y is unsigned, and object where y has words or booleans
    labeled_iter_ : round in which a row was first trusted; 0 = given, −1 = never
    n_iter_ : rounds done
    termination_condition_ : "max_iter", "no_change", "source_kept" (adaptation would harm), "collapsed" or
        "no_unlabelled"
    records_ : one RoundRecord a round
    """

    def __init__(
        self,
        method: str = "em_basis",
        network: str = "linear",
        rounds: int = 6,
        components_per_class: int = 0,
        sharpness: float = 0.0,
        keep_first: float = 0.2,
        keep_max: float | None = None,
        weight_decay: float = 0.1,
        standardise: str = "auto",
        settings: Mapping[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = None,
        estimator: Any = None,
    ) -> None:
        self.method = method
        self.network = network
        self.rounds = rounds
        self.components_per_class = components_per_class
        self.sharpness = sharpness
        self.keep_first = keep_first
        self.keep_max = keep_max
        self.weight_decay = weight_decay
        self.standardise = standardise
        self.settings = settings
        self.random_state = random_state
        self.estimator = estimator

    def fit(self, X: ArrayLike, y: ArrayLike, unlabelled: ArrayLike | None = None) -> EMBasisClassifier:
        """Train on the labelled rows, then adapt to the unlabelled ones (label −1, or the rows of `unlabelled`).

        In a Pipeline the steps before change X alone; docs/scikit-learn.md says how `unlabelled` goes through them.
        A fit that fails or is interrupted leaves the estimator as it was: not fitted, or with its earlier model.
        """
        if unlabelled is not None:
            warn_of_pipeline(self)
        fresh = object.__new__(type(self))
        fresh.__dict__.update(self.__dict__)
        fresh._fit(X, y, unlabelled)
        self.__dict__ = fresh.__dict__  # one step, which an interrupt comes before or after
        return self

    def _fit(self, X: ArrayLike, y: ArrayLike, unlabelled: ArrayLike | None) -> None:
        """`fit` of an estimator that nobody else has yet."""
        refuse_masked(X=X, y=y, unlabelled=unlabelled)
        rows: NDArray[Any] = validate_data(self, X, dtype=FLOATS, ensure_min_samples=2)
        given, known = split_labels(y, len(rows))
        self.classes_, codes = np.unique(given[known], return_inverse=True)
        require(
            len(self.classes_) >= 2,
            f"labelled: at least 2 classes are needed, got {len(self.classes_)} class: {self.classes_[:1].tolist()}"
            if len(self.classes_)
            else "all rows are unlabelled (−1): at least 2 classes are needed, got no class",
        )
        others = rows[~known]
        if unlabelled is not None:
            extra = validate_data(self, unlabelled, dtype=FLOATS, reset=False)
            others = np.concatenate([others, extra]) if len(others) else extra
        x, fine = narrow_sides(rows if known.all() else rows[known], others)
        problem = Problem(
            labelled=Arrays.of(x[0], torch.from_numpy(codes.astype(np.int64)), fine=fine[0]),
            unlabelled=Arrays.of(x[1], fine=fine[1]),
            schema=LabelSchema(tuple(f"{i}" for i in range(len(self.classes_)))),
            same_domain=unlabelled is None,
        )
        if not len(others):
            warnings.warn("no unlabelled rows: training is supervised only", EmbasisWarning, stacklevel=3)
        self._describe(given, known, self._train(problem))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each row."""
        mean = self.label_distribution(X).mean
        return np.asarray(self.classes_[mean.argmax(1)])

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """The mean of each row's label distribution, (N, C)."""
        return self.label_distribution(X).mean

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """The share of rows whose predicted class is that of y; with `sample_weight` each row counts by its own."""
        refuse_masked(y=y, sample_weight=sample_weight)
        return float(super().score(X, y, sample_weight))

    def label_distribution(self, X: ArrayLike) -> LabelMoments:
        """Mean, variance between and within the components, and the ranking uncertainty of each row."""
        check_is_fitted(self)
        refuse_masked(X=X)
        rows: NDArray[Any] = validate_data(self, X, dtype=FLOATS, reset=False)
        inputs = narrow_rows(rows)
        if self._model.needs_float64 and rows.dtype == np.float64:
            inputs = torch.from_numpy(np.require(rows, None, ["C", "W"]))
        labels = self._model.label(inputs).distribution
        mean = labels.mean.double()
        mean = mean / mean.sum(1, keepdim=True)
        parts = (mean, labels.between, labels.within, labels.uncertainty)
        return LabelMoments(*(part.double().numpy() for part in parts))

    def _train(self, problem: Problem) -> list[Tensor]:
        """Walk all rounds; the trusted labels of each, −1 where there is none, up to the round that is kept."""
        inputs = None if self.estimator is None else EstimatorInputs(self.estimator)
        parts = build(problem, self._config(), inputs)
        labels = []
        progress = begin(parts.network, parts.method, parts.plan)
        for event in train_rounds(parts.problem, parts.network, parts.method, parts.plan, progress):
            if isinstance(event.labels, RowLabels):
                labels.append(event.labels.pseudo.label)  # not the whole: all classes of all rows in every round
        self.records_: list[RoundRecord] = progress.records
        self._model: TrainedModel = model_of_run(parts, progress)
        self.n_iter_ = max(len(self.records_) - 1, 0)
        if progress.status in BROUGHT_BACK:
            warnings.warn(self.records_[-1].notes[0], EmbasisWarning, stacklevel=4)
        words = {"finished": "max_iter"} if len(problem.unlabelled) else {"finished": "no_unlabelled"}
        self.termination_condition_ = words.get(progress.status, progress.status)
        self.__dict__.pop("basis_", None)  # of an earlier fit, maybe by another method
        if (basis := read_basis(progress.labeller)) is not None:
            self.basis_ = basis.numpy()
        return labels if progress.kept_round is None else labels[: progress.kept_round + 1]

    def _config(self) -> settings.Config:
        """This estimator's parameters as the config that the command line would have."""
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31 - 1)
        raw: dict[str, Any] = {
            "seed": int(seed),
            "standardise": self.standardise,
            "method": {"name": self.method},
            "network": {"name": self.network},
            "plan": {"rounds": self.rounds},
        }
        offered = {
            "components_per_class": self.components_per_class,
            "sharpness": self.sharpness,
            "keep_first": self.keep_first,
            "keep_max": self.keep_max,
        }
        known = settings.setting_names(settings.find_entry("method", self.method))
        raw["method"] |= {name: value for name, value in offered.items() if name in known and value is not None}
        if self.network == "linear" and self.estimator is None:
            raw["plan"]["weight_decay"] = self.weight_decay
        for name, value in (self.settings or {}).items():
            settings.set_value(raw, name, value)
        for table in ("method", "plan", "network"):  # numbers of a grid search are often numpy's
            raw[table] = {
                key: value.item() if isinstance(value, np.generic) else value for key, value in raw[table].items()
            }
        return settings.load(None, (), top=raw)

    def _describe(self, given: NDArray[Any], known: NDArray[np.bool_], rounds: list[Tensor]) -> None:
        """transduction_ and labeled_iter_."""
        labels = rounds[-1].numpy()
        first = np.full(len(labels), -1)
        for number, trusted in enumerate(rounds, start=1):
            first[(first < 0) & (trusted >= 0).numpy()] = number
        inside, total = int((~known).sum()), len(given) + len(labels) - int((~known).sum())
        self.transduction_ = np.full(total, UNLABELLED_MARK, dtype=dtype_with_mark(self.classes_))
        self.labeled_iter_ = np.zeros(total, dtype=np.int64)
        where = np.concatenate([np.flatnonzero(~known), np.arange(len(given), total)])
        require(len(where) == len(labels) and inside <= len(labels), "rows were lost", InputDataError)
        self.transduction_[np.flatnonzero(known)] = given[known]
        self.transduction_[where[labels >= 0]] = self.classes_[labels[labels >= 0]]
        self.labeled_iter_[where] = first


def warn_of_pipeline(estimator: EMBasisClassifier) -> None:
    """A warning where a Pipeline that fits this estimator has changed X by its steps and `unlabelled` not.

    scikit-learn tells an estimator nothing of its Pipeline, so the calls that led here are looked through for one."""
    steps, last, frame = list[str](), cast(Any, estimator), inspect.currentframe()
    while frame is not None:
        caller, frame = frame.f_locals.get("self"), frame.f_back
        if isinstance(caller, Pipeline) and caller is not last and caller.steps and caller.steps[-1][1] is last:
            if "unlabelled" not in (caller.transform_input or ()):
                steps = [name for name, step in caller.steps[:-1] if step not in (None, "passthrough")] + steps
            last = caller  # which may itself be the last step of another
    if not steps:
        return
    text = (
        f"the Pipeline's steps before this classifier ({', '.join(steps)}) have changed X and not `unlabelled`; with "
        "sklearn.set_config(enable_metadata_routing=True), set_fit_request(unlabelled=True) and Pipeline(…, "
        'transform_input=["unlabelled"]) they change both; or give rows that you have passed through the steps yourself'
    )
    warnings.warn(text, EmbasisWarning, stacklevel=3)


def narrow_sides(*sides: NDArray[Any]) -> tuple[list[torch.Tensor], list[Fine | None]]:
    """The rows of each side in float32, and what float32 loses of them."""
    x = [narrow_rows(side) for side in sides]
    return x, settle_columns([(narrow, find_fine_columns(side)) for narrow, side in zip(x, sides, strict=True)])
