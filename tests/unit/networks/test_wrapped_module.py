"""`self_train` takes any torch module: what it returns is read by fixed rules, or refused before training."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import embasis
from embasis import METHODS, Arrays, LabelSchema, Output, Plan, Problem, from_arrays, self_train
from embasis.data import DATASETS
from embasis.engine.self_train import train_rounds
from embasis.errors import ConfigError
from embasis.networks.network import BasisBlock, Network
from embasis.networks.wrapped_module import WrappedModule, wrap_module
from embasis.randomness import seeded
from embasis.types import RoundRecord


class Two(nn.Module):
    """A trunk and a classifier; `answer` makes of features and logits what is returned."""

    def __init__(self, answer: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        with seeded(0, "two"):
            self.trunk, self.last = nn.Sequential(nn.Linear(2, 16), nn.ReLU()), nn.Linear(16, 2)
        self.answer = answer

    def forward(self, x: Tensor) -> Any:
        features = self.trunk(x)
        return self.answer(features, self.last(features))


ANSWERS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "Output": Output,
    "tensor": lambda x, y: y,
    "log softmax": lambda x, y: y.log_softmax(1),
    "pair": lambda x, y: (x, y),
    "list": lambda x, y: [x, y],
    "mapping": lambda x, y: {"logits": y, "features": x},
    "mapping of logits": lambda x, y: {"logits": y, "loss": None},
    "object": lambda x, y: SimpleNamespace(logits=y, features=x),
    "object of logits": lambda x, y: SimpleNamespace(logits=y, loss=None, hidden_states=None),
}


def moons() -> Problem:
    return DATASETS["moons"](seed=0, count=120)


def train(network: nn.Module, method: str = "em_basis") -> list[RoundRecord]:
    plan = Plan(rounds=1, source_epochs=3, epochs=1)
    return list(self_train(moons(), network, METHODS[method](2), plan))


@pytest.mark.parametrize("answer", ANSWERS)
def test_every_form_of_answer_trains_the_same_weights(answer: str) -> None:
    network, plain = Two(ANSWERS[answer]), Two(Output)
    records, expected = train(network), train(plain)
    assert [record.round for record in records] == [0, 1]
    close = {"rtol": 1e-4, "atol": 1e-5} if answer == "log softmax" else {"rtol": 0, "atol": 0}
    for one, two in zip(network.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, two, **close)
    assert records[-1].trusted == expected[-1].trusted


NEED_PARTS = ("adda", "adr", "mcd", "shot", "simnet")
PARTS = "this method needs a network with an extractor and a classifier, got Sequential; "
OTHER_DATA = {"adaptsegnet", "advent", "dacs", "cycada", "fcan"}  # they refuse rows whatever the network


@pytest.mark.parametrize("method", sorted(set(METHODS) - OTHER_DATA))
def test_a_sequential_is_trained_by_every_method_or_refused_in_a_sentence(method: str) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(2, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))
    before = network[4].weight.detach().clone()
    if method in NEED_PARTS:
        with pytest.raises(ConfigError, match=PARTS):
            train(network, method)
        return
    assert len(train(network, method)) >= 1
    assert not torch.equal(before, network[4].weight)
    assert not network[4]._forward_pre_hooks


def test_features_are_what_the_layer_reads_that_makes_the_logits() -> None:
    class TwoHeads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk, self.main, self.aside = nn.Linear(2, 5), nn.Linear(5, 3), nn.Linear(2, 3)

        def forward(self, x: Tensor) -> Tensor:
            logits = self.main(self.trunk(x))
            self.aside(x)  # runs last, and is not what is returned
            return logits

    network, rows = TwoHeads(), torch.randn(4, 2)
    wrapped = wrap_module(network, rows, 3)
    assert isinstance(wrapped, WrappedModule)
    assert wrapped.layer == "main"
    assert torch.equal(wrapped(rows).features, network.trunk(rows))
    assert torch.equal(copy.deepcopy(wrapped)(rows).features, network.trunk(rows))
    assert network.training


def test_maps_have_the_features_of_their_last_convolution() -> None:
    network = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 4, 1))
    pictures = torch.randn(2, 3, 8, 8)
    output = wrap_module(network, pictures, 4)(pictures)
    assert (output.features.shape, output.logits.shape) == ((2, 6, 8, 8), (2, 4, 8, 8))


def test_a_network_of_ours_is_used_as_it_is() -> None:
    ours = Network(nn.Flatten(), 2, 2)
    assert wrap_module(ours, torch.randn(3, 2), 2) is ours


def test_the_paper_s_method_has_its_stage_one_with_any_module() -> None:
    network = Two(ANSWERS["tensor"])
    method, plan = METHODS["em_basis_paper"](2), Plan(rounds=0, source_epochs=2)
    (event,) = [event for event in train_rounds(moons(), network, method, plan) if event.record is not None]
    block = event.state.network.basis
    assert block.weight.shape == (6, 16)
    with seeded(0, "basis block"):
        assert not torch.equal(block.weight, BasisBlock(6, 16).weight)  # it was trained
    assert not any(name.startswith("basis") for name, _ in network.named_parameters())


CURE = "return a pair (features, logits), or wrap what makes features in embasis.networks.network.Network"
REFUSED: dict[str, tuple[nn.Module, str]] = {
    "probabilities": (
        nn.Sequential(nn.Linear(2, 2), nn.Softmax(1)),
        "Sequential must return scores before the softmax, and these are probabilities: each row sums to 1; "
        "leave its last softmax out",
    ),
    "other classes": (
        nn.Sequential(nn.Linear(2, 7)),
        "Sequential must return logits of shape (rows, 2, …) for 2 classes, got (8, 7); "
        "of a pair the second are the logits",
    ),
    "a pair in the wrong order": (
        Two(lambda x, y: (y, x)),
        "Two must return logits of shape (rows, 2, …) for 2 classes, got (8, 16); of a pair the second are the logits",
    ),
    "no linear layer": (
        nn.Sequential(nn.Tanh()),
        "Sequential returns logits alone, and features are what its last nn.Linear (of maps: 1×1 nn.Conv2d) reads, of "
        f"which none has an output of the logits' shape (8, 2): {CURE}",
    ),
    "three parts": (
        Two(lambda x, y: (x, y, y)),
        f"Two must return logits of each class, alone or with features, got a tuple of Tensor, Tensor, Tensor: {CURE}",
    ),
    "a mapping without logits": (
        Two(lambda x, y: {"out": y, "aux": y}),
        f"Two must return logits of each class, alone or with features, got a dict with aux, out: {CURE}",
    ),
    "features of other rows": (
        Two(lambda x, y: (x[:3], y)),
        "Two: features (rows, d, …) and logits (rows, classes, …) must agree in all but their second number, "
        "got (3, 16) and (8, 2)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_refused_before_training_with_its_cure(case: str) -> None:
    network, sentence = REFUSED[case]
    with pytest.raises(ConfigError) as refused:
        train(network)
    assert str(refused.value) == sentence
    assert network.training


def test_what_a_user_needs_to_make_a_problem_is_exported() -> None:
    assert {"Arrays", "LabelSchema", "Output", "Plan", "Problem", "from_arrays"} <= set(embasis.__all__)
    rows = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    made = from_arrays(rows, list("ababab"), rows + 1)
    by_hand = Problem(
        labelled=Arrays.of(torch.from_numpy(rows), torch.tensor([0, 1, 0, 1, 0, 1])),
        unlabelled=Arrays.of(torch.from_numpy(rows + 1)),
        schema=LabelSchema(("a", "b")),
    )
    assert made.schema == by_hand.schema
    assert torch.equal(made.labelled.labels, by_hand.labelled.labels)
    assert torch.equal(made.unlabelled.inputs(torch.arange(6)), by_hand.unlabelled.inputs(torch.arange(6)))


def test_a_module_that_fails_on_its_first_rows_is_left_in_its_mode() -> None:
    module = nn.Sequential(nn.Linear(3, 2))
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        wrap_module(module.train(), torch.zeros(4, 5), 2)
    assert module.training
