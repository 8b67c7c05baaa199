"""SimNet: the folded classifier is the similarity head, and prototypes are what they should be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from embasis.engine.self_train import train_rounds
from embasis.errors import ConfigError
from embasis.methods import METHODS
from embasis.methods.alignment.simnet import PrototypeSimilarity, mean_by_class, step_prototypes
from embasis.networks.network import Network
from embasis.types import Sizes
from seen_rows import draw_seen
from training_runs import built_for, toy

PLAN = {"rounds": 1, "source_epochs": 2, "epochs": 2, "batch_size": 32}


def built_extra(classes: int = 3) -> tuple[Network, nn.ModuleDict]:
    torch.manual_seed(0)
    network = Network(nn.Linear(5, 5), 5, classes)
    return network, PrototypeSimilarity(rank=8).build(network, Sizes((5,), 5, classes))


def test_after_every_epoch_the_network_scores_as_the_similarity_head_does() -> None:
    made = built_for(toy(), "mlp", "simnet", plan=PLAN)
    problem, epochs = made.problem, 0
    x = problem.unlabelled.inputs(torch.arange(20))
    for event in train_rounds(problem, made.network, made.method, made.plan):
        network, extra = event.state.network, event.state.extra
        if event.record is None and event.state.step == 0:
            assert extra is not None
            network.eval()
            output, head = network(x), extra["head"]
            assert torch.allclose(output.logits, head(output.features, head.prototypes), atol=1e-5, rtol=1e-4)
            y = problem.labelled.labels  # type: ignore[attr-defined]
            made_of = extra["encoder"].eval()(problem.labelled.inputs(torch.arange(len(y))))
            means = torch.stack([made_of[y == c].mean(0) for c in range(3)])
            assert torch.allclose(head.prototypes, means, atol=1e-5)
            network.train()
            extra["encoder"].train()
            epochs += 1
    assert epochs == 4


def test_a_prototype_of_a_step_is_the_first_row_of_its_class_and_of_a_class_without_one_the_last_epochs() -> None:
    _, extra = built_extra()
    seen = draw_seen()
    seen.y = torch.tensor([-1, 2, 2, 0, *[-1] * 8])
    extra["head"].prototypes.copy_(torch.full((3, 5), 7.0))
    prototypes = step_prototypes(extra, seen)
    expected = extra["encoder"](seen.inputs)
    assert torch.allclose(prototypes, torch.stack([expected[3], torch.full((5,), 7.0), expected[1]]), atol=1e-6)
    seen.y = torch.full((12,), -1)
    assert torch.equal(step_prototypes(extra, seen), extra["head"].prototypes)


def test_gradients_reach_both_encoders_and_no_classifier() -> None:
    network, extra = built_extra()
    seen = draw_seen()
    loss = PrototypeSimilarity(rank=8).loss("align", network, extra, seen, 0.5)
    torch.autograd.backward(loss)
    for name in ("encoder", "head", "domain"):
        assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in extra[name].parameters())
    assert all(leaf.grad is not None and leaf.grad.abs().sum() > 0 for leaf in seen.both_rows)
    groups = PrototypeSimilarity().groups(network, extra)
    moved = {id(weight) for group in groups.values() for weight in group.weights}
    assert not moved & {id(weight) for weight in network.classifier.parameters()}


def test_means_by_class_add_up_over_chunks_and_leave_rows_without_a_label_out() -> None:
    rows, y = torch.arange(12.0).reshape(6, 2), torch.tensor([0, -1, 2, 0, 2, 2])
    whole = mean_by_class(iter([(rows, y)]), torch.zeros(4, 2))
    parted = mean_by_class(iter([(rows[:2], y[:2]), (rows[2:], y[2:])]), torch.zeros(4, 2))
    assert torch.equal(whole, parted)
    assert torch.equal(whole, torch.tensor([[3.0, 4.0], [0.0, 0.0], [22 / 3, 25 / 3], [0.0, 0.0]]))


@pytest.mark.parametrize("settings", [{"spread": -1.0}, {"rank": 0}])
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        METHODS["simnet"](3, **settings)
