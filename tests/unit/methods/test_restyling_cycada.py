"""CyCADA: generators that begin with nothing, and what they must keep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from embasis.errors import ConfigError
from embasis.methods import METHODS
from embasis.methods.restyling import parts
from embasis.methods.restyling.cycada import CycleGAN, CycleNetworks, cycle_loss, semantic_losses
from embasis.methods.restyling.cyclegan import PictureGenerator, count_halvings
from embasis.methods.restyling.parts import SourceNetwork, Units
from embasis.types import RowChange, View
from map_runs import built_maps, little_streets

UNITS = Units(torch.zeros(1), torch.ones(1))


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("shape", "halvings"), [((1, 8, 8), 0), ((1, 16, 17), 1), ((3, 45, 70), 2)])
def test_a_generator_begins_with_nothing_and_keeps_the_shape(shape: tuple[int, ...], halvings: int) -> None:
    generator, x = PictureGenerator(shape[0], count_halvings(min(shape[1:]))), draw(2, *shape)
    assert generator.halvings == halvings
    assert torch.equal(generator(x), x)
    for weight in generator.last.parameters():
        nn.init.normal_(weight)
    assert generator(x).shape == x.shape
    assert not torch.equal(generator(x), x)


def test_generators_that_change_nothing_lose_nothing_on_the_way_to_and_fro() -> None:
    x, other = draw(4, 1, 8, 8), draw(4, 1, 8, 8, seed=1)
    identity = nn.Identity()
    assert float(cycle_loss(identity, identity(x), x)) == 0
    networks = CycleNetworks.build(View(x, torch.zeros(4, dtype=torch.int64)), 3, UNITS, 0)
    seen = (x, torch.tensor([0, 1, 2, -1]), other)
    losses = [
        float(CycleGAN(classes=3, cycle=cycle, semantic=0.0).generators_loss(networks, seen, x, other).detach())
        for cycle in (0.0, 10.0)
    ]
    assert losses[0] == losses[1]


def test_what_pictures_show_is_asked_of_the_labels_and_of_the_source_network_itself() -> None:
    class Fixed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 50 * x

    sure, y = torch.eye(3), torch.tensor([0, 1, -1])
    right = list(semantic_losses(Fixed(), (sure, y), (sure, sure)))
    assert [float(loss) for loss in right] == pytest.approx([0, 0], abs=1e-6)
    wrong = list(semantic_losses(Fixed(), (sure.roll(1, 0), y), (sure.roll(1, 0), sure)))
    assert [float(loss) for loss in wrong] == pytest.approx([50, 50])
    unknown = list(semantic_losses(Fixed(), (sure, torch.full((3,), -1)), (sure, sure)))
    assert len(unknown) == 1


def test_a_source_network_scores_each_site_of_the_labels_grid() -> None:
    assert SourceNetwork((1, 8, 8), (), 5)(draw(2, 1, 8, 8)).shape == (2, 5)
    assert SourceNetwork((3, 16, 24), (4, 6), 5)(draw(2, 3, 16, 24)).shape == (2 * 24, 5)


def fit(restyler: CycleGAN, problem: Any) -> dict[str, Tensor]:
    state: dict[str, Tensor] = {}
    while not restyler.is_fitted(state):
        state = dict(restyler.fit(problem.labelled, problem.unlabelled, state, 0))
    return state


def test_dark_streets_become_brighter_and_only_the_generator_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "SOURCE_STEPS", 30)
    problem = built_maps(little_streets(), "source_only").problem
    restyler = CycleGAN(classes=3, steps=60)
    state = fit(restyler, problem)
    assert {name.partition(".")[0] for name in state} == {"step", "halvings", "centre", "scale", "to"}
    before = problem.labelled.inputs(torch.arange(8))
    after = RowChange(restyler, state)(before)
    bright = problem.unlabelled.inputs(torch.arange(8)).float().mean()
    assert abs(after.float().mean() - bright) < 0.8 * abs(before.float().mean() - bright)


def test_restyling_draws_nothing_that_others_would_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "SOURCE_STEPS", 2)
    problem = built_maps(little_streets(), "source_only").problem
    for name in ("cycada", "fcan", "restyle"):
        restyler: Any = METHODS[name](3).restyle
        restyler = replace(restyler, steps=2) if name == "cycada" else restyler
        torch.manual_seed(0)
        before = torch.get_rng_state()
        state = restyler.fit(problem.labelled, problem.unlabelled, {}, 0)
        restyler.restyle(problem.labelled.inputs(torch.arange(2)), state)
        assert torch.equal(torch.get_rng_state(), before), name


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="steps must be at least 1, got 0"):
        METHODS["cycada"](3, steps=0)
    with pytest.raises(ConfigError, match="cycle must be at least 0, got -1"):
        METHODS["cycada"](3, cycle=-1)
