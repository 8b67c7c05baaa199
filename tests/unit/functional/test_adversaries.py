"""What adversaries of the features read and lose: equal to their slow twins, and what is true whatever the rows."""

from __future__ import annotations

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
