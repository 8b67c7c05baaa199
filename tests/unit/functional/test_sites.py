"""Rows of sites and the feature space: sums that add up, constant features, unit length at any scale."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

import reference
from embasis.functional.em import responsibilities
from embasis.functional.sites import (
    centre_and_scale,
    domain_sums,
    join_rows,
    matched_scale,
    multiply_own,
    softmax_by_class,
    standardise,
    sum_parts,
    to_sites,
    unit_rows,
)

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 9)


def draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 5), (2, 3, 4, 5)])
def test_a_grid_becomes_rows_sample_by_sample_place_by_place(shape):
    grid = torch.arange(int(np.prod(shape)), dtype=torch.float32).view(shape)
    assert to_sites(grid).tolist() == reference.to_sites(grid).tolist()


@given(seed=seeds, n=sizes, d=sizes, scale=st.sampled_from([1e-30, 1.0, 1e30]))
def test_sums_centre_and_scale_equal_their_slow_twins(seed, n, d, scale):
    x = (draw(seed, n, d) + 2) * scale
    count, total, square = domain_sums(x)
    slow = reference.domain_sums(x)
    assert float(count) == slow[0]
    np.testing.assert_allclose(total.numpy(), slow[1], rtol=1e-9, atol=1e-12 * scale)
    np.testing.assert_allclose(square.numpy(), slow[2], rtol=1e-9)
    centre, spread = centre_and_scale(count, total, square)
    slow_centre, slow_spread = reference.centre_and_scale(x)
    np.testing.assert_allclose(centre.numpy(), slow_centre, rtol=1e-9, atol=1e-12 * scale)
    if n > 1:
        np.testing.assert_allclose(spread.numpy(), slow_spread, rtol=1e-6)
        np.testing.assert_allclose(
            standardise(x, centre, spread).numpy(), reference.standardise(x, slow_centre, slow_spread), atol=1e-5
        )


@given(seed=seeds, cuts=st.lists(st.integers(0, 30), max_size=4))
def test_sums_of_shards_add_up_to_those_of_the_whole(seed, cuts):
    x = draw(seed, 30, 3)
    edges = [0, *sorted(cuts), 30]
    parts = [domain_sums(x[a:b]) for a, b in itertools.pairwise(edges)]
    for whole, pieces in zip(domain_sums(x), zip(*parts, strict=True), strict=True):
        torch.testing.assert_close(sum(pieces), whole, atol=1e-12, rtol=1e-12)
    found = sum_parts((x[a:b] for a, b in itertools.pairwise(edges)), len(parts), 3)
    stacked = [torch.stack(pieces).sum(0) for pieces in zip(*parts, strict=True)]
    assert all(torch.equal(one, other) for one, other in zip(found, stacked, strict=True))


@given(seed=seeds, n=st.integers(2, 40), scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e30]))
def test_standardised_columns_have_mean_zero_and_spread_one(seed, n, scale):
    x = draw(seed, n, 4) * scale
    rows = standardise(x, *centre_and_scale(*domain_sums(x)))
    assert rows.dtype == torch.float32
    assert rows.double().mean(0).abs().max() < 1e-5
    torch.testing.assert_close(
        rows.double().std(0, correction=0), torch.ones(4, dtype=torch.float64), atol=1e-5, rtol=0
    )


@given(
    value=st.floats(-3, 3),
    power=st.integers(-30, 30),
    n=st.integers(1, 50),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_a_constant_feature_becomes_zero_at_any_scale(value, power, n, dtype):
    x = torch.full((n, 1), value * 10.0**power, dtype=torch.float64).to(dtype)
    rows = standardise(x, *centre_and_scale(*domain_sums(x)))
    assert rows.abs().max() <= 1e-6


def test_a_large_constant_float64_feature_becomes_zero_though_its_mean_is_rounded():
    x = torch.full((3, 1), 0.1 * 1e30, dtype=torch.float64)
    x = torch.cat([x] * 17)
    centre, scale = centre_and_scale(*domain_sums(x))
    assert standardise(x, centre, scale).abs().max() <= 1e-6


@given(seed=seeds, n=sizes, d=sizes, scale=st.sampled_from([1e-30, 1.0, 1e30]), zero=st.booleans())
def test_unit_rows_equal_their_slow_twin_and_zero_rows_stay_zero(seed, n, d, scale, zero):
    x = draw(seed, n, d) * scale
    x[0] = 0 if zero else x[0]
    rows = unit_rows(x)
    np.testing.assert_allclose(rows.numpy(), reference.unit_rows(x), atol=1e-6)
    lengths = rows.norm(dim=1)
    torch.testing.assert_close(lengths, torch.where((x == 0).all(1), 0.0, 1.0), atol=1e-6, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_unit_rows_are_float32_whatever_comes_in(dtype):
    x = draw(0, 5, 300).mul(200).to(dtype)  # the squares of these overflow float16
    rows = unit_rows(x)
    assert rows.dtype == torch.float32
    np.testing.assert_allclose(rows.numpy(), reference.unit_rows(x), atol=1e-6)


def test_unit_rows_hold_at_the_edges_of_float32():
    x = torch.tensor([[3e38, 3e38, -3e38], [1e-40, 0.0, 1e-40], [1e-45, 0.0, 0.0]])
    torch.testing.assert_close(unit_rows(x).norm(dim=1), torch.ones(3), atol=1e-4, rtol=0)


@given(seed=seeds, d=sizes, power=st.integers(-3, 3))
def test_the_gradient_of_unit_rows_is_that_of_the_quotient(seed, d, power):
    # The divisor by the largest entry is cut from the graph; the quotient does not depend on it, so nothing is lost.
    x = (draw(seed, 3, d) * 10.0**power).requires_grad_()
    side = draw(seed + 1, 3, d)
    (gradient,) = torch.autograd.grad((unit_rows(x) * side).sum(), x)
    plain = x.detach().double().requires_grad_()
    (expected,) = torch.autograd.grad((plain / plain.norm(dim=1, keepdim=True) * side).sum(), plain)
    size = 1 / float(x.detach().norm(dim=1).min())
    torch.testing.assert_close(gradient.double(), expected, atol=1e-4 * size, rtol=1e-4)


def test_the_gradient_at_a_row_of_zeros_is_finite():
    x = torch.zeros(2, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(unit_rows(x).sum(), x)
    assert torch.isfinite(gradient).all()


def test_shapes_are_checked_while_tests_run():
    with pytest.raises(TypeCheckError):
        unit_rows(torch.zeros(3))
    with pytest.raises(TypeCheckError):
        responsibilities(torch.zeros(3, 4), torch.zeros(2, 5), 1.0)


@given(seed=st.integers(0, 10**6), d=st.integers(1, 5))
def test_matched_rows_have_the_mean_and_deviation_that_the_others_have_under_the_fixed_scale(seed, d):
    draw = torch.Generator().manual_seed(seed)
    here, there = (torch.randn(50, d, generator=draw) * 3 + 5 * torch.randn(d, generator=draw) for _ in range(2))
    fixed = torch.randn(d, generator=draw).double(), torch.rand(d, generator=draw).double() + 0.5
    centre, scale = matched_scale(fixed, *(centre_and_scale(*domain_sums(x)) for x in (here, there)))
    found, wanted = (there.double() - centre) / scale, (here.double() - fixed[0]) / fixed[1]
    assert torch.allclose(found.mean(0), wanted.mean(0), atol=1e-8)
    assert torch.allclose(found.std(0), wanted.std(0), atol=1e-8)
    slow = reference.matched_scale(*fixed, here.double(), there.double())
    assert torch.allclose(torch.stack([centre, scale]), torch.tensor(np.array(slow)), atol=1e-8)


@given(seed=seeds, n=sizes, c=sizes, scale=st.sampled_from([0.1, 1.0, 80.0]))
def test_softmax_by_class_equals_its_slow_twin_however_scores_lie_in_memory(seed, n, c, scale):
    scores = scale * draw(seed, n, c)
    fast = softmax_by_class(scores)
    np.testing.assert_allclose(reference.wide(fast), reference.softmax_rows(scores), atol=1e-6)
    assert torch.equal(fast, softmax_by_class(scores.T.contiguous().T))


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_products_of_all_rows_with_all_are_a_product_with_the_transpose(n):
    x = draw(n, n, 6)
    torch.testing.assert_close(multiply_own(x), x @ x.T)


def test_joined_rows_are_joined_once():
    blocks = [draw(number, n, 6) for number, n in enumerate((4, 1, 7))]
    whole = join_rows(*blocks)
    assert torch.equal(whole, torch.cat(blocks))
    assert join_rows(*blocks) is whole


def test_rows_that_lie_one_below_the_other_in_memory_are_not_copied():
    block = draw(3, 20, 4)
    parts = block[2:10], block[10:11], block[11:18]
    whole = join_rows(*parts)
    assert torch.equal(whole, block[2:18])
    assert whole.data_ptr() == block[2:].data_ptr()
    for others in ((block[2:4], block[5:7]), (block[4:6], block[2:4]), (block[:2, :2], block[2:4, :2])):
        assert torch.equal(join_rows(*others), torch.cat(others))
