"""What adversaries of the features read and lose: equal to their slow twins, and what is true whatever the rows."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import reference_adversaries as slow
from embasis.functional import adversaries


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", range(3))
def test_every_function_equals_its_slow_twin(seed: int) -> None:
    f, z = draw(7, 4, seed=seed), 3 * draw(7, 3, seed=seed + 9)
    p, by_f, by_p = z.softmax(1), draw(4, 6), draw(3, 6, seed=1)
    assert torch.allclose(adversaries.outer_rows(f, p), slow.outer_rows(f, p), atol=1e-5)
    assert torch.allclose(
        adversaries.projected_outer(f, p, by_f, by_p), slow.projected_outer(f, p, by_f, by_p), atol=1e-5
    )
    assert torch.allclose(adversaries.certainty_weights(z), slow.certainty_weights(z), atol=1e-5)
    label = torch.arange(7) % 3
    assert torch.allclose(adversaries.log_of_others(z, label), slow.log_of_others(z, label), atol=1e-4)
    mu, u, v = draw(3, 4, seed=seed), draw(6, 4, seed=4), draw(6, 4, seed=5)
    assert torch.allclose(adversaries.similarity(f, mu, u, v), slow.similarity(f, mu, u, v), atol=1e-4)
    assert torch.allclose(adversaries.prototype_spread(mu), slow.prototype_spread(mu), rtol=1e-4)


def test_products_of_projected_rows_are_those_of_outer_rows_on_average() -> None:
    f, p = draw(5, 4), draw(5, 3, seed=1).softmax(1)
    small = adversaries.projected_outer(f, p, draw(4, 200_000, seed=2), draw(3, 200_000, seed=3))
    whole = adversaries.outer_rows(f, p)
    assert torch.allclose(small @ small.T, whole @ whole.T, atol=0.1)


def test_sure_rows_count_more_and_all_rows_one_on_average() -> None:
    z = torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]).requires_grad_()
    weight = adversaries.certainty_weights(z)
    assert torch.allclose(weight.mean(), torch.ones(()))
    assert weight[0] > weight[2] > weight[1]
    assert not weight.requires_grad
    assert torch.allclose(adversaries.certainty_weights(torch.zeros(4, 3)), torch.ones(4))


def test_the_log_of_all_other_classes_has_a_gradient_where_the_class_is_sure() -> None:
    z, label = torch.tensor([[60.0, 0.0, 0.0], [0.0, 0.0, 0.0]]).requires_grad_(), torch.tensor([0, 1])
    value = adversaries.log_of_others(z, label)
    assert torch.allclose(value, torch.tensor([math.log(2) - 60, math.log(2 / 3)]), atol=1e-4)
    torch.autograd.backward(value.sum())
    assert z.grad is not None
    assert torch.allclose(z.grad[0], torch.tensor([-1.0, 0.5, 0.5]), atol=1e-5)


def test_orthonormal_prototypes_have_no_spread_to_lose_and_permuted_ones_permute_the_scores() -> None:
    mu, order = torch.linalg.qr(draw(5, 3))[0].T, torch.tensor([2, 0, 1])
    assert float(adversaries.prototype_spread(mu)) < 1e-10
    assert float(adversaries.prototype_spread(2 * mu)) > 1
    f, u, v = draw(4, 5, seed=1), draw(6, 5, seed=2), draw(6, 5, seed=3)
    whole = adversaries.similarity(f, mu, u, v)
    assert torch.allclose(adversaries.similarity(f, mu[order], u, v), whole[:, order], atol=1e-5)
