"""What tests share: rows for the estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from embasis.data.datasets.digit_sets import blobs

Numbers = NDArray[Any]


def sides(shift: float = 2.0, seed: int = 0, **settings: Any) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """X, y of the labelled side; X, true y of the other."""
    problem = blobs(seed=seed, shift=shift, **settings)
    assert problem.hidden_labels is not None
    rows = torch.arange(len(problem.labelled))
    left, right = problem.labelled.inputs(rows).numpy(), problem.unlabelled.inputs(rows).numpy()
    return (
        left.astype(np.float64),
        problem.labelled.labels.numpy(),
        right.astype(np.float64),
        problem.hidden_labels.numpy(),
    )


def marked() -> tuple[Numbers, Numbers, Numbers]:
    """X, y with two thirds of the labels taken away, and the true labels."""
    x, y, _, _ = sides()
    return x, np.where(np.arange(len(y)) % 9 < 3, y, -1), y
