"""Losses on a network's own predictions: equal to their slow twins, and what is true of them whatever the rows."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import reference_consistency as slow
from embasis.functional import consistency


def rows(count: int, width: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", range(3))
def test_every_function_equals_its_slow_twin(seed: int) -> None:
    logits, x = rows(9, seed=seed), rows(9, 5, seed + 10)
    value = consistency.negative_information(logits)
    assert torch.allclose(value, slow.negative_information(logits), atol=1e-5)
    weight = rows(9, 1, seed).squeeze(1).abs()
    sums = (logits.softmax(1), weight)
    pair = (2 * logits, rows(9, seed=seed + 20), 0.6)
    twin = slow.confident_cross_entropy(*pair)
    assert 0 < int((twin > 0).sum()) < 9
    assert torch.allclose(consistency.confident_cross_entropy(*pair), twin, atol=1e-5)
    pair = (pair[1], pair[0], 0.6)
    assert torch.allclose(consistency.confident_distance(*pair), slow.confident_distance(*pair), atol=1e-5)
    assert torch.allclose(consistency.class_imbalance(logits), slow.class_imbalance(logits), atol=1e-5)
    assert torch.equal(consistency.nearest_centroids(x, sums[0]), slow.nearest_centroids(x, sums[0]))
    for fast, twin in zip(consistency.class_sums(x, *sums), slow.class_sums(x, *sums), strict=True):
        assert torch.allclose(fast, twin, atol=1e-5)


def test_information_is_zero_for_equal_predictions_and_the_log_of_the_classes_at_most() -> None:
    equal = rows(1).repeat(6, 1)
    assert math.isclose(float(consistency.negative_information(equal)), 0, abs_tol=1e-6)
    sure = 1e4 * torch.eye(4)
    assert math.isclose(float(consistency.negative_information(sure)), -math.log(4), rel_tol=1e-6)
    one_class = sure[torch.zeros(6, dtype=torch.int64)]
    assert float(consistency.negative_information(one_class)) == 0
    assert -math.log(4) <= float(consistency.negative_information(rows(20))) <= 0


def test_a_class_that_no_row_can_have_leaves_the_gradient_of_the_information_finite() -> None:
    logits = (rows(6) - torch.tensor([0.0, 0.0, 0.0, 1e4])).requires_grad_()
    value = consistency.negative_information(logits)
    torch.autograd.backward(value)
    assert bool(torch.isfinite(value))
    assert logits.grad is not None
    assert bool(torch.isfinite(logits.grad).all())


def test_sums_of_parts_are_the_sums_of_the_whole() -> None:
    x, p, weight = rows(10), rows(10, 3, 1).softmax(1), torch.arange(1.0, 11)
    whole = consistency.class_sums(x, p, weight)
    left, right = (consistency.class_sums(x[part], p[part], weight[part]) for part in (slice(4), slice(4, None)))
    for value, one, two in zip(whole, left, right, strict=True):
        assert torch.allclose(value, one + two)


def test_the_weak_view_has_no_gradient_and_rows_below_the_threshold_count_as_zeros_of_the_mean() -> None:
    weak, strong = (3 * rows(8)).requires_grad_(), rows(8, seed=1).requires_grad_()
    each = consistency.confident_cross_entropy(weak, strong, 0.7)
    torch.autograd.backward(each.sum())
    kept = weak.softmax(1).amax(1) >= 0.7
    assert weak.grad is None
    assert strong.grad is not None
    assert torch.equal(strong.grad.abs().sum(1) > 0, kept)
    assert torch.equal(each > 0, kept)
    every = torch.nn.functional.cross_entropy(strong, weak.argmax(1))
    assert torch.allclose(consistency.confident_cross_entropy(weak, strong, 0.0).mean(), every)


def test_equal_predictions_have_no_distance_and_the_teacher_has_no_gradient() -> None:
    student, teacher = rows(8).requires_grad_(), (3 * rows(8, seed=1)).requires_grad_()
    assert float(consistency.confident_distance(student, student, 0.0).detach().sum()) == 0
    each = consistency.confident_distance(student, teacher, 0.7)
    torch.autograd.backward(each.sum())
    assert teacher.grad is None
    assert student.grad is not None
    assert torch.equal(student.grad.abs().sum(1) > 0, teacher.softmax(1).amax(1) > 0.7)
    opposed = consistency.confident_distance(1e4 * torch.eye(4), 1e4 * torch.eye(4).flip(0), 0.5)
    assert torch.allclose(opposed, torch.full((4,), 2 / 4))


def test_imbalance_is_least_for_equal_classes_and_finite_for_one() -> None:
    equal = float(consistency.class_imbalance(1e4 * torch.eye(4)))
    assert math.isclose(equal, -math.log(1 / 4) - 3 * math.log(3 / 4), rel_tol=1e-5)
    assert math.isclose(equal, float(consistency.class_imbalance(torch.zeros(8, 4))), rel_tol=1e-5)
    one_class = float(consistency.class_imbalance(1e4 * torch.eye(4)[torch.zeros(6, dtype=torch.int64)]))
    assert equal < float(consistency.class_imbalance(rows(6))) < one_class < math.inf
