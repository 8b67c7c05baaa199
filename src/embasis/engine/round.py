"""The end of a round, after its training: from features to labels, to what is trusted, to the round's record.

Each step returns values, and nothing that it was given is changed. What the round has computed reaches the run's state
in one place, `TrainState.after_round`. The network alone is written in place, as training does: its statistics of the
unlabelled domain by `extract_both` (domain_norm.py), and all of its weights by `roll_back`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from embasis.engine.calibration import calibrate, read_calibration
from embasis.engine.domain_norm import match_domains
from embasis.engine.evaluate import evaluate
from embasis.engine.features import sample_features
from embasis.engine.harm import harm_notes, keep_source_labels, keep_source_model
from embasis.engine.holdout import RoundFeatures, weigh_holdout
from embasis.engine.labels import RoundLabels, label_and_select, labelled_parts
from embasis.engine.learner import judge_basis
from embasis.engine.round_checks import (
    RoundStatus,
    RoundWarnings,
    check_round,
    contradiction_notes,
    falling_notes,
)
from embasis.engine.scores import (
    BasisSummary,
    LabelSummary,
    held_out_scores,
    label_free_scores,
    summarise_basis,
    summarise_labels,
)
from embasis.engine.state import LearnedModel, TrainSetup, TrainState
from embasis.methods.em_basis.state import start_of_round
from embasis.types import Evaluation, RoundRecord, State

EXPECTED_PRECISION = "expected_precision"
"""The name of that fact in a round's record."""


@dataclass(frozen=True, eq=False)
class RoundSummary:
    """What is known of a round's labels without a true one."""

    labels: LabelSummary
    scores: dict[str, float]
    """label-free scores; of a round that has collapsed, those by which that was seen"""
    changed: float
    """share of labels that differ from the round before"""
    warnings: tuple[str, ...]
    basis: BasisSummary | None
    """None where the labeller has no basis, and of a round that has collapsed"""


@dataclass(frozen=True, eq=False)
class RoundResult:
    """What a round that has ended leaves to the caller."""

    record: RoundRecord
    labels: RoundLabels
    basis: BasisSummary | None
    is_kept: bool
    """Whether this round would be kept if it were the last one."""


def finish_round(setup: TrainSetup, state: TrainState) -> RoundResult:
    """Label the unlabelled side by the network as it is, and select what the next round trains on."""
    features = extract_both(setup, state)
    learned = fit_labeller(setup, state, features)
    labels = label_and_select(setup, learned, state.round, features.unlabelled)
    summary = summarise_round(setup, state, learned, labels, features)
    status = check_round(setup, state, learned, labels, summary.labels, summary.scores)
    if status.goes_back:
        learned, labels, summary = roll_back(setup, state, summary, status)
    setup.store.keep({state.round - 1, state.round})  # the caller has not saved this round yet: it may go back
    learned = replace(learned, selector=labels.choice.state)
    record = make_record(setup, state, learned, labels, summary, status)
    is_kept = state.after_round(setup, learned, labels.training_targets(summary.labels.by_part), record)
    keep_source_model(setup, state)
    return RoundResult(record, labels, summary.basis, is_kept)


def extract_both(setup: TrainSetup, state: TrainState) -> RoundFeatures:
    """Features of both sides with their domains matched, and of the held-out rows."""
    network, problem, plan = state.network, setup.problem, setup.plan
    labelled = sample_features(network, problem.labelled, plan, True, state.round)
    unlabelled = sample_features(network, problem.unlabelled, plan, False, state.round)
    unlabelled = match_domains(network, labelled, unlabelled, problem, plan)
    features = RoundFeatures(labelled, unlabelled)
    return replace(features, held_out=weigh_holdout(setup, network, state.round, features))


def fit_labeller(setup: TrainSetup, state: TrainState, features: RoundFeatures) -> LearnedModel:
    """The labeller (of `em_basis`: EM basis and head) fitted on both sides, and its probabilities calibrated."""
    start = labeller_start(state)
    fitted = setup.method.labeller.fit(features.stream, start, setup.plan.seed, state.round)
    fitted = judge_basis(setup, state.network, fitted, features.held_out)
    calibrated = calibrate(setup, state.network, fitted, start, features)
    return LearnedModel(state.network, keep_source_labels(setup, state, calibrated, features))


