"""Alignment of label maps: equal to its slow twins, and what is true of it whatever the predictions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import reference_map_alignment as slow
from embasis.functional import map_alignment


@pytest.mark.parametrize("shape", [(5, 3), (2, 4, 3, 5)])
def test_self_information_equals_its_slow_twin(shape: tuple[int, ...]) -> None:
    logits = 2 * torch.randn(shape, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(map_alignment.self_information(logits), slow.self_information(logits), atol=1e-6)
    if len(shape) == 2:
        assert torch.allclose(map_alignment.normalised_entropy(logits), slow.normalised_entropy(logits), atol=1e-6)


@pytest.mark.parametrize("classes", [2, 19])
def test_a_uniform_prediction_has_entropy_one_and_a_sure_one_none(classes: int) -> None:
    assert torch.allclose(map_alignment.normalised_entropy(torch.zeros(3, classes)), torch.ones(3))
    sure = torch.full((3, classes), -1e4)
    sure[:, 1] = 1e4
    sure.requires_grad_()
    entropy = map_alignment.normalised_entropy(sure)
    torch.autograd.backward(entropy.sum())
    assert torch.equal(entropy, torch.zeros(3))
    assert sure.grad is not None
    assert bool(torch.isfinite(sure.grad).all())


def test_the_base_of_the_logarithm_cancels() -> None:
    logits = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
    p = logits.softmax(1)
    assert torch.allclose(map_alignment.self_information(logits), -p * p.log2() / math.log2(5), atol=1e-6)


def pictures(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(-1, 5, (6, 7), generator=draw)
    y[0], y[1] = -1, 3
    return y, torch.rand(6, 5, generator=draw), (3 * torch.randn(6, 5, 7, generator=draw)).softmax(1)


@pytest.mark.parametrize("seed", range(3))
def test_mixtures_equal_their_slow_twins(seed: int) -> None:
    y, u, p = pictures(seed)
    chosen = map_alignment.draw_half_of_classes(y, u)
    pasted = map_alignment.find_pasted_sites(y, chosen)
    assert torch.equal(chosen, slow.draw_half_of_classes(y, u))
    assert torch.equal(pasted, slow.find_pasted_sites(y, chosen))
    assert torch.allclose(map_alignment.weight_mixtures(p, pasted, 0.9), slow.weight_mixtures(p, pasted, 0.9))


def test_half_of_the_classes_rounded_up_are_pasted_and_unknown_is_none() -> None:
    y, u, p = pictures(0)
    chosen = map_alignment.draw_half_of_classes(y, u)
    counts = [len({label for label in row if label >= 0}) for row in y.tolist()]
    assert chosen.sum(1).tolist() == [math.ceil(count / 2) for count in counts]
    assert counts[:2] == [0, 1]
    pasted = map_alignment.find_pasted_sites(y, chosen)
    assert not bool((pasted & (y < 0)).any())
    assert bool(pasted[1].all())
    weight = map_alignment.weight_mixtures(p, pasted, 0.9)
    assert bool((weight[pasted] == 1).all())
    assert torch.equal(map_alignment.weight_mixtures(p, pasted, 2.0), pasted.float())
    assert torch.equal(map_alignment.weight_mixtures(p, pasted, 0.0), torch.ones(6, 7))
