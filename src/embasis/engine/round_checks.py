"""What the labels of a round are checked for before anybody relies on them: collapse, harm, and reasons for a warning.

Two guards end a run that has gone wrong, and bring back the best round before, or the source model:

| status | when |
| --- | --- |
| collapsed | one class swallows the unlabelled side although it does not do so on the labelled side, and the
  label-free score has fallen; or that score has fallen below half of the best |
| source_kept | evidence that self-training cannot change speaks against what it has changed (harm.py) |
| no_change | nothing was trusted, so that another round would change nothing |
| ok | otherwise |

Warnings tell a person what to read before relying on the order of the labels. Those of what the labeller has learned
are its own (`Labeller.notes`).

| warning | when |
| --- | --- |
| one value | all sites are equally sure, so that which of them are trusted is decided by a hash of their ids |
| contradicted | reference labels contradict most labels of a class (engine/calibration.py) |
| falling | after the last round both the expected accuracy and the label-free score are lower than after round 0 |
| cut weights | 1 / variance was outside the range that a weight may have |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch

from embasis.engine.calibration import read_calibration, read_confirmed
from embasis.engine.harm import SOURCE_KEPT, find_harm
from embasis.engine.labels import LabelBatch, MapLabels, RoundLabels
from embasis.engine.scores import LabelSummary
from embasis.engine.state import BROUGHT_BACK, LearnedModel, TrainSetup, TrainState
from embasis.errors import reveal
from embasis.functional.losses import WEIGHT_RATIO
from embasis.types import SELECTION_SCORE, Method, State

FALLEN = 0.02
"""By how much both estimates must have fallen to be worth a note."""
HALF = 0.5
"""Of a class whose labels are confirmed less often than this, most are contradicted."""


@dataclass(frozen=True)
class RoundStatus:
    """How a round has ended, and sentences for its record."""

    name: str = "ok"
    notes: tuple[str, ...] = ()

    @property
    def goes_back(self) -> bool:
        """Whether an earlier model must be brought back."""
        return self.name in BROUGHT_BACK


def check_round(
    setup: TrainSetup,
    state: TrainState,
    model: LearnedModel,
    labels: RoundLabels,
    summary: LabelSummary,
    scores: Mapping[str, float],
) -> RoundStatus:
    """The status of a round: collapsed, harmful, without anything trusted, or fine."""
    status = check_collapse(setup, state, summary, scores)
    limit = setup.plan.harm_limit
    if status.name == "ok" and state.source and (reason := find_harm(model, labels, limit)):
        kept = "adaptation does not help here, and the source model is kept"
        return RoundStatus(SOURCE_KEPT, (f"stopped in round {state.round}: {reason}; {kept}",))
    return status


def check_collapse(
    setup: TrainSetup, state: TrainState, summary: LabelSummary, scores: Mapping[str, float]
) -> RoundStatus:
    """The status of a round by its labels and its label-free scores."""
    if not summary.sites:
        return RoundStatus()
    if state.round and (reason := collapse_reason(setup, state, summary, scores)):
        kept = f"round {state.best_round} is kept"
        return RoundStatus("collapsed", (f"collapsed in round {state.round}: {reason}; {kept}",))
    if not int(summary.trusted.sum()) and needs_trusted(setup.method, state.round + 1):
        return RoundStatus("no_change", (f"nothing was trusted after round {state.round}; training stops",))
    return RoundStatus()


def collapse_reason(
    setup: TrainSetup, state: TrainState, summary: LabelSummary, scores: Mapping[str, float]
) -> str | None:
    """Why a round counts as collapsed; None if it does not."""
    limit, counts = setup.plan.collapse_share, setup.problem.labelled.counts(setup.classes)
    share = float(summary.counts.max()) / summary.sites
    usual = float(counts.max()) / max(int(counts.sum()), 1)
    score, (best, best_round) = scores[SELECTION_SCORE], best_guard_score(state)
    swallowed = share > limit and usual <= limit and score < best
    if not swallowed and not score < best / 2:
        return None
    why = f"one class took {share:.0%} of the labels" if swallowed else f"the label-free score fell to {score:.3f}"
    return f"{why} (best {best:.3f} in round {best_round})"


def best_guard_score(state: TrainState) -> tuple[float, int]:
    """The guard's best score so far and the first round that has it, whatever score a round is kept by."""
    scores = [(record.scores[SELECTION_SCORE], -record.round) for record in state.records]
    best, number = max(scores, default=(state.best_score, -state.best_round))
    return best, -number


