"""Whether another learner suits a table better, before anything is trained in earnest and without a label of the
unlabelled side.

Both learners are trained on four fifths of the labelled rows and label the last fifth, each row weighted by how much
likelier the unlabelled side is to have it (engine/holdout.py). Of large tables a sample of rows is taken.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from embasis.config import load
from embasis.engine.holdout import Subset
from embasis.engine.self_train import self_train
from embasis.randomness import permutation
from embasis.runs.parts import build
from embasis.types import Problem, Samples

LEAST_ROWS, MOST_ROWS = 500, 10_000
"""Of labelled rows: with fewer nothing is compared, of more a sample is taken (of unlabelled rows, too)."""
HOLDOUT = 0.2
LEAST_GAIN = 0.02
PLAIN, OTHER = "linear", "hist_gradient_boosting"


def suggest_learner(problem: Problem) -> str | None:
    """A sentence where gradient boosting is right more often than the linear network; None where it is not, where rows
    are few, and where they are no vectors."""
    rows = len(problem.labelled)
    if rows < LEAST_ROWS or not len(problem.unlabelled) or problem.labelled.inputs(draw_rows(rows, 1)).ndim != 2:
        return None
    labelled, unlabelled = sample_side(problem.labelled), sample_side(problem.unlabelled)
    small = replace(problem, labelled=labelled, unlabelled=unlabelled, hidden_labels=None, test=None)
    plain, other = (held_out_accuracy(small, name) for name in (PLAIN, OTHER))
    held = HOLDOUT * len(small.labelled)
    error = ((plain * (1 - plain) + other * (1 - other)) / held) ** 0.5
    if other - plain < max(LEAST_GAIN, 2 * error):
        return None
    seen = (
        f"of labelled rows that it has not seen, weighted towards the unlabelled side, {OTHER} labels {other:.1%} right"
    )
    return f"{seen}, the {PLAIN} network {plain:.1%}: consider --learner {OTHER}"


def held_out_accuracy(problem: Problem, name: str) -> float:
    """The weighted share of held-out rows that the source model of this network labels right."""
    parts = build(problem, load(method={"name": "source_only"}, network={"name": name}, plan={"holdout": HOLDOUT}))
    (record,) = self_train(parts.problem, parts.network, parts.method, parts.plan)
    return record.scores["embedded_validation"]


def sample_side(samples: Samples) -> Samples:
    """At most MOST_ROWS rows."""
    return samples if len(samples) <= MOST_ROWS else Subset(samples, draw_rows(len(samples), MOST_ROWS))


def draw_rows(count: int, most: int) -> Tensor:
    """Numbers of so many rows, rising."""
    return permutation(count, 0, "rows that suggest a learner")[:most].sort().values
