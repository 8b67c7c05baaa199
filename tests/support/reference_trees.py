"""Slow twins of functional/trees.py: node by node."""

from __future__ import annotations

import math

import numpy as np


def find_leaves(x, nodes, roots, depth):
    leaf = np.empty((len(x), len(roots)), dtype=np.int64)
    for row in range(len(x)):
        for tree, root in enumerate(roots.tolist()):
            at = root
            while int(nodes.branches[at][0]) != at:
                goes_left = float(x[row, int(nodes.feature[at])]) <= float(nodes.threshold[at])
                at = int(nodes.branches[at][0 if goes_left else 1])
            leaf[row, tree] = at
    return leaf


def forest_probability(leaf, value):
    return np.array([sum(value[at].numpy() for at in row) / len(row) for row in leaf.tolist()])


def boosted_probability(leaf, value, baseline):
    rows = []
    for row in leaf.tolist():
        scores = [float(number) for number in baseline]
        for place, at in enumerate(row):
            scores[place % len(scores)] += float(value[at, 0])
        scores = [0.0, *scores] if len(scores) == 1 else scores
        total = sum(math.exp(score) for score in scores)
        rows.append([math.exp(score) / total for score in scores])
    return np.array(rows)


def measure_depth(branches, roots, most):
    def below(node):
        left, right = branches[node].tolist()
        return 0 if left == node else 1 + max(below(left), below(right))

    return min(max(below(root) for root in roots.tolist()), most + 1)
