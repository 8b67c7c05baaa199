"""Views of small pictures: what a warp does, and what it leaves alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from embasis.functional.augment import WARP_DRAWS, warp
from reference import warp as slow


def pictures(count: int = 5, height: int = 7, width: int = 9) -> Tensor:
    return torch.rand(count, 2, height, width, generator=torch.Generator().manual_seed(3))


def draws(count: int = 5) -> Tensor:
    return torch.rand(count, WARP_DRAWS, dtype=torch.float64, generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("strength", [0.0, 0.5, 1.0, 3.0])
def test_a_warp_is_that_of_plain_loops(strength: float) -> None:
    found, expected = warp(pictures(), draws(), strength), slow(pictures(), draws(), strength)
    torch.testing.assert_close(found.double(), torch.from_numpy(expected), atol=1e-5, rtol=0)


def test_no_strength_and_middle_draws_leave_pictures_as_they_are() -> None:
    torch.testing.assert_close(warp(pictures(), draws(), 0.0), pictures(), atol=1e-5, rtol=0)
    torch.testing.assert_close(warp(pictures(), torch.full((5, WARP_DRAWS), 0.5), 1.0), pictures(), atol=1e-5, rtol=0)
    assert not torch.allclose(warp(pictures(), draws(), 1.0), pictures(), atol=1e-2)


def test_a_view_shows_nothing_that_is_not_in_the_picture() -> None:
    found, x = warp(pictures(), draws(), 3.0), pictures()
    assert bool((found.amax((2, 3)) <= x.amax((2, 3)) + 1e-6).all())
    assert bool((found.amin((2, 3)) >= x.amin((2, 3)) - 1e-6).all())


@pytest.mark.parametrize(("number", "moved"), [(4, (0, -1)), (5, (-1, 0))])
def test_a_shift_of_a_fifth_moves_a_dot_by_one_pixel_of_ten(number: int, moved: tuple[int, int]) -> None:
    x, u = torch.zeros(1, 1, 10, 10), torch.full((1, WARP_DRAWS), 0.5)
    x[0, 0, 5, 5], u[0, number] = 1.0, 1.0
    found = warp(x, u, 2.0)  # 2 · 0.1 of half a side of 10 pixels: one pixel
    assert torch.nonzero(found[0, 0] > 0.99).tolist() == [[5 + moved[0], 5 + moved[1]]]


def test_what_stands_beside_a_picture_changes_no_bit_of_it() -> None:
    whole = warp(pictures(), draws(), 1.0)
    for row in range(5):
        alone = warp(pictures()[row : row + 1], draws()[row : row + 1], 1.0)
        assert torch.equal(alone[0], whole[row])
