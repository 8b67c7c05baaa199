"""Labelled rows that no training sees: their labels can be checked. Weights make them stand for the unlabelled side.

| symbol | shape | meaning |
| --- | --- | --- |
| holdout | () | the share of the labelled rows that is held out (plan.holdout; 0 = none) |
| key | N | a number in [0, 1) for each row, a hash of its id: the rows of the smallest keys are held out |
| sites | n | a sample of the held-out sites, in the shares of their side |
| others | m | a sample of the unlabelled sites |
| weight | n | how much likelier the unlabelled side is to have such features (functional/validation.py) |

Which rows these are does not depend on their labels, with one exception: a class all of whose rows would be held out
keeps the one of the largest key in training. The class of a row with many sites is its commonest one.

The weights come from a logistic classifier of sides on the features as the labeller sees them: centred and scaled by
their side, of unit length. It is cross-fitted: no site is weighed by a classifier that was fitted on it. Its penalty is
the one of PENALTIES with the smallest loss on sites that it was not fitted on; where the sides are alike this is a
large one, and all weights are near 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from embasis.engine.features import FeatureSample, draw_in_shares, join_features, sample_features
from embasis.engine.state import TrainSetup
from embasis.errors import InputDataError, require
from embasis.functional.validation import importance, side_loss
from embasis.methods.em_basis.features import domain_statistics, prepare
from embasis.methods.em_basis.head import minimise
from embasis.randomness import uniforms
from embasis.types import AugmentKey, CropTarget, Features, Fine, GroundTruth, Plan, Problem, Samples, View, fine_of

WEIGHED_SITES = 2048
"""The most sites of a side that the classifier of sides is fitted on."""
FOLDS = 3
LEAST_WEIGHED = 20
"""With fewer sites on a side all weights are 1."""
PENALTIES = (1.0, 0.1, 0.01, 0.001)


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
        fine = fine_of(self.samples)
        return None if fine is None else fine.take(self.rows)

    @property
    def truth(self) -> GroundTruth:
        """The classes of these rows."""
        return SubsetTruth(self.samples.truth, self.rows)

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
class SubsetTruth:
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


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What is known of the held-out rows in a round."""

    whole: FeatureSample
    """their sites, all of them or a sample that makes up for rare classes"""
    sites: Features
    weight: Tensor
    others: Features | None
    """None without an unlabelled side"""


@dataclass(frozen=True, eq=False)
class RoundFeatures:
    """Features of both sides by the network of a round, and of the held-out rows, if there are any."""

    labelled: FeatureSample
    unlabelled: FeatureSample
    held_out: HeldOut | None = None

    @property
    def stream(self) -> list[Features]:
        """All chunks of both sides, the labelled one first."""
        return [*self.labelled.chunks, *self.unlabelled.chunks]


def weigh_holdout(setup: TrainSetup, network: nn.Module, round_number: int, features: RoundFeatures) -> HeldOut | None:
    """The held-out rows seen by the network as it is; `features` are of the rows that it was trained on."""
    samples, problem, plan, unlabelled = setup.held_out, setup.problem, setup.plan, features.unlabelled
    if samples is None:
        return None
    whole = sample_features(network, samples, plan, True, round_number)
    if not whole.chunks:
        return None
    sites = draw_in_shares(join_features(whole.chunks), WEIGHED_SITES, plan.seed, "held-out sites")
    ones = torch.ones(len(sites), dtype=torch.float64)
    if not unlabelled.chunks:
        return HeldOut(whole, sites, ones, None)
    others = draw_in_shares(join_features(unlabelled.chunks), WEIGHED_SITES, plan.seed, "other sites")
    if min(len(sites), len(others)) < LEAST_WEIGHED:
        return HeldOut(whole, sites, ones, others)
    statistics = domain_statistics(features.stream, "joint" if problem.same_domain else "domain")
    weight = cross_fit_weights(
        [(prepare(part, *statistics), uniforms(part.ids, plan.seed, "folds")) for part in (sites, others)]
    )
    return HeldOut(whole, sites, weight, others)


def cross_fit_weights(sides: list[tuple[Tensor, Tensor]]) -> Tensor:
    """(n) weights of the first side's sites; each side is its features and the keys that part it into folds."""
    (x, key), (other, other_key) = sides
    folds, other_folds = fold_of(key), fold_of(other_key)
    best_loss, best_weight = torch.inf, torch.ones(len(x), dtype=torch.float64)
    for penalty in PENALTIES:
        loss, weight = 0.0, torch.empty(len(x), dtype=torch.float64)
        for fold in range(FOLDS):
            here, there = folds == fold, other_folds == fold
            fitted = fit_side_classifier(x[~here], other[~there], penalty)
            weight[here] = importance(x[here] @ fitted[0] + fitted[1], int((~here).sum()), int((~there).sum()))
            count = int(here.sum()) + int(there.sum())
            loss += count * float(side_loss(*stack_sides(x[here], other[there]), *fitted))
        if loss < best_loss:
            best_loss, best_weight = loss, weight
    return best_weight


def fold_of(key: Tensor) -> Tensor:
    """(n) folds of sizes that differ by one at most."""
    rank = torch.argsort(torch.argsort(key, stable=True), stable=True)
    return rank % FOLDS


def fit_side_classifier(x: Tensor, other: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    """Weight and bias of the classifier of sides."""
    both, side = stack_sides(x, other)
    return minimise(
        lambda weight, bias: side_loss(both, side, weight, bias, penalty), torch.zeros(x.shape[1]), torch.zeros(())
    )


def stack_sides(x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """The sites of both sides, and which side each is of."""
    return torch.cat([x, other]), torch.cat([torch.zeros(len(x)), torch.ones(len(other))])
