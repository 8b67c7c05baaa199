"""FCAN: pictures that are moved to another style, and a domain classifier that sees near and far."""

from __future__ import annotations

import pytest
import torch

from embasis.errors import ConfigError
from embasis.functional.style import gram_matrix
from embasis.methods import METHODS
from embasis.methods.restyling import parts
from embasis.methods.restyling.fcan import (
    AppearanceTransfer,
    MultiRateClassifier,
    appearance_loss,
    mean_grams,
    restore_layers,
)
from embasis.methods.restyling.parts import SourceLayers, Units
from embasis.types import Arrays, RowChange
from map_runs import built_maps, little_streets

BYTES = Units(torch.tensor([127.5]), torch.tensor([127.5]))


def test_the_style_of_the_only_picture_of_a_side_is_its_own() -> None:
    torch.manual_seed(0)
    layers, pictures = SourceLayers(3, (1, 2, 2)), torch.randint(0, 256, (1, 3, 32, 32), dtype=torch.uint8)
    state = mean_grams(layers, BYTES, Arrays.of(pictures), 0)
    maps = layers(BYTES.apply(pictures))
    grams = [state[f"gram.{number}"] for number in range(3)]
    assert float(appearance_loss(maps, maps, grams, 1.0).detach()) == pytest.approx(0, abs=1e-9)
    assert float(appearance_loss(maps, maps, [2 * gram for gram in grams], 1.0).detach()) == pytest.approx(3 / 4)


def test_the_mean_style_is_a_sum_over_pictures() -> None:
    torch.manual_seed(0)
    layers, pictures = SourceLayers(1, (1, 1, 1)), torch.randn(130, 1, 8, 8)
    units = Units(torch.zeros(1), torch.ones(1))
    state = mean_grams(layers, units, Arrays.of(pictures), 0)
    for number, maps in enumerate(layers(pictures)):
        assert torch.allclose(state[f"gram.{number}"], gram_matrix(maps).mean(0), atol=1e-5)


def test_bytes_and_other_numbers_have_units_and_come_back() -> None:
    pictures = Arrays.of(torch.randint(0, 256, (5, 3, 4, 4), dtype=torch.uint8))
    units = Units.measure(pictures, pictures, 0)
    assert (float(units.centre), float(units.scale)) == (127.5, 127.5)
    numbers = Arrays.of(3 + 5 * torch.randn(50, 1, 8, 8, generator=torch.Generator().manual_seed(0)))
    units = Units.measure(numbers, numbers, 0)
    assert float(units.centre) == pytest.approx(3, abs=0.5)
    assert float(units.scale) == pytest.approx(10, abs=0.5)
    assert torch.allclose(units.undo(units.apply(numbers.x)), numbers.x, atol=1e-4)


def test_pictures_come_nearer_to_the_other_style_and_bright_streets_make_dark_ones_brighter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parts, "SOURCE_STEPS", 30)
    problem = built_maps(little_streets(), "source_only").problem
    restyler = AppearanceTransfer(classes=3)
    state = restyler.fit(problem.labelled, problem.unlabelled, {}, 0)
    before = problem.labelled.inputs(torch.arange(8))
    after = RowChange(restyler, state)(before)
    layers, units = restore_layers(state, 3), Units(state["centre"], state["scale"])
    grams = [state[f"gram.{number}"] for number in range(3)]
    content = layers(units.apply(before))
    near, far = (appearance_loss(layers(units.apply(x)), content, grams, 1.0).mean() for x in (after, before))
    assert float(near) < 0.7 * float(far)
    bright = problem.unlabelled.inputs(torch.arange(8)).float().mean()
    assert abs(after.float().mean() - bright) < abs(before.float().mean() - bright)


def test_the_domain_classifier_sees_sites_at_four_distances() -> None:
    torch.manual_seed(0)
    domain = MultiRateClassifier(2)
    grid = torch.randn(1, 2, 11, 11, requires_grad=True)
    domain(grid).view(11, 11)[5, 5].backward()
    assert grid.grad is not None
    seen = grid.grad.abs().sum((0, 1)) > 0
    wanted = {(5 + rate * i, 5 + rate * j) for rate in (1, 2, 3, 4) for i in (-1, 0, 1) for j in (-1, 0, 1)}
    assert {tuple(place) for place in seen.nonzero().tolist()} == wanted


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="style must be positive, got 0"):
        METHODS["fcan"](3, style=0)
    with pytest.raises(ConfigError, match="iterations must be at least 1, got 0"):
        METHODS["fcan"](3, iterations=0)