def needs_trusted(method: Method, next_round: int) -> bool:
    """Whether the next round would change nothing without trusted labels."""
    aligner = method.align
    aligned = aligner is not None and aligner.weight > 0 and (aligner.ends is None or next_round <= aligner.ends)
    return not method.loss.uses_all_rows and method.rounds != 0 and not aligned


def contradiction_notes(setup: TrainSetup, state: State, labels: RoundLabels) -> list[str]:
    """A sentence where reference labels contradict most labels of a class: hardly two of five such labels are right
    (decision 0033). Label maps go without."""
    names = setup.problem.schema.names
    label = None if isinstance(labels, MapLabels) else labels.distribution.label
    confirmed = None if label is None else read_confirmed(state, label, len(names))
    if label is None or confirmed is None:
        return []
    there = torch.bincount(label, minlength=len(names)) > 0
    doubted = torch.nonzero((confirmed < HALF) & there).squeeze(1).tolist()
    if not doubted:
        return []
    worst = min(doubted, key=lambda number: float(confirmed[number]))
    lowest = f"{reveal(names[worst])}: {float(confirmed[worst]):.0%} confirmed"
    most = f"most labels of {len(doubted)} of {len(names)} classes"
    return [f"the nearest labelled rows contradict {most} ({lowest}): check some of them"]


def falling_notes(setup: TrainSetup, state: TrainState, labeller: State, scores: Mapping[str, float]) -> list[str]:
    """A sentence after the last round where both estimates of quality have fallen since the source model's round.

    Of 27 such runs of the study's 142 on fixed features, 11 had labels that were worse by a point or more."""
    calibrated = read_calibration(labeller)
    if state.round < setup.last_round or not state.records or calibrated is None:
        return []
    first = state.records[0]
    expected, score = first.facts.get("expected_accuracy", 0.0), first.scores[SELECTION_SCORE]
    now = calibrated.expected_accuracy, scores[SELECTION_SCORE]
    if now[0] > expected - FALLEN or now[1] > score - FALLEN:
        return []
    fell = f"the expected accuracy fell from {expected:.2f} to {now[0]:.2f}"
    also = f"the label-free score from {score:.2f} to {now[1]:.2f}"
    return [f"since round 0 {fell} and {also}: labels may have become worse; try fewer rounds, or --method source_only"]


class RoundWarnings:
    """Sums over the parts of a round that were passed on."""

    def __init__(self, round_number: int) -> None:
        self.round = round_number
        self.sites = self.weighted = self.cut = 0
        self.least, self.most = math.inf, -math.inf

    def observe(self, parts: Iterable[LabelBatch]) -> Iterator[LabelBatch]:
        """The same parts, each counted on its way."""
        for part in parts:
            score, weight = part.distribution.uncertainty, part.pseudo.weight
            self.sites += len(score)
            self.least, self.most = min(self.least, float(score.min())), max(self.most, float(score.max()))
            low, high = torch.tensor([1 / WEIGHT_RATIO, WEIGHT_RATIO], dtype=weight.dtype)
            self.weighted += int((weight > 0).sum())
            self.cut += int(((weight == low) | (weight == high)).sum())
            yield part

    def notes(self) -> list[str]:
        """A sentence for each warning."""
        sentences = []
        if self.sites > 1 and self.least == self.most:
            order = "which of them are trusted is decided by a hash of their ids"
            sentences.append(f"all {self.sites:,} labels of round {self.round} are equally sure: {order}")
        if self.cut:
            bounds = f"[{1 / WEIGHT_RATIO:g}, {WEIGHT_RATIO:g}]"
            sentences.append(f"{self.cut:,} of {self.weighted:,} weights of round {self.round} were cut to {bounds}")
        return sentences
