"""The training loop and the rounds: what they promise whatever the method (going on: test_engine_resume.py)."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attacked_runs import attacked, with_method
from embasis import self_train
from embasis.engine.epoch import cycle, rows_of_epoch
from embasis.engine.self_train import TrainingEvent, begin, train_rounds
from embasis.engine.state import TrainState
from embasis.engine.train import train_round
from embasis.errors import NumericalError
from embasis.functional.sites import unit_rows
from embasis.methods.baselines import pseudo_label
from embasis.methods.parts import replace_parts
from embasis.runs.parts import RunParts
from embasis.types import Arrays, PseudoLabels, State
from training_runs import built_for, parts, run, same, toy


def moments_of(built: RunParts) -> list[TrainingEvent]:
    return list(train_rounds(built.problem, built.network, built.method, built.plan))


# --- rows of an epoch


@pytest.mark.parametrize(("count", "batch"), [(10, 4), (10, 10), (10, 11), (1, 4), (7, 1), (0, 4)])
def test_a_cycle_goes_through_all_rows_again_and_again(count: int, batch: int) -> None:
    rows = torch.arange(count) + 100
    taken = torch.cat([cycle(rows, step, batch) for step in range(5)]).tolist()
    size = min(batch, count)
    assert taken == [100 + i % count for i in range(5 * size)]


@pytest.mark.parametrize("batch", [0, 1, 7, 32, 200])
@pytest.mark.parametrize("trusted", [0, 1, 5, 40, 90])
def test_every_labelled_and_every_trusted_row_is_seen_in_each_epoch(batch: int, trusted: int) -> None:
    built = built_for(toy(), "mlp", "cbst", plan={"batch_size": batch})
    label = torch.where(torch.arange(90) < trusted, 0, -1)
    progress = TrainState(built.network, round=1, pseudo=PseudoLabels(label, (label >= 0).float()))
    pairs = rows_of_epoch(built.problem, built.method, built.plan, progress)
    assert set(torch.cat([left for left, _ in pairs]).tolist()) == set(range(90))
    assert set(torch.cat([right for _, right in pairs]).tolist()) == set(range(trusted))
    assert all(len(left) <= (batch or 90) and len(right) <= (batch or 90) for left, right in pairs)


def test_a_loss_that_reads_untrusted_rows_gets_all_of_them() -> None:
    built = built_for(toy(), "mlp", "entropy")
    progress = TrainState(built.network, round=1, pseudo=PseudoLabels(torch.full((90,), -1), torch.zeros(90)))
    pairs = rows_of_epoch(built.problem, built.method, built.plan, progress)
    assert set(torch.cat([right for _, right in pairs]).tolist()) == set(range(90))


def test_the_labeller_is_told_what_the_network_was_taught() -> None:
    built = built_for(toy(), "mlp", "em_basis", parts={"labeller.fusion.class_priors": "estimated"})
    states, records = list[State](), list[Any]()
    for event in train_rounds(built.problem, built.network, built.method, built.plan):
        if event.record is not None:
            states.append(dict(event.state.labeller))
            records.append(event.record)
    assert len(states) == 3
    assert "taught" not in states[0]
    for state, before in zip(states[1:], records[:-1], strict=True):
        assert state["taught"].tolist() == list(before.trusted_counts)
        assert sum(before.trusted_counts) > 0


def test_source_training_reads_no_unlabelled_row() -> None:
    built = built_for(toy(), "mlp", "entropy")
    assert all(
        not len(right)
        for _, right in rows_of_epoch(built.problem, built.method, built.plan, TrainState(built.network, round=0))
    )


def test_each_epoch_has_an_order_of_its_own() -> None:
    built = built_for(toy(), "mlp", "cbst")
    orders = [
        rows_of_epoch(built.problem, built.method, built.plan, TrainState(built.network, epoch=epoch))[0][0].tolist()
        for epoch in (0, 1, 0)
    ]
    assert orders[0] == orders[2] != orders[1]


# --- numbers that are not finite


class Poisoned(nn.Module):
    """A network whose output becomes NaN at the given call."""

    def __init__(self, network: nn.Module, call: int) -> None:
        super().__init__()
        self.network, self.left = network, call

    def forward(self, x: Tensor) -> Any:
        output, self.left = self.network(x), self.left - 1
        return replace(output, logits=output.logits * float("nan")) if self.left == 0 else output


@pytest.mark.parametrize(("optimiser", "batch"), [("adam", 32), ("sgd", 32), ("lbfgs", 0)])
@pytest.mark.parametrize("call", [1, 2, 4])
def test_a_loss_that_is_not_finite_ends_the_run_and_leaves_the_weights_alone(
    optimiser: str, batch: int, call: int
) -> None:
    built = built_for(toy(), "mlp", "cbst", plan={"optimiser": optimiser, "batch_size": batch})
    progress = TrainState(Poisoned(built.network, call))
    before = copy.deepcopy(progress.network.state_dict())
    with pytest.raises(NumericalError) as caught:  # noqa: PT012
        for _ in train_round(built.problem, built.method, built.plan, progress):
            before = copy.deepcopy(progress.network.state_dict())
    rows = rows_of_epoch(built.problem, built.method, built.plan, progress)[progress.step][0].tolist()
    named = f"{', '.join(map(str, rows[:5]))} and {len(rows) - 5} more"
    assert str(caught.value) == (
        f"the loss is nan in round 0 epoch {progress.epoch} step {progress.step}; the last saved state is kept; "
        "try a smaller plan.lr or check the scale of the features; "
        f"samples of the step: labelled {named}"
    )
    assert same(before, dict(progress.network.state_dict()))


@pytest.mark.parametrize(("optimiser", "batch"), [("adam", 32), ("lbfgs", 0)])
def test_a_gradient_that_is_not_finite_ends_the_run_and_leaves_the_weights_alone(optimiser: str, batch: int) -> None:
    built = built_for(toy(), "mlp", "cbst", plan={"optimiser": optimiser, "batch_size": batch})
    built.network.classifier.weight.register_hook(lambda gradient: gradient * float("inf"))
    before = copy.deepcopy(built.network.state_dict())
    with pytest.raises(NumericalError) as caught:
        list(train_round(built.problem, built.method, built.plan, TrainState(built.network)))
    assert str(caught.value) == (
        "a gradient is not finite in round 0 epoch 0 step 0; the last saved state is kept; "
        "try a smaller plan.lr or check the scale of the features; samples of the step: labelled "
        + ("0, 1, 2, 3, 4 and 85 more" if batch == 0 else "76, 2, 30, 89, 85 and 27 more")
    )
    assert same(before, dict(built.network.state_dict()))


def test_scores_that_are_not_finite_are_never_labelled() -> None:
    built = built_for(toy(), "linear", "cbst", plan={"source_epochs": 0})
    nn.init.constant_(built.network.classifier.bias, float("inf"))
    with pytest.raises(NumericalError) as caught:
        moments_of(built)
    assert str(caught.value) == "the network's scores are not finite for 90 of 90 rows"


# --- the collapse guard


@pytest.mark.parametrize(("turn", "then"), [(1, "one"), (2, "one"), (3, "one"), (2, "lean"), (2, "nothing")])
def test_a_collapse_is_rolled_back_to_the_best_round(turn: int, then: str) -> None:
    built, weights, records = attacked(turn=turn, then=then), [], []
    for event in train_rounds(built.problem, built.network, built.method, built.plan):
        if event.record is not None:
            weights.append({name: value.clone() for name, value in built.network.state_dict().items()})
            records.append(event.record)
            last = event
    assert [record.status for record in records] == ["ok"] * turn + ["collapsed"]
    assert last.state.status == "collapsed"
    assert last.state.best_round == turn - 1
    assert same(weights[-1], weights[turn - 1])
    assert int(last.state.labeller["round"]) == turn - 1
    best, fallen = records[turn - 1].scores["information"], records[-1].scores["information"]
    swallowed = "one class took 100% of the labels"
    why = f"the label-free score fell to {fallen:.3f}" if then == "nothing" else swallowed
    assert records[-1].notes == (
        f"collapsed in round {turn}: {why} (best {best:.3f} in round {turn - 1}); round {turn - 1} is kept",
    )


def test_what_a_collapsed_run_hands_over_are_the_labels_of_the_round_that_is_kept() -> None:
    found = [event for event in moments_of(attacked(turn=2)) if event.labels is not None]
    kept, final = (parts(found[i].labels) for i in (1, 2))  # type: ignore[arg-type]
    assert all(torch.equal(kept[name], final[name]) for name in ("mean", "between", "within", "uncertainty", "scores"))
    assert found[2].record is not None
    assert max(found[2].record.class_counts) < 90


def test_without_a_guard_the_same_run_would_go_on() -> None:
    built = attacked(turn=9)
    assert [event.record.status for event in moments_of(built) if event.record is not None] == ["ok"] * 5


def test_one_class_for_all_is_no_collapse_where_the_labelled_side_looks_like_that() -> None:
    x, y = toy().labelled.inputs(torch.arange(90)), (torch.arange(90) < 3).long()
    ends = [moments_of(attacked(replace(toy(), labelled=Arrays.of(x, y)), turn=2, then="lean"))[-1]]
    ends.append(moments_of(attacked(turn=2, then="lean"))[-1])
    assert [end.state.status for end in ends] == ["finished", "collapsed"]


def test_a_round_whose_basis_is_not_believed_says_so() -> None:
    noise = torch.randn(90, 9, generator=torch.Generator().manual_seed(0))
    built = built_for(replace(toy(), unlabelled=Arrays.of(noise)), "linear", "em_basis", plan={"rounds": 1})
    doubting = replace_parts(built.method, {"labeller.fusion.min_kappa": 1.1})
    records = [event.record for event in moments_of(with_method(built, doubting)) if event.record is not None]
    for record in records:
        agreement = record.facts["agreement"]
        text = (
            f"the basis hardly agrees with the network (κ {agreement:.2f}), so the network labels alone in this round"
        )
        assert record.notes == (text,)
        assert record.facts["sound"] == 0.0
    believed = built_for(toy(), "mlp", "em_basis", plan={"rounds": 1})
    assert [(m.record.facts["sound"], m.record.notes) for m in moments_of(believed) if m.record] == [(1.0, ())] * 2


# --- ends, stops and what is left alone


def test_a_round_that_trusts_nothing_is_the_last_one() -> None:
    built = built_for(toy(), "linear", "pseudo_label", plan={"source_epochs": 0})
    end = moments_of(with_method(built, pseudo_label(3, threshold=1.0)))[-1]
    assert end.record is not None
    assert (end.record.round, end.record.status, end.record.trusted) == (0, "no_change", 0)
    assert end.record.notes == ("nothing was trusted after round 0; training stops",)
    assert end.state.status == "no_change"


def test_self_train_gives_a_record_a_round_and_trains_the_network_it_was_given() -> None:
    built = built_for(toy(), "mlp", "cbst")
    records = list(self_train(built.problem, built.network, built.method, built.plan))
    again = run(toy(), "mlp", "cbst")
    assert records == again.records
    assert [record.round for record in records] == [0, 1, 2]
    assert same(dict(built.network.state_dict()), again.weights)


def test_the_caller_may_stop_after_any_round() -> None:
    built = built_for(toy(), "mlp", "cbst")
    first = next(self_train(built.problem, built.network, built.method, built.plan))
    assert first == run(toy(), "mlp", "cbst").records[0]
    assert same(dict(built.network.state_dict()), run(toy(), "mlp", "source_only").weights)


@pytest.mark.parametrize("method", ["em_basis_paper", "cbst"])
def test_a_run_neither_reads_nor_moves_the_global_generators(method: str) -> None:
    torch.manual_seed(11)
    state, numbers = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    first = run(toy(), "mlp", method)
    assert torch.equal(state, torch.random.get_rng_state())
    assert (numbers == np.random.get_state()[1]).all()
    torch.manual_seed(12)
    again = run(toy(), "mlp", method)
    assert same(first.weights, again.weights)


def test_weights_without_decay_and_with_it_differ_and_biases_never_decay() -> None:
    built = built_for(toy(), "linear", "source_only", plan={"weight_decay": 1e6})
    moments_of(built)
    assert built.network.classifier.weight.abs().max() < 1e-4
    assert run(toy(), "linear", "source_only").weights["classifier.weight"].abs().max() > 0.1


# --- Stage I


STAGE1 = {"labeller.start": "StageOne"}


def stage1(iterations: int) -> tuple[Tensor, RunParts, list[TrainingEvent]]:
    built = built_for(toy(), "mlp", "em_basis", parts=STAGE1, iterations=iterations)
    progress = begin(built.network, built.method, built.plan)
    first = built.network.basis.weight.detach().clone()
    kept = []
    for event in train_rounds(built.problem, built.network, built.method, built.plan, progress):
        if event.record is not None:
            kept.append(replace(event, state=replace(progress, labeller=dict(progress.labeller))))
    return first, built, kept


def test_the_basis_block_is_trained_in_source_training_only() -> None:
    first, built, _ = stage1(iterations=3)
    source = built_for(toy(), "mlp", "em_basis", parts=STAGE1, iterations=3, plan={"rounds": 0})
    moments_of(source)
    trained = source.network.basis.weight
    assert not torch.equal(first, trained)
    assert torch.equal(built.network.basis.weight, trained)


def test_the_proposal_of_the_basis_block_starts_the_em() -> None:
    source = built_for(toy(), "mlp", "em_basis", parts=STAGE1, iterations=0, plan={"rounds": 0})
    end = moments_of(source)[-1]
    assert torch.equal(end.state.labeller["mu"], unit_rows(source.network.basis.weight.detach()))
    means = built_for(toy(), "mlp", "em_basis", iterations=0, plan={"rounds": 0})
    assert not torch.equal(moments_of(means)[-1].state.labeller["mu"], end.state.labeller["mu"])
