"""Labelled rows that are held out, weighted so that they stand for the unlabelled side.

| symbol | shape | meaning |
| --- | --- | --- |
| sites | n | a sample of the held-out sites, in the shares of their side |
| others | m | a sample of the unlabelled sites |
| weight | n | how much likelier the unlabelled side is to have such features (functional/validation.py) |

The weights come from a logistic classifier of sides on the features as the labeller sees them: centred and scaled by
their side, of unit length. It is cross-fitted: no site is weighed by a classifier that was fitted on it. Its penalty is
the one of PENALTIES with the smallest loss on sites that it was not fitted on; where the sides are alike this is a
large one, and all weights are near 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from embasis.engine.sampling import FeatureSample, in_shares, sample_features, together
from embasis.engine.state import TrainSetup
from embasis.functional.validation import importance, side_loss
from embasis.methods.em_basis.features import domain_statistics, prepare
from embasis.methods.em_basis.head import minimise
from embasis.randomness import uniforms
from embasis.types import Features

SITES = 2048
"""The most sites of a side that are looked at."""
FOLDS = 3
LEAST = 20
"""With fewer sites on a side all weights are 1."""
PENALTIES = (1.0, 0.1, 0.01, 0.001)


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
    sites = in_shares(together(whole.chunks), SITES, plan.seed, "held-out sites")
    ones = torch.ones(len(sites), dtype=torch.float64)
    if not unlabelled.chunks:
        return HeldOut(whole, sites, ones, None)
    others = in_shares(together(unlabelled.chunks), SITES, plan.seed, "other sites")
    if min(len(sites), len(others)) < LEAST:
        return HeldOut(whole, sites, ones, others)
    statistics = domain_statistics(features.stream, "joint" if problem.same_domain else "domain")
    weight = cross_fitted(
        [(prepare(part, *statistics), uniforms(part.ids, plan.seed, "folds")) for part in (sites, others)]
    )
    return HeldOut(whole, sites, weight, others)


def cross_fitted(sides: list[tuple[Tensor, Tensor]]) -> Tensor:
    """(n) weights of the first side's sites; each side is its features and the keys that part it into folds."""
    (x, key), (other, other_key) = sides
    folds, other_folds = fold_of(key), fold_of(other_key)
    best, found = torch.inf, torch.ones(len(x), dtype=torch.float64)
    for penalty in PENALTIES:
        loss, weight = 0.0, torch.empty(len(x), dtype=torch.float64)
        for fold in range(FOLDS):
            here, there = folds == fold, other_folds == fold
            fitted = side_classifier(x[~here], other[~there], penalty)
            weight[here] = importance(x[here] @ fitted[0] + fitted[1], int((~here).sum()), int((~there).sum()))
            count = int(here.sum()) + int(there.sum())
            loss += count * float(side_loss(*stacked(x[here], other[there]), *fitted))
        if loss < best:
            best, found = loss, weight
    return found


def fold_of(key: Tensor) -> Tensor:
    """(n) folds of sizes that differ by one at most."""
    rank = torch.argsort(torch.argsort(key, stable=True), stable=True)
    return rank % FOLDS


def side_classifier(x: Tensor, other: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    """Weight and bias of the classifier of sides."""
    both, side = stacked(x, other)
    return minimise(
        lambda weight, bias: side_loss(both, side, weight, bias, penalty), torch.zeros(x.shape[1]), torch.zeros(())
    )


def stacked(x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """The sites of both sides, and which side each is of."""
    return torch.cat([x, other]), torch.cat([torch.zeros(len(x)), torch.ones(len(other))])
