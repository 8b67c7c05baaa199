"""What the nearest sites say: their mean, and the variance of a pool of opinions."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from embasis.functional import neighbours
from embasis.functional.moments import label_moments
from embasis.functional.neighbours import neighbour_moments, pool_moments
from embasis.functional.sites import unit_rows

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 7)


def draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def close(fast, slow, atol=1e-5):
    np.testing.assert_allclose(reference.wide(fast), reference.wide(slow), atol=atol)


@given(seed=seeds, n=st.integers(0, 7), m=st.integers(1, 30), c=sizes, count=st.integers(1, 12))
def test_neighbours_equal_their_slow_twin(seed, n, m, c, count):
    x, bank, p = unit_rows(draw(seed, n, 9)), unit_rows(draw(seed + 1, m, 9)), draw(seed + 2, m, c).softmax(1)
    mean, second = neighbour_moments(x, bank, p, count)
    slow = reference.neighbour_moments(x, bank, p, count)
    close(mean, slow[0].reshape(n, c))
    close(second, slow[1].reshape(n, c))


@given(seed=seeds, n=sizes, k=sizes, c=sizes, share=st.floats(0, 1))
def test_a_pool_equals_its_slow_twin_and_its_variance_is_that_of_its_mean(seed, n, k, c, share):
    own = label_moments(draw(seed, n, k).softmax(1), draw(seed + 1, k, c).softmax(1), draw(seed + 2, n, c).softmax(1))
    heard = draw(seed + 3, n, 5, c).softmax(2)
    pooled = pool_moments(own, heard.mean(1), heard.square().mean(1), share)
    for fast, slow in zip(
        pooled, reference.pool_moments(own, heard.mean(1), heard.square().mean(1), share), strict=True
    ):
        close(fast, slow)
    close(pooled[1] + pooled[2], pooled[0] * (1 - pooled[0]))


@given(seed=seeds, n=sizes, c=sizes, share=st.floats(0, 1))
def test_members_that_agree_have_no_variance_between_them(seed, n, c, share):
    p = draw(seed, n, c).softmax(1)
    mean, between, within = pool_moments((p, torch.zeros_like(p), p * (1 - p)), p, p.square(), share)
    close(mean, p)
    close(between, torch.zeros_like(p))
    close(within, p * (1 - p))


def test_sure_members_that_contradict_each_other_are_all_between() -> None:
    one, other = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    mean, between, within = pool_moments((one, torch.zeros(1, 2), torch.zeros(1, 2)), other, other, 0.5)
    assert mean.tolist() == [[0.5, 0.5]]
    assert between.tolist() == [[0.25, 0.25]]
    assert within.tolist() == [[0.0, 0.0]]


def test_rows_in_parts_have_the_same_neighbours(monkeypatch) -> None:
    x, bank, p = unit_rows(draw(0, 50, 6)), unit_rows(draw(1, 40, 6)), draw(2, 40, 3).softmax(1)
    whole = neighbour_moments(x, bank, p, 10)
    monkeypatch.setattr(neighbours, "PRODUCTS_AT_ONCE", 7 * 40)
    for one, other in zip(whole, neighbour_moments(x, bank, p, 10), strict=True):
        assert torch.equal(one, other)
