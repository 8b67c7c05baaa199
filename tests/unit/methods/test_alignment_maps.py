"""Alignment of label maps: the discriminator's shape, who moves in which phase, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from embasis.errors import ConfigError
from embasis.methods import ALIGNMENT
from embasis.methods.alignment.adaptsegnet import PredictionAdversary
from embasis.methods.alignment.advent import EntropyAdversary
from embasis.methods.alignment.parts import MapDiscriminator, count_strided_layers
from embasis.types import Output, Sizes


class Maps:
    """Scores of both sides, as a phase sees them."""

    def __init__(self, labelled: Tensor, other: Tensor) -> None:
        self.labelled, self.other = Output(labelled, labelled), Output(other, other)
        self.notes: dict[str, float] = {}

    def mean(self, values: Tensor, side: int) -> Tensor:
        return values.mean()

    def note(self, name: str, value: Any) -> None:
        self.notes[name] = float(value)


def scores(seed: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(2, 4, 8, 12, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("side", "strided"), [(1, 0), (3, 0), (4, 1), (16, 3), (31, 3), (32, 4), (63, 4), (64, 5), (512, 5)]
)
def test_maps_are_halved_five_times_from_64_pixels_on(side: int, strided: int) -> None:
    assert count_strided_layers(side) == strided == min(max(math.floor(math.log2(side)) - 1, 0), 5)


@pytest.mark.parametrize("sides", [(16, 24), (17, 100), (32, 32), (64, 96), (100, 65)])
def test_the_discriminator_scores_patches_of_maps_of_any_size(sides: tuple[int, int]) -> None:
    domain = MapDiscriminator(4, sides, 8)
    strided = [layer for layer in domain.layers if isinstance(layer, nn.Conv2d) and layer.stride == (2, 2)]
    assert len(strided) == count_strided_layers(min(sides))
    expected = math.prod(side >> len(strided) for side in sides)
    assert domain(scores(0)).shape == (2 * expected,)
    assert not [module for module in domain.modules() if "Norm" in type(module).__name__]


@pytest.mark.parametrize("kind", [PredictionAdversary, EntropyAdversary])
def test_the_network_is_moved_to_where_the_discriminator_takes_its_maps_for_labelled_ones(
    kind: type[PredictionAdversary],
) -> None:
    aligner = kind(weight=0.5, width=4)
    torch.manual_seed(0)
    extra = aligner.build(nn.Identity(), Sizes((3, 32, 48), 8, 4, (8, 12)))
    with torch.no_grad():
        for weight in extra.parameters():
            weight.mul_(3)  # fresh weights hardly say anything
    other = scores(1).requires_grad_()
    seen = Maps(scores(0), other)
    loss = aligner.loss("fool", nn.Identity(), extra, seen, 0.0)  # type: ignore[arg-type]
    torch.autograd.backward(loss)
    assert other.grad is not None
    with torch.no_grad():
        moved = Maps(seen.labelled.logits, other - 0.01 * other.grad.sign())
        assert float(aligner.loss("fool", nn.Identity(), extra, moved, 0.0)) < float(loss.detach())  # type: ignore[arg-type]
    assert math.isclose(float(loss.detach()), 0.5 * seen.notes["fooling_loss"], rel_tol=1e-6)


def test_a_constant_discriminator_loses_log_two_and_equal_sides_are_told_apart_by_chance() -> None:
    aligner = PredictionAdversary(width=4)
    extra = aligner.build(nn.Identity(), Sizes((3, 32, 48), 8, 4, (8, 12)))
    for parameter in extra.parameters():
        nn.init.zeros_(parameter)
    for seen, phase in ((Maps(scores(0), scores(1)), "domain"), (Maps(scores(0), scores(0)), "domain")):
        loss = aligner.loss(phase, nn.Identity(), extra, seen, 0.0)  # type: ignore[arg-type]
        assert math.isclose(float(loss.detach()), math.log(2), rel_tol=1e-6)
        assert seen.notes["domain_accuracy"] == 0.5


def test_the_discriminators_maps_are_probabilities_or_their_self_information() -> None:
    p, unsure = PredictionAdversary().describe(scores(0)), EntropyAdversary().describe(scores(0))
    assert torch.allclose(p.sum(1), torch.ones(2, 8, 12))
    assert torch.allclose(unsure, -p * p.log() / math.log(4), atol=1e-6)
    assert bool((EntropyAdversary().describe(scores(0, 1e4)) < 1e-6).all())


@pytest.mark.parametrize("name", ["adaptsegnet", "advent"])
@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"rate": 0.0}, "rate must be positive, got 0.0"),
        ({"width": 0}, "width must be at least 1, got 0"),
        ({"weight": -1.0}, "weight must be"),
    ],
)
def test_settings_that_mean_nothing_are_refused(name: str, own: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ALIGNMENT[name](4, **own)  # type: ignore[operator]
