"""Selection: thresholds from mergeable counts are the exact order statistics, and ties are decided by the sample id."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from embasis.functional.selection import (
    RADIX_BINS,
    high_counts,
    is_trusted,
    low_counts,
    order_key,
    rank_bin,
    ranks,
    sort_thresholds,
    threshold_of,
)
from embasis.randomness import uniforms

# Zeros, ties, denormals, the largest number, and anything between.
special = st.sampled_from([0.0, -0.0, 0.25, 0.2500001, 0.2500002, 1e-45, 1.2e-38, 1e-40, 1.0, 3.4e38])
scores = st.lists(special | st.floats(0, 1, width=32) | st.floats(0, width=32, allow_infinity=False), max_size=40)
keeps = st.sampled_from([0.0, 0.05, 0.2, 0.35, 0.5, 0.7, 1.0])


def thresholds(score, label, classes, keep, edges=None):
    """The two passes over a stream of shards."""
    edges = edges or [0, len(score)]
    parts = [slice(a, b) for a, b in itertools.pairwise(edges)]
    key = order_key(score)
    high = sum(high_counts(label[part], key[part], classes) for part in parts)
    high_bin, _ = rank_bin(high, ranks(high, keep))
    low = sum(low_counts(label[part], key[part], high_bin) for part in parts)
    return threshold_of(high, low, keep)


def classes_of(count, classes):
    return torch.arange(count) * 7 % classes


@given(values=scores)
def test_keys_have_the_order_of_the_scores(values):
    score = torch.tensor(values)
    key = order_key(score)
    assert (key >= 0).all()
    assert ((key.unsqueeze(0) < key.unsqueeze(1)) == (score.unsqueeze(0) < score.unsqueeze(1))).all()
    assert ((key.unsqueeze(0) == key.unsqueeze(1)) == (score.unsqueeze(0) == score.unsqueeze(1))).all()


def test_minus_zero_and_negative_rounding_count_as_zero():
    assert order_key(torch.tensor([-0.0, 0.0, -1e-9])).tolist() == [0, 0, 0]


@given(values=scores, classes=st.integers(1, 3), keep=keeps)
def test_the_radix_threshold_is_the_kth_smallest_by_sorting(values, classes, keep):
    score, label = torch.tensor(values), classes_of(len(values), classes)
    threshold, share = thresholds(score, label, classes, keep)
    for c, (limit, rank, at) in enumerate(reference.threshold_of(score, label, classes, keep)):
        assert float(threshold[c]) == limit
        ties = int(((score == limit) & (label == c)).sum())
        assert float(share[c]) == pytest.approx(at / ties if rank else 0.0)


@given(value=st.sampled_from([0.0, 1e-45, 0.1, 3e38]), count=st.integers(1, 30), keep=keeps)
def test_equal_scores_are_their_own_threshold(value, count, keep):
    score, label = torch.full((count,), value), torch.zeros(count, dtype=torch.int64)
    threshold, share = thresholds(score, label, 1, keep)
    rank = math.ceil(keep * count - 1e-9)
    assert threshold.item() == (score[0].item() if rank else -1.0)
    assert share.item() == pytest.approx(rank / count)


@given(
    values=st.lists(st.floats(0, 1, width=32), min_size=1, max_size=60, unique=True),
    classes=st.integers(1, 3),
    keep=keeps,
    seed=st.integers(0, 99),
)
def test_without_ties_exactly_the_asked_number_of_each_class_is_trusted(values, classes, keep, seed):
    score, label = torch.tensor(values) + 0.0, classes_of(len(values), classes)
    trusted = is_trusted(
        label, score, *thresholds(score, label, classes, keep), uniforms(torch.arange(len(values)), seed, "ties", 1)
    )
    for c, (_, rank, _) in enumerate(reference.threshold_of(score, label, classes, keep)):
        assert int(trusted[label == c].sum()) == rank
        if 0 < rank < int((label == c).sum()):
            assert score[(label == c) & trusted].max() < score[(label == c) & ~trusted].min()


@given(values=scores, classes=st.integers(1, 3), keep=keeps, seed=st.integers(0, 99))
def test_with_ties_all_surer_sites_and_no_less_sure_ones_are_trusted(values, classes, keep, seed):
    score, label = torch.tensor(values), classes_of(len(values), classes)
    threshold, share = thresholds(score, label, classes, keep)
    trusted = is_trusted(label, score, threshold, share, uniforms(torch.arange(len(values)), seed, "ties", 1))
    assert trusted[score < threshold[label]].all()
    assert not trusted[score > threshold[label]].any()
    if keep in (0.0, 1.0):
        assert (trusted == bool(keep)).all()


def test_surer_sites_in_the_bin_of_the_threshold_count_before_its_ties():
    # All six scores share their upper 16 bits; three are asked for: both lower ones and one of the four ties.
    score, label = torch.tensor([0.25, 0.25, 0.2500001, 0.2500001, 0.2500001, 0.2500001]), torch.zeros(6).long()
    threshold, share = thresholds(score, label, 1, 0.5)
    assert len((order_key(score) >> 16).unique()) == 1
    assert threshold.item() == score[-1].item()
    assert share.item() == 0.25


def test_among_many_ties_the_share_is_met_on_average():
    score, label = torch.zeros(20_000), torch.zeros(20_000, dtype=torch.int64)
    trusted = is_trusted(label, score, *thresholds(score, label, 1, 0.3), uniforms(torch.arange(20_000), 0, "ties", 1))
    assert float(trusted.float().mean()) == pytest.approx(0.3, abs=4.5 * 0.46 / 141)


@given(
    values=scores.filter(len),
    classes=st.integers(1, 3),
    keep=keeps,
    cuts=st.lists(st.integers(0, 40), max_size=4),
)
def test_merged_histograms_of_shards_equal_those_of_the_whole(values, classes, keep, cuts):
    score, label = torch.tensor(values), classes_of(len(values), classes)
    edges = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    for whole, merged in zip(
        thresholds(score, label, classes, keep), thresholds(score, label, classes, keep, edges), strict=True
    ):
        assert torch.equal(whole, merged)


@given(values=scores.filter(len), keep=keeps, seed=st.integers(0, 99), data=st.data())
def test_trust_depends_on_the_id_and_not_on_the_order_of_rows(values, keep, seed, data):
    count = len(values)
    score, label, ids = torch.tensor(values), classes_of(count, 2), 1000 + 3 * torch.arange(count)
    order = torch.tensor(data.draw(st.permutations(range(count))))
    whole = is_trusted(label, score, *thresholds(score, label, 2, keep), uniforms(ids, seed, "ties", 4))
    limits = thresholds(score[order], label[order], 2, keep)
    shuffled = is_trusted(label[order], score[order], *limits, uniforms(ids[order], seed, "ties", 4))
    assert torch.equal(shuffled, whole[order])
    single = [
        bool(is_trusted(label[n : n + 1], score[n : n + 1], *limits, uniforms(ids[n : n + 1], seed, "ties", 4)))
        for n in range(count)
    ]
    assert single == whole.tolist()


@given(counts=st.lists(st.integers(0, 200), min_size=1, max_size=5), keep=keeps)
def test_ranks_are_the_ceiling_of_the_share(counts, keep):
    table = torch.tensor(counts).unsqueeze(1)
    assert ranks(table, keep).tolist() == [math.ceil(keep * count - 1e-9) for count in counts]


@pytest.mark.parametrize(
    ("keep", "count", "rank"), [(0.2, 5, 1), (0.07, 100, 7), (0.55, 100, 55), (0.1, 1, 1), (1.0, 9, 9)]
)
def test_a_share_that_falls_on_a_whole_number_is_not_rounded_up(keep, count, rank):
    # 0.07 · 100 is 7.000000000000001 in floating point.
    assert ranks(torch.tensor([[count]]), keep).tolist() == [rank]


@given(row=st.lists(st.integers(0, 4), min_size=1, max_size=12), data=st.data())
def test_a_rank_lies_in_the_bin_where_counting_reaches_it(row, data):
    rank = data.draw(st.integers(0, sum(row)))
    found, before = rank_bin(torch.tensor([row]), torch.tensor([rank]))
    spread = [place for place, count in enumerate(row) for _ in range(count)]
    place = spread[rank - 1] if rank else 0
    assert found.tolist() == [place]
    assert before.tolist() == [sum(row[:place])]


def test_a_class_without_sites_trusts_nothing():
    score, label = torch.tensor([0.1, 0.2]), torch.tensor([0, 0])
    threshold, share = thresholds(score, label, 3, 0.5)
    assert threshold[1:].tolist() == [-1, -1]
    assert share[1:].tolist() == [0, 0]


def test_no_sites_at_all_give_no_thresholds():
    threshold, share = thresholds(torch.zeros(0), torch.zeros(0, dtype=torch.int64), 2, 0.5)
    assert threshold.tolist() == [-1, -1]
    assert share.tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_scores_of_any_dtype_are_compared_as_float32(dtype):
    score = torch.rand(50, generator=torch.Generator().manual_seed(0)).to(dtype)
    label = torch.zeros(50, dtype=torch.int64)
    threshold, share = thresholds(score, label, 1, 0.5)
    trusted = is_trusted(label, score, threshold, share, uniforms(torch.arange(50), 0, "ties"))
    assert threshold.item() == score.float().sort().values[24].item()
    assert trusted[score.float() < threshold].all()


def test_histograms_have_a_bin_for_every_float():
    key = order_key(torch.tensor([torch.finfo(torch.float32).max]))
    assert int(key >> 16) < RADIX_BINS
    assert high_counts(torch.tensor([1]), key, 2).shape == (2, RADIX_BINS)


@given(values=scores, classes=st.integers(1, 3), keep=keeps)
def test_a_sort_of_few_sites_gives_the_numbers_of_the_histograms(values, classes, keep):
    score, label = torch.tensor(values), classes_of(len(values), classes)
    expected = thresholds(score, label, classes, keep)
    found = sort_thresholds(label, order_key(score), classes, keep)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


def test_a_sort_takes_a_share_for_each_class():
    score, keep = torch.rand(300, generator=torch.Generator().manual_seed(1)), torch.tensor([0.1, 0.9, 0.0])
    label = classes_of(300, 3)
    expected = thresholds(score, label, 3, keep.double())
    for one, other in zip(sort_thresholds(label, order_key(score), 3, keep.double()), expected, strict=True):
        assert torch.equal(one, other)
