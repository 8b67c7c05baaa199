"""The guard against harm: a set on which adaptation harms is left alone, and others are adapted as ever."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from embasis.config import load
from embasis.engine.harm import SOURCE_LABELS, count_confirmed_changes
from embasis.engine.labels import MemoryLabelStore, RowLabels
from embasis.engine.round_checks import falling_notes
from embasis.engine.self_train import TrainingEvent, train_rounds
from embasis.engine.state import TrainSetup, TrainState
from embasis.runs.parts import RunParts, build
from embasis.types import Arrays, LabelSchema, Problem
from training_runs import built_for, same, toy

GROUPS, CLASSES, FEATURES = 2, 5, 6


@functools.cache
def draw_groups(seed: int, rare: float, shift: float) -> Problem:
    """Classes of two groups each, alike on the labelled side; the other one has other class shares, this share of
    second groups, and is shifted."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw)

    centre, share = normal(CLASSES, GROUPS, FEATURES) * 2, torch.softmax(normal(CLASSES) * 1.5, 0)
    known = torch.arange(200) % CLASSES
    x = centre[known, torch.randint(GROUPS, (200,), generator=draw)] + normal(200, FEATURES) * 0.7
    hidden = torch.multinomial(share, 600, True, generator=draw)
    group = (torch.rand(600, generator=draw) < rare).long()
    other = centre[hidden, group] + normal(600, FEATURES) * 0.7 + shift * normal(FEATURES)
    return Problem(Arrays.of(x, known), Arrays.of(other), LabelSchema(tuple("abcde")), hidden_labels=hidden)


def misleading() -> Problem:
    """A set of two places on which self-training harms."""
    return draw_groups(28, 0.15, 0.6)


def build_guarded(limit: float, problem: Problem | None = None, network: str = "linear") -> RunParts:
    return built_for(problem or misleading(), network, "em_basis", plan={"rounds": 4, "harm_limit": limit})


def ends_of_rounds(built: RunParts) -> list[TrainingEvent]:
    events = train_rounds(built.problem, built.network, built.method, built.plan)
    return [replace(event, state=None) for event in events if event.record is not None]  # type: ignore[arg-type]


def accuracy(event: TrainingEvent) -> float:
    assert event.record is not None
    assert event.record.evaluation is not None
    return event.record.evaluation.accuracy


def test_without_a_limit_self_training_harms_here_and_a_note_says_so() -> None:
    ends = ends_of_rounds(build_guarded(0.0))
    source = ends[0].labels
    assert isinstance(source, RowLabels)
    before = float((source.scores.argmax(1) == misleading().hidden_labels).double().mean())
    assert before == pytest.approx(0.792, abs=0.01)
    assert accuracy(ends[-1]) < before - 0.15
    record = ends[-1].record
    assert record is not None
    assert record.status == "ok"
    assert record.notes[-2] == (
        "of the labels that self-training has changed, the nearest labelled rows confirm 19 now and confirmed 155 "
        "before: compare with --method source_only; plan.harm_limit=4 keeps the source model in such a case"
    )


def test_with_a_limit_the_source_model_is_kept() -> None:
    built = build_guarded(4.0)
    weights, ends = [], list[TrainingEvent]()
    for event in train_rounds(built.problem, built.network, built.method, built.plan):
        if event.record is not None:
            weights.append({name: value.clone() for name, value in built.network.state_dict().items()})
            ends.append(event)
    first, last = ends[0].labels, ends[-1].labels
    assert isinstance(first, RowLabels)
    assert isinstance(last, RowLabels)
    assert [end.record.status for end in ends if end.record] == ["ok"] * (len(ends) - 1) + ["source_kept"]
    assert len(ends) < 5
    assert ends[-1].state.status == "source_kept"
    assert same(weights[-1], weights[0])
    assert torch.equal(last.distribution.label, first.scores.argmax(1))
    assert accuracy(ends[-1]) == pytest.approx(0.792, abs=0.01)
    assert not ends[-1].state.source
    (note,) = ends[-1].record.notes if ends[-1].record else ()
    assert note.startswith(f"stopped in round {len(ends) - 1}: of the labels that self-training has changed, the ")
    assert note.endswith(" before; adaptation does not help here, and the source model is kept")


def test_a_limit_changes_nothing_where_nothing_speaks_against_the_labels() -> None:
    ends = [ends_of_rounds(build_guarded(limit, toy())) for limit in (0.0, 4.0)]
    plain, guarded = ([end.record for end in side] for side in ends)
    assert plain == guarded


def test_where_features_are_learned_nobody_asks_the_nearest_labelled_rows() -> None:
    built = build_guarded(4.0, network="mlp")
    last = list(train_rounds(built.problem, built.network, built.method, built.plan))[-1]
    assert SOURCE_LABELS not in last.state.labeller
    assert not last.state.source


