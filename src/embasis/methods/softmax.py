"""The labeller of the confidence family: the network's own softmax, with nothing learned beside it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from embasis.types import Features, LabelDistribution, State, Stream


@dataclass(frozen=True)
class SoftmaxLabeller:
    """mean = softmax(scores); all of the variance is within, since there is no basis that could disagree."""

    def fit(self, stream: Stream, start: State, seed: int, round_number: int) -> State:
        """Nothing to learn."""
        return {}

    def label(self, features: Features, state: State) -> LabelDistribution:
        """The softmax; uncertainty is one minus the largest probability."""
        scores = features.scores.float()
        mean = (float(state["power"]) * scores if "power" in state else scores).softmax(1)
        return LabelDistribution(mean, torch.zeros_like(mean), mean * (1 - mean), 1 - mean.amax(1))