def labeller_start(state: TrainState) -> State:
    """What the labeller starts from: its state after the last round, with Stage I's basis after source training, and
    with the trusted labels of each class that this round has trained on."""
    block = getattr(state.network, "basis", None) if state.round == 0 else None
    proposal = None if block is None else block.weight.detach().cpu().clone()
    counts = torch.tensor(state.records[-1].trusted_counts) if state.records else None
    return start_of_round(state.labeller, proposal, counts)


def summarise_round(
    setup: TrainSetup, state: TrainState, learned: LearnedModel, labels: RoundLabels, features: RoundFeatures
) -> RoundSummary:
    """Counts, label-free scores, warnings and the basis; the labels are read once."""
    warnings, labeller = RoundWarnings(state.round), setup.method.labeller
    summary = summarise_labels(warnings.observe(labels.parts()), setup.classes, setup.plan.seed)
    scores = label_free_scores(summary, features.labelled.chunks)
    return RoundSummary(
        summary,
        scores | held_out_scores(features.held_out, labeller, learned.labeller),
        labels.changed(state.pseudo, state.labels),
        (
            *labeller.notes(learned.labeller, state.round),
            *contradiction_notes(setup, learned.labeller, labels),
            *harm_notes(learned, labels),
            *falling_notes(setup, state, learned.labeller, scores),
            *warnings.notes(),
        ),
        summarise_basis(labeller, features.unlabelled.chunks, learned.labeller, labels.has_grids),
    )


def roll_back(
    setup: TrainSetup, state: TrainState, summary: RoundSummary, status: RoundStatus
) -> tuple[LearnedModel, RoundLabels, RoundSummary]:
    """The model of the best round, or the source model, and its labels: in place of those of a round that failed."""
    learned = state.restore_best() if status.name == "collapsed" else restore_source_model(setup, state)
    labels = label_and_select(setup, learned, state.round, None)
    counts = summarise_labels(labels.parts(), setup.classes)
    return learned, labels, replace(summary, labels=counts, basis=None)


def restore_source_model(setup: TrainSetup, state: TrainState) -> LearnedModel:
    """The network of round 0, which labels alone, calibrated as such."""
    source = state.restore_source()
    alone = setup.method.labeller.without_basis(source.labeller) or source.labeller
    features = extract_both(setup, state)
    return LearnedModel(source.network, calibrate(setup, source.network, alone, source.labeller, features))


def make_record(
    setup: TrainSetup,
    state: TrainState,
    learned: LearnedModel,
    labels: RoundLabels,
    summary: RoundSummary,
    status: RoundStatus,
) -> RoundRecord:
    """The round as it is written to rounds.jsonl."""
    counted = summary.labels
    return RoundRecord(
        round=state.round,
        status=status.name,
        loss=state.loss_sum / max(state.loss_count, 1),
        unlabelled=counted.sites,
        trusted=int(counted.trusted.sum()),
        class_counts=tuple(counted.counts.tolist()),
        trusted_counts=tuple(counted.trusted.tolist()),
        changed=summary.changed,
        scores=summary.scores,
        facts={
            **{name: float(value) for name, value in learned.labeller.items() if value.ndim == 0},
            **{name: total / count for name, (total, count) in sorted(state.alignment_sums.items())},
            **precision_fact(learned.labeller, counted),
        },
        evaluation=evaluate_hidden(setup, labels),
        test=evaluate_test(setup, learned, state.round),
        notes=status.notes + (summary.warnings if status.name == "ok" else ()),
    )


def precision_fact(labeller: State, summary: LabelSummary) -> dict[str, float]:
    """How many of the trusted labels are expected to be right, where probabilities were recalibrated."""
    expected = summary.expected_precision() if read_calibration(labeller) is not None else None
    return {} if expected is None else {EXPECTED_PRECISION: expected}


def evaluate_hidden(setup: TrainSetup, labels: RoundLabels) -> Evaluation | None:
    """The labels against the hidden ones of the unlabelled side, if there are any."""
    hidden = setup.problem.hidden_labels
    return None if hidden is None or not len(hidden) else evaluate(labels.parts(), hidden, setup.classes)


def evaluate_test(setup: TrainSetup, learned: LearnedModel, round_number: int) -> Evaluation | None:
    """Labels of the test set against its true ones, if there is one."""
    samples = setup.problem.test
    if samples is None or not len(samples) or not len(samples.truth):
        return None
    parts = labelled_parts(samples, setup.method, setup.plan, learned, round_number)
    return evaluate(parts, samples.truth, setup.classes)
