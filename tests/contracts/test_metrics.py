"""What every metric keeps: a function of a confusion matrix, and confusion matrices add up."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from embasis.functional.metrics import LABEL_METRICS, confusion_matrix

CLASSES, ROWS = 4, 200
Metric = Callable[[torch.Tensor], float]


def labels() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    truth = torch.randint(CLASSES, (ROWS,), generator=draw)
    return truth, torch.where(torch.rand(ROWS, generator=draw) < 0.6, truth, (truth + 1) % CLASSES)


@pytest.fixture(params=list(LABEL_METRICS))
def metric(request: pytest.FixtureRequest) -> Metric:
    return LABEL_METRICS[request.param]


def test_batches_add_up_to_the_whole(metric: Metric) -> None:
    truth, predicted = labels()
    batches = zip(truth.split(33), predicted.split(33), strict=True)
    total = torch.stack([confusion_matrix(a, b, CLASSES) for a, b in batches]).sum(0)
    assert metric(total) == metric(confusion_matrix(truth, predicted, CLASSES))


def test_perfect_is_best_and_all_wrong_is_worst(metric: Metric) -> None:
    truth, predicted = labels()
    best, some, worst = (metric(confusion_matrix(truth, p, CLASSES)) for p in (truth, predicted, (truth + 1) % CLASSES))
    assert best == 1.0
    assert worst == 0.0
    assert worst < some < best


def test_one_more_error_never_helps(metric: Metric) -> None:
    truth, predicted = labels()
    values = [metric(confusion_matrix(truth, predicted, CLASSES))]
    for row in torch.nonzero(truth == predicted).squeeze(1)[:20]:
        predicted[row] = (truth[row] + 2) % CLASSES
        values.append(metric(confusion_matrix(truth, predicted, CLASSES)))
    assert values == sorted(values, reverse=True)
    assert values[-1] < values[0]


def test_the_order_of_sites_is_irrelevant(metric: Metric) -> None:
    truth, predicted = labels()
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(1))
    assert metric(confusion_matrix(truth[order], predicted[order], CLASSES)) == metric(
        confusion_matrix(truth, predicted, CLASSES)
    )


def test_sites_without_a_true_label_are_ignored(metric: Metric) -> None:
    truth, predicted = labels()
    known = torch.arange(ROWS) % 3 > 0
    ignored = torch.where(known, truth, -1)
    assert metric(confusion_matrix(ignored, predicted, CLASSES)) == metric(
        confusion_matrix(truth[known], predicted[known], CLASSES)
    )
    assert metric(confusion_matrix(ignored, predicted, CLASSES)) != metric(confusion_matrix(truth, predicted, CLASSES))


def test_no_site_at_all_gives_zero_and_no_warning(metric: Metric) -> None:
    assert metric(torch.zeros(CLASSES, CLASSES, dtype=torch.int64)) == 0.0
