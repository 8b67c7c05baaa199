"""What true labels say of machine-made ones. The only reader of hidden labels.

Everything is a sum over parts, so that a street of maps needs no more memory than one of them; only the two ranking
figures (AUROC, risk–coverage) need pairs of (uncertainty, right), which maps give for a sample of their places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from embasis.engine.verdict import Labelled
from embasis.functional import calibration, metrics
from embasis.randomness import generator
from embasis.types import Evaluation, Truth

PLACES, ALL_PLACES = 4096, 2**18
"""The most places of a map, and of all maps together, whose uncertainty is ranked."""


@dataclass(eq=False)
class Tally:
    """Sums over all judged sites; adds up over parts."""

    classes: int
    confusion: Tensor = field(init=False)
    bins: Tensor = field(init=False)
    """(C, B, 3) reliability bins by predicted class"""
    nll: float = 0.0
    network_right: int = 0
    trusted: int = 0
    trusted_right: int = 0
    ranked: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    grids: bool = False
    """Whether rows have many sites, so that classes are judged by the area they share with the truth"""

    def __post_init__(self) -> None:
        self.confusion = torch.zeros(self.classes, self.classes, dtype=torch.int64)
        self.bins = torch.zeros(self.classes, calibration.BINS, 3, dtype=torch.float64)

    def add(self, part: Labelled, truth: Tensor, most: int) -> None:
        """Take in the sites whose true label is known; at most so many of them are ranked."""
        self.grids |= bool(part.grid)
        known = truth >= 0
        mean, trusted, network = part.distribution.mean, part.pseudo.trusted[known], part.network[known]
        # Columns of the mean first, rows then: to choose rows of a large map of 19 classes takes a second.
        probability = mean.gather(1, truth.clamp_min(0).unsqueeze(1))[known]
        confidence, label = mean.amax(1)[known], part.distribution.label[known]
        uncertainty, truth = part.distribution.uncertainty[known], truth[known]
        right = label == truth
        self.confusion += metrics.confusion(truth, label, self.classes)
        self.bins += calibration.class_reliability_bins(confidence, right, label, self.classes)
        nothing = torch.zeros_like(truth)  # the only column is that of the true class
        self.nll += calibration.negative_log_likelihood(probability, nothing) * len(truth) if len(truth) else 0.0
        self.network_right += int((network == truth).sum())
        self.trusted += int(trusted.sum())
        self.trusted_right += int((right & trusted).sum())
        some = sample(len(truth), most)
        self.ranked.append((uncertainty[some], right[some]))

    def evaluation(self) -> Evaluation | None:
        """All figures; None when no true label is known."""
        rows = int(self.confusion.sum())
        if not rows:
            return None
        uncertainty = torch.cat([part for part, _ in self.ranked])
        right = torch.cat([part for _, part in self.ranked])
        bins = self.bins.sum(0)
        return Evaluation(
            rows=rows,
            accuracy=metrics.accuracy(self.confusion),
            mean_class_accuracy=metrics.mean_class_accuracy(self.confusion),
            network_accuracy=self.network_right / rows,
            ece=calibration.expected_calibration_error(bins),
            nll=self.nll / rows,
            auroc=calibration.auroc(uncertainty, ~right),
            trusted_share=self.trusted / rows,
            trusted_precision=self.trusted_right / self.trusted if self.trusted else None,
            confusion=tuple(tuple(int(value) for value in row) for row in self.confusion),
            reliability=tuple((float(a), float(b), float(c)) for a, b, c in bins),
            risk_coverage=tuple((float(a), float(b)) for a, b in calibration.risk_coverage(uncertainty, right)),
            class_ece=tuple(class_error(part) for part in self.bins),
            mean_iou=metrics.mean_dataset_iou(self.confusion) if self.grids else None,
            class_iou=class_ious(self.confusion) if self.grids else (),
        )


def sample(count: int, most: int) -> Tensor:
    """Numbers of all sites, or of so many drawn at random: at even distances they might lie in a few columns."""
    if count <= most:
        return torch.arange(count)
    return torch.randint(count, (most,), generator=generator(0, "ranked places", count))


def class_error(bins: Tensor) -> float | None:
    """The calibration error of the sites of one predicted class; None without any."""
    return calibration.expected_calibration_error(bins) if float(bins[:, 0].sum()) else None


def class_ious(confusion: Tensor) -> tuple[float | None, ...]:
    """Intersection over union of each class; None for a class that does not truly occur."""
    found, present = metrics.dataset_iou(confusion).tolist(), (confusion.sum(1) > 0).tolist()
    return tuple(value if there else None for value, there in zip(found, present, strict=True))


def evaluate(parts: Iterable[Labelled], truth: Truth, classes: int) -> Evaluation | None:
    """All figures over the sites whose true label is known, at the resolution of the true labels."""
    tally, most = Tally(classes), max(min(PLACES, ALL_PLACES // max(len(truth), 1)), 1)
    for part in parts:
        for labels, right in beside(part, truth):
            tally.add(labels, right, most if labels.grid else len(right))
    return tally.evaluation()


def beside(part: Labelled, truth: Truth) -> Iterator[tuple[Labelled, Tensor]]:
    """A part and its true labels: as it is where rows have one label each, else enlarged to the true maps."""
    if isinstance(truth, Tensor):
        yield part, truth[part.rows].flatten()
        return
    for number, row in enumerate(part.rows.tolist()):
        right = truth[row]
        yield part.enlarged(number, tuple(right.shape)), right.flatten()
