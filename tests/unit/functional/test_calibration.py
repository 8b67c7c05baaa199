"""How far probabilities and uncertainties can be believed, and the metrics of labels: sums that add up."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss

import reference
from embasis.functional.calibration import (
    CONFIDENCE_BINS,
    adaptive_calibration_error,
    bin_of,
    brier_parts,
    brier_sum,
    classwise_bins,
    classwise_calibration_error,
    exact_bins,
    expected_calibration_error,
    fine_bins,
    negative_log_likelihood,
    nonzero,
    on_grid,
    probability_of,
    reliability_bins,
)
from embasis.functional.metrics import (
    LABEL_METRICS,
    accuracy,
    class_counts,
    class_recalls,
    confusion_matrix,
    dataset_iou,
    kappa,
    mean_class_accuracy,
)

seeds = st.integers(0, 2**32 - 1)
unit = st.sampled_from([0.0, 0.2, 0.5, 1.0]) | st.floats(0, 1, width=32)
judged = st.lists(st.tuples(unit, st.booleans()), min_size=1, max_size=40)
labelled = st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 3)), max_size=40)


def columns(pairs):
    return torch.tensor([first for first, _ in pairs]), torch.tensor([second for _, second in pairs])


def label_columns(pairs):
    return tuple(torch.tensor(column, dtype=torch.int64) for column in ([t for t, _ in pairs], [p for _, p in pairs]))


# calibration


@given(pairs=judged, bins=st.integers(1, 20))
def test_bins_and_calibration_error_equal_their_slow_twins(pairs, bins):
    confidence, right = columns(pairs)
    table = reliability_bins(confidence, right, bins)
    np.testing.assert_allclose(table.numpy(), reference.reliability_bins(confidence, right, bins), atol=1e-9)
    slow = reference.expected_calibration_error(confidence, right, bins)
    assert expected_calibration_error(table) == pytest.approx(slow, abs=1e-9)


@given(pairs=judged, cut=st.integers(0, 40))
def test_bins_of_shards_add_up_to_those_of_the_whole(pairs, cut):
    confidence, right = columns(pairs)
    parts = reliability_bins(confidence[:cut], right[:cut]) + reliability_bins(confidence[cut:], right[cut:])
    torch.testing.assert_close(parts, reliability_bins(confidence, right), atol=1e-12, rtol=1e-12)


@given(pairs=judged)
def test_every_site_is_in_one_bin_that_holds_its_confidence(pairs):
    confidence, right = columns(pairs)
    table = reliability_bins(confidence, right, 10)
    assert float(table[:, 0].sum()) == len(pairs)
    assert float(table[:, 2].sum()) == int(right.sum())
    for b, (count, total, _) in enumerate(table.tolist()):
        if count:
            assert b / 10 - 1e-9 <= total / count <= (b + 1) / 10 + 1e-9


def test_honest_confidence_has_no_calibration_error_and_false_certainty_all_of_it():
    honest = reliability_bins(torch.full((10,), 0.7), torch.arange(10) < 7)
    assert expected_calibration_error(honest) == pytest.approx(0, abs=1e-6)
    assert expected_calibration_error(reliability_bins(torch.ones(10), torch.zeros(10, dtype=torch.bool))) == 1
    assert expected_calibration_error(torch.zeros(15, 3, dtype=torch.float64)) == 0


@given(seed=seeds, n=st.integers(1, 9), c=st.integers(1, 5), certainty=st.sampled_from([1.0, 1e4]))
def test_the_likelihood_equals_its_slow_twin_and_is_finite_for_impossible_classes(seed, n, c, certainty):
    mean = (certainty * torch.randn(n, c, generator=torch.Generator().manual_seed(seed))).softmax(1)
    truth = torch.arange(n) % c
    value = negative_log_likelihood(mean, truth)
    assert value == pytest.approx(reference.negative_log_likelihood(mean, truth), rel=1e-6, abs=1e-9)
    assert 0 <= value <= 28


def drawn(seed, n=200, c=5, sharp=2.0):
    """Probabilities, true classes that they half believe in, and some that are not known."""
    draw = torch.Generator().manual_seed(seed)
    truth = torch.randint(-1, c, (n,), generator=draw)
    logits = sharp * torch.randn(n, c, generator=draw)
    logits[torch.arange(n), truth.clamp_min(0)] += sharp
    return logits.softmax(1), truth


def sums(mean, truth, bins=CONFIDENCE_BINS):
    return classwise_bins(mean, truth, probability_of(mean, truth), bins)


def brier(mean, truth):
    return brier_sum(mean, truth, probability_of(mean, truth))


@given(value=st.floats(-1, 2, width=32) | st.sampled_from([1 / 3, 0.2, 1.0]), bins=st.integers(1, 20))
def test_a_bin_is_the_first_whose_upper_edge_is_not_below_the_value(value, bins):
    value = torch.tensor([value])
    assert int(bin_of(value, bins)) == reference.bin_of(float(value.double()), bins)


@given(seed=seeds, shape=st.sampled_from([(0,), (7,), (3, 5), (4, 0)]))
def test_true_ones_are_numbered_row_after_row(seed, shape):
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.4
    assert nonzero(mask).tolist() == reference.nonzero(mask)


@given(value=st.floats(0, 1, width=32))
def test_the_grid_is_whole_numbers_of_its_step(value):
    assert float(on_grid(torch.tensor([value]))) == reference.on_grid(value, 23)
    assert float(on_grid(torch.tensor([2 * value], dtype=torch.float64))) == reference.on_grid(2 * value, 22)


@given(seed=seeds, c=st.integers(1, 6), sharp=st.sampled_from([0.0, 1.0, 4.0, 1e4]), bins=st.integers(1, 20))
def test_sums_of_classes_equal_their_slow_twins(seed, c, sharp, bins):
    mean, truth = drawn(seed, 40, c, sharp)
    np.testing.assert_allclose(sums(mean, truth, bins).numpy(), reference.classwise_bins(mean, truth, bins), atol=1e-5)
    slow = reference.classwise_calibration_error(mean, truth, bins)
    assert classwise_calibration_error(sums(mean, truth, bins)) == pytest.approx(slow, abs=1e-6)
    assert brier(mean, truth) == pytest.approx(reference.brier_sum(mean, truth), abs=1e-4)
    np.testing.assert_allclose(probability_of(mean, truth).numpy(), reference.probability_of(mean, truth), atol=1e-7)


@given(seed=seeds, sharp=st.sampled_from([0.5, 2.0, 8.0]))
def test_reliability_resolution_and_uncertainty_are_the_brier_score_but_for_what_varies_within_bins(seed, sharp):
    mean, truth = drawn(seed, 60, 4, sharp)
    mean, truth = mean[truth >= 0], truth[truth >= 0]
    reliability, resolution, uncertainty = brier_parts(sums(mean, truth))
    slow = reference.brier_parts(mean, truth)
    np.testing.assert_allclose([reliability, resolution, uncertainty], slow[:3], atol=1e-6)
    left_over = brier(mean, truth) / len(truth) - (reliability - resolution + uncertainty)
    assert left_over == pytest.approx(slow[3], abs=1e-6)
    assert abs(left_over) <= 4 * (
        1 / CONFIDENCE_BINS**2 / 4 + 1 / CONFIDENCE_BINS
    )  # by class: a variance and a covariance in a bin's width


def test_with_one_value_a_bin_nothing_is_left_over_of_the_brier_score():
    draw = torch.Generator().manual_seed(0)
    first = torch.randint(0, 4, (500,), generator=draw).float() * 0.25 + 0.125
    mean, truth = torch.stack([first, 1 - first], 1), torch.randint(0, 2, (500,), generator=draw)
    reliability, resolution, uncertainty = brier_parts(sums(mean, truth))
    assert brier(mean, truth) / 500 == pytest.approx(reliability - resolution + uncertainty, abs=1e-6)


@given(pairs=judged, bins=st.integers(1, 20))
def test_bins_of_equal_mass_equal_their_slow_twin(pairs, bins):
    confidence, right = columns(pairs)
    fine = fine_bins(confidence, right)
    np.testing.assert_allclose(fine.numpy(), reference.fine_bins(confidence.numpy(), right), atol=1e-5)
    value = adaptive_calibration_error(fine, bins)

    def group(value: float) -> int:
        return reference.fine_bin(np.float32(1) - np.float32(value))

    assert value == pytest.approx(reference.adaptive_calibration_error(confidence, right, bins, group), abs=1e-6)


@given(values=st.lists(st.tuples(st.integers(0, 256), st.booleans()), min_size=1, max_size=60))
def test_bins_of_equal_mass_are_exact_where_values_lie_apart(values):
    confidence, right = columns([(value / 256, flag) for value, flag in values])
    value = adaptive_calibration_error(fine_bins(confidence, right))
    assert value == pytest.approx(reference.adaptive_calibration_error(confidence, right), abs=1e-6)


@given(pairs=judged, bins=st.integers(1, 20))
def test_bins_of_equal_mass_are_exact_by_value(pairs, bins):
    confidence, right = columns(pairs)
    table = exact_bins(confidence, right)
    np.testing.assert_allclose(table.numpy(), reference.exact_bins(confidence, right), atol=1e-5)
    slow = reference.adaptive_calibration_error(confidence, right, bins)
    assert adaptive_calibration_error(table, bins) == pytest.approx(slow, abs=1e-6)


def test_fine_bins_cost_bins_of_equal_mass_next_to_nothing():
    draw = torch.Generator().manual_seed(3)
    confidence = 1 - torch.rand(3000, generator=draw) ** 4
    right = torch.rand(3000, generator=draw) < confidence**2
    value = adaptive_calibration_error(fine_bins(confidence, right))
    assert value == pytest.approx(reference.adaptive_calibration_error(confidence, right), abs=2e-4)


def test_equal_mass_sees_what_equal_bins_hide():
    """In one bin of confidence, those at 0.95 are always right and those at 0.99 too seldom: it evens out there."""
    confidence = torch.tensor([0.95] * 100 + [0.99] * 100)
    right = torch.tensor([True] * 100 + [True] * 94 + [False] * 6)
    assert expected_calibration_error(reliability_bins(confidence, right)) == pytest.approx(0, abs=1e-6)
    assert adaptive_calibration_error(fine_bins(confidence, right), 2) == pytest.approx(0.05, abs=1e-6)


@given(seed=seeds, cuts=st.lists(st.integers(0, 200), max_size=4), shuffle=st.integers(0, 99))
def test_sums_of_parts_in_any_order_are_those_of_the_whole_to_the_last_bit(seed, cuts, shuffle):
    mean, truth = drawn(seed)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(shuffle))
    parts = order.tensor_split(sorted(cuts))
    assert torch.equal(sum(sums(mean[rows], truth[rows]) for rows in parts), sums(mean, truth))
    assert sum(brier(mean[rows], truth[rows]) for rows in parts) == brier(mean, truth)
    confidence, right = mean.amax(1), mean.argmax(1) == truth
    assert torch.equal(sum(fine_bins(confidence[rows], right[rows]) for rows in parts), fine_bins(confidence, right))
    assert torch.equal(exact_bins(confidence[order], right[order]), exact_bins(confidence, right))


def test_many_sites_and_columns_first_in_memory_change_no_sum():
    mean, truth = drawn(7, 40_000, 6)
    by_class, known = mean.T.contiguous().T, truth >= 0
    for other, y in ((by_class, truth), (mean[known], truth[known]), (by_class[known], truth[known])):
        assert torch.equal(sums(other, y), sums(mean, truth))
        assert brier(other, y) == brier(mean, truth)
    assert float(sums(mean, truth)[..., 0].sum()) == 6 * int(known.sum())


def test_perfect_probabilities_have_no_error_and_false_ones_all_of_it():
    truth = torch.tensor([0, 1, 2, 2, -1])
    sure = torch.eye(3)[truth.clamp_min(0)]
    assert classwise_calibration_error(sums(sure, truth)) == 0
    assert brier(sure, truth) == 0
    reliability, resolution, uncertainty = brier_parts(sums(sure, truth))
    assert (reliability, resolution) == (0, pytest.approx(uncertainty))
    wrong = torch.eye(3)[(truth + 1) % 3]
    assert brier(wrong, truth) == 4 * 2
    assert classwise_calibration_error(sums(wrong, truth)) == pytest.approx(2 / 3)
    for confidence, right, error in ((1.0, True, 0), (1.0, False, 1), (0.0, True, 1)):
        fine = fine_bins(torch.full((9,), confidence), torch.full((9,), right))
        assert adaptive_calibration_error(fine) == pytest.approx(error)


def test_nothing_at_all_gives_zero_and_no_warning():
    mean, truth = torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)
    assert classwise_calibration_error(sums(mean, truth)) == brier(mean, truth) == 0
    assert brier_parts(sums(mean, truth)) == (0, 0, 0)
    for table in (fine_bins, exact_bins):
        assert adaptive_calibration_error(table(torch.zeros(0), torch.zeros(0, dtype=torch.bool))) == 0
    unknown = torch.full((4,), -1)
    assert not sums(torch.full((4, 3), 1 / 3), unknown).any()
    assert brier(torch.full((4, 3), 1 / 3), unknown) == 0


def test_scikit_learn_finds_the_same_curves_and_scores():
    mean, truth = drawn(11, 3000)
    mean, truth = mean[truth >= 0][:2250], truth[truth >= 0][:2250]
    assert len(truth) == 2250
    table, total = sums(mean, truth), 0.0
    for c in range(5):
        true, stated = (truth == c).numpy(), mean[:, c].double().numpy()
        share, probability = calibration_curve(true, stated, n_bins=CONFIDENCE_BINS)
        filled = table[c, :, 0] > 0
        np.testing.assert_allclose((table[c, :, 2] / table[c, :, 0])[filled], share, atol=1e-9)
        np.testing.assert_allclose((table[c, :, 1] / table[c, :, 0])[filled], probability, atol=1e-6)
        total += brier_score_loss(true, stated)
    assert brier(mean, truth) / 2250 == pytest.approx(total, abs=1e-6)
    confidence, right = mean.amax(1), mean.argmax(1) == truth
    assert len(confidence.unique()) == 2250
    share, probability = calibration_curve(
        right.numpy(), confidence.double().numpy(), n_bins=CONFIDENCE_BINS, strategy="quantile"
    )
    slow = np.abs(share - probability).mean()  # equal masses, so each bin counts the same
    assert adaptive_calibration_error(fine_bins(confidence, right)) == pytest.approx(slow, abs=5e-4)
    assert reference.adaptive_calibration_error(confidence, right) == pytest.approx(slow, abs=1e-9)


# metrics


@given(pairs=labelled)
def test_metrics_equal_their_slow_twins(pairs):
    truth, predicted = label_columns(pairs)
    counts = confusion_matrix(truth, predicted, 4)
    assert counts.tolist() == reference.confusion_matrix(truth, predicted, 4).tolist()
    assert accuracy(counts) == pytest.approx(reference.accuracy(truth, predicted))
    assert mean_class_accuracy(counts) == pytest.approx(reference.mean_class_accuracy(truth, predicted, 4))
    np.testing.assert_allclose(class_recalls(counts).numpy(), reference.class_recalls(truth, predicted, 4))
    np.testing.assert_allclose(dataset_iou(counts).numpy(), reference.dataset_iou(truth, predicted, 4))
    assert class_counts(truth, 4).tolist() == reference.class_counts(truth, 4).tolist()


@given(pairs=labelled, cut=st.integers(0, 40))
def test_confusions_and_counts_of_shards_add_up_to_those_of_the_whole(pairs, cut):
    truth, predicted = label_columns(pairs)
    parts = confusion_matrix(truth[:cut], predicted[:cut], 4) + confusion_matrix(truth[cut:], predicted[cut:], 4)
    assert torch.equal(parts, confusion_matrix(truth, predicted, 4))
    assert torch.equal(class_counts(truth[:cut], 4) + class_counts(truth[cut:], 4), class_counts(truth, 4))


@given(pairs=labelled.filter(lambda pairs: any(t >= 0 for t, _ in pairs)), data=st.data())
def test_the_order_of_sites_and_unlabelled_ones_change_no_metric(pairs, data):
    shuffled = [*data.draw(st.permutations(pairs)), (-1, 2)]
    first, second = (confusion_matrix(*label_columns(each), 4) for each in (pairs, shuffled))
    for name, metric in LABEL_METRICS.items():
        assert metric(first) == metric(second), name


@given(truth=st.lists(st.integers(0, 3), min_size=1, max_size=20))
def test_perfect_labels_are_best_in_every_metric(truth):
    column = torch.tensor(truth)
    counts = confusion_matrix(column, column, 4)
    assert all(metric(counts) == 1 for metric in LABEL_METRICS.values())
    assert all(value == 1 or math.isnan(value) for value in dataset_iou(counts).tolist())


@given(seed=st.integers(0, 10**6), c=st.integers(2, 6))
def test_kappa_equals_its_slow_twin(seed, c):
    counts = torch.randint(1, 50, (c, c), generator=torch.Generator().manual_seed(seed))
    assert kappa(counts.double()) == pytest.approx(reference.kappa(counts), abs=1e-9)


def test_kappa_is_one_for_two_that_agree_zero_for_two_that_do_not_know_each_other_and_less_for_worse():
    assert kappa(torch.diag(torch.tensor([5.0, 9.0, 1.0]))) == pytest.approx(1.0)
    assert kappa(torch.tensor([0.2, 0.5, 0.3]).unsqueeze(1) * torch.tensor([0.6, 0.1, 0.3])) == pytest.approx(
        0, abs=1e-6
    )
    assert kappa(torch.tensor([[0.0, 5.0], [5.0, 0.0]])) == pytest.approx(-1.0)
    assert kappa(torch.tensor([[7.0, 0.0], [0.0, 0.0]])) == 1.0


def test_mean_class_accuracy_is_not_fooled_by_a_large_class():
    counts = torch.tensor([[98, 0], [2, 0]])
    assert accuracy(counts) == 0.98
    assert mean_class_accuracy(counts) == 0.5


def test_one_confusion_matrix_is_not_a_mean_over_images():
    first, second = torch.tensor([[1, 0], [0, 99]]), torch.tensor([[0, 1], [0, 0]])
    pooled = dataset_iou(first + second)[0].item()
    assert pooled == 0.5
    assert (dataset_iou(first)[0].item() + dataset_iou(second)[0].item()) / 2 == 0.5
    assert dataset_iou(first + 3 * second)[0].item() == 0.25
