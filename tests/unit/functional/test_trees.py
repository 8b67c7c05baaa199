"""Trees as tensors say what their slow twins say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import reference
from embasis.functional.trees import TreeNodes, boosted_probability, find_leaves, forest_probability, measure_depth


def grow(trees: int, depth: int, features: int = 4) -> tuple[TreeNodes, Tensor]:
    """Trees that a draw has grown: a node is a leaf by chance, and at the depth."""
    draw = torch.Generator().manual_seed(trees)
    branches, roots = list[list[int]](), list[int]()

    def add(level: int) -> int:
        place = len(branches)
        branches.append([place, place])
        if level < depth and float(torch.rand((), generator=draw)) < 0.8:
            branches[place] = [add(level + 1), add(level + 1)]
        return place

    for _ in range(trees):
        roots.append(add(0))
    count = len(branches)
    feature = torch.randint(0, features, (count,), generator=draw, dtype=torch.int32)
    threshold = torch.randn(count, generator=draw, dtype=torch.float64)
    return TreeNodes(feature, threshold, torch.tensor(branches, dtype=torch.int32)), torch.tensor(roots).int()


@pytest.mark.parametrize("depth", [0, 1, 5])
def test_every_row_ends_in_the_leaf_that_its_thresholds_lead_to(depth: int) -> None:
    nodes, roots = grow(6, depth)
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    x[0] = nodes.threshold[0].float()  # a row on a threshold goes left
    longest = measure_depth(nodes.branches, roots, 100)
    leaf = find_leaves(x, nodes, roots, longest)
    assert (leaf.numpy() == reference.find_leaves(x, nodes, roots, longest)).all()


def test_a_depth_is_the_longest_way_and_no_more_than_one_above_the_most() -> None:
    nodes, roots = grow(4, 7)
    assert measure_depth(nodes.branches, roots, 100) == reference.measure_depth(nodes.branches, roots, 100) > 3
    assert measure_depth(nodes.branches, roots, 2) == reference.measure_depth(nodes.branches, roots, 2) == 3


def test_a_forest_is_the_mean_of_its_trees() -> None:
    draw = torch.Generator().manual_seed(0)
    value = torch.rand(9, 3, generator=draw, dtype=torch.float64)
    leaf = torch.randint(0, 9, (5, 4), generator=draw)
    np.testing.assert_allclose(forest_probability(leaf, value), reference.forest_probability(leaf, value), atol=1e-12)


@pytest.mark.parametrize("classes", [1, 3])
def test_boosted_trees_add_their_steps_up(classes: int) -> None:
    draw = torch.Generator().manual_seed(0)
    value = torch.randn(20, 1, generator=draw, dtype=torch.float64)
    baseline = torch.randn(classes, generator=draw, dtype=torch.float64)
    leaf = torch.randint(0, 20, (7, 4 * classes), generator=draw)
    expected = reference.boosted_probability(leaf, value, baseline)
    np.testing.assert_allclose(boosted_probability(leaf, value, baseline), expected, atol=1e-12)
    assert expected.shape == (7, max(classes, 2))
