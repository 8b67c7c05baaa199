"""Which round's model a run keeps: the last one, or the best one by a score that needs no true label of the target.

`plan.choose` names the score; scores.py computes all of them in every round. The collapse guard compares rounds by
`SELECTION_SCORE`, whatever the plan chooses by.
"""

from __future__ import annotations

from embasis.types import Plan

SELECTION_SCORE = "information"
"""The score by which the collapse guard compares rounds."""


def score_to_keep(plan: Plan) -> str:
    """The score of the round that is remembered: the guard's, or the one that the plan chooses by."""
    return SELECTION_SCORE if plan.choose == "last" else plan.choose


def keeps_best(plan: Plan) -> bool:
    """Whether the end of a run brings the best round back; else the last one stays."""
    return plan.choose != "last"
