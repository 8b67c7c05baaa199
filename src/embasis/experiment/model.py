"""A trained model: labels with their uncertainty for any rows of the unlabelled side's kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from embasis.config import Config
from embasis.data.standard import Standardiser
from embasis.engine.progress import Progress
from embasis.engine.rounds import Verdict, begin, verdict_on
from embasis.errors import CorruptError, InputDataError, require
from embasis.experiment.build import Built, build
from embasis.types import Arrays, LabelSchema, Method, Plan, Problem


@dataclass(frozen=True, eq=False)
class Model:
    """Network, labeller and selector as the last round left them."""

    progress: Progress
    method: Method
    plan: Plan
    schema: LabelSchema
    standardiser: Standardiser | None
    shape: tuple[int, ...]

    def verdict(self, x: Tensor, ids: Tensor | None = None) -> Verdict:
        """Label distribution, trust and scores of the rows of x, in their order."""
        shape = tuple(x.shape[1:])
        require(
            shape == self.shape,
            f"input has {describe(shape)}, the model was trained on {describe(self.shape)}",
            InputDataError,
        )
        prepared = x if self.standardiser is None else self.standardiser.apply(x, 1)
        order = torch.arange(len(x)) if ids is None else torch.argsort(ids)
        samples = Arrays.of(prepared[order], ids=None if ids is None else ids[order])
        last = max(self.progress.round - 1, 0)
        verdict = verdict_on(samples, self.method, self.plan, self.progress, last)
        return verdict.rows(torch.argsort(order))


def finished(built: Built, progress: Progress) -> Model:
    """The model of a run that has just ended."""
    shape = tuple(built.problem.labelled.inputs(torch.tensor([0])).shape[1:])
    return Model(progress, built.method, built.plan, built.problem.schema, built.standardiser, shape)


def stored(facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Model:
    """The model of a run folder's generation."""
    try:
        schema = LabelSchema(tuple(str(name) for name in facts["classes"]))
        shape = tuple(int(size) for size in facts["shape"])
        resolved = dict(facts["config"])
        resolved["data"] = {}
        config = Config(**resolved)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptError(f"the run's facts do not describe a model: {error}") from error
    # An empty problem of the right shape gives the same objects as the run had; weights come from the tensors.
    side = Arrays.of(torch.zeros(1, *shape), torch.zeros(1, dtype=torch.int64))
    problem = Problem(side, Arrays.of(torch.zeros(0, *shape)), schema)
    built = build(problem, config)
    progress = begin(built.network, built.method, built.plan)
    progress = Progress.restore(progress.network, tensors, facts["progress"], [])
    standardiser = None
    if "input/centre" in tensors:
        standardiser = Standardiser(tensors["input/centre"], tensors["input/scale"])
    return Model(progress, built.method, built.plan, schema, standardiser, shape)


def describe(shape: Sequence[int]) -> str:
    """A shape for a sentence."""
    return f"{shape[0]} features" if len(shape) == 1 else f"shape {'×'.join(str(size) for size in shape)}"


def label_columns(verdict: Verdict, ids: Sequence[object], schema: LabelSchema) -> dict[str, list[object]]:
    """The table that users get: id, label, probability, between, within, trusted, drawn."""
    label = verdict.distribution.label
    at = label.unsqueeze(1)
    drawn = [schema.names[value] if value >= 0 else None for value in verdict.pseudo.label.tolist()]
    return {
        "id": list(ids),
        "label": [schema.names[value] for value in label.tolist()],
        "probability": verdict.distribution.mean.gather(1, at).squeeze(1).tolist(),
        "between": verdict.distribution.between.gather(1, at).squeeze(1).tolist(),
        "within": verdict.distribution.within.gather(1, at).squeeze(1).tolist(),
        "uncertainty": verdict.distribution.uncertainty.tolist(),
        "trusted": verdict.pseudo.trusted.tolist(),
        "drawn": drawn,
    }
