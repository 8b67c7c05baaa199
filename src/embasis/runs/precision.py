"""Which labels are right with a probability that the user names, how many errors that leaves, and how far it holds.

The estimate is the labels' own probability, as recalibrated by the run (engine/calibration.py). It is believed where
the run has something to show for it; where not, the sentences here say why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from embasis.engine.state import TrainState
from embasis.errors import ConfigError, require
from embasis.functional.temperature import least_confidence

FEW = 200
"""Answers of the witness below which a run's recalibration is a guess."""
ODD = 0.1
"""A mean probability so far from the run's own says that the rows are of another kind."""


@dataclass(frozen=True)
class PrecisionTarget:
    """Labels with at least `threshold` are right with the probability that was asked for."""

    threshold: float
    """2 where no label is sure enough."""
    labels: int
    rows: int
    errors: float
    """Expected among those labels."""
    warnings: tuple[str, ...]

    def sentence(self, precision: float) -> str:
        """What the user is told."""
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
    found = least_confidence(confidence, count, precision)
    threshold, labels, errors = found or (2.0, 0, 0.0)
    return PrecisionTarget(threshold, labels, rows, errors, tuple(caveats(progress, threshold, precision, mean)))


def caveats(progress: TrainState, threshold: float, precision: float, mean: float) -> list[str]:
    """Why the estimate should not be believed, if there is a reason."""
    state = progress.labeller
    if "power" not in state:
        return ["the run did not recalibrate its labels, so their probabilities are likely to be too high"]
    found = []
    answers = len(state["witness"]) if "witness" in state else round(float(state["support"][:, 0].sum()))
    expected = float(state["expected_accuracy"])
    if answers < FEW:
        found.append(f"the run could check its probabilities on {answers} labels only")
    if abs(mean - expected) > ODD:
        other = f"mean probability {mean:.2f}, there {expected:.2f}"
        found.append(f"these rows seem to be of another kind than those that the run adapted to ({other})")
    bins = state["support"]
    above = bins[int(min(threshold, 1.0) * len(bins) * (1 - 1e-9)) :].sum(0)
    if threshold <= 1 and float(above[0]) < 1:
        found.append("the run saw no label that sure, so the estimate is not supported")
    elif threshold <= 1:
        agreeing, count = float(above[2] / above[0]), float(above[0])
        spread = 2 * max(agreeing * (1 - agreeing), 1 / count) ** 0.5 / count**0.5
        if agreeing + spread < precision - ODD:
            said = "agree with their nearest labelled example" if "witness" in state else "are right on held-out rows"
            text = f"only {agreeing:.0%} of the labels that sure {said}"
            found.append(f"the estimate is not supported: {text}")
    return found
