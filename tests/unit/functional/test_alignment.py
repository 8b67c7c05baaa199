"""Alignment losses: equal to their slow twins, and what is true of them whatever the rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import reference
import reference_alignment as slow
from embasis.functional import alignment, augment


def rows(count: int, width: int = 5, seed: int = 0) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


def kernel(x: Tensor) -> Tensor:
    return alignment.gaussian_kernel(alignment.squared_distances(x))


@pytest.mark.parametrize("seed", range(3))
def test_every_function_equals_its_slow_twin(seed: int) -> None:
    x, score = rows(9, seed=seed), rows(9, 1, seed).squeeze(1)
    distance = alignment.squared_distances(x)
    assert torch.allclose(distance, slow.squared_distances(x), atol=1e-5)
    z = rows(9, 3, seed + 7)
    assert torch.allclose(alignment.product_distances(x, z), slow.product_distances(x, z), atol=1e-4)
    distance = distance.fill_diagonal_(0)
    assert torch.allclose(alignment.gaussian_kernel(distance), slow.gaussian_kernel(distance), atol=1e-5)
    assert torch.allclose(alignment.fixed_kernel(distance, 1.68), slow.fixed_kernel(distance, 1.68), atol=1e-6)
    assert torch.allclose(alignment.squared_mmd(kernel(x), 4), slow.squared_mmd(kernel(x), 4), atol=1e-5)
    for some in (x, x[:3]):
        assert torch.allclose(alignment.squared_top_value(some), slow.squared_top_value(some), rtol=1e-5)
        assert torch.allclose(alignment.lengthening_loss(some, 0.7), slow.lengthening_loss(some, 0.7), atol=1e-5)
    for labelled in (True, False):
        assert torch.allclose(alignment.domain_loss(score, labelled), slow.domain_loss(score, labelled), atol=1e-5)
    assert alignment.domain_accuracy(score[:4], score[4:]) == slow.domain_accuracy(score[:4], score[4:])
    assert torch.allclose(alignment.class_confusion(x, 2.5), slow.class_confusion(x, 2.5), atol=1e-5)
    for tau in (0.0, 0.1, 0.5, 1.0):
        assert math.isclose(alignment.reversal_strength(tau), slow.reversal_strength(tau), abs_tol=1e-12)


def test_a_reversed_gradient_is_the_plain_one_times_minus_the_strength() -> None:
    gradients = []
    for reverse in (alignment.reverse_gradient, slow.reverse_gradient, lambda x, strength: x):
        x = rows(4).requires_grad_()
        value = reverse(x, 0.3)
        assert torch.allclose(value, x)
        torch.autograd.backward(value.square().sum())
        gradients.append(x.grad)
    assert torch.allclose(gradients[0], -0.3 * gradients[2])
    assert torch.allclose(gradients[0], gradients[1])


def test_the_discrepancy_of_one_law_averages_zero_and_of_equal_batches_is_below() -> None:
    values = [float(alignment.squared_mmd(kernel(rows(24, 3, seed)), 12)) for seed in range(300)]
    assert abs(sum(values) / len(values)) < 0.01
    same_rows = rows(12, 3)
    assert float(alignment.squared_mmd(kernel(torch.cat([same_rows, same_rows])), 12)) < 0


def test_the_discrepancy_does_not_change_when_all_rows_are_moved_scaled_or_reordered() -> None:
    x = torch.cat([rows(10, 3), rows(8, 3, 1) + 1])
    value = alignment.squared_mmd(kernel(x), 10)
    assert torch.allclose(alignment.squared_mmd(kernel(7 * x + 3), 10), value, atol=1e-4)
    order = torch.cat([torch.randperm(10), 10 + torch.randperm(8)])
    assert torch.allclose(alignment.squared_mmd(kernel(x[order]), 10), value, atol=1e-5)
    assert float(value) > 0.05


def test_the_width_of_the_kernel_has_no_gradient() -> None:
    x = rows(6).requires_grad_()
    torch.autograd.backward(kernel(x).sum())
    assert x.grad is not None
    fixed = x.detach().clone().requires_grad_()
    distance = alignment.squared_distances(fixed)
    width = alignment.squared_distances(x.detach()).sum() / 30
    total = sum(((-distance / (scale * width)).exp().sum() / 5 for scale in alignment.KERNEL_WIDTHS), torch.zeros(()))
    torch.autograd.backward(total)
    assert torch.allclose(x.grad, fixed.grad, atol=1e-5)


def test_the_largest_squared_singular_value_of_one_direction_is_all_there_is() -> None:
    x = torch.outer(rows(7, 1).squeeze(1), rows(4, 1, 1).squeeze(1))
    assert torch.allclose(alignment.squared_top_value(x), x.square().sum(), rtol=1e-5)
    x[0, 0] = math.nan
    assert bool(alignment.squared_top_value(x).isnan())


def test_a_constant_domain_classifier_loses_log_two() -> None:
    for labelled in (True, False):
        assert torch.allclose(alignment.domain_loss(torch.zeros(5), labelled), torch.full((5,), math.log(2)))


def test_classes_are_confused_by_uniform_predictions_and_not_by_one_hot_ones() -> None:
    assert math.isclose(float(alignment.class_confusion(torch.zeros(8, 4), 2.5)), 3 / 4, rel_tol=1e-5)
    sure = 1e4 * torch.nn.functional.one_hot(torch.arange(8) % 4, 4).float()
    assert float(alignment.class_confusion(sure, 2.5)) < 1e-6
    assert float(alignment.class_confusion(1e4 * torch.eye(4)[torch.zeros(8, dtype=torch.int64)], 2.5)) < 1e-6


@pytest.mark.parametrize("shape", [(4, 7), (4, 3, 5, 6)])
@pytest.mark.parametrize("strength", [0.0, 1.0, 2.0])
def test_another_view_equals_its_slow_twin_and_strength_zero_changes_nothing(
    shape: tuple[int, ...], strength: float
) -> None:
    u = torch.rand(4, augment.JITTER_DRAWS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    assert np.allclose(augment.jitter(x, u, strength).numpy(), reference.jitter(x, u, strength), atol=1e-5)
    if strength == 0:
        assert torch.allclose(augment.jitter(x, u, strength), x, atol=1e-6)
    pictures = (40 * x + 120).clamp(0, 255).to(torch.uint8)
    if x.ndim == 4:
        seen = augment.jitter(pictures, u, strength)
        assert seen.dtype == torch.uint8
        assert np.abs(seen.numpy().astype(int) - reference.jitter(pictures, u, strength)).max() <= 1
