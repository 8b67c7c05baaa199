"""What every alignment method keeps, whatever it is: a new line in ALIGNMENT is tested by being there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from alignment_runs import TAKES, align_only, all_finite, built, finish, network_of, undisturbed
from embasis.engine import optimisers, train
from embasis.engine.epoch import batches_of, rows_of_epoch
from embasis.engine.optimisers import make_optimiser
from embasis.engine.self_train import begin
from embasis.engine.train import make_trainer, take_phase
from embasis.errors import ConfigError
from embasis.methods import METHODS
from embasis.types import Arrays
from map_runs import draw_streets, little_streets, with_hidden
from training_runs import built_for, go_on, same, saved_moments, toy

CASES = [(name, kind) for name, kinds in TAKES.items() for kind in kinds]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_weight_zero_is_source_only_to_the_bit(name: str, kind: str) -> None:
    none, source = finish(built(name, kind, weight=0.0)), undisturbed("source_only", kind)
    assert same(network_of(none.tensors), network_of(source.tensors))
    assert not [tensor for tensor in none.tensors if tensor.startswith("extra/")]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_it_changes_the_network(name: str, kind: str) -> None:
    source = undisturbed("source_only", kind)
    assert not same(network_of(undisturbed(name, kind).tensors), network_of(source.tensors))


@pytest.mark.parametrize(("name", "kind"), [case for case in CASES if case[1] == "rows"])
def test_a_run_stopped_after_any_step_ends_as_if_it_had_not_been(name: str, kind: str) -> None:
    moments = saved_moments(built(name, kind))
    assert moments[-1].same(undisturbed(name, kind))
    for saved in moments[1:-1:3]:
        assert go_on(saved, built(name, kind)).same(moments[-1]), saved.cursor


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_step_in_parts_is_the_same_step(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for dropout in (nn.Dropout, nn.Dropout2d):
        monkeypatch.setattr(dropout, "forward", lambda self, x: x)
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)  # noise, like dropout, is drawn part by part
    # Adam divides a gradient by its size: where that is nothing but rounding, it decides the whole step.
    monkeypatch.setattr(
        optimisers, "make_optimiser", lambda group, *plan: make_optimiser(replace(group, optimiser="plan"), *plan)
    )
    plan = {"optimiser": "sgd", "source_lr": 0.01, "lr": 0.01, "rounds": 1, "source_epochs": 1}
    whole, parted = (finish(built(name, kind, plan={**plan, "accumulate_steps": parts})) for parts in (1, 4))
    for tensor, value in whole.tensors.items():
        if tensor.startswith(("network/", "extra/")) and value.is_floating_point():
            assert torch.allclose(value, parted.tensors[tensor], atol=1e-5, rtol=1e-4), tensor


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_hidden_labels_shuffled_change_nothing(name: str, kind: str) -> None:
    if kind == "maps":
        pictures, _ = draw_streets(9, 2, 45)
        problem = with_hidden(little_streets(), torch.zeros_like(pictures[:, 0]))
    else:
        assert toy().hidden_labels is not None
        problem = replace(toy(), hidden_labels=toy().hidden_labels.roll(7))  # type: ignore[union-attr]
    assert same(finish(built(name, kind, problem)).tensors, undisturbed(name, kind).tensors)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_phase_changes_nothing_outside_of_what_it_moves(name: str, kind: str) -> None:
    made = built(name, kind)
    state = begin(made.network, made.method, made.plan)
    aligner = made.method.align
    assert aligner is not None
    state.round = aligner.begins
    trainer = make_trainer(made.problem, made.method, made.plan, state)
    pairs = rows_of_epoch(made.problem, made.method, made.plan, state)
    batch = next(batches_of(made.problem, made.plan, state, pairs, aligner))
    assert state.extra is not None
    held: Any = []
    trainer.tau = 0.5
    for number, phase in enumerate(aligner.phases(0.5)):
        before = all_weights(state.network, state.extra)
        _, held = take_phase(trainer, phase, batch, (0, 0, 0, number, 0), held)
        after = all_weights(state.network, state.extra)
        moved = {id(weight) for group in phase.moves for weight in trainer.groups[group].weights}
        names = named_weights(state.network, state.extra)
        for key, weight in names.items():
            if id(weight) not in moved:
                assert torch.equal(before[key], after[key]), (phase.name, key)
        assert any(not torch.equal(before[key], after[key]) for key, weight in names.items() if id(weight) in moved)
        assert all(weight.requires_grad for weight in state.network.parameters()) or kind == "maps"


@pytest.mark.parametrize("name", [name for name, kinds in TAKES.items() if "rows" in kinds])
def test_beside_it_the_basis_of_stage_one_is_trained(name: str) -> None:
    made = built_for(toy(), "mlp", "em_basis_paper")
    method = replace(made.method, align=METHODS[name](3, **align_only(name)).align)
    state = begin(made.network, method, made.plan)
    basis = state.network.get_parameter("basis.weight")
    drawn = basis.detach().clone()
    next(train.train_round(made.problem, method, made.plan, state))
    assert not torch.equal(drawn, basis)


@pytest.mark.parametrize("name", [name for name, kinds in TAKES.items() if "rows" in kinds])
@pytest.mark.parametrize(("labelled", "unlabelled"), [(90, 7), (9, 90), (1, 40), (40, 1)])
def test_sides_may_be_of_unequal_size(name: str, labelled: int, unlabelled: int) -> None:
    whole = toy()
    rows = torch.arange(labelled)
    few = replace(
        whole,
        labelled=Arrays.of(whole.labelled.inputs(rows), whole.labelled.labels[rows]),  # type: ignore[attr-defined]
        unlabelled=Arrays.of(whole.unlabelled.inputs(torch.arange(unlabelled))),
        hidden_labels=None,
    )
    assert all_finite(finish(built(name, problem=few, plan={"accumulate_steps": 3})).tensors)


@pytest.mark.parametrize("name", [name for name, kinds in TAKES.items() if "rows" in kinds])
def test_two_equal_sides_keep_the_loss_finite(name: str) -> None:
    whole = toy()
    twice = replace(whole, unlabelled=Arrays.of(whole.labelled.inputs(torch.arange(90))), hidden_labels=None)
    assert all_finite(finish(built(name, problem=twice)).tensors)


@pytest.mark.parametrize("name", list(TAKES))
def test_what_it_cannot_take_is_refused_with_the_cure(name: str) -> None:
    aligner = METHODS[name](3).align
    assert aligner is not None
    for kind in {"rows", "maps"} - {*aligner.takes}:
        with pytest.raises(ConfigError, match=f"{name} aligns .* these data have"):
            finish(built(name, kind))
    if "rows" in aligner.takes and aligner.trains_features:
        with pytest.raises(ConfigError, match=r"needs features that can be trained.*network.name=adapter"):
            finish(built_for(toy(), "linear", name, **align_only(name)))
    if "rows" in aligner.takes and aligner.is_game:
        with pytest.raises(ConfigError, match=r"plan.optimiser must be adam or sgd, got lbfgs"):
            finish(built(name, plan={"optimiser": "lbfgs", "batch_size": 0}))


def all_weights(network: nn.Module, extra: nn.ModuleDict) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in named_weights(network, extra).items()}


def named_weights(network: nn.Module, extra: nn.ModuleDict) -> dict[str, nn.Parameter]:
    return {**dict(network.named_parameters(prefix="network")), **dict(extra.named_parameters(prefix="extra"))}
