"""The labels that keep a precision: as many as can be trusted so that the wanted share of them is right, by the run's
own estimate, and why that estimate should not be believed where there is a reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from embasis.engine.calibration import read_calibration
from embasis.engine.state import TrainState
from embasis.errors import ConfigError, require
from embasis.functional.calibration import least_confidence

FEW_ANSWERS = 200
"""Reference labels below which a run's recalibration is a guess."""
ODD_DIFFERENCE = 0.1
"""A mean probability so far from the run's own says that the rows are of another kind."""


@dataclass(frozen=True)
class PrecisionTarget:
    """Labels with at least `threshold` are right with the probability that is wanted."""

    threshold: float
    """2 where no label is sure enough."""
    labels: int
    rows: int
    errors: float
    """Expected among those labels."""
    warnings: tuple[str, ...]

    def sentence(self, precision: float) -> str:
        """How many labels are trusted, and how many errors are expected among them."""
        if not self.labels:
            return f"no label is sure enough for a precision of {precision:.4g}"
        share = f"{self.labels:,} of {self.rows:,} trusted ({self.labels / self.rows:.0%})"
        return f"{share} for a precision of {precision:.4g}: about {round(self.errors):,} errors expected among them"


def check_precision(precision: float) -> None:
    """Refuse what is no precision."""
    require(0 < precision < 1, f"precision must be between 0 and 1, got {precision:g}", ConfigError)


def threshold_for_precision(
    values: Sequence[float], counts: Sequence[int] | None, precision: float, progress: TrainState
) -> PrecisionTarget:
    """The labels that keep it; `counts`: how many labels have each of the probabilities (None: one each)."""
    check_precision(precision)
    confidence = torch.tensor(values, dtype=torch.float64)
    count = torch.ones(len(values), dtype=torch.int64) if counts is None else torch.tensor(counts, dtype=torch.int64)
    rows = int(count.sum())
    mean = float((confidence * count).sum() / rows) if rows else 0.0
    threshold, labels, errors = least_confidence(confidence, count, precision) or (2.0, 0, 0.0)
    return PrecisionTarget(threshold, labels, rows, errors, tuple(caveats(progress, threshold, precision, mean)))


def caveats(progress: TrainState, threshold: float, precision: float, mean: float) -> list[str]:
    """Why the estimate should not be believed, if there is a reason."""
    evidence = read_calibration(progress.labeller)
    if evidence is None:
        return ["the run did not recalibrate its labels, so their probabilities are likely to be too high"]
    reasons = []
    if evidence.sites < FEW_ANSWERS:
        reasons.append(f"the run could check its probabilities on {evidence.sites} labels only")
    if abs(mean - evidence.expected_accuracy) > ODD_DIFFERENCE:
        other = f"mean probability {mean:.2f}, there {evidence.expected_accuracy:.2f}"
        reasons.append(f"these rows seem to be of another kind than those that the run adapted to ({other})")
    bins = evidence.support
    above = bins[int(min(threshold, 1.0) * len(bins) * (1 - 1e-9)) :].sum(0)
    if threshold <= 1 and float(above[0]) < 1:
        reasons.append("the run saw no label that sure, so the estimate is not supported")
    elif threshold <= 1:
        agreeing, count = float(above[2] / above[0]), float(above[0])
        spread = 2 * max(agreeing * (1 - agreeing), 1 / count) ** 0.5 / count**0.5
        if agreeing + spread < precision - ODD_DIFFERENCE:
            by_reference, by_holdout = "agree with their nearest labelled example", "are right on held-out rows"
            text = (
                f"only {agreeing:.0%} of the labels that sure {by_reference if evidence.by_reference else by_holdout}"
            )
            reasons.append(f"the estimate is not supported: {text}")
    return reasons
