"""Label-free scores of a round: what can be said of a model without a single true label of the target.

| score | meaning; higher is better |
| --- | --- |
| information | H(mean prediction) − mean H(prediction), in units of log C: sure, and of many classes |
| agreement | share of unlabelled rows where labeller and network name the same class |
| labelled_accuracy | the network's accuracy on the labelled rows |
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from embasis.types import Features, LabelDistribution

SELECTION_SCORE = "information"
"""The score by which the collapse guard compares rounds."""


def information(mean: Tensor) -> float:
    """H(E p) − E H(p), divided by log C; in [0, 1]."""
    if not len(mean) or mean.shape[1] < 2:
        return 0.0
    wide = mean.double()
    return float(torch.special.entr(wide.mean(0)).sum() - torch.special.entr(wide).sum(1).mean()) / math.log(
        mean.shape[1]
    )


def label_free_scores(
    distribution: LabelDistribution, unlabelled: list[Features], labelled: list[Features]
) -> dict[str, float]:
    """All scores of this round."""
    network = torch.cat([part.scores.argmax(1) for part in unlabelled]) if unlabelled else torch.empty(0)
    right = torch.cat([part.scores.argmax(1) == part.y for part in labelled])
    return {
        "information": information(distribution.mean),
        "agreement": float((distribution.label == network).double().mean()) if len(network) else 1.0,
        "labelled_accuracy": float(right.double().mean()),
    }
