"""Two sides that differ in nothing but their class shares are told from sides of two places."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from embasis.functional.domain_shift import (
    DomainComparison,
    balance_sides,
    compare_domains,
    find_shares,
    match_shares,
    neighbour_shares,
    weighted_auroc,
)
from embasis.functional.sites import unit_rows

seeds = st.integers(0, 2**32 - 1)


def draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def whole(seed: int, high: int, count: int) -> torch.Tensor:
    return torch.randint(high, (count,), generator=torch.Generator().manual_seed(seed))


@given(seed=seeds, n=st.integers(2, 12))
def test_the_weighted_auroc_equals_its_slow_twin(seed: int, n: int) -> None:
    score, weight = whole(seed, 4, n).double(), draw(seed + 1, n).exp()
    positive = torch.arange(n) % 2 == 1
    assert weighted_auroc(score, positive, weight) == pytest.approx(reference.weighted_auroc(score, positive, weight))


@given(seed=seeds, c=st.integers(1, 4))
def test_matched_shares_are_as_good_as_those_of_the_slow_twin(seed: int, c: int) -> None:
    means, spread = 2 * draw(seed, c, 5), torch.eye(5, dtype=torch.float64)
    true = draw(seed + 1, c).softmax(0)
    target, prior = true @ means, torch.full((c,), 1 / c, dtype=torch.float64)
    fast, slow = match_shares(means, target, spread, prior), reference.match_shares(means, target, spread, prior)
    assert float(fast.sum()) == pytest.approx(1)
    assert bool((fast >= 0).all())
    away, least = (float((torch.as_tensor(each) @ means - target).square().sum()) for each in (fast, slow))
    assert away <= least + 0.01


def test_shares_equal_their_slow_twin_where_classes_are_apart() -> None:
    y = torch.arange(60) % 3
    x = 4 * torch.eye(4, dtype=torch.float64)[y] + draw(0, 60, 4)
    u = 4 * torch.eye(4, dtype=torch.float64)[torch.tensor([0] * 30 + [1] * 10 + [2] * 10)] + draw(1, 50, 4)
    prior, shares = find_shares(x, y, u, 5)
    slow_prior, slow_shares = reference.find_shares(x, y, u, 5)
    np.testing.assert_allclose(prior, slow_prior)
    np.testing.assert_allclose(shares, slow_shares, atol=2e-3)
    np.testing.assert_allclose(shares, [0.6, 0.2, 0.2, 0, 0], atol=0.06)


@given(seed=seeds, n=st.integers(1, 6), k=st.integers(2, 15))
def test_neighbours_and_balance_equal_their_slow_twins(seed: int, n: int, k: int) -> None:
    v, others, weight = unit_rows(draw(seed, n, 6)), unit_rows(draw(seed + 1, k, 6)), draw(seed + 2, k).exp()
    positive = torch.arange(k) % 2 == 0
    np.testing.assert_allclose(balance_sides(weight, positive), reference.balance_sides(weight, positive))
    found = neighbour_shares(v, others, weight, positive, 4)
    np.testing.assert_allclose(found, reference.neighbour_shares(v, others, weight, positive, 4))


def compare(x: torch.Tensor, y: torch.Tensor, u: torch.Tensor) -> DomainComparison:
    both = torch.cat([x, u])
    half = torch.arange(len(both)) % 2
    return compare_domains(unit_rows(both), y, both, int(y.max()) + 1, half)


def classes_at(y: torch.Tensor, seed: int) -> torch.Tensor:
    return 3 * draw(99, 4, 8)[y] + draw(seed, len(y), 8)


def test_a_comparison_equals_its_slow_twin() -> None:
    y = whole(0, 3, 31)
    x, u = classes_at(y, 1), classes_at(whole(2, 3, 26), 3) + 0.7
    both, half = torch.cat([x, u]), torch.arange(57) % 2
    slow = reference.compare_domains(unit_rows(both), y, both, 3, half)
    assert compare_domains(unit_rows(both), y, both, 3, half).auroc == pytest.approx(slow, abs=0.02)


@pytest.mark.parametrize("shares", [(1, 1, 1, 1), (8, 1, 1, 1), (1, 6, 6, 0)])
def test_other_class_shares_alone_are_nearly_always_no_other_place(shares: tuple[int, ...]) -> None:
    assert sum(compare_shares(seed, shares).is_alike for seed in range(8)) >= 7


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shares", [(1, 1, 1, 1), (8, 1, 1, 1), (1, 6, 6, 0)])
def test_other_class_shares_are_found(seed: int, shares: tuple[int, ...]) -> None:
    found, truth = compare_shares(seed, shares), drawn_shares(seed, shares)[1]
    np.testing.assert_allclose(found.shares, truth, atol=0.1)
    assert found.moved == pytest.approx(float((truth - found.prior).abs().sum()) / 2, abs=0.1)


def drawn_shares(seed: int, shares: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.multinomial(torch.tensor(shares).double(), 300, True, generator=torch.Generator().manual_seed(seed))
    return drawn, torch.bincount(drawn, minlength=4).double() / 300


def compare_shares(seed: int, shares: tuple[int, ...]) -> DomainComparison:
    y, drawn = whole(seed + 50, 4, 200), drawn_shares(seed, shares)[0]
    return compare(classes_at(y, seed + 10), y, classes_at(drawn, seed + 20))


@pytest.mark.parametrize("seed", range(5))
def test_sides_with_the_same_shares_and_other_features_are_two_places(seed: int) -> None:
    y, there = whole(seed, 4, 200), whole(seed + 1, 4, 300)
    shifted = classes_at(there, seed + 2) + 1.5 * draw(seed + 3, 8)
    assert not compare(classes_at(y, seed + 4), y, shifted).is_alike


def test_few_rows_need_more_to_be_told_apart() -> None:
    half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    assert DomainComparison(0.55, 0.025, half, half).is_alike
    assert not DomainComparison(0.55, 0.015, half, half).is_alike
    assert not DomainComparison(0.61, 0.1, half, half).is_alike
    assert DomainComparison(0.35, 0.01, half, half).is_alike


def test_a_shift_along_the_line_between_two_classes_is_no_other_share_of_them() -> None:
    y, there = whole(0, 2, 300), whole(1, 2, 300)
    x, u = draw(2, 300, 6) + y.unsqueeze(1), draw(3, 300, 6) + there.unsqueeze(1) + 0.8
    assert not compare(x, y, u).is_alike
