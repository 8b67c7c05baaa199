"""Styles: against their slow twins, and what must be true of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import reference
from embasis.functional import style


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 6, 5)])
def test_moved_statistics_are_those_of_the_other_side(shape: tuple[int, ...]) -> None:
    x, axes = draw(*shape), (0, *range(2, len(shape)))
    centre = torch.stack([x.mean(axes), torch.tensor([1.0, -2.0, 0.5])])
    scale = torch.stack([x.std(axes, correction=0), torch.tensor([2.0, 0.1, 1.0])])
    moved = style.move_statistics(x, centre, scale)
    assert torch.allclose(moved, reference.move_statistics(x, centre, scale), atol=1e-5)
    assert torch.allclose(moved.mean(axes), centre[1], atol=1e-5)
    assert torch.allclose(moved.std(axes, correction=0), scale[1], atol=1e-5)
    same = style.move_statistics(x, centre[:1].repeat(2, 1), scale[:1].repeat(2, 1))
    assert torch.allclose(same, x, atol=1e-6)


def test_a_gram_matrix_is_symmetric_and_does_not_know_where_pixels_are() -> None:
    maps = draw(3, 4, 5, 6)
    gram = style.gram_matrix(maps)
    assert torch.allclose(gram, reference.gram_matrix(maps), atol=1e-5)
    assert torch.allclose(gram, gram.transpose(1, 2))
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    moved = maps.flatten(2)[:, :, order].view_as(maps)
    assert torch.allclose(style.gram_matrix(moved), gram, atol=1e-5)
    assert not torch.allclose(moved, maps)


def test_the_distance_to_a_target_is_zero_at_the_target_and_has_no_unit() -> None:
    x, target = draw(4, 3, 3), draw(3, 3, seed=1)
    found = style.relative_distance(x, target)
    assert torch.allclose(found, reference.relative_distance(x, target), rtol=1e-4)
    assert torch.equal(style.relative_distance(x, x), torch.zeros(4))
    assert torch.allclose(style.relative_distance(7 * x, 7 * target), found, rtol=1e-4)


def test_every_row_takes_a_step_of_the_same_length() -> None:
    gradient = draw(4, 1, 5, 5) * torch.tensor([1e-6, 1.0, 5.0, 1e3]).view(4, 1, 1, 1)
    step = style.even_step(gradient, 0.3)
    assert torch.allclose(step, reference.even_step(gradient, 0.3), rtol=1e-4)
    assert torch.allclose(step.abs().mean((1, 2, 3)), torch.full((4,), 0.3))
    assert torch.equal(style.even_step(torch.zeros(2, 3), 0.3), torch.zeros(2, 3))


def test_a_discriminator_that_is_right_loses_nothing() -> None:
    score = draw(3, 1, 2, 2)
    for real in (True, False):
        assert torch.allclose(style.least_squares_loss(score, real), reference.least_squares_loss(score, real))
        assert float(style.least_squares_loss(torch.full((3,), float(real)), real)) == 0
        assert float(style.least_squares_loss(torch.full((3,), 0.5), real)) == 0.25


def test_the_difference_of_a_picture_and_itself_is_zero() -> None:
    x, other = draw(2, 3, 4, 4), draw(2, 3, 4, 4, seed=1)
    assert torch.allclose(style.absolute_difference(x, other), reference.absolute_difference(x, other), rtol=1e-5)
    assert float(style.absolute_difference(x, x)) == 0
