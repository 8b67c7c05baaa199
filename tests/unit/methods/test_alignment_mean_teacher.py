"""Mean teacher's own truths: what the teacher is after each step, and who predicts at the end."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from embasis.engine.self_train import train_rounds
from embasis.errors import ConfigError
from embasis.methods import METHODS
from embasis.runs.parts import RunParts
from training_runs import built_for, toy

PLAN = {"rounds": 1, "source_epochs": 2, "epochs": 1, "batch_size": 32}


def networks_and_teachers(made: RunParts) -> list[tuple[dict[str, Tensor], dict[str, Tensor]]]:
    """Copies after every step of a run, the end of a round left out."""
    pairs = []
    for event in train_rounds(made.problem, made.network, made.method, made.plan):
        if event.record is None:
            assert event.state.extra is not None
            states = (made.network.state_dict(), event.state.extra["teacher"].state_dict())
            pairs.append(tuple({name: value.clone() for name, value in state.items()} for state in states))
    return pairs  # type: ignore[return-value]


def test_the_teacher_is_the_mean_of_the_first_networks_and_then_forgets() -> None:
    pairs = networks_and_teachers(built_for(toy(), "mlp", "mean_teacher", plan=PLAN, decay=0.6))
    assert len(pairs) > 6
    expected = {name: torch.zeros_like(value) for name, value in pairs[0][0].items()}
    for step, (network, teacher) in enumerate(pairs[:-1], start=1):
        share = min(1 - 1 / step, 0.6)
        expected = {name: share * value + (1 - share) * network[name] for name, value in expected.items()}
        for name, value in teacher.items():
            assert torch.allclose(value, expected[name], atol=1e-5), (step, name)
    assert any(not torch.equal(pairs[-2][0][name], pairs[-2][1][name]) for name in expected)


def test_at_the_end_the_network_is_the_teacher_to_the_bit() -> None:
    network, teacher = networks_and_teachers(built_for(toy(), "mlp", "mean_teacher", plan=PLAN))[-1]
    assert network.keys() == teacher.keys()
    assert all(torch.equal(network[name], teacher[name]) for name in network)


@pytest.mark.parametrize(("name", "value", "rule"), [
    ("threshold", 1.0, r"threshold must be in \[0, 1\), got 1\.0"),
    ("decay", -0.1, r"decay must be in \[0, 1\), got -0\.1"),
    ("balance", -1.0, r"balance must be at least 0, got -1\.0"),
    ("weight", -1.0, r"weight must be at least 0, got -1\.0"),
])  # fmt: skip
def test_bad_settings_are_refused(name: str, value: float, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        METHODS["mean_teacher"](3, **{name: value})