@pytest.mark.parametrize("after_a_step", [False, True])
def test_a_run_that_was_stopped_before_the_guard_spoke_ends_like_an_undisturbed_one(after_a_step: bool) -> None:
    whole = list(train_rounds(*parts_of(build_guarded(4.0))))[-1].state
    built, state = build_guarded(4.0), None
    for event in train_rounds(*parts_of(built)):
        if event.state.round == 1 and (event.record is None) == after_a_step:
            state = event.state
            break
    assert state is not None
    again = build_guarded(4.0)
    tensors = {name: value.clone() for name, value in state.tensors().items()}
    restored = TrainState.restore(again.network, tensors, state.facts(), list(state.records))
    done = list(train_rounds(*parts_of(again), restored))[-1].state
    assert done.status == "source_kept"
    assert same(done.tensors(), whole.tensors())


def parts_of(built: RunParts) -> tuple[object, ...]:  # type: ignore[type-arg]
    return built.problem, built.network, built.method, built.plan


def test_changes_are_counted_on_rows_with_reference_labels_alone() -> None:
    last = list(train_rounds(*parts_of(build_guarded(0.0))))[-1]
    assert isinstance(last.labels, RowLabels)
    won, lost = count_confirmed_changes(last.state.labeller, last.labels) or (0, 0)
    state = last.state.labeller
    after, before = last.labels.distribution.label[state["witness_rows"]], state[SOURCE_LABELS]
    pairs = list(zip(before.tolist(), after.tolist(), state["witness"].tolist(), strict=True))
    assert won == sum(old != new == told for old, new, told in pairs)
    assert lost == sum(told == old != new for old, new, told in pairs)


# --- what a record says of quality


def test_the_expected_precision_is_the_mean_probability_of_the_trusted_labels() -> None:
    for event in ends_of_rounds(build_guarded(0.0)):
        assert event.record is not None
        assert isinstance(event.labels, RowLabels)
        trusted = event.labels.pseudo.label >= 0
        mean = float(event.labels.distribution.mean.double().amax(1)[trusted].mean())
        assert event.record.facts["expected_precision"] == pytest.approx(mean)


def test_labels_that_were_not_recalibrated_promise_no_precision() -> None:
    ends = ends_of_rounds(built_for(toy(), "linear", "cbst", plan={"rounds": 1}))
    assert all("expected_precision" not in end.record.facts for end in ends if end.record)


def test_both_estimates_that_fell_since_round_0_are_worth_a_note() -> None:
    built = build_guarded(0.0)
    *_, last = train_rounds(*parts_of(built))
    setup = TrainSetup(built.problem, None, built.method, built.plan, MemoryLabelStore())
    first, labeller = last.state.records[0], last.state.labeller
    state = replace(last.state, round=4)
    scores = {"information": first.scores["information"] - 0.1}
    labeller = {**labeller, "expected_accuracy": torch.tensor(first.facts["expected_accuracy"] - 0.1)}
    expected, score = first.facts["expected_accuracy"], first.scores["information"]
    assert falling_notes(setup, state, labeller, scores) == [
        f"since round 0 the expected accuracy fell from {expected:.2f} to {expected - 0.1:.2f} and the label-free "
        f"score from {score:.2f} to {score - 0.1:.2f}: labels may have become worse; try fewer rounds, or "
        "--method source_only"
    ]
    assert falling_notes(setup, replace(state, round=3), labeller, scores) == []
    assert falling_notes(setup, state, labeller, {"information": score}) == []


# --- sides of one place: the nearest labelled rows can be believed, and the guard is on (decision 0037)


def one_place(seed: int) -> Problem:
    """Both sides have the same groups; only the class shares differ."""
    return draw_groups(seed, 0.5, 0.0)


def run_default(problem: Problem, **plan: float) -> tuple[float, float, str]:
    """Accuracy of the source model and at the end, and the last status, with nothing set but the plan's own."""
    built = build(problem, load(plan=dict(plan)))
    assert built.problem.same_domain
    ends = ends_of_rounds(built)
    first, record = ends[0].labels, ends[-1].record
    assert isinstance(first, RowLabels)
    assert record is not None
    source = float((first.scores.argmax(1) == problem.hidden_labels).double().mean())
    return source, accuracy(ends[-1]), record.status


@pytest.mark.parametrize("seed", [10])
def test_a_set_on_which_adaptation_harms_is_left_alone_by_default(seed: int) -> None:
    source, harmed, status = run_default(one_place(seed), harm_limit=0.0)
    assert status == "ok"
    assert harmed < source - 0.1
    before, kept, status = run_default(one_place(seed))
    assert status == "source_kept"
    assert kept == pytest.approx(before) == pytest.approx(source)


@pytest.mark.parametrize("seed", [1, 8, 12])
def test_a_set_on_which_adaptation_helps_is_adapted_by_default(seed: int) -> None:
    source, end, status = run_default(one_place(seed))
    assert status == "ok"
    assert end > source + 0.05
    assert (source, end, status) == run_default(one_place(seed), harm_limit=0.0)
