"""How far probabilities and uncertainties can be believed, and the metrics of labels: sums that add up."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from embasis.functional.calibration import (
    auroc,
    expected_calibration_error,
    negative_log_likelihood,
    reliability_bins,
    risk_coverage,
)
from embasis.functional.metrics import (
    METRICS,
    accuracy,
    class_counts,
    class_recalls,
    confusion,
    dataset_iou,
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


# ranking


@given(pairs=judged)
def test_auroc_equals_the_count_of_pairs(pairs):
    score, positive = columns(pairs)
    slow = reference.auroc(score, positive)
    if slow is None:
        assert auroc(score, positive) is None
    else:
        assert auroc(score, positive) == pytest.approx(slow, abs=1e-9)


@given(pairs=judged)
def test_reversing_the_score_reverses_auroc_and_a_monotone_change_does_nothing(pairs):
    score, positive = columns(pairs)
    value = auroc(score, positive)
    if value is not None:
        assert auroc(-score, positive) == pytest.approx(1 - value, abs=1e-9)
        assert auroc(4 * score.double(), positive) == pytest.approx(auroc(score.double(), positive), abs=1e-9)


def test_auroc_is_one_for_a_perfect_score_half_for_a_constant_and_none_for_one_kind():
    positive = torch.tensor([False, False, True])
    assert auroc(torch.tensor([0.1, 0.2, 0.3]), positive) == 1
    assert auroc(torch.ones(3), positive) == 0.5
    assert auroc(torch.ones(3), torch.ones(3, dtype=torch.bool)) is None
    assert auroc(torch.zeros(0), torch.zeros(0, dtype=torch.bool)) is None


@given(pairs=judged, points=st.integers(1, 60))
def test_risk_coverage_equals_its_slow_twin_at_every_point(pairs, points):
    uncertainty, right = columns(pairs)
    curve = risk_coverage(uncertainty, right, points)
    assert 1 <= len(curve) <= points
    for coverage, risk in curve.tolist():
        kept = round(coverage * len(pairs))
        assert coverage == pytest.approx(kept / len(pairs))
        assert risk == pytest.approx(reference.risk_at(uncertainty, right, kept))
    assert curve[:, 0].tolist() == sorted(set(curve[:, 0].tolist()))
    assert curve[-1].tolist() == [1.0, pytest.approx(1 - float(right.double().mean()))]


def test_a_perfect_uncertainty_keeps_the_errors_for_the_end():
    right = torch.arange(10) < 7
    curve = risk_coverage(torch.arange(10.0), right)
    assert curve[:7, 1].tolist() == [0.0] * 7
    assert (curve[1:, 1] >= curve[:-1, 1]).all()


# metrics


@given(pairs=labelled)
def test_metrics_equal_their_slow_twins(pairs):
    truth, predicted = label_columns(pairs)
    counts = confusion(truth, predicted, 4)
    assert counts.tolist() == reference.confusion(truth, predicted, 4).tolist()
    assert accuracy(counts) == pytest.approx(reference.accuracy(truth, predicted))
    assert mean_class_accuracy(counts) == pytest.approx(reference.mean_class_accuracy(truth, predicted, 4))
    np.testing.assert_allclose(class_recalls(counts).numpy(), reference.class_recalls(truth, predicted, 4))
    np.testing.assert_allclose(dataset_iou(counts).numpy(), reference.dataset_iou(truth, predicted, 4))
    assert class_counts(truth, 4).tolist() == reference.class_counts(truth, 4).tolist()


@given(pairs=labelled, cut=st.integers(0, 40))
def test_confusions_and_counts_of_shards_add_up_to_those_of_the_whole(pairs, cut):
    truth, predicted = label_columns(pairs)
    parts = confusion(truth[:cut], predicted[:cut], 4) + confusion(truth[cut:], predicted[cut:], 4)
    assert torch.equal(parts, confusion(truth, predicted, 4))
    assert torch.equal(class_counts(truth[:cut], 4) + class_counts(truth[cut:], 4), class_counts(truth, 4))


@given(pairs=labelled.filter(lambda pairs: any(t >= 0 for t, _ in pairs)), data=st.data())
def test_the_order_of_sites_and_unlabelled_ones_change_no_metric(pairs, data):
    shuffled = [*data.draw(st.permutations(pairs)), (-1, 2)]
    first, second = (confusion(*label_columns(each), 4) for each in (pairs, shuffled))
    for name, metric in METRICS.items():
        assert metric(first) == metric(second), name


@given(truth=st.lists(st.integers(0, 3), min_size=1, max_size=20))
def test_perfect_labels_are_best_in_every_metric(truth):
    column = torch.tensor(truth)
    counts = confusion(column, column, 4)
    assert all(metric(counts) == 1 for metric in METRICS.values())
    assert all(value == 1 or math.isnan(value) for value in dataset_iou(counts).tolist())


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
