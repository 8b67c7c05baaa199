"""What true labels say of machine-made ones. The only reader of hidden labels.

Everything is a sum over parts, so that a street of maps needs no more memory than one of them. Ranking figures (AUROC,
risk–coverage, …) are exact while there are few sites; more of them are counted in fine bins of uncertainty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from embasis.engine.labels import LabelBatch
from embasis.functional import calibration, metrics
from embasis.types import Evaluation, GroundTruth

EXACT = 2**18
"""The most sites whose uncertainty is kept and ranked as it is."""


@dataclass(eq=False)
class Ranks:
    """Right and wrong labels by uncertainty and by confidence, exact up to `EXACT` sites; adds up over parts.

    Which of the two it is depends on the number of all sites alone, so that parts in any order give the same."""

    held: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)
    """uncertainty, confidence, right"""
    counted: tuple[Tensor, Tensor] | None = None
    """the tables of sites that are not held any more"""

    def add(self, uncertainty: Tensor, confidence: Tensor, right: Tensor) -> None:
        """Take in some sites."""
        self.held.append((uncertainty, confidence, right))
        if sum(len(part) for part, *_ in self.held) > EXACT:
            self._count()

    def merge(self, other: Ranks) -> None:
        """Take in what another one has."""
        if other.counted is not None:
            self._count(other.counted)
        for columns in other.held:
            self.add(*columns)

    def tables(self) -> tuple[Tensor, Tensor]:
        """Right and wrong labels by uncertainty (m, 2), and bins by confidence (f, 3), both the surest first."""
        if self.counted is not None:
            self._count()
            return self.counted
        uncertainty, confidence, right = self._columns()
        return metrics.exact_counts(uncertainty, right), calibration.exact_bins(confidence, right)

    def _count(self, *others: tuple[Tensor, Tensor]) -> None:
        """Count those that are held in fine bins, with what was counted before and others; hold none any more."""
        uncertainty, confidence, right = self._columns()
        counts, fine = metrics.rank_counts(uncertainty, right), calibration.fine_bins(confidence, right)
        for more, finer in (*others, *([] if self.counted is None else [self.counted])):
            counts, fine = counts + more, fine + finer
        self.counted, self.held = (counts, fine), []

    def _columns(self) -> tuple[Tensor, Tensor, Tensor]:
        first, second, third = zip(
            (torch.empty(0), torch.empty(0), torch.empty(0, dtype=torch.bool)), *self.held, strict=True
        )
        return torch.cat(first), torch.cat(second), torch.cat(third)


@dataclass(eq=False)
class Tally:
    """Sums over all judged sites; adds up over parts."""

    classes: int
    confusion: Tensor = field(init=False)
    bins: Tensor = field(init=False)
    """(C, B, 3) reliability bins by predicted class"""
    own: Tensor = field(init=False)
    """(C, B, 3) bins of each class's own probability"""
    spread: Tensor = field(init=False)
    """(S, 2) right and wrong labels in bins of uncertainty"""
    ranks: Ranks = field(default_factory=Ranks)
    nll: float = 0.0
    brier: float = 0.0
    network_right: int = 0
    trusted: int = 0
    trusted_right: int = 0
    grids: bool = False
    """Whether rows have many sites, so that classes are judged by the area they share with the truth"""

    def __post_init__(self) -> None:
        self.confusion = torch.zeros(self.classes, self.classes, dtype=torch.int64)
        self.bins = torch.zeros(self.classes, calibration.CONFIDENCE_BINS, 3, dtype=torch.float64)
        self.own = torch.zeros_like(self.bins)
        self.spread = torch.zeros(metrics.SPREAD_BINS, 2, dtype=torch.int64)

    def add(self, part: LabelBatch, truth: Tensor) -> None:
        """Take in the sites whose true label is known."""
        self.grids |= bool(part.grid)
        known, mean = calibration.nonzero(truth >= 0), part.distribution.mean
        trusted, network = part.pseudo.trusted.index_select(0, known), part.network.index_select(0, known)
        # Columns of the mean first, rows then: to choose rows of a large map of 19 classes takes a second.
        probability = calibration.probability_of(mean, truth)
        self.own += calibration.classwise_bins(mean, truth, probability)
        self.brier += calibration.brier_sum(mean, truth, probability)
        columns = (mean.amax(1), part.distribution.label, part.distribution.uncertainty, truth, probability)
        confidence, label, uncertainty, truth, probability = (column.index_select(0, known) for column in columns)
        right = label == truth
        self.confusion += metrics.confusion_matrix(truth, label, self.classes)
        self.bins += calibration.class_reliability_bins(confidence, right, label, self.classes)
        nothing = torch.zeros_like(truth)  # the only column is that of the true class
        nll = calibration.negative_log_likelihood(probability.unsqueeze(1), nothing) if len(truth) else 0.0
        self.nll += nll * len(truth)
        self.network_right += int((network == truth).sum())
        self.trusted += int(trusted.sum())
        self.trusted_right += int((right & trusted).sum())
        self.spread += metrics.spread_counts(uncertainty, right)
        self.ranks.add(uncertainty, confidence, right)

    def merge(self, other: Tally) -> None:
        """Take in what another one has: another part of the rows, or that of another process."""
        for name in ("confusion", "bins", "own", "spread"):
            getattr(self, name).add_(getattr(other, name))
        for name in ("nll", "brier", "network_right", "trusted", "trusted_right"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.grids |= other.grids
        self.ranks.merge(other.ranks)

    def evaluation(self) -> Evaluation | None:
        """All figures; None when no true label is known."""
        rows = int(self.confusion.sum())
        if not rows:
            return None
        bins, (ranks, fine) = self.bins.sum(0), self.ranks.tables()
        return Evaluation(
            rows=rows,
            accuracy=metrics.accuracy(self.confusion),
            mean_class_accuracy=metrics.mean_class_accuracy(self.confusion),
            network_accuracy=self.network_right / rows,
            ece=calibration.expected_calibration_error(bins),
            nll=self.nll / rows,
            auroc=metrics.auroc(ranks),
            trusted_share=self.trusted / rows,
            trusted_precision=self.trusted_right / self.trusted if self.trusted else None,
            confusion=tuple(tuple(int(value) for value in row) for row in self.confusion),
            reliability=tuple((float(a), float(b), float(c)) for a, b, c in bins),
            risk_coverage=tuple((float(a), float(b)) for a, b in metrics.risk_coverage_curve(ranks)),
            class_ece=tuple(class_error(part) for part in self.bins),
            mean_iou=metrics.mean_dataset_iou(self.confusion) if self.grids else None,
            class_iou=class_ious(self.confusion) if self.grids else (),
            adaptive_ece=calibration.adaptive_calibration_error(fine),
            classwise_ece=calibration.classwise_calibration_error(self.own),
            brier=self.brier / rows,
            brier_parts=calibration.brier_parts(self.own),
            aupr=metrics.average_precision(ranks),
            aurc=metrics.risk_area(ranks),
            coverage=tuple((share, metrics.coverage_at(ranks, share)) for share in metrics.COVERAGE_PRECISIONS),
            spread=tuple((upper, *pair) for upper, pair in zip(spread_edges(), self.spread.tolist(), strict=True)),
            confidence=float(bins[:, 1].sum()) / rows,
        )


def spread_edges() -> list[float]:
    """Upper edges of the bins of `spread`."""
    return [(number + 1) / metrics.SPREAD_BINS for number in range(metrics.SPREAD_BINS)]


def class_error(bins: Tensor) -> float | None:
    """The calibration error of the sites of one predicted class; None without any."""
    return calibration.expected_calibration_error(bins) if float(bins[:, 0].sum()) else None


def class_ious(confusion: Tensor) -> tuple[float | None, ...]:
    """Intersection over union of each class; None for a class that does not truly occur."""
    ious, present = metrics.dataset_iou(confusion).tolist(), (confusion.sum(1) > 0).tolist()
    return tuple(value if there else None for value, there in zip(ious, present, strict=True))


def evaluate(parts: Iterable[LabelBatch], truth: GroundTruth, classes: int) -> Evaluation | None:
    """All figures over the sites whose true label is known, at the resolution of the true labels."""
    tally = Tally(classes)
    for part in parts:
        for labels, right in pair_with_truth(part, truth):
            tally.add(labels, right)
    return tally.evaluation()


def pair_with_truth(part: LabelBatch, truth: GroundTruth) -> Iterator[tuple[LabelBatch, Tensor]]:
    """A part and its true labels: as it is where rows have one label each, else enlarged to the true maps."""
    if isinstance(truth, Tensor):
        yield part, truth[part.rows].flatten()
        return
    for number, row in enumerate(part.rows.tolist()):
        right = truth[row]
        yield part.enlarged(number, tuple(right.shape)), right.flatten()
