"""Alignment of label maps: equal to its slow twins, and what is true of it whatever the predictions."""

from __future__ import annotations

import math

import pytest
import torch

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
