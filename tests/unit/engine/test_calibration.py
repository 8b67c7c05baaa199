"""Recalibration in a run: heard once, by nobody's true labels, the same after going on."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from embasis.config import Config
from embasis.data.datasets.digit_sets import blobs
from embasis.engine.calibration import REFERENCE_LABELS, read_confirmed
from embasis.engine.features import draw_in_shares
from embasis.engine.labels import MemoryLabelStore, RowLabels
from embasis.engine.round_checks import contradiction_notes
from embasis.engine.self_train import train_rounds
from embasis.engine.state import TrainSetup, TrainState
from embasis.errors import ConfigError
from embasis.functional.calibration import fit_inverse_temperature
from embasis.runs.parts import RunParts, build
from embasis.runs.precision import caveats, threshold_for_precision
from embasis.types import Features, Problem, RoundRecord


def problem() -> Problem:
    return blobs(count=600, shift=1.0, separation=2.0)


def built(given: Problem, **method: object) -> RunParts:
    return build(given, Config(method={"name": "em_basis", **method}, plan={"rounds": 2}))


def run(made: RunParts) -> tuple[list[RoundRecord], dict[str, torch.Tensor]]:
    records = []
    for event in train_rounds(made.problem, made.network, made.method, made.plan):
        if event.record is not None:
            records.append(event.record)
    return records, dict(event.state.labeller)


def test_labels_say_how_often_they_are_right() -> None:
    plain, _ = run(built(problem(), recalibration="none"))
    made, state = run(built(problem()))
    assert plain[-1].evaluation is not None
    assert made[-1].evaluation is not None
    assert plain[-1].evaluation.accuracy < 0.97  # there is something to be unsure of
    assert made[-1].evaluation.ece < plain[-1].evaluation.ece
    assert float(state["expected_accuracy"]) == pytest.approx(made[-1].evaluation.accuracy, abs=0.06)
    assert made[-1].facts["expected_accuracy"] == float(state["expected_accuracy"])
    assert "power" not in plain[-1].facts


def test_reference_labels_are_computed_once_before_self_training() -> None:
    made = built(problem())
    seen = [
        event.state.labeller[REFERENCE_LABELS].clone()
        for event in train_rounds(made.problem, made.network, made.method, made.plan)
        if event.record is not None
    ]
    assert len(seen) == 3
    assert all(torch.equal(seen[0], later) for later in seen[1:])


@pytest.mark.parametrize(("network", "asked"), [("linear", 1), ("mlp", 2)])
def test_where_features_are_learned_their_own_nearest_rows_are_asked_too(
    network: str, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    references = list[torch.Tensor]()

    def listen(mean: torch.Tensor, reference: torch.Tensor) -> float:
        references.append(reference)
        assert torch.equal(mean[: len(mean) // asked], mean[-len(mean) // asked :]) or len(references) == 1
        return fit_inverse_temperature(mean, reference)

    monkeypatch.setattr("embasis.engine.calibration.fit_inverse_temperature", listen)
    settings = Config(method={"name": "em_basis"}, network={"name": network}, plan={"rounds": 1, "epochs": 1})
    state = run(build(problem(), settings))[1]
    first, second = references
    assert torch.equal(first, state[REFERENCE_LABELS])
    assert torch.equal(second[: len(first)], first)
    assert len(second) == asked * len(first)


def test_the_estimate_rises_where_self_training_helps_a_learned_network() -> None:
    given = blobs(count=600, shift=2.0, separation=3.0)
    records, _ = run(build(given, Config(method={"name": "em_basis"}, network={"name": "mlp"}, plan={"rounds": 3})))
    first, last = (record.evaluation for record in (records[0], records[-1]))
    assert first is not None
    assert last is not None
    assert last.accuracy > first.accuracy
    assert records[-1].facts["expected_accuracy"] == pytest.approx(last.accuracy, abs=0.05)


def test_hidden_labels_change_nothing() -> None:
    given = problem()
    assert isinstance(given.hidden_labels, torch.Tensor)
    shuffled = replace(
        given, hidden_labels=given.hidden_labels[torch.randperm(600, generator=torch.Generator().manual_seed(0))]
    )
    one, other = run(built(given))[1], run(built(shuffled))[1]
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_class_whose_labels_are_contradicted_is_named_and_others_are_not() -> None:
    made = built(problem())
    *_, last = train_rounds(made.problem, made.network, made.method, made.plan)
    setup, state, labels = (
        TrainSetup(made.problem, None, made.method, made.plan, MemoryLabelStore()),
        last.state.labeller,
        last.labels,
    )
    assert isinstance(labels, RowLabels)
    assert contradiction_notes(setup, state, labels) == []
    label = labels.distribution.label[state["witness_rows"]]
    against = {**state, REFERENCE_LABELS: torch.where(label == 2, 0, label)}
    said = "the nearest labelled rows contradict most labels of 1 of 3 classes (2: 0% confirmed): check some of them"
    assert contradiction_notes(setup, against, labels) == [said]
    one_in_two = {**state, REFERENCE_LABELS: torch.where(torch.arange(len(label)) % 2 == 0, label, (label + 1) % 3)}
    confirmed = read_confirmed(one_in_two, labels.distribution.label, 3)
    assert confirmed is not None
    assert confirmed.tolist() == pytest.approx([0.5] * 3, abs=0.1)


def test_features_that_say_nothing_of_the_classes_are_noticed_without_a_true_label() -> None:
    for separation, noticed in ((0.0, True), (3.0, False)):
        records, _ = run(built(replace(blobs(count=600, shift=1.0, separation=separation), hidden_labels=None)))
        notes = [note for note in records[0].notes if note.startswith("the nearest labelled rows contradict most")]
        assert bool(notes) == noticed


def test_too_few_rows_are_left_as_they_are() -> None:
    given = problem()
    few = replace(
        given, unlabelled=type(given.unlabelled).of(given.unlabelled.inputs(torch.arange(12))), hidden_labels=None
    )
    records, state = run(built(few))
    assert "power" not in state
    assert len(records) == 3


def test_an_unknown_recalibration_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        built(problem(), recalibration="magic")
    assert str(caught.value) == "recalibration must be one of reference, weighted, none, got 'magic'"


def test_a_draw_has_the_shares_of_its_side() -> None:
    y = torch.arange(10_000) % 2
    side = Features(torch.zeros(10_000, 1), torch.zeros(10_000, 2), y, torch.arange(10_000))
    weighted = replace(side, weight=torch.where(y == 0, 9.0, 1.0))
    assert float(draw_in_shares(side, 2000, 0, "bank").y.double().mean()) == pytest.approx(0.5, abs=0.04)
    assert float(draw_in_shares(weighted, 2000, 0, "bank").y.double().mean()) == pytest.approx(0.12, abs=0.03)


# --- what a precision promises


def finished(**method: object) -> TrainState:
    made = built(problem(), **method)
    *_, last = train_rounds(made.problem, made.network, made.method, made.plan)
    return last.state


def test_a_promise_names_the_threshold_the_labels_and_the_errors() -> None:
    kept = threshold_for_precision([0.99, 0.97, 0.9, 0.5], None, 0.95, finished())
    assert (kept.threshold, kept.labels, kept.rows) == (0.9, 3, 4)
    assert kept.errors == pytest.approx(0.14)
    assert kept.sentence(0.95) == "3 of 4 trusted (75%) for a precision of 0.95: about 0 errors expected among them"


def test_where_no_label_is_sure_enough_that_is_said() -> None:
    kept = threshold_for_precision([0.6, 0.5], None, 0.95, finished())
    assert (kept.threshold, kept.labels) == (2.0, 0)
    assert kept.sentence(0.95) == "no label is sure enough for a precision of 0.95"


@pytest.mark.parametrize("precision", [0.0, 1.0, -1.0, float("nan")])
def test_what_is_no_precision_is_refused(precision: float) -> None:
    with pytest.raises(ConfigError, match=r"^precision must be between 0 and 1, got (0|1|-1|nan)$"):
        threshold_for_precision([0.5], None, precision, finished())


def test_an_estimate_without_support_is_doubted() -> None:
    progress = finished()
    expected = float(progress.labeller["expected_accuracy"])
    assert caveats(progress, 0.9, 0.95, expected) == []
    other = caveats(progress, 0.9, 0.95, expected - 0.3)
    assert other[0].startswith("these rows seem to be of another kind than those that the run adapted to (mean probab")
    progress.labeller = {**progress.labeller, "support": torch.zeros(15, 3, dtype=torch.float64)}
    assert caveats(progress, 0.9, 0.95, expected) == [
        "the run saw no label that sure, so the estimate is not supported"
    ]
    against = torch.zeros(15, 3, dtype=torch.float64)
    against[-1] = torch.tensor([1000.0, 970.0, 400.0])
    progress.labeller = {**progress.labeller, "support": against}
    text = "the estimate is not supported: only 40% of the labels that sure agree with their nearest labelled example"
    assert caveats(progress, 0.95, 0.95, expected) == [text]
    progress.labeller = {**progress.labeller, REFERENCE_LABELS: torch.zeros(30, dtype=torch.int64)}
    assert caveats(progress, 0.95, 0.95, expected)[0] == "the run could check its probabilities on 30 labels only"
    text = "the run did not recalibrate its labels, so their probabilities are likely to be too high"
    assert caveats(finished(recalibration="none"), 0.9, 0.95, expected) == [text]
