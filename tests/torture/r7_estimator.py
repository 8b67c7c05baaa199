"""R7: scikit-learn's own checks on every public estimator, without an expected failure."""

from __future__ import annotations

import warnings
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import sklearn
from goals import Result
from sklearn.utils.estimator_checks import check_estimator

from embasis import EMBasisClassifier

VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"method": "cbst"},
    {"method": "entropy", "rounds": 2},
    {"network": "mlp", "rounds": 2, "settings": {"plan.source_epochs": 25, "hidden": 16}},
    {"method": "em_basis_paper"},
)


def checked(options: dict[str, Any]) -> tuple[int, list[str]]:
    """How many checks there were, and the sentences of those that did not pass; a skip is said too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(EMBasisClassifier(**options), on_skip=None, on_fail=None)
    wrong = [entry for entry in found if entry["status"] not in ("passed", "skipped") or entry["expected_to_fail"]]
    return len(found), [f"{options}: {entry['check_name']}: {entry['exception']!r:.200}" for entry in wrong]


class Broken(EMBasisClassifier):
    """Predicts by the place of a row: what the checks must see."""

    def predict(self, X: Any) -> Any:
        found = super().predict(X)
        return found[::-1].copy()


def run() -> Result:
    """All variants, two at a time."""
    with ProcessPoolExecutor(2) as pool:
        found = list(pool.map(checked, VARIANTS))
    faults = [text for _, wrong in found for text in wrong]
    for text in faults:
        print(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen = [entry for entry in check_estimator(Broken(), on_skip=None, on_fail=None) if entry["status"] == "failed"]
    counts = (
        f"{sum(count for count, _ in found)} checks of scikit-learn {sklearn.__version__} on {len(VARIANTS)} variants"
    )
    figure = f"{counts}: {len(faults)} failures, 0 expected ones; a broken estimator fails {len(seen)}"
    return Result(not faults and bool(seen), figure)
