"""Warnings that a person should read before relying on the order of a round's labels; and an error for labels that are
no numbers, which ends the run. Warnings of what the labeller has learned are its own (`Labeller.notes`).

| warning | when |
| --- | --- |
| one value | all sites are equally sure, so that which of them are trusted is decided by a hash of their ids |
| cut weights | 1 / variance was outside the range that a weight may have |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch

from embasis.engine.labels import LabelBatch
from embasis.functional.losses import WEIGHT_RATIO


class RoundWarnings:
    """Sums over the parts of a round that were passed on."""

    def __init__(self, round_number: int) -> None:
        self.round = round_number
        self.sites = self.weighted = self.cut = 0
        self.least, self.most = math.inf, -math.inf

    def observe(self, parts: Iterable[LabelBatch]) -> Iterator[LabelBatch]:
        """The same parts, each counted on its way."""
        for part in parts:
            score, weight = part.distribution.uncertainty, part.pseudo.weight
            self.sites += len(score)
            self.least, self.most = min(self.least, float(score.min())), max(self.most, float(score.max()))
            low, high = torch.tensor([1 / WEIGHT_RATIO, WEIGHT_RATIO], dtype=weight.dtype)
            self.weighted += int((weight > 0).sum())
            self.cut += int(((weight == low) | (weight == high)).sum())
            yield part

    def notes(self) -> list[str]:
        """A sentence for each warning."""
        sentences = []
        if self.sites > 1 and self.least == self.most:
            order = "which of them are trusted is decided by a hash of their ids"
            sentences.append(f"all {self.sites:,} labels of round {self.round} are equally sure: {order}")
        if self.cut:
            bounds = f"[{1 / WEIGHT_RATIO:g}, {WEIGHT_RATIO:g}]"
            sentences.append(f"{self.cut:,} of {self.weighted:,} weights of round {self.round} were cut to {bounds}")
        return sentences
