"""A restyler inside a run: fitted before the first step, then the labelled side is shown in its new style.

Rows that are held in memory are restyled once, and so are all rows of a problem that has a place to keep them; others
when they are read, view by view. Labels, ids and the unlabelled side stay as they are, and so do the rows of the
caller's problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from embasis.engine.holdout import training_part
from embasis.engine.state import TrainState
from embasis.errors import ConfigError, NumericalError, require
from embasis.types import AugmentKey, CropTarget, GroundTruth, Method, Plan, Problem, Restyler, RowChange, Samples, View


@runtime_checkable
class HeldRows(Protocol):
    """Samples whose rows are in memory."""

    def change_rows(self, change: RowChange) -> Samples:
        """The same samples with other rows."""


@dataclass(frozen=True, eq=False)
class Restyled:
    """Samples whose inputs are restyled when they are read."""

    samples: Samples
    change: RowChange

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def ids(self) -> Tensor:
        """As they were."""
        return self.samples.ids

    @property
    def labels(self) -> Tensor:
        """As they were."""
        return self.samples.labels

    @property
    def truth(self) -> GroundTruth:
        """As it was."""
        return self.samples.truth

    @property
    def has_mixed_shapes(self) -> bool:
        """As the samples have."""
        return self.samples.has_mixed_shapes

    def counts(self, classes: int, rows: Tensor | None = None) -> Tensor:
        """Sites of each class."""
        return self.samples.counts(classes, rows)

    def inputs(self, rows: Tensor) -> Tensor:
        """The network's input for these rows, restyled."""
        return self.change(self.samples.inputs(rows))

    def stream(
        self, batches: Sequence[Tensor], draw: AugmentKey | None = None, aim: CropTarget | None = None
    ) -> Iterator[View]:
        """What each batch of rows shows, restyled."""
        for view in self.samples.stream(batches, draw, aim):
            yield replace(view, inputs=self.change(view.inputs))


def acting_restyler(method: Method, problem: Problem) -> Restyler | None:
    """The restyler, if it does anything; there must be rows whose style is to be learned."""
    restyler = method.restyle
    return restyler if restyler is not None and restyler.weight > 0 and len(problem.unlabelled) else None


def fit_restyler(problem: Problem, method: Method, plan: Plan, state: TrainState) -> Iterator[None]:
    """What is left of the fit, on the rows that training sees; pauses where the run can be stopped."""
    restyler = acting_restyler(method, problem)
    if restyler is None or state.status != "running" or restyler.is_fitted(state.restyle):
        return
    training = training_part(problem, plan)
    refuse_vectors(restyler, training.labelled)
    while not restyler.is_fitted(state.restyle):
        learned = restyler.fit(training.labelled, training.unlabelled, state.restyle, plan.seed)
        broken = [name for name, value in learned.items() if not bool(torch.isfinite(value).all())]
        rule = f"{restyler.name}: what was learned of the other side's style is not finite: {', '.join(broken[:3])}"
        require(not broken, rule, NumericalError)
        state.restyle = learned
        yield


def refuse_vectors(restyler: Restyler, samples: Samples) -> None:
    """A ConfigError where rows are no pictures, and the restyler needs pictures."""
    shape = tuple(samples.inputs(torch.tensor([0])).shape[1:])
    rule = f"{restyler.name} restyles pictures, and a row of these data has shape {shape}"
    cure = "the setting restyle=0 leaves that stage out; a network that is trained from its pixels on has pictures"
    require(restyler.takes_vectors or len(shape) == 3, f"{rule}; {cure}", ConfigError)


def keep_restyled(problem: Problem, method: Method, state: TrainState) -> Iterator[None]:
    """Restyle the labelled rows that are not kept yet, where they are to be; pauses where the run can be stopped."""
    change = find_change(problem, method, state)
    if change is not None and problem.restyled is not None:
        yield from problem.restyled.fill(problem.labelled, change)


def restyle_labelled(problem: Problem, method: Method, state: TrainState) -> Problem:
    """The problem as training sees it; itself without a restyler, and where nothing is trained any more."""
    change, store = find_change(problem, method, state), problem.restyled
    if change is None:
        return problem
    restyled = restyle_samples(problem.labelled, change) if store is None else store.read(problem.labelled, change)
    return replace(problem, labelled=restyled)


def find_change(problem: Problem, method: Method, state: TrainState) -> RowChange | None:
    """What is done to the labelled rows; None without a restyler, and where nothing is trained any more."""
    restyler = acting_restyler(method, problem)
    return None if restyler is None or state.status != "running" else RowChange(restyler, state.restyle)


def restyle_samples(samples: Samples, change: RowChange) -> Samples:
    """The samples restyled: at once where they are in memory, else when they are read."""
    return samples.change_rows(change) if isinstance(samples, HeldRows) else Restyled(samples, change)
