"""ADDA: what it starts from, what it never moves, and how its domain classifier of sites sees a grid."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from embasis.engine.self_train import begin, train_rounds
from embasis.engine.state import TrainState
from embasis.engine.train import make_trainer
from embasis.errors import ConfigError
from embasis.methods import METHODS
from embasis.methods.alignment.adda import EncoderMapping, judge
from embasis.methods.alignment.parts import DomainClassifier, SiteClassifier, rows_read_by
from embasis.networks.network import Network
from embasis.runs.parts import RunParts
from embasis.types import LABELLED, UNLABELLED, Sizes
from map_runs import built_maps
from training_runs import built_for, toy

PLANS = {"rounds": 2, "source_epochs": 2, "epochs": 2}


def built(kind: str, name: str = "adda") -> RunParts:
    return built_maps(None, name, plan=PLANS) if kind == "maps" else built_for(toy(), "mlp", name, plan=PLANS)


def end_of(made: RunParts) -> TrainState:
    return [event.state for event in train_rounds(made.problem, made.network, made.method, made.plan)][-1]


@pytest.mark.parametrize("kind", ["rows", "maps"])
def test_the_frozen_encoder_is_the_source_model_throughout_and_the_classifier_never_moves(kind: str) -> None:
    source, made = end_of(built(kind, "source_only")).network.state_dict(), built(kind)
    seen = 0
    for event in train_rounds(made.problem, made.network, made.method, made.plan):
        if event.state.extra is not None:
            copied = event.state.extra["source"].state_dict()
            assert all(torch.equal(value, source[name]) for name, value in copied.items())
            here = event.state.network.state_dict()
            assert all(torch.equal(here[name], source[name]) for name in here if name.startswith("classifier."))
            assert any(not torch.equal(here[name], source[name]) for name in here)
            seen += 1
    assert seen > 2


def test_both_encoders_are_equal_when_it_begins_and_a_step_moves_one_of_them_alone() -> None:
    made = built("rows")
    state = begin(made.network, made.method, made.plan)
    state.round = 1
    make_trainer(made.problem, made.method, made.plan, state)
    assert state.extra is not None
    network, source = state.network.eval(), state.extra["source"].eval()
    x = made.problem.unlabelled.inputs(torch.arange(5))
    assert torch.equal(network(x).features, source(x).features)
    with torch.no_grad():
        next(network.extractor.parameters()).add_(1.0)  # type: ignore[union-attr, operator]
    assert not torch.equal(network(x).features, source(x).features)


def test_each_copy_reads_the_scale_of_its_own_side() -> None:
    network = Network(nn.Identity(), 3, 2, by_domain=True)
    assert network.domains is not None
    network.domains.centre[UNLABELLED] = 5.0
    x = torch.ones(4, 3)
    assert torch.equal(rows_read_by(network, network(x, LABELLED), LABELLED), x)
    assert torch.equal(rows_read_by(network, network(x, UNLABELLED), UNLABELLED), x - 5)


def test_a_site_is_classified_without_its_neighbours_and_in_the_order_of_sites() -> None:
    torch.manual_seed(0)
    domain, grid = SiteClassifier(4).eval(), torch.randn(2, 4, 3, 5)
    whole = domain(grid)
    assert whole.shape == (30,)
    assert torch.allclose(domain(grid[1:, :, 1:2, 2:3]), whole[15 + 5 + 2], atol=1e-5)


@pytest.mark.parametrize(("sites", "expected"), [((), DomainClassifier), ((4, 6), SiteClassifier)])
def test_features_of_rows_and_scores_of_maps_are_told_apart(sites: Any, expected: type) -> None:
    network = Network(nn.Conv2d(3, 8, 1) if sites else nn.Linear(3, 8), 8, 2)
    inputs = (3, *sites)
    extra = EncoderMapping().build(network, Sizes(inputs, 8, 2, sites))
    assert isinstance(extra["domain"], expected)
    assert not any(weight.requires_grad for weight in extra["source"].parameters())
    output = network(torch.randn(5, *inputs))
    assert judge(extra["domain"], network, output, UNLABELLED).shape == (5 * max(torch.Size(sites).numel(), 1),)


def test_a_rate_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ConfigError, match="rate must be positive"):
        METHODS["adda"](3, rate=0.0)
