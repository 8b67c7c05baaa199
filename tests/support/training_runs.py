"""Whole runs in memory, small enough for hundreds of them, and what it means that two of them are the same."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from embasis.config import load
from embasis.data.datasets.digit_sets import blobs, digits
from embasis.engine.labels import RowLabels
from embasis.engine.self_train import begin, train_rounds
from embasis.engine.state import TrainState
from embasis.runs.model import TrainedModel, model_of_run
from embasis.runs.parts import RunParts, build
from embasis.types import Arrays, Problem, RoundRecord, record_from_json, record_to_json

NETWORKS: dict[str, dict[str, Any]] = {
    "linear": {"plan": {"source_epochs": 2, "epochs": 1}},
    "mlp": {
        "network": {"hidden": 16},
        "plan": {"source_epochs": 4, "epochs": 2, "batch_size": 32, "source_lr": 1e-2, "lr": 1e-2},
    },
    "hist_gradient_boosting": {"network": {"max_iter": 5, "min_samples_leaf": 5}, "plan": {}},
    "random_forest": {"network": {"n_estimators": 5}, "plan": {}},
    "small_cnn": {"network": {"width": 4, "features": 16}, "plan": {"source_epochs": 2, "epochs": 1, "batch_size": 64}},
}
"""Each network, small, with a plan that takes a fraction of a second."""


@functools.cache
def toy() -> Problem:
    """Nine features, because a product over a multiple of four is rounded more evenly than others."""
    return blobs(seed=3, features=9, count=90, shift=2.0)


@functools.cache
def little_digits() -> Problem:
    whole = digits(count=200)
    assert whole.hidden_labels is not None
    x = whole.unlabelled.inputs(torch.arange(300))
    return replace(whole, unlabelled=Arrays.of(x), hidden_labels=whole.hidden_labels[:300])


def problem_for(network: str) -> Problem:
    return little_digits() if network == "small_cnn" else toy()


@dataclass(frozen=True, eq=False)
class Run:
    built: RunParts
    progress: TrainState
    round_labels: list[RowLabels]

    @property
    def records(self) -> list[RoundRecord]:
        return self.progress.records

    @property
    def weights(self) -> dict[str, Tensor]:
        return dict(self.progress.network.state_dict())

    @property
    def model(self) -> TrainedModel:
        return model_of_run(self.built, self.progress)


def built_for(
    problem: Problem,
    network: str = "linear",
    method: str = "em_basis",
    *,
    seed: int = 0,
    plan: Any = None,
    parts: Any = None,
    **own: Any,
) -> RunParts:
    """`own` are settings of the method, `parts` changes of its parts; a plan's own keys win over those of NETWORKS."""
    small = NETWORKS[network]
    return build(
        problem,
        load(
            top={"seed": seed, "parts": parts or {}},
            method={"name": method, **own},
            network={"name": network, **small.get("network", {})},
            plan={"rounds": 2, **small["plan"], **(plan or {})},
        ),
    )


def run(problem: Problem, network: str = "linear", method: str = "em_basis", **settings: Any) -> Run:
    return run_built(built_for(problem, network, method, **settings))


def run_built(built: RunParts, progress: TrainState | None = None) -> Run:
    progress = progress or begin(built.network, built.method, built.plan)
    round_labels = []
    for event in train_rounds(built.problem, built.network, built.method, built.plan, progress):
        if isinstance(event.labels, RowLabels):
            round_labels.append(event.labels)
    return Run(built, progress, round_labels)


def same(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> bool:
    """The same names, types, shapes and bits."""
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype and torch.equal(left[name], right[name]) for name in left
    )


def parts(row_labels: RowLabels) -> dict[str, Tensor]:
    """All tensors of the labels of a round."""
    found, pseudo = row_labels.distribution, row_labels.pseudo
    named = {"mean": found.mean, "between": found.between, "within": found.within, "uncertainty": found.uncertainty}
    named |= {"label": pseudo.label, "weight": pseudo.weight, "scores": row_labels.scores}
    return named if pseudo.target is None else {**named, "target": pseudo.target}


def same_round_labels(left: list[RowLabels], right: list[RowLabels]) -> bool:
    return len(left) == len(right) and all(same(parts(a), parts(b)) for a, b in zip(left, right, strict=True))


def blind(records: list[RoundRecord]) -> list[RoundRecord]:
    """The records without what true labels say."""
    return [replace(record, evaluation=None) for record in records]


@dataclass(frozen=True)
class Saved:
    """A run as a folder would keep it: copies of the tensors, the rest as JSON text."""

    tensors: dict[str, Tensor]
    facts: str
    records: str

    @classmethod
    def of(cls, progress: TrainState) -> Saved:
        tensors = {name: value.clone() for name, value in progress.tensors().items()}
        records = [record_to_json(record) for record in progress.records]
        facts = json.dumps(progress.facts(), allow_nan=False, sort_keys=True)
        return cls(tensors, facts, json.dumps(records, allow_nan=False))

    @property
    def cursor(self) -> tuple[int, int, int]:
        facts = json.loads(self.facts)
        return facts["round"], facts["epoch"], facts["step"]

    def restore(self, built: RunParts) -> TrainState:
        network = begin(built.network, built.method, built.plan).network
        records = [record_from_json(row) for row in json.loads(self.records)]
        tensors = {name: value.clone() for name, value in self.tensors.items()}
        return TrainState.restore(network, tensors, json.loads(self.facts), records)

    def same(self, other: Saved) -> bool:
        return same(self.tensors, other.tensors) and (self.facts, self.records) == (other.facts, other.records)


def saved_moments(built: RunParts) -> list[Saved]:
    """The run after every one of its moments."""
    return [Saved.of(event.state) for event in train_rounds(built.problem, built.network, built.method, built.plan)]


def go_on(saved: Saved, built: RunParts, spoil: Callable[[TrainState], None] | None = None) -> Saved:
    """The end of the run that goes on from `saved`, after `spoil` has damaged what was restored."""
    progress = saved.restore(built)
    if spoil is not None:
        spoil(progress)
    return Saved.of(run_built(built, progress).progress)
