"""Label-free scores of a round: what can be said of a model without a single true label of the target.

| score | meaning; higher is better |
| --- | --- |
| information | H(mean prediction) − mean H(prediction), in units of log C: sure, and of many classes |
| agreement | share of unlabelled rows where labeller and network name the same class |
| labelled_accuracy | the network's accuracy on the labelled rows |
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from embasis.engine.verdict import Labelled
from embasis.functional.metrics import class_counts
from embasis.types import Features

SELECTION_SCORE = "information"
"""The score by which the collapse guard compares rounds."""


@dataclass(eq=False)
class Look:
    """Sums over the unlabelled sites: of their labels, of what is trusted, and of what the scores need."""

    classes: int
    counts: Tensor = field(init=False)
    """(C) labels of each class"""
    trusted: Tensor = field(init=False)
    """(C) trusted labels of each class"""
    mean: Tensor = field(init=False)
    """(C) Σ p"""
    entropy: float = 0.0
    agreeing: int = 0
    by_part: list[Tensor] = field(default_factory=list)
    """for each part (C) trusted labels of each class"""

    def __post_init__(self) -> None:
        self.counts, self.trusted = torch.zeros(2, self.classes, dtype=torch.int64)
        self.mean = torch.zeros(self.classes, dtype=torch.float64)

    def add(self, part: Labelled) -> None:
        """Take in all sites of a part."""
        wide, label = part.distribution.mean.double(), part.distribution.label
        self.counts += class_counts(label, self.classes)
        self.by_part.append(class_counts(part.pseudo.label, self.classes))
        self.trusted += self.by_part[-1]
        self.mean += wide.sum(0)
        self.entropy += float(torch.special.entr(wide).sum())
        self.agreeing += int((label == part.network).sum())

    @property
    def sites(self) -> int:
        """How many there are."""
        return int(self.counts.sum())

    def information(self) -> float:
        """H(E p) − E H(p), divided by log C; in [0, 1]."""
        if not self.sites or self.classes < 2:
            return 0.0
        whole = float(torch.special.entr(self.mean / self.sites).sum())
        return (whole - self.entropy / self.sites) / math.log(self.classes)


def label_free_scores(seen: Look, labelled: list[Features]) -> dict[str, float]:
    """All scores of this round."""
    right = torch.cat([part.scores.argmax(1) == part.y for part in labelled]).double()
    share = torch.cat([part.shares for part in labelled]).double()
    return {
        "information": seen.information(),
        "agreement": seen.agreeing / seen.sites if seen.sites else 1.0,
        "labelled_accuracy": float((share @ right) / share.sum()) if len(right) else 0.0,
    }
