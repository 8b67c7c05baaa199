"""What tests share: a run whose labeller is attacked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from embasis.methods.losses import PseudoLabelLoss
from embasis.methods.selectors import ClassBalanced
from embasis.runs.parts import RunParts
from embasis.types import Features, LabelDistribution, Labeller, Method, Problem, State, Stream
from training_runs import built_for, toy

COLLAPSE = {"rounds": 4, "source_epochs": 3, "epochs": 1}


def with_method(built: RunParts, method: Method) -> RunParts:
    return replace(built, method=method)


@dataclass(frozen=True)
class Adversary(Labeller):
    """Surer each round until it turns: then all is the first class, or only leans to it, or nothing is known."""

    turn: int = 2
    then: str = "one"

    def fit(self, stream: Stream, start: State, seed: int, round_number: int) -> State:
        return {"round": torch.tensor(round_number)}

    def label(self, features: Features, state: State) -> LabelDistribution:
        number, classes = int(state["round"]), features.scores.shape[1]
        named, one = nn.functional.one_hot(features.ids % classes, classes).float(), torch.eye(classes)[:1]
        mean = (0.6 + 0.1 * number) * named + (0.4 - 0.1 * number) / classes
        if number >= self.turn:
            turned = {
                "one": one + 0 * named,
                "lean": 0.51 * one + 0.49 * named,
                "nothing": 0.05 * named + 0.95 / classes,
            }
            mean = turned[self.then]
        return LabelDistribution(mean, torch.zeros_like(mean), mean * (1 - mean), 1 - mean.amax(1))


def attacked(problem: Problem | None = None, **settings: Any) -> RunParts:
    method = Method("attacked", Adversary(**settings), ClassBalanced(), PseudoLabelLoss())
    return with_method(built_for(problem or toy(), "mlp", "cbst", plan=COLLAPSE), method)
