"""GTA: what is drawn has the shape of an input, labels and gradients go where the equations say, and nowhere else."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn

import reference_alignment as slow
from embasis.engine.alignment import PartOutputs
from embasis.engine.batch import TrainingBatch
from embasis.errors import ConfigError
from embasis.functional.alignment import generator_input
from embasis.methods.alignment.generators import Discriminator, Generator, to_unit_range
from embasis.methods.alignment.gta import DrawnInputs, gta
from embasis.networks.network import Network, mlp, small_cnn
from embasis.types import Plan, Sizes

CLASSES, FEATURES = 3, 8
SHAPES = [(5,), (1, 8, 8), (3, 16, 16), (1, 28, 28), (3, 32, 32), (3, 64, 64), (2, 14, 28), (4, 12, 20)]


def network_for(shape: tuple[int, ...]) -> Network:
    torch.manual_seed(0)
    if len(shape) == 1:
        return mlp(shape, CLASSES, hidden=FEATURES, dropout=0.0)
    return small_cnn(shape, CLASSES, width=2, features=FEATURES, dropout=0.0)


def seen_by(network: nn.Module, shape: tuple[int, ...]) -> PartOutputs:
    draw = torch.Generator().manual_seed(1)
    labelled, others = torch.randn(6, *shape, generator=draw), torch.randn(4, *shape, generator=draw)
    batch = TrainingBatch(labelled, torch.tensor([0, 1, 2, 0, 1, -1]), others, aligned=True)
    return PartOutputs(network, Plan(), batch.as_part(), lambda name, value: None)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_drawn_has_the_shape_of_an_input(shape: tuple[int, ...]) -> None:
    drawn = Generator(20, shape)(torch.randn(3, 20))
    assert drawn.shape == (3, *shape)
    real, scores = Discriminator(shape, CLASSES)(drawn)
    assert (real.shape, scores.shape) == ((3,), (3, CLASSES))
    assert float(drawn.detach().min()) < 0 < float(drawn.detach().max())


@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_does_not_depend_on_those_beside_it(shape: tuple[int, ...]) -> None:
    generator, discriminator, rows = Generator(20, shape), Discriminator(shape, CLASSES), torch.randn(4, 20)
    together = generator(rows)
    assert torch.allclose(together[:1], generator(rows[:1]), atol=1e-5)
    assert torch.allclose(discriminator(together)[0][:1], discriminator(together[:1])[0], atol=1e-5)


@pytest.mark.parametrize("shape", [(3, 224, 224), (1, 2, 2), (1, 7, 7), (1, 8, 9), (3, 30, 30), (4, 4), (1, 2, 4, 4)])
def test_what_cannot_be_drawn_is_refused_with_the_cure(shape: tuple[int, ...]) -> None:
    got = "×".join(map(str, shape))
    rule = "gta draws vectors, and pictures with sides of 4 to 64 that halving brings to 8 or less"
    cure = "scale them to 32×32, or train one layer on frozen features (head=adapter), which are vectors"
    with pytest.raises(ConfigError, match="^" + re.escape(f"{rule}, got inputs of {got}; {cure}") + "$"):
        DrawnInputs().build(nn.Identity(), Sizes(shape, FEATURES, CLASSES))


def test_pixels_are_read_from_minus_one_to_one_and_numbers_as_they_are() -> None:
    assert to_unit_range(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [-1.0, 1.0]
    assert to_unit_range(torch.tensor([-3.5, 8.0])).tolist() == [-3.5, 8.0]


def test_the_input_of_the_generator_equals_its_slow_twin_and_has_no_label_where_there_is_none() -> None:
    label, x, noise = torch.tensor([0, 2, 3]), torch.randn(3, 4), torch.randn(3, 5)
    value = generator_input(label, x, noise, CLASSES)
    assert torch.allclose(value, slow.generator_input(label, x, noise, CLASSES))
    assert value.shape == (3, CLASSES + 1 + 4 + 5)
    assert value[2, :4].tolist() == [0, 0, 0, 1]


def gradients(phase: str, shape: tuple[int, ...], aligner: DrawnInputs) -> dict[str, Tensor | None]:
    network = network_for(shape)
    torch.manual_seed(2)
    extra = aligner.build(network, Sizes(shape, FEATURES, CLASSES))
    torch.manual_seed(3)
    torch.autograd.backward(aligner.loss(phase, network, extra, seen_by(network, shape), 0.5))
    every = {**dict(network.named_parameters(prefix="network")), **dict(extra.named_parameters(prefix="extra"))}
    return {name: weight.grad for name, weight in every.items()}


@pytest.mark.parametrize("shape", [(5,), (1, 8, 8)])
def test_the_class_scores_of_what_is_drawn_of_the_unlabelled_side_decide_nothing(shape: tuple[int, ...]) -> None:
    aligner = DrawnInputs(noise=4)
    network = network_for(shape)
    extra = aligner.build(network, Sizes(shape, FEATURES, CLASSES))
    captured = list[Tensor]()

    def capture(module: nn.Module, inputs: object, output: Tensor) -> None:
        output.retain_grad()
        captured.append(output)

    extra["discriminator"].get_submodule("classes").register_forward_hook(capture)
    seen = seen_by(network, shape)
    for phase in ("F", "D"):
        torch.autograd.backward(aligner.loss(phase, network, extra, seen, 0.5))
        gradient = captured[-1].grad
        assert gradient is not None
        assert bool((gradient[-4:] == 0).all())
        assert bool((gradient[:5] != 0).any(1).all())
        assert bool((gradient[5] == 0).all())  # a row without a label


@pytest.mark.parametrize("shape", [(5,), (1, 8, 8)])
def test_the_features_of_the_unlabelled_side_move_so_that_what_is_drawn_of_them_looks_real(
    shape: tuple[int, ...],
) -> None:
    network, aligner = network_for(shape), DrawnInputs(weight=1.0, target_weight=1.0, noise=4)
    extra = aligner.build(network, Sizes(shape, FEATURES, CLASSES))
    optimiser = torch.optim.SGD(network.parameters(), 0.5)
    losses = list[float]()
    for _ in range(60):
        optimiser.zero_grad()
        torch.manual_seed(5)
        loss = aligner.loss("F", network, extra, seen_by(network, shape), 0.5)
        torch.autograd.backward(loss)
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]


def test_a_step_draws_once_and_each_phase_sees_what_was_drawn() -> None:
    network, aligner, judged = network_for((5,)), DrawnInputs(noise=4), list[Tensor]()
    extra = aligner.build(network, Sizes((5,), FEATURES, CLASSES))
    extra["discriminator"].register_forward_pre_hook(lambda module, inputs: judged.append(inputs[0].detach()))
    seen = seen_by(network, (5,))
    for phase in ("F", "D", "G"):
        aligner.loss(phase, network, extra, seen, 0.5)
    of_network, of_discriminator, of_generator = judged
    assert torch.equal(of_discriminator, torch.cat([seen.inputs, of_network]))
    assert torch.allclose(of_generator, of_network[:6], atol=1e-6)
    assert not any(value.requires_grad for value in seen.kept.values())


def test_the_weights_of_the_paper_scale_what_reaches_the_network() -> None:
    one, two, own = (
        gradients("F", (5,), DrawnInputs(weight=weight, target_weight=target, noise=4))
        for weight, target in ((0.1, 0.3), (0.2, 0.3), (0.1, 0.0))
    )
    name = "network.extractor.1.weight"
    assert torch.allclose(2 * one[name], two[name], atol=1e-6)  # type: ignore[arg-type,operator]
    assert not torch.allclose(one[name], own[name], atol=1e-6)  # type: ignore[arg-type]


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="noise must be at least 1, got 0"):
        gta(3, noise=0)
    with pytest.raises(ConfigError, match="target_weight must be"):
        gta(3, target_weight=-1.0)
