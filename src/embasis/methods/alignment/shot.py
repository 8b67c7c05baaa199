"""SHOT (Liang et al. 2020): after source training the classifier stays, and features are moved to fit it.

    loss = weight · [mean H(p_t) − H(mean p_t) + unlabelled_weight · CE(z_t, centroid label)],  from round 1 on

No labelled row is seen after round 0. Labels are those of the nearest centroid by cosine: first of all rows, weighted
by their probabilities, then once more of the rows that each class has got.

Deviations: labels are renewed each round, not each epoch, because a round is what labels are renewed by here; the
classifier has no weight norm and the source no smoothed labels, so that all methods start from one source model; the
features get no constant 1 before they are compared. A run reports the centroids' labels, and the network's own are
those of the export; the centroids are as sure as the network, on average.

Where classes are no clusters around a centroid (two moons) the labels are worse than the network's own and do harm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from embasis.distributed import all_sum
from embasis.errors import ConfigError, require
from embasis.functional.consistency import class_sums, negative_information
from embasis.functional.em import mean_perplexity, sharpness_for_perplexity
from embasis.functional.losses import one_hot
from embasis.functional.sites import times, unit_rows
from embasis.methods.alignment.parts import encoder_of
from embasis.methods.losses import PseudoLabelLoss
from embasis.methods.selectors import SelectAll
from embasis.types import (
    UNLABELLED,
    Aligner,
    Features,
    Group,
    LabelDistribution,
    Labeller,
    Method,
    Phase,
    Seen,
    State,
    Stream,
    trainable,
)


@dataclass(frozen=True)
class CentroidLabeller(Labeller):
    """mean = softmax(sharpness · cosine of a site's features and the centroid of each class).

    | tensor | shape | meaning |
    | --- | --- | --- |
    | centroid | c d | of the unlabelled side's classes, unit rows |
    | sharpness | () | by it labels are as sure as the network's, on average |
    """

    def fit(self, stream: Stream, start: State, seed: int, round_number: int) -> State:
        """Centroids by the network's probabilities, and once again by the labels that these give."""
        parts = [part for part in stream if bool((part.y < 0).any())] or list(stream)
        soft = [part.scores.float().softmax(1) for part in parts]
        centroid = self._estimate(parts, soft, None)
        nearest = [self._cosines(part, centroid).argmax(1) for part in parts]
        centroid = self._estimate(parts, [one_hot(label, len(centroid)) for label in nearest], centroid)
        cosines = torch.cat([self._cosines(part, centroid) for part in parts])
        sharpness = sharpness_for_perplexity(cosines, float(mean_perplexity(torch.cat(soft))))
        return {"centroid": centroid, "sharpness": torch.tensor(sharpness)}

    def label(self, features: Features, state: State) -> LabelDistribution:
        """The softmax; uncertainty is one minus the largest probability."""
        mean = (state["sharpness"] * self._cosines(features, state["centroid"])).softmax(1)
        return LabelDistribution(mean, torch.zeros_like(mean), mean * (1 - mean), 1 - mean.amax(1))

    def _cosines(self, features: Features, centroid: Tensor) -> Tensor:
        return times(unit_rows(features.x), centroid.T)

    def _estimate(self, parts: Sequence[Features], shares: Sequence[Tensor], before: Tensor | None) -> Tensor:
        """(C, d) the direction of each class's mean; a class without a row keeps the one `before`."""
        sums = [
            class_sums(unit_rows(part.x), share, part.site_weight) for part, share in zip(parts, shares, strict=True)
        ]
        mass, total = (all_sum(torch.stack(column).sum(0)) for column in zip(*sums, strict=True))
        centroid = unit_rows(total)
        return centroid if before is None else torch.where(mass.unsqueeze(1) > 0, centroid, before)


@dataclass(frozen=True, kw_only=True)
class InformationMaximisation(Aligner):
    """From round 1 on the encoder alone moves, on unlabelled rows alone: sure predictions of many classes."""

    begins: int = 1

    name: ClassVar[str] = "shot"

    def groups(self, network: nn.Module, extra: nn.ModuleDict) -> Mapping[str, Group]:
        """The encoder; the classifier stays what the source has made it."""
        return {"encoder": Group(trainable(encoder_of(network)))}

    def phases(self, tau: float) -> Sequence[Phase]:
        """One, of the whole batch, without the labelled rows."""
        return (Phase("adapt", ("encoder",), labelled=False, pseudo=True, whole=True),)

    def loss(self, phase: str, network: nn.Module, extra: nn.ModuleDict, seen: Seen, tau: float) -> Tensor:
        """Minus what the predictions of these rows tell of their classes."""
        information = negative_information(seen.logits(UNLABELLED))
        seen.note("information", -information.detach())
        return self.weight * information


def shot(classes: int, *, weight: float = 1.0, unlabelled_weight: float = 0.3) -> Method:
    """SHOT: without the source, features become sure and varied for its classifier, with centroid labels.

    Parameters
    ----------
    weight : of everything that follows source training; 0 = no round follows it
    unlabelled_weight : of the centroid labels' cross-entropy, where the information has 1
    """
    require(unlabelled_weight >= 0, f"unlabelled_weight must be at least 0, got {unlabelled_weight}", ConfigError)
    aligner = InformationMaximisation(weight=weight)
    loss, rounds = PseudoLabelLoss(weight * unlabelled_weight), None if weight else 0
    return Method("shot", CentroidLabeller(), SelectAll(), loss, rounds=rounds, align=aligner)
