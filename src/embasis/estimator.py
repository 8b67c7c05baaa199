"""`EMBasisClassifier`: self-training for arrays, with scikit-learn's habits.

The constructor stores, `fit` checks. Behind it stands the same path as behind the command line, so that the estimator
and a config with the same data and seed give equal records.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from embasis import config as settings
from embasis.engine.rounds import begin, walk
from embasis.engine.verdict import Verdict
from embasis.errors import EmbasisWarning, InputDataError, require
from embasis.experiment.build import build
from embasis.experiment.model import Model, finished
from embasis.types import Arrays, LabelSchema, Problem, RoundRecord

UNLABELLED = -1
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
    value are read as two classes (with a warning): one class alone cannot be learned.

    Parameters
    ----------
    method : str, default "em_basis"
        Any of `embasis list methods`.
    network : str, default "linear"
        "linear" or "mlp".
    rounds : int, default 6
        Rounds of self-training; 0 trains on the labelled rows only.
    per_class : int, default 0
        Components of the basis for each class; 0 = three, or fewer where rows are few.
    sharpness : float, default 0
        Concentration of the components; 0 = from the data.
    keep : float, default 0.2
        Share of each predicted class that is trusted in the first round.
    cap : float, default None
        The largest share that is trusted; None = as the method has it: for em_basis what is expected to be right.
    weight_decay : float, default 0.1
        Strength of the L2 penalty of the linear network.
    standardise : str, default "auto"
        "domain" (each side by itself), "joint", "none"; auto = domain for `unlabelled=`, joint for −1.
    settings : dict, default None
        Further settings by their dotted names, e.g. {"method.labels": "draw", "plan.epochs": 5}.
    random_state : int, RandomState or None
        Seed of everything that is drawn. The linear network draws nothing.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_
    basis_ : (K, d) the basis in standardised feature space (em_basis only)
    transduction_ : labels of the training rows, −1 where none is trusted; rows of `unlabelled` follow those of X
    labeled_iter_ : round in which a row was first trusted; 0 = given, −1 = never
    n_iter_ : rounds done
    termination_condition_ : "max_iter", "no_change", "collapsed" or "no_unlabelled"
    records_ : one RoundRecord a round
    """

    def __init__(
        self,
        method: str = "em_basis",
        network: str = "linear",
        rounds: int = 6,
        per_class: int = 0,
        sharpness: float = 0.0,
        keep: float = 0.2,
        cap: float | None = None,
        weight_decay: float = 0.1,
        standardise: str = "auto",
        settings: Mapping[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.method = method
        self.network = network
        self.rounds = rounds
        self.per_class = per_class
        self.sharpness = sharpness
        self.keep = keep
        self.cap = cap
        self.weight_decay = weight_decay
        self.standardise = standardise
        self.settings = settings
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, unlabelled: ArrayLike | None = None) -> EMBasisClassifier:
        """Train on the labelled rows, then adapt to the unlabelled ones (label −1, or the rows of `unlabelled`)."""
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
            others = np.concatenate([others, extra])
        problem = Problem(
            labelled=Arrays.of(rows_of(rows[known]), torch.from_numpy(codes.astype(np.int64))),
            unlabelled=Arrays.of(rows_of(others)),
            schema=LabelSchema(tuple(f"{i}" for i in range(len(self.classes_)))),
            shared=unlabelled is None,
        )
        if not len(others):
            warnings.warn("no unlabelled rows: training is supervised only", EmbasisWarning, stacklevel=2)
        verdicts = self._train(problem)
        self._describe(given, known, verdicts)
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each row."""
        mean = self.label_distribution(X).mean
        return np.asarray(self.classes_[mean.argmax(1)])

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """The mean of each row's label distribution, (N, C)."""
        return self.label_distribution(X).mean

    def label_distribution(self, X: ArrayLike) -> LabelMoments:
        """Mean, variance between and within the components, and the ranking uncertainty of each row."""
        check_is_fitted(self)
        rows: NDArray[Any] = validate_data(self, X, dtype=FLOATS, reset=False)
        found = self._model.verdict(rows_of(rows)).distribution
        mean = found.mean.double()
        mean = mean / mean.sum(1, keepdim=True)
        return LabelMoments(*(part.double().numpy() for part in (mean, found.between, found.within, found.uncertainty)))

    def _train(self, problem: Problem) -> list[Verdict]:
        """Walk all rounds; the labels of each."""
        built = build(problem, self._config())
        verdicts = []
        progress = begin(built.network, built.method, built.plan)
        for moment in walk(built.problem, built.network, built.method, built.plan, progress):
            if isinstance(moment.verdict, Verdict):
                verdicts.append(moment.verdict)
        self.records_: list[RoundRecord] = progress.records
        self._model: Model = finished(built, progress)
        self.n_iter_ = max(len(self.records_) - 1, 0)
        if progress.status == "collapsed":
            warnings.warn(self.records_[-1].notes[0], EmbasisWarning, stacklevel=3)
        words = {"finished": "max_iter"} if len(problem.unlabelled) else {"finished": "no_unlabelled"}
        self.termination_condition_ = words.get(progress.status, progress.status)
        self.__dict__.pop("basis_", None)  # of an earlier fit, maybe by another method
        if "mu" in progress.labeller:
            self.basis_ = progress.labeller["mu"].numpy()
        return verdicts if progress.kept is None else verdicts[: progress.kept + 1]

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
        offered = {"per_class": self.per_class, "sharpness": self.sharpness, "keep": self.keep, "cap": self.cap}
        known = settings.settings_of(settings.entry_of("method", self.method))
        raw["method"] |= {name: value for name, value in offered.items() if name in known and value is not None}
        if self.network == "linear":
            raw["plan"]["weight_decay"] = self.weight_decay
        for name, value in (self.settings or {}).items():
            settings.place(raw, name, value)
        for table in ("method", "plan", "network"):  # numbers of a grid search are often numpy's
            raw[table] = {
                key: value.item() if isinstance(value, np.generic) else value for key, value in raw[table].items()
            }
        return settings.load(None, (), top=raw)

    def _describe(self, given: NDArray[Any], known: NDArray[np.bool_], verdicts: list[Verdict]) -> None:
        """transduction_ and labeled_iter_."""
        labels = verdicts[-1].pseudo.label.numpy()
        first = np.full(len(labels), -1)
        for number, verdict in enumerate(verdicts, start=1):
            first[(first < 0) & verdict.pseudo.trusted.numpy()] = number
        inside, total = int((~known).sum()), len(given) + len(labels) - int((~known).sum())
        kind = self.classes_.dtype if self.classes_.dtype.kind in "iuf" else object
        self.transduction_ = np.full(total, UNLABELLED, dtype=kind)
        self.labeled_iter_ = np.zeros(total, dtype=np.int64)
        where = np.concatenate([np.flatnonzero(~known), np.arange(len(given), total)])
        require(len(where) == len(labels) and inside <= len(labels), "rows were lost", InputDataError)
        self.transduction_[np.flatnonzero(known)] = given[known]
        self.transduction_[where[labels >= 0]] = self.classes_[labels[labels >= 0]]
        self.labeled_iter_[where] = first


def split_labels(y: ArrayLike, rows: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The labels as an array, and which rows are labelled: all but those of −1."""
    if y is None:
        raise InputDataError("requires y to be passed, but the target y is None")
    given = column_or_1d(y, warn=True)
    require(len(given) == rows, f"X and y must have one length, got {rows} and {len(given)}")
    if given.dtype.kind == "f" and not np.isfinite(given).all():
        raise InputDataError(f"Input y contains NaN or inf in {int((~np.isfinite(given)).sum())} rows")
    marks = given == UNLABELLED if given.dtype.kind != "U" else given == str(UNLABELLED)
    known = ~np.asarray(marks, dtype=bool)
    if known.any() and not known.all() and len(np.unique(given[known])) == 1:
        warnings.warn(
            f"y holds only −1 and {given[known][0]!r}: read as two classes, not as unlabelled rows",
            EmbasisWarning,
            stacklevel=3,
        )
        known = np.ones(rows, dtype=bool)
    check_classification_targets(given[known])  # after the marks: words and −1 together cannot be sorted
    return given, known


def rows_of(x: NDArray[Any]) -> torch.Tensor:
    """float32 rows; a value that float32 cannot hold is an error."""
    with np.errstate(over="ignore"):
        narrow = np.ascontiguousarray(x, dtype=np.float32)
    lost = int((~np.isfinite(narrow)).sum())
    require(not lost, f"X holds {lost} values that are too large for float32 (over 3.4e38)")
    return torch.from_numpy(narrow)
