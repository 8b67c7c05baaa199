"""What self-training has changed, judged by evidence that it cannot change; and a guard by that (decision 0035).

Where features are fixed, the nearest labelled site of an unlabelled one stays the same in every round: its class, the
reference label (calibration.py), is a witness that no round can persuade. Where a round's label differs from the source
network's own, that witness may side with either:

| symbol | shape | meaning |
| --- | --- | --- |
| before | w | the source network's own labels of the sites with reference labels |
| after | w | this round's labels of these |
| won, lost | () | sites whose label has changed to the reference label, and away from it |
| z | () | (won − lost) / √(won + lost): by how many standard errors the changes are confirmed |

At z < −WORTH_A_NOTE the record says so. At z < −plan.harm_limit, if that is set, the run ends and the source model is
kept: the network of round 0 labels alone, recalibrated. It is off by default, because the witness sees the features as
the source network does and errs with it where class shares differ. Where features are learned, the nearest labelled
site is what the source network has made near: it would side with the source model, and nobody asks it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from embasis.engine.calibration import LEAST_REFERENCE, REFERENCE_LABELS, REFERENCE_ROWS, chunks_of
from embasis.engine.holdout import RoundFeatures
from embasis.engine.labels import RoundLabels, RowLabels
from embasis.engine.state import LearnedModel, TrainSetup, TrainState
from embasis.functional.calibration import confirmed_changes
from embasis.networks.network import has_fixed_features
from embasis.types import State

SOURCE_LABELS = "source_labels"
"""The stored name of `before`, beside the reference labels."""
SOURCE_KEPT = "source_kept"
"""The status of a run that the guard has ended."""
WORTH_A_NOTE = 4.0
"""Standard errors: many, because the nearest labelled row is often of another class."""


def keep_source_labels(setup: TrainSetup, state: TrainState, labeller: State, features: RoundFeatures) -> State:
    """The labeller's new state with the source network's labels: computed in round 0, taken over in later ones.

    Nothing is kept where features are learned, where rows have many sites, or where there are few reference labels."""
    if len(labeller.get(REFERENCE_LABELS, ())) < LEAST_REFERENCE or not has_fixed_features(state.network):
        return labeller
    if state.round:
        known = state.labeller.get(SOURCE_LABELS)
        return labeller if known is None else {**labeller, SOURCE_LABELS: known}
    chunks = list(chunks_of(setup, state.network, features.unlabelled, labeller[REFERENCE_ROWS]))
    if any(part.grid for part in chunks):
        return labeller
    return {**labeller, SOURCE_LABELS: torch.cat([part.scores.argmax(1) for part in chunks])}


def keep_source_model(setup: TrainSetup, state: TrainState) -> None:
    """After a round: remember the model of the first one as long as the guard may bring it back."""
    if state.status != "running":
        state.source = {}
    elif state.round == 1 and setup.plan.harm_limit > 0 and SOURCE_LABELS in state.labeller:
        state.remember_source()


def count_confirmed_changes(labeller: State, labels: RoundLabels) -> tuple[int, int] | None:
    """won, lost; None where nothing was kept to count them by."""
    if SOURCE_LABELS not in labeller or not isinstance(labels, RowLabels):
        return None
    after: Tensor = labels.distribution.label[labeller[REFERENCE_ROWS]]
    return confirmed_changes(labeller[SOURCE_LABELS], after, labeller[REFERENCE_LABELS])


def find_harm(learned: LearnedModel, labels: RoundLabels, limit: float) -> str | None:
    """What speaks against this round's labels by more than so many standard errors; None where nothing does."""
    won, lost = count_confirmed_changes(learned.labeller, labels) or (0, 0)
    if lost - won <= limit * (won + lost) ** 0.5:
        return None
    rows = "the nearest labelled rows"
    return f"of the labels that self-training has changed, {rows} confirm {won:,} now and confirmed {lost:,} before"


def harm_notes(learned: LearnedModel, labels: RoundLabels) -> list[str]:
    """A sentence where much speaks against this round's labels."""
    reason = find_harm(learned, labels, WORTH_A_NOTE)
    cure = "compare with --method source_only; plan.harm_limit=4 keeps the source model in such a case"
    return [] if reason is None else [f"{reason}: {cure}"]
