"""The collapse guard: a round that has gone wrong ends the run, and the best round before it is kept.

| status | when |
| --- | --- |
| collapsed | one class swallows the unlabelled side although it does not do so on the labelled side, and the
  label-free score has fallen; or that score has fallen below half of the best |
| no_change | nothing was trusted, so that another round would change nothing |
| ok | otherwise |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from embasis.engine.scores import LabelSummary
from embasis.engine.state import TrainSetup, TrainState
from embasis.types import SELECTION_SCORE, Method


@dataclass(frozen=True)
class RoundStatus:
    """How a round has ended, and sentences for its record."""

    name: str = "ok"
    notes: tuple[str, ...] = ()

    @property
    def collapsed(self) -> bool:
        """Whether the best round before must be brought back."""
        return self.name == "collapsed"


def check_collapse(
    setup: TrainSetup, state: TrainState, summary: LabelSummary, scores: Mapping[str, float]
) -> RoundStatus:
    """The status of a round by its labels and its label-free scores."""
    if not summary.sites:
        return RoundStatus()
    if state.round and (reason := collapse_reason(setup, state, summary, scores)):
        kept = f"round {state.best_round} is kept"
        return RoundStatus("collapsed", (f"collapsed in round {state.round}: {reason}; {kept}",))
    if not int(summary.trusted.sum()) and needs_trusted(setup.method):
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


def needs_trusted(method: Method) -> bool:
    """Whether a round without trusted labels would change nothing."""
    return not method.loss.uses_all_rows and method.rounds != 0
