"""Decision trees as plain tensors: from rows to leaves to class probabilities.

| symbol | shape | meaning |
| --- | --- | --- |
| x | n d | rows |
| feature, threshold | m | of each node: a row goes left where x[feature] ≤ threshold |
| branches | m 2 | numbers of the nodes on the left and on the right; a leaf leads to itself, twice |
| roots | t | the first node of each tree |
| depth | () | the longest way from a root to a leaf |
| leaf | n t | the leaf of each row in each tree |
| value | m v | what a node says; of a forest class probabilities (v = c), of boosted trees one number (v = 1) |
| baseline | k | where boosted scores begin; k trees a step, one for each class, or one where there are two classes |

A forest's probability is the mean of its trees', that of boosted trees softmax(baseline + Σ_steps value); with k = 1
the first of the two classes has the score 0. Comparisons and sums are in float64.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64, Int32, Int64
from torch import Tensor


class TreeNodes(NamedTuple):
    """The nodes of all trees."""

    feature: Int32[Tensor, " m"]
    threshold: Float64[Tensor, " m"]
    branches: Int32[Tensor, "m 2"]


def find_leaves(
    x: Float[Tensor, "n d"], nodes: TreeNodes, roots: Int32[Tensor, " t"], depth: int
) -> Int64[Tensor, "n t"]:
    """The leaf of each row in each tree, level after level.

    In numpy: these are many small steps, and torch's threads would wait for each other at every one of them."""
    rows, feature, threshold = x.double().numpy(), nodes.feature.numpy(), nodes.threshold.numpy()
    branches, row = nodes.branches.numpy().ravel(), np.arange(len(x))[:, None]
    at = np.repeat(roots.numpy()[None], len(x), 0)
    for _ in range(depth):
        right = rows[row, feature[at]] > threshold[at]
        at = branches[2 * at + right]
    return torch.from_numpy(at.astype(np.int64))


def forest_probability(leaf: Int64[Tensor, "n t"], value: Float64[Tensor, "m c"]) -> Float64[Tensor, "n c"]:
    """The mean over trees."""
    return value[leaf].mean(1)


def boosted_probability(
    leaf: Int64[Tensor, "n t"], value: Float64[Tensor, "m 1"], baseline: Float64[Tensor, " k"]
) -> Float64[Tensor, "n c"]:
    """softmax of the scores that all steps add up to."""
    classes = len(baseline)
    scores = baseline + value[leaf].squeeze(2).unflatten(1, (-1, classes)).sum(1)
    if classes == 1:
        scores = torch.cat([torch.zeros_like(scores), scores], 1)
    p: Tensor = scores.softmax(1)
    return p


def measure_depth(branches: Int32[Tensor, "m 2"], roots: Int32[Tensor, " t"], most: int) -> int:
    """The longest way from a root to a leaf; `most` + 1 where it is longer than `most`."""
    at, depth = roots.long().unique(), 0
    while depth <= most:
        below = branches[at].long()
        inner = below[:, 0] != at
        if not bool(inner.any()):
            return depth
        at, depth = below[inner].flatten().unique(), depth + 1
    return depth
