"""How well uncertainty finds the errors: figures of counts, exact by value or in fine bins."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score

import reference
from embasis.functional.metrics import (
    RANKS,
    auroc,
    average_precision,
    coverage_at,
    exact_counts,
    rank_counts,
    risk_area,
    risk_coverage_curve,
    spread_counts,
)

EXTREME = [0.0, 1e-45, 1.2e-38, 1e-7, 0.5, 1 - 2**-24, 1.0, 1.5, 3.4e38]
unit = st.sampled_from([0.0, 0.2, 0.5, 1.0]) | st.floats(0, 1, width=32)
judged = st.lists(st.tuples(unit, st.booleans()), min_size=1, max_size=40)
apart = st.lists(st.tuples(st.sampled_from([0.0, *EXTREME[2:]]), st.booleans()), min_size=1, max_size=40)
"""Values that lie in bins of their own."""
targets = st.sampled_from([0.0, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0])


def columns(pairs):
    return torch.tensor([first for first, _ in pairs]), torch.tensor([second for _, second in pairs])


def figures(counts):
    """All of them, with NaN for None."""
    values = [auroc(counts), average_precision(counts), risk_area(counts), coverage_at(counts, 0.9)]
    return [math.nan if value is None else value for value in values]


def random_sites(n=20_000, seed=0):
    """Errors are likelier where uncertainty is high; many sites are nearly sure."""
    draw = torch.Generator().manual_seed(seed)
    uncertainty = torch.rand(n, generator=draw) ** 3
    return uncertainty, torch.rand(n, generator=draw) > 0.7 * uncertainty


# the counts


@given(pairs=judged | apart)
def test_counts_equal_their_slow_twins(pairs):
    uncertainty, right = columns(pairs)
    assert exact_counts(uncertainty, right).tolist() == reference.exact_counts(uncertainty, right)
    assert np.array_equal(rank_counts(uncertainty, right).numpy(), reference.rank_counts(uncertainty, right))
    assert spread_counts(uncertainty, right).tolist() == reference.spread_counts(uncertainty, right).tolist()


@given(pairs=judged | apart, cut=st.integers(0, 40), data=st.data())
def test_counts_of_parts_in_any_order_are_those_of_the_whole(pairs, cut, data):
    whole, (uncertainty, right) = columns(pairs), columns(data.draw(st.permutations(pairs)))
    for count in (rank_counts, spread_counts):
        parts = count(uncertainty[:cut], right[:cut]) + count(uncertainty[cut:], right[cut:])
        assert torch.equal(parts, count(*whole))
    assert torch.equal(exact_counts(uncertainty, right), exact_counts(*whole))


@given(pairs=apart)
def test_bins_are_exact_where_values_lie_in_bins_of_their_own(pairs):
    uncertainty, right = columns(pairs)
    exact, binned = exact_counts(uncertainty, right), rank_counts(uncertainty, right)
    assert torch.equal(exact, binned[binned.sum(1) > 0])
    np.testing.assert_allclose(figures(exact), figures(binned), rtol=1e-12)
    assert torch.equal(risk_coverage_curve(exact), risk_coverage_curve(binned))


def test_every_float_that_can_be_ranked_has_a_bin_and_neighbours_differ_by_a_500th():
    values = torch.tensor([*EXTREME, math.inf])
    counts = rank_counts(values, torch.ones(len(values), dtype=torch.bool))
    assert int(counts.sum()) == len(values)
    assert counts.shape == (RANKS, 2)
    assert RANKS * 2 * 8 == 2 * 2**20  # bytes
    close = torch.tensor([0.5, 0.5 * (1 + 1 / 512)])
    assert (rank_counts(close, torch.tensor([True, True])) > 1).sum() == 0
    assert torch.equal(
        rank_counts(torch.tensor([-1.0, -0.0]), torch.tensor([True, False])),
        rank_counts(torch.zeros(2), torch.tensor([True, False])),
    )


# how far bins are from values


@given(pairs=st.lists(st.tuples(st.floats(0.5, 0.515625, width=32), st.booleans()), min_size=1, max_size=40))
def test_bins_move_auroc_by_no_more_than_half_the_pairs_that_share_a_bin(pairs):
    uncertainty, right = columns(pairs)
    exact, binned = auroc(exact_counts(uncertainty, right)), rank_counts(uncertainty, right)
    if exact is not None:
        shared = float((binned[:, 0] * binned[:, 1]).sum()) / (int(right.sum()) * int((~right).sum()))
        assert abs(auroc(binned) - exact) <= shared / 2 + 1e-12


def test_bins_change_no_figure_of_many_sites_by_a_thousandth():
    for seed in range(5):
        uncertainty, right = random_sites(seed=seed)
        exact, binned = exact_counts(uncertainty, right), rank_counts(uncertainty, right)
        difference = np.abs(np.subtract(figures(exact), figures(binned)))
        assert difference.max() > 0
        assert (difference < [2e-5, 1e-3, 1e-5, 1e-3]).all(), difference


def test_at_worst_all_sites_lie_in_one_bin_and_bins_see_no_order():
    uncertainty = 0.5 + torch.arange(100) * 2.0**-24
    right = torch.arange(100) < 90
    assert figures(exact_counts(uncertainty, right))[:2] == [1, 1]
    assert figures(rank_counts(uncertainty, right)) == [0.5, 0.1, pytest.approx(0.1), 1.0]


# AUROC


@given(pairs=judged)
def test_auroc_equals_the_count_of_pairs(pairs):
    uncertainty, right = columns(pairs)
    slow = reference.auroc(uncertainty, ~right)
    value = auroc(exact_counts(uncertainty, right))
    assert value == (None if slow is None else pytest.approx(slow, abs=1e-9))


@given(pairs=judged)
def test_reversing_the_uncertainty_reverses_auroc_and_a_monotone_change_does_nothing(pairs):
    uncertainty, right = columns(pairs)
    counts = exact_counts(uncertainty, right)
    value = auroc(counts)
    if value is not None:
        assert auroc(counts.flip(0)) == pytest.approx(1 - value, abs=1e-9)
        assert auroc(exact_counts(4 * uncertainty.double(), right)) == value


def test_auroc_is_one_for_a_perfect_score_half_for_a_constant_and_none_for_one_kind():
    right = torch.tensor([True, True, False])
    assert auroc(exact_counts(torch.tensor([0.1, 0.2, 0.3]), right)) == 1
    assert auroc(exact_counts(torch.ones(3), right)) == 0.5


# average precision, area, coverage


@given(pairs=judged, target=targets)
def test_figures_equal_their_slow_twins(pairs, target):
    uncertainty, right = columns(pairs)
    counts = exact_counts(uncertainty, right)
    slow = reference.average_precision(uncertainty, right)
    assert average_precision(counts) == (None if slow is None else pytest.approx(slow, abs=1e-9))
    assert risk_area(counts) == pytest.approx(reference.risk_area(uncertainty, right), abs=1e-9)
    assert coverage_at(counts, target) == reference.coverage_at(uncertainty, right, target)


@given(pairs=judged, points=st.integers(1, 60))
def test_risk_coverage_equals_its_slow_twin_at_every_point(pairs, points):
    uncertainty, right = columns(pairs)
    curve = risk_coverage_curve(exact_counts(uncertainty, right), points)
    assert 1 <= len(curve) <= points
    for coverage, risk in curve.tolist():
        kept = round(coverage * len(pairs))
        assert coverage == pytest.approx(kept / len(pairs))
        assert risk == pytest.approx(reference.risk_at(uncertainty, right, kept))
    assert curve[:, 0].tolist() == sorted(set(curve[:, 0].tolist()))
    assert curve[-1].tolist() == [1.0, pytest.approx(1 - float(right.double().mean()))]


@given(pairs=judged)
def test_the_area_is_the_mean_of_the_curve_with_a_point_a_label(pairs):
    counts = exact_counts(*columns(pairs))
    assert risk_area(counts) == pytest.approx(float(risk_coverage_curve(counts, len(pairs))[:, 1].mean()))


@given(pairs=judged)
def test_a_perfect_order_is_best_and_the_reverse_of_it_worst(pairs):
    uncertainty, right = columns(pairs)
    found, best = exact_counts(uncertainty, right), exact_counts((~right).float(), right)
    worst = exact_counts(right.float(), right)
    assert risk_area(best) <= risk_area(found) + 1e-12 <= risk_area(worst) + 2e-12
    assert (coverage_at(best, 0.9) or 0) >= (coverage_at(found, 0.9) or 0) >= (coverage_at(worst, 0.9) or 0)
    if auroc(found) is not None:
        assert (auroc(best), auroc(worst), average_precision(best)) == (1, 0, 1)
        assert average_precision(worst) == pytest.approx(float((~right).double().mean()))


def test_a_perfect_uncertainty_keeps_the_errors_for_the_end():
    right = torch.arange(10) < 7
    counts = exact_counts(torch.arange(10.0), right)
    curve = risk_coverage_curve(counts)
    assert curve[:7, 1].tolist() == [0.0] * 7
    assert (curve[1:, 1] >= curve[:-1, 1]).all()
    assert [coverage_at(counts, p) for p in (0.7, 0.75, 0.9, 1.0)] == [1.0, 0.9, 0.7, 0.7]


def test_a_precision_is_reached_when_it_is_met_exactly_and_never_by_a_part_of_the_ties():
    right = torch.tensor([True] * 19 + [False])
    assert coverage_at(exact_counts(torch.zeros(20), right), 0.95) == 1
    assert coverage_at(exact_counts(torch.zeros(20), right), 0.951) is None
    assert coverage_at(exact_counts(torch.arange(20.0), right), 0.951) == 0.95


def test_one_kind_of_label_has_no_ranking_but_a_risk():
    for right, area, coverage in ((True, 0, 1), (False, 1, None)):
        for count in (exact_counts, rank_counts):
            counts = count(torch.rand(9), torch.full((9,), right))
            assert auroc(counts) is None
            assert average_precision(counts) is None
            assert risk_area(counts) == pytest.approx(area)
            assert coverage_at(counts, 0.9) == coverage
            assert risk_coverage_curve(counts)[:, 1].tolist() == [pytest.approx(area)] * 9


def test_no_label_at_all_has_no_figure_and_no_warning():
    for count in (exact_counts, rank_counts):
        counts = count(torch.zeros(0), torch.zeros(0, dtype=torch.bool))
        assert (auroc(counts), average_precision(counts), coverage_at(counts, 0.9)) == (None, None, None)
        assert risk_area(counts) == 0
        assert len(risk_coverage_curve(counts)) == 0
    assert not spread_counts(torch.zeros(0), torch.zeros(0, dtype=torch.bool)).any()


def test_the_area_of_a_hundred_million_labels_is_that_of_a_hundred():
    few = torch.tensor([[30, 0], [25, 5], [10, 10], [2, 18]])
    sampled = risk_coverage_curve(few * 10**6, 10**5)[:, 1].mean()
    assert risk_area(few * 10**6) == pytest.approx(float(sampled), abs=1e-5)
    assert auroc(few * 10**6) == pytest.approx(auroc(few))
    assert average_precision(few * 10**6) == pytest.approx(average_precision(few))


def test_scikit_learn_finds_the_same_figures():
    for uncertainty, right in (random_sites(2000), (random_sites(2000)[0].mul(9).round(), random_sites(2000)[1])):
        counts, wrong, score = exact_counts(uncertainty, right), (~right).numpy(), uncertainty.double().numpy()
        assert auroc(counts) == pytest.approx(roc_auc_score(wrong, score), abs=1e-12)
        assert average_precision(counts) == pytest.approx(average_precision_score(wrong, score), abs=1e-12)
        for target in (0.9, 0.95, 0.99):
            precision, recall, _ = precision_recall_curve(right.numpy(), -score)
            kept = recall[:-1] * int(right.sum()) / precision[:-1].clip(1e-9) / len(right)
            reached = kept[precision[:-1] >= target]
            assert coverage_at(counts, target) == (pytest.approx(reached.max()) if len(reached) else None)
