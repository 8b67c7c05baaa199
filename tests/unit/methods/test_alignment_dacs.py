"""DACS: what a mixture shows, how it is labelled and weighted, and whom the teacher follows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from embasis.errors import ConfigError
from embasis.methods import ALIGNMENT
from embasis.methods.alignment.dacs import ClassMixture
from embasis.types import Output, Sizes

SIZES = Sizes((3, 8, 12), 4, 3, (2, 3))


class FirstChannels(nn.Module):
    """Scores (B, 3, 2, 3) of pictures of 8×12 pixels: `scale` times the mean light of a site, channel by channel."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Output:
        light = nn.functional.avg_pool2d(x.float() / 255, 4)
        return Output(light, self.scale * light)


class Pair:
    """Rows of both sides, as a phase sees them; what went through a network is kept."""

    def __init__(self, inputs: Tensor, y: Tensor, others: Tensor) -> None:
        self.inputs, self.y, self.others = inputs, y, others
        self.passes: list[Tensor] = []
        self.values: Tensor | None = None

    def run(self, module: nn.Module, inputs: Tensor, side: int) -> Output:
        self.passes.append(inputs)
        output: Output = module(inputs)
        return output

    def mean(self, values: Tensor, side: int) -> Tensor:
        self.values = values.detach()
        return values.mean()

    def note(self, name: str, value: Any) -> None:
        assert name == "sure_share"


def pair(labelled: int, unlabelled: int) -> Pair:
    draw = torch.Generator().manual_seed(0)
    y = torch.randint(0, 3, (labelled, 2, 3), generator=draw)
    y[:, 0, 0] = -1
    inputs = (50 + y).repeat_interleave(4, 1).repeat_interleave(4, 2).unsqueeze(1).repeat(1, 3, 1, 1).to(torch.uint8)
    others = torch.randint(100, 250, (unlabelled, 3, 8, 12), generator=draw, dtype=torch.uint8)
    return Pair(inputs, y.flatten(), others)


@pytest.mark.parametrize(("labelled", "unlabelled"), [(4, 4), (2, 5), (5, 2), (1, 1)])
def test_a_mixture_is_one_picture_or_the_other_site_by_site(labelled: int, unlabelled: int) -> None:
    seen, network = pair(labelled, unlabelled), FirstChannels(40.0)
    aligner = ClassMixture(light=0.0)
    extra = aligner.build(network, SIZES)
    torch.manual_seed(3)
    torch.autograd.backward(aligner.loss("learn", network, extra, seen, 0.0))  # type: ignore[arg-type]
    taught, mixture = seen.passes
    assert torch.equal(taught, seen.others)
    partner = torch.arange(unlabelled) % labelled
    pasted = mixture < 100
    assert torch.equal(mixture, torch.where(pasted, seen.inputs[partner], seen.others))
    sites = pasted[:, 0].reshape(unlabelled, 2, 4, 3, 4).float().mean((2, 4))
    assert set(sites.unique().tolist()) <= {0.0, 1.0}
    assert not bool(sites[:, 0, 0].any())
    assert bool(sites.any())
    assert network.scale.grad is not None
    assert all(weight.grad is None for weight in extra.parameters())


def test_sites_are_labelled_by_who_they_come_from_and_weighted_by_how_sure_the_teacher_is() -> None:
    seen, network = pair(4, 4), FirstChannels(40.0)
    aligner = ClassMixture(light=0.0, threshold=0.9)
    extra = aligner.build(network, SIZES)
    torch.manual_seed(3)
    aligner.loss("learn", network, extra, seen, 0.0)  # type: ignore[arg-type]
    mixture = seen.passes[1]
    p = network(seen.others).logits.detach().softmax(1).flatten(2)
    logs = network(mixture).logits.detach().log_softmax(1).flatten(2)
    y, pasted = seen.y.view(4, 6), (mixture[:, 0, ::4, ::4] < 100).flatten(1)
    for row in range(4):
        share = float((p[row].amax(0) >= 0.9).float().mean())
        for site in range(6):
            label = int(y[row, site]) if pasted[row, site] else int(p[row, :, site].argmax())
            expected = -float(logs[row, label, site]) * (1.0 if pasted[row, site] else share)
            assert seen.values is not None
            assert abs(float(seen.values[row, site]) - expected) < 1e-5


def test_the_teacher_is_the_mean_of_all_networks_until_it_forgets() -> None:
    network, aligner = FirstChannels(0.0), ClassMixture(decay=0.75)
    extra = aligner.build(network, SIZES)
    values, means = torch.randn(12, generator=torch.Generator().manual_seed(0)), []
    for step, value in enumerate(values, 1):
        with torch.no_grad():
            network.scale.copy_(value)
            network.seen.fill_(step)  # type: ignore[operator]
            aligner.settle(network, extra, "step", iter, step)  # type: ignore[arg-type]
            aligner.settle(network, extra, "epoch", iter, step)  # type: ignore[arg-type]
        means.append(float(extra["teacher"].scale))  # type: ignore[arg-type]
        assert float(extra["teacher"].seen) == step  # type: ignore[arg-type]
    for count in range(1, 5):
        assert abs(means[count - 1] - float(values[:count].mean())) < 1e-6
    for step in range(5, 13):
        assert abs(means[step - 1] - (0.75 * means[step - 2] + 0.25 * float(values[step - 1]))) < 1e-6


def test_the_teacher_neither_draws_nor_learns() -> None:
    teacher = ClassMixture().build(nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)).train(), SIZES)["teacher"]
    assert not teacher.training
    assert not any(weight.requires_grad for weight in teacher.parameters())


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"threshold": 1.5}, r"threshold must be in \[0, 1\], got 1.5"),
        ({"decay": -0.1}, r"decay must be in \[0, 1\], got -0.1"),
        ({"light": -1.0}, "light must be"),
    ],
)
def test_settings_that_mean_nothing_are_refused(own: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ALIGNMENT["dacs"](3, **own)
