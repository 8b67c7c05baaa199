"""Labelled rows that no training sees: what is said of them can be checked.

| symbol | meaning |
| --- | --- |
| holdout | the share of the labelled rows that is held out (plan.holdout; 0 = none) |
| key | a number in [0, 1) for each row, a hash of its id: the rows of the smallest keys are held out |

Which rows these are does not depend on their labels, with one exception: a class all of whose rows would be held out
keeps the one of the largest key in training. The class of a row with many sites is its commonest one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from embasis.errors import InputDataError, require
from embasis.randomness import uniforms
from embasis.types import AugmentKey, CropTarget, Fine, GroundTruth, Plan, Problem, Samples, View, fine_of


@dataclass(frozen=True, eq=False)
class Subset:
    """Some rows of samples as samples: the same ids, so the same views; refusals go to the list of the whole."""

    samples: Samples
    rows: Tensor
    """(n) int64, rising"""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def ids(self) -> Tensor:
        """Those of the rows."""
        return self.samples.ids[self.rows]

    @property
    def labels(self) -> Tensor:
        """Those of the rows."""
        return self.samples.labels[self.rows]

    @property
    def fine(self) -> Fine | None:
        """Those of the rows."""
        found = fine_of(self.samples)
        return None if found is None else found.take(self.rows)

    @property
    def truth(self) -> GroundTruth:
        """The classes of these rows."""
        return Part(self.samples.truth, self.rows)

    @property
    def has_mixed_shapes(self) -> bool:
        """As the whole."""
        return self.samples.has_mixed_shapes

    def counts(self, classes: int, rows: Tensor | None = None) -> Tensor:
        """Sites of each class in these rows."""
        return self.samples.counts(classes, self.rows if rows is None else self.rows[rows])

    def inputs(self, rows: Tensor) -> Tensor:
        """The network's input for these rows."""
        return self.samples.inputs(self.rows[rows])

    def stream(
        self, batches: Sequence[Tensor], draw: AugmentKey | None = None, aim: CropTarget | None = None
    ) -> Iterator[View]:
        """What each batch of rows shows."""
        return self.samples.stream([self.rows[batch] for batch in batches], draw, aim)


@dataclass(frozen=True, eq=False)
class Part:
    """True classes of some rows."""

    truth: GroundTruth
    rows: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> Tensor:
        return self.truth[int(self.rows[row])]


def held_rows(samples: Samples, plan: Plan) -> Tensor:
    """(N) bool: the rows that are held out."""
    held = torch.zeros(len(samples), dtype=torch.bool)
    if not plan.holdout:
        return held
    key, labels = uniforms(samples.ids, plan.seed, "holdout"), samples.labels
    held[torch.argsort(key, stable=True)[: max(1, round(plan.holdout * len(samples)))]] = True
    for number in labels.unique().tolist():
        rows = torch.nonzero(labels == number).squeeze(1)
        if bool(held[rows].all()):
            held[rows[key[rows].argmax()]] = False
    return held


def training_part(problem: Problem, plan: Plan) -> Problem:
    """The problem without the labelled rows that are held out; itself if there are none."""
    held = held_rows(problem.labelled, plan)
    if not bool(held.any()):
        return problem
    return replace(problem, labelled=Subset(problem.labelled, torch.nonzero(~held).squeeze(1)))


def split_holdout(problem: Problem, plan: Plan) -> tuple[Problem, Samples | None]:
    """What training sees, and the labelled rows that are held out; None = there are to be none."""
    if not plan.holdout:
        return problem, None
    rows = torch.nonzero(held_rows(problem.labelled, plan)).squeeze(1)
    none = f"plan.holdout = {plan.holdout} can hold out no row: each class must keep one, got {len(problem.labelled)}"
    require(len(rows) > 0, f"{none} labelled rows in all", InputDataError)
    return training_part(problem, plan), Subset(problem.labelled, rows)
