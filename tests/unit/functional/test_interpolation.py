"""Label distributions between sites: against their slow twins, and what is true of mixtures."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import reference
from embasis.functional import calibration, interpolation, metrics
from map_runs import spread_of

SIDES = st.integers(1, 7)
SEEDS = st.integers(0, 10_000)
FEW = settings(max_examples=40, deadline=None)


def places(count: int, seed: int) -> Tensor:
    """Anywhere in the picture, its border included."""
    found = torch.rand(count, 2, generator=torch.Generator().manual_seed(seed))
    found[0], found[-1] = torch.tensor([0.0, 1.0]), torch.tensor([1.0, 1.0])
    return found


def centres(height: int, width: int) -> Tensor:
    rows, columns = (torch.arange(height) + 0.5) / height, (torch.arange(width) + 0.5) / width
    return torch.cartesian_prod(rows, columns)


def close(found: Tensor, expected: object, atol: float = 2e-6) -> bool:
    return bool(np.allclose(found.double().numpy(), np.asarray(expected, dtype=np.float64), rtol=0, atol=atol))


# --- corners


@FEW
@given(SIDES, SIDES, SEEDS)
def test_corners_are_those_of_the_slow_twin_and_their_shares_sum_to_one(height: int, width: int, seed: int) -> None:
    place = places(9, seed)
    index, share = interpolation.corners(place, (height, width))
    slow_index, slow_share = reference.corners(place, (height, width))
    assert close(share.sum(1), np.ones(9))
    assert (share >= 0).all()
    assert int(index.min()) >= 0
    assert int(index.max()) < height * width
    # Where float32 rounds to another cell its share there is nothing: compare what each site gets.
    for n in range(9):
        left, right = np.zeros(height * width), np.zeros(height * width)
        np.add.at(left, index[n].numpy(), share[n].double().numpy())
        np.add.at(right, slow_index[n], slow_share[n])
        assert np.allclose(left, right, atol=1e-5)


@pytest.mark.parametrize("grid", [(1, 1), (4, 6), (13, 7), (37, 53), (128, 256), (135, 241), (1000, 3)])
def test_at_the_centre_of_a_site_only_that_site_counts(grid: tuple[int, int]) -> None:
    """To the last bit, although float32 cannot hold most of these places."""
    index, share = interpolation.corners(centres(*grid), grid)
    assert set(share.unique().tolist()) == {0.0, 1.0}
    assert torch.equal(index.gather(1, share.argmax(1, keepdim=True)).squeeze(1), torch.arange(math.prod(grid)))


def test_beyond_the_outermost_centres_the_nearest_site_counts() -> None:
    index, share = interpolation.corners(torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.1, 0.9]]), (2, 2))
    assert index.gather(1, share.argmax(1, keepdim=True)).squeeze(1).tolist() == [0, 3, 1]
    assert share.amax(1).tolist() == [1.0, 1.0, 1.0]


def test_half_way_between_four_sites_each_has_a_quarter() -> None:
    index, share = interpolation.corners(torch.tensor([[0.5, 0.5]]), (2, 2))
    assert index.tolist() == [[0, 1, 2, 3]]
    assert share.tolist() == [[0.25] * 4]


# --- mixtures


@FEW
@given(st.integers(2, 6), SIDES, SIDES, SEEDS)
def test_mixtures_are_those_of_the_slow_twin(classes: int, height: int, width: int, seed: int) -> None:
    sites = spread_of(height * width, classes, seed)
    index, share = interpolation.corners(places(7, seed), (height, width))
    found = interpolation.mixtures(sites.mean, sites.between, sites.uncertainty, index, share)
    slow = reference.mixtures(sites.mean, sites.between, sites.uncertainty, index, share)
    assert all(close(fast, right) for fast, right in zip(found, slow, strict=True))


@FEW
@given(st.integers(2, 6), SEEDS)
def test_the_two_parts_of_a_mixtures_variance_are_that_of_a_bernoulli(classes: int, seed: int) -> None:
    """between + within = mean (1 − mean), with both parts ≥ 0, and within = Σ share · within."""
    sites = spread_of(12, classes, seed)
    index, share = interpolation.corners(places(9, seed), (3, 4))
    mean, between, _ = interpolation.mixtures(sites.mean, sites.between, sites.uncertainty, index, share)
    within = (share.unsqueeze(2) * sites.within[index]).sum(1)
    assert close(mean.sum(1), np.ones(9))
    assert close(between + within, mean * (1 - mean))
    assert float(between.min()) >= 0
    assert bool((between <= mean - mean.square()).all())


@FEW
@given(st.integers(2, 6), SEEDS)
def test_the_score_of_a_mixture_is_its_summed_variance_where_that_of_sites_is(classes: int, seed: int) -> None:
    sites = spread_of(12, classes, seed)
    index, share = interpolation.corners(places(9, seed), (3, 4))
    for parts in (sites.variance, sites.between):
        mean, between, score = interpolation.mixtures(sites.mean, sites.between, parts.sum(1), index, share)
        assert close(score, (mean * (1 - mean) if parts is not sites.between else between).sum(1), atol=1e-5)


def test_a_mixture_of_equal_sites_changes_nothing() -> None:
    one = spread_of(1, 4)
    index, share = interpolation.corners(places(9, 1), (3, 4))
    found = interpolation.mixtures(
        one.mean.expand(12, -1), one.between.expand(12, -1), one.uncertainty.expand(12), index, share
    )
    assert close(found[0], one.mean.expand(9, -1))
    assert close(found[1], one.between.expand(9, -1))
    assert close(found[2], one.uncertainty.expand(9))


def test_a_site_alone_is_not_changed_in_any_bit() -> None:
    sites = spread_of(35, 5)
    mean, between = interpolation.unpack_moments(*interpolation.pack_moments(sites.mean, sites.between))
    found = interpolation.mixtures(mean, between, sites.uncertainty, *interpolation.corners(centres(5, 7), (5, 7)))
    assert all(torch.equal(a, b) for a, b in zip(found, (mean, between, sites.uncertainty), strict=True))


def test_places_between_sites_that_disagree_are_less_sure_than_both() -> None:
    mean = torch.tensor([[0.9, 0.1], [0.1, 0.9]])
    score = (mean * (1 - mean)).sum(1)
    _, between, found = interpolation.mixtures(
        mean, torch.zeros(2, 2), score, *interpolation.corners(torch.tensor([[0.5, 0.5]]), (1, 2))
    )
    assert float(found) > float(score.max())
    assert abs(float(found) - 0.5) < 1e-6
    assert torch.allclose(between, torch.full((1, 2), 0.16))


# --- enlarged


@FEW
@given(SIDES, SIDES, st.integers(1, 19), st.integers(1, 19), SEEDS)
def test_enlarging_is_mixing_at_the_centres_of_pixels(
    height: int, width: int, rows: int, columns: int, seed: int
) -> None:
    sites = spread_of(height * width, 3, seed)
    grid, size = (height, width), (rows, columns)
    mean = interpolation.enlarge_means(sites.mean, grid, size)
    _, value, variance, score = interpolation.surest_classes(sites.mean, sites.uncertainty, grid, size)
    index, share = interpolation.corners(centres(rows, columns), grid)
    mixed, _, spread = interpolation.mixtures(sites.mean, sites.between, sites.uncertainty, index, share)
    assert close(mean, mixed, 1e-5)
    assert close(value, mixed.amax(1), 1e-5)
    assert close(variance, 1 - mixed.square().sum(1), 1e-5)
    assert close(score, spread, 1e-5)
    # The twin's places lie on centres that are a thousandth away.
    assert close(mean, reference.enlarge_means(sites.mean, sites.uncertainty, grid, size)[0], 2e-3)
    _, slow_value, slow_variance, slow_score = reference.surest_classes(sites.mean, sites.uncertainty, grid, size)
    assert close(value, slow_value, 2e-3)
    assert close(variance, slow_variance, 4e-3)
    assert close(score, slow_score, 4e-3)


def test_labels_of_pixels_are_those_of_the_slow_twin() -> None:
    sites = spread_of(35, 19, seed=3)
    label = interpolation.surest_classes(sites.mean, sites.uncertainty, (5, 7), (40, 56))[0]
    assert label.dtype == torch.int64
    assert np.array_equal(label.numpy(), reference.surest_classes(sites.mean, sites.uncertainty, (5, 7), (40, 56))[0])


@pytest.mark.parametrize("cached", [1, 300, 2**17])
@pytest.mark.parametrize("size", [(4, 6), (3, 2), (1, 1), (31, 45), (32, 48), (90, 7)])
def test_the_surest_class_is_the_first_largest_of_the_enlarged_mean_to_the_last_bit(
    size: tuple[int, int], cached: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpolation, "CACHED", cached)
    for seed in range(5):
        sites = spread_of(24, 19, seed, sharp=4.0)
        mean = interpolation.enlarge_means(sites.mean, (4, 6), size)
        label, value, _, _ = interpolation.surest_classes(sites.mean, sites.uncertainty, (4, 6), size)
        assert torch.equal(value, mean.amax(1))
        assert torch.equal(label, mean.argmax(1))


def test_of_equal_classes_the_first_one_is_taken() -> None:
    mean = torch.tensor([[0.2, 0.4, 0.4], [0.4, 0.2, 0.4]])
    label, value, _, _ = interpolation.surest_classes(mean, torch.zeros(2), (1, 2), (3, 4))
    assert label.view(3, 4).tolist() == [[1, 2, 2, 0]] * 3
    assert close(value, [0.4] * 12)


def test_enlarging_to_the_grids_own_size_changes_nothing() -> None:
    sites = spread_of(24, 3)
    assert torch.equal(interpolation.enlarge_means(sites.mean, (4, 6), (4, 6)), sites.mean)
    label, value, variance, score = interpolation.surest_classes(sites.mean, sites.uncertainty, (4, 6), (4, 6))
    assert torch.equal(label, sites.mean.argmax(1))
    assert torch.equal(value, sites.mean.amax(1))
    assert torch.equal(score, sites.uncertainty)
    assert close(variance, 1 - sites.mean.square().sum(1))


def test_an_enlarged_map_is_a_distribution_everywhere() -> None:
    sites = spread_of(24, 19)
    mean = interpolation.enlarge_means(sites.mean, (4, 6), (50, 70))
    _, _, variance, score = interpolation.surest_classes(sites.mean, sites.uncertainty, (4, 6), (50, 70))
    assert mean.shape == (3500, 19)
    assert close(mean.sum(1), np.ones(3500), 1e-5)
    assert float(mean.min()) >= 0
    assert close(score, (mean * (1 - mean)).sum(1), 1e-5)
    assert close(variance, (mean * (1 - mean)).sum(1), 1e-5)


def test_pixels_beyond_the_outermost_sites_are_as_sure_as_these_to_the_last_bit() -> None:
    sites = spread_of(24, 5)
    _, value, _, score = interpolation.surest_classes(sites.mean, sites.uncertainty, (4, 6), (32, 48))
    for row, column, site in ((0, 0, 0), (3, 47, 5), (31, 2, 18), (28, 44, 23)):
        assert float(score[48 * row + column]) == float(sites.uncertainty[site])
        assert float(value[48 * row + column]) == float(sites.mean[site].max())


# --- packed


@FEW
@given(st.integers(2, 40), SEEDS)
def test_what_is_packed_comes_back_within_half_a_step(classes: int, seed: int) -> None:
    sites = spread_of(20, classes, seed, sharp=4.0)
    half, byte = interpolation.pack_moments(sites.mean, sites.between)
    slow_half, slow_byte = reference.pack_moments(sites.mean, sites.between)
    assert (half.dtype, byte.dtype) == (torch.float16, torch.uint8)
    assert np.array_equal(half.numpy(), slow_half)
    assert int((byte.int() - torch.from_numpy(slow_byte).int()).abs().max()) <= 1  # a half may round either way
    assert close(byte.float() / 1020, sites.between, 0.5 / 1020 + 1e-6)
    mean, between = interpolation.unpack_moments(half, byte)
    slow_mean, slow_between = reference.unpack_moments(half, byte)
    assert close(mean, slow_mean)
    assert close(between, slow_between)
    assert close(mean, sites.mean, 2.0**-11 + 2.0**-20)
    assert close(mean.sum(1), np.ones(20), 1e-6)
    assert close(between, sites.between, 0.5 / 1020 + 2.0**-11)
    assert bool((between <= mean - mean.square()).all())
    assert torch.equal(mean.argmax(1), half.float().argmax(1))


def test_what_is_packed_does_not_depend_on_strides() -> None:
    sites = torch.rand(37, 19, generator=torch.Generator().manual_seed(0)).softmax(1)
    turned = sites.T.contiguous().T
    assert not turned.is_contiguous()
    for left, right in zip(
        interpolation.pack_moments(sites, sites / 4), interpolation.pack_moments(turned, turned / 4), strict=True
    ):
        assert torch.equal(left, right)
        assert left.stride() == right.stride()
    plain, other = (
        interpolation.unpack_moments(*interpolation.pack_moments(sites, sites / 4)),
        interpolation.unpack_moments(*interpolation.pack_moments(turned, turned / 4)),
    )
    assert all(torch.equal(left, right) for left, right in zip(plain, other, strict=True))


def test_certain_sites_are_packed_exactly() -> None:
    mean, between = torch.eye(3), torch.zeros(3, 3)
    assert all(
        torch.equal(a, b)
        for a, b in zip(
            interpolation.unpack_moments(*interpolation.pack_moments(mean, between)), (mean, between), strict=True
        )
    )


def test_what_cannot_be_a_variance_is_cut_off() -> None:
    _, byte = interpolation.pack_moments(torch.full((1, 2), 0.5), torch.tensor([[-1e-9, 0.3]]))
    assert byte.tolist() == [[0, 255]]


# --- class_reliability_bins and mean_dataset_iou


@FEW
@given(st.integers(0, 40), st.integers(1, 6), SEEDS)
def test_bins_by_class_are_those_of_the_slow_twin_and_sum_to_the_bins_of_all(
    count: int, classes: int, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    confidence, right = torch.rand(count, generator=draw), torch.rand(count, generator=draw) < 0.5
    label = torch.randint(classes, (count,), generator=draw)
    found = calibration.class_reliability_bins(confidence, right, label, classes)
    assert close(found, reference.class_reliability_bins(confidence, right, label, classes))
    assert close(found.sum(0), calibration.reliability_bins(confidence, right).numpy(), 1e-9)
    for number in range(classes):
        mine = label == number
        assert close(found[number], calibration.reliability_bins(confidence[mine], right[mine]).numpy(), 1e-9)


@FEW
@given(st.integers(0, 60), st.integers(1, 5), SEEDS)
def test_mean_iou_is_that_of_the_slow_twin(count: int, classes: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    truth, guess = (torch.randint(low, classes, (count,), generator=draw) for low in (-1, 0))
    counts = metrics.confusion_matrix(truth, guess, classes)
    assert abs(metrics.mean_dataset_iou(counts) - reference.mean_dataset_iou(counts)) < 1e-12
    single = reference.dataset_iou(truth, guess, classes)
    present = [value for number, value in enumerate(single) if bool((truth == number).any())]
    assert abs(metrics.mean_dataset_iou(counts) - (sum(present) / len(present) if present else 0.0)) < 1e-12


def test_mean_iou_is_one_when_all_is_right_and_ignored_pixels_are_ignored() -> None:
    truth = torch.tensor([0, 1, 2, 2, -1, -1])
    guess = torch.tensor([0, 1, 2, 2, 0, 3])
    assert metrics.mean_dataset_iou(metrics.confusion_matrix(truth, guess, 4)) == 1.0


def test_a_class_that_does_not_occur_is_left_out_but_costs_those_it_took_pixels_from() -> None:
    counts = metrics.confusion_matrix(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 2, 1, 1]), 3)
    assert metrics.mean_dataset_iou(counts) == (0.5 + 1.0) / 2
    assert metrics.mean_dataset_iou(torch.zeros(3, 3, dtype=torch.int64)) == 0.0
