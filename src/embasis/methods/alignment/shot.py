"""SHOT (Liang et al. 2020): after source training the classifier stays, and features are moved to fit it.

    loss = weight · [mean H(p_t) − H(mean p_t) + unlabelled_weight · CE(z_t, centroid label)],  from round 1 on
    z = W n(f) + b,  n = batch norm of the features, W and b as the source has made them

Labels are those of the nearest centroid by cosine, renewed before every epoch: first of all rows, weighted by their
probabilities, then once more of the rows that each class has got. After source training labelled rows are seen once:
for the mean and deviation of their features, with which batch norm begins as the identity; a published source model
carries these in its own. After every epoch n is folded into the classifier, so that the network alone predicts.

Batch norm decides: without it nothing holds the length of features while predictions become sure, and centroids drift
(docs/methods.md has figures). A network with scales by domain before its classifier has no other; nor has one whose
classifier is not linear.

Deviations: batch norm is added after source training and follows the last activation, where the published bottleneck
is trained with it and has no activation; the classifier has no weight norm and the source no smoothed labels, so that
all methods start from one source model; the optimiser is the plan's; features get no constant 1 before they are
compared.

Where classes are no clusters around a centroid (two moons) the labels are worse than the network's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from embasis.errors import ConfigError, require
from embasis.functional.consistency import nearest_centroids, negative_information
from embasis.functional.sites import times
from embasis.methods.alignment.parts import classifier_of, encoder_of, make_method, rows_read_by
from embasis.methods.losses import labelled_loss
from embasis.types import (
    BY_ROW,
    LABELLED,
    UNLABELLED,
    Aligner,
    Group,
    Method,
    Output,
    Passes,
    Phase,
    Seen,
    Sizes,
    trainable,
)


class CentroidLabels(nn.Module):
    """by_row (N): the class of each unlabelled row, −1 before there is one."""

    by_row: Tensor

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.register_buffer(BY_ROW, torch.full((rows,), -1))


class NormedClassifier(nn.Module):
    """Batch norm, whose four values move, before a classifier, whose values do not."""

    weight: Tensor
    bias: Tensor

    def __init__(self, classifier: nn.Linear) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(classifier.in_features)
        self.register_buffer("weight", classifier.weight.detach().clone())
        self.register_buffer("bias", classifier.bias.detach().clone())

    def start_as_identity(self, rows: Tensor) -> None:
        """Rows of this mean and deviation pass as they are."""
        mean, variance = rows.double().mean(0), rows.double().var(0, correction=0)
        self.norm.running_mean.copy_(mean)  # type: ignore[union-attr]
        self.norm.running_var.copy_(variance)  # type: ignore[union-attr]
        self.norm.bias.copy_(mean)
        self.norm.weight.copy_((variance + self.norm.eps).sqrt())

    def forward(self, rows: Tensor) -> Tensor:
        """(n, C) scores by the statistics of these rows, which are added to the running ones; one row has none."""
        norm, own = self.norm, len(rows) > 1
        statistics = (norm.running_mean, norm.running_var)
        normed = batch_norm(rows, *statistics, norm.weight, norm.bias, own, 0.1, norm.eps)
        return times(normed, self.weight.T) + self.bias

    def normalise(self, rows: Tensor) -> Tensor:
        """(n, d) the rows by the running statistics."""
        norm = self.norm
        return batch_norm(rows, norm.running_mean, norm.running_var, norm.weight, norm.bias, False, 0.0, norm.eps)

    def fold_into(self, classifier: nn.Linear) -> None:
        """The linear map that this is by the running statistics."""
        norm = self.norm
        factor = norm.weight / (cast(Tensor, norm.running_var) + norm.eps).sqrt()
        classifier.weight.copy_(self.weight * factor)
        classifier.bias.copy_(self.bias + self.weight @ (norm.bias - factor * cast(Tensor, norm.running_mean)))


@dataclass(frozen=True, kw_only=True)
class InformationMaximisation(Aligner):
    """From round 1 on the encoder moves, on unlabelled rows alone: sure predictions of many classes, and centroids'
    labels."""

    begins: int = 1
    unlabelled_weight: float = 0.3

    name: ClassVar[str] = "shot"

    def build(self, network: nn.Module, sizes: Sizes) -> nn.ModuleDict:
        """The labels, and batch norm before a copy of the classifier."""
        labels, classifier = CentroidLabels(sizes.unlabelled), classifier_of(network)
        plain = isinstance(classifier, nn.Linear) and classifier.bias is not None
        if not plain or getattr(network, "domains", None) is not None:
            return nn.ModuleDict({"labels": labels})
        return nn.ModuleDict({"labels": labels, "scorer": NormedClassifier(cast(nn.Linear, classifier))})

    def groups(self, network: nn.Module, extra: nn.ModuleDict) -> Mapping[str, Group]:
        """The encoder with its batch norm; the classifier stays what the source has made it."""
        norm = trainable(extra["scorer"]) if "scorer" in extra else []
        return {"encoder": Group([*trainable(encoder_of(network)), *norm])}

    def phases(self, tau: float) -> Sequence[Phase]:
        """One, of the whole batch, without the labelled rows."""
        return (Phase("adapt", ("encoder",), labelled=False, whole=True),)

    def loss(self, phase: str, network: nn.Module, extra: nn.ModuleDict, seen: Seen, tau: float) -> Tensor:
        """Minus what the predictions of these rows tell of their classes, and the labels' cross-entropy."""
        scores = extra["scorer"](seen.rows(UNLABELLED)) if "scorer" in extra else seen.logits(UNLABELLED)
        information = negative_information(scores)
        seen.note("information", -information.detach())
        label = cast(CentroidLabels, extra["labels"]).by_row[seen.other_rows]
        return self.weight * (information + self.unlabelled_weight * labelled_loss(Output(scores, scores), label))

    def survey(self, network: nn.Module, extra: nn.ModuleDict, labelled: Passes, unlabelled: Passes, step: int) -> None:
        """Batch norm begins with the labelled side's features; labels are renewed before every epoch."""
        network.eval()
        scorer = cast(NormedClassifier, extra["scorer"]) if "scorer" in extra else None
        if scorer is not None and step == 0:
            scorer.start_as_identity(torch.cat([rows for rows, _ in rows_and_scores(network, labelled, LABELLED)]))
        parts = list(rows_and_scores(network, unlabelled, UNLABELLED))
        rows, scores = (torch.cat(column) for column in zip(*parts, strict=True))
        rows = rows if scorer is None else scorer.normalise(rows)
        cast(CentroidLabels, extra["labels"]).by_row.copy_(nearest_centroids(rows, scores.softmax(1)))
        network.train()

    def settle(self, network: nn.Module, extra: nn.ModuleDict, when: str, labelled: Passes, step: int) -> None:
        """After an epoch: the classifier that batch norm and the source's make together."""
        if when == "epoch" and "scorer" in extra:
            cast(NormedClassifier, extra["scorer"]).fold_into(cast(nn.Linear, classifier_of(network)))


def rows_and_scores(network: nn.Module, passes: Passes, side: int) -> Iterator[tuple[Tensor, Tensor]]:
    """What the classifier reads of each row of a side, and its scores, in chunks."""
    for output, _ in passes(network):
        yield rows_read_by(network, output, side), output.logits.float()


def shot(classes: int, *, weight: float = 1.0, unlabelled_weight: float = 0.3) -> Method:
    """SHOT: without the source, features become sure and varied for its classifier, with centroid labels.

    Parameters
    ----------
    weight : of everything that follows source training; 0 = no round follows it
    unlabelled_weight : of the centroid labels' cross-entropy, where the information has 1
    """
    require(unlabelled_weight >= 0, f"unlabelled_weight must be at least 0, got {unlabelled_weight}", ConfigError)
    return make_method(InformationMaximisation(weight=weight, unlabelled_weight=unlabelled_weight))
