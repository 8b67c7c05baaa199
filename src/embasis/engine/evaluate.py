"""What true labels say of machine-made ones. The only reader of hidden labels."""

from __future__ import annotations

import torch
from torch import Tensor

from embasis.functional import calibration, metrics
from embasis.types import Evaluation, LabelDistribution


def evaluate(distribution: LabelDistribution, scores: Tensor, trusted: Tensor, truth: Tensor) -> Evaluation | None:
    """All figures over the rows whose true label is known; None when there is none."""
    known = truth >= 0
    if not bool(known.any()):
        return None
    truth, trusted = truth[known], trusted[known]
    mean, label, uncertainty = distribution.mean[known], distribution.label[known], distribution.uncertainty[known]
    right = label == truth
    counts = metrics.confusion(truth, label, mean.shape[1])
    bins = calibration.reliability_bins(mean.amax(1), right)
    return Evaluation(
        rows=len(truth),
        accuracy=metrics.accuracy(counts),
        mean_class_accuracy=metrics.mean_class_accuracy(counts),
        network_accuracy=float((scores[known].argmax(1) == truth).double().mean()),
        ece=calibration.expected_calibration_error(bins),
        nll=calibration.negative_log_likelihood(mean, truth),
        auroc=calibration.auroc(uncertainty, ~right),
        trusted_share=float(trusted.double().mean()),
        trusted_precision=float(right[trusted].double().mean()) if bool(trusted.any()) else None,
        confusion=tuple(tuple(int(value) for value in row) for row in counts),
        reliability=tuple((float(a), float(b), float(c)) for a, b, c in bins),
        risk_coverage=tuple((float(a), float(b)) for a, b in calibration.risk_coverage(uncertainty, right)),
    )


def join(parts: list[LabelDistribution]) -> LabelDistribution:
    """Chunks as one."""
    return LabelDistribution(
        torch.cat([part.mean for part in parts]),
        torch.cat([part.between for part in parts]),
        torch.cat([part.within for part in parts]),
        torch.cat([part.uncertainty for part in parts]),
    )
