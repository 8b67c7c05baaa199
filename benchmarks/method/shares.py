"""Class-share shift: the target side of any set with other class shares than it has.

Half of the classes that the unlabelled side has (rounded down, at least one) keep a part of their rows, the others keep
all. Seed and pair draw which classes; a hash of a row's id decides which rows, so the same rows stay whatever else is
run. Test rows, where a set has them, come from the same place and are thinned likewise. True labels of the target serve
to make the problem, and nothing else: no method sees them.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from embasis.data.images.samples import Images
from embasis.errors import InputDataError, require
from embasis.randomness import permutation, uniforms
from embasis.types import Arrays, Problem, Samples

PURPOSE = "class shares"


def thin_classes(problem: Problem, share: float, seed: int, pair: str) -> Problem:
    """The problem with `share` of the unlabelled rows of half of its classes."""
    truth = problem.hidden_labels
    require(isinstance(truth, Tensor), "class shares can be changed where each unlabelled row has one true label")
    assert isinstance(truth, Tensor)
    present = truth[truth >= 0].unique()
    require(
        len(present) > 1, f"class shares need two classes on the unlabelled side, got {len(present)}", InputDataError
    )
    rare = present[permutation(len(present), seed, f"{PURPOSE} of {pair}")[: len(present) // 2]]
    kept = kept_rows(problem.unlabelled.ids, truth, rare, share, seed)
    names, test = problem.row_names, problem.test
    return replace(
        problem,
        unlabelled=take_rows(problem.unlabelled, kept),
        hidden_labels=truth[kept],
        files_seen=None,  # they were counted before
        row_names=None if names is None else tuple(names[row] for row in kept.tolist()),
        test=None if test is None else take_rows(test, kept_rows(test.ids, test.labels, rare, share, seed)),
    )


def kept_rows(ids: Tensor, labels: Tensor, rare: Tensor, share: float, seed: int) -> Tensor:
    """Row numbers in order: of a rare class those with the smallest keys, at least one; of other classes all."""
    keys, kept = uniforms(ids, seed, PURPOSE), ~torch.isin(labels, rare)
    for number in rare.tolist():
        rows = (labels == number).nonzero().flatten()
        kept[rows[keys[rows].argsort(stable=True)[: math.ceil(share * len(rows))]]] = True
    return kept.nonzero().flatten()


def take_rows(samples: Samples, rows: Tensor) -> Samples:
    """Some rows of arrays or of image files."""
    if isinstance(samples, Images):
        return samples.take(rows)
    assert isinstance(samples, Arrays)
    fine = None if samples.fine is None else samples.fine.take(rows)
    return Arrays(samples.x[rows], samples.labels[rows], samples.ids[rows], fine)
