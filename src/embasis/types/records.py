"""What a run writes down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Evaluation:
    """What true labels say of the machine-made ones. Sums and curves, so that every figure can be drawn from it."""

    rows: int
    accuracy: float
    mean_class_accuracy: float
    network_accuracy: float
    ece: float
    nll: float
    auroc: float | None
    """AUROC of the uncertainty against errors; None when all labels are right or all wrong."""
    trusted_share: float
    trusted_precision: float | None
    """None when nothing is trusted."""
    confusion: tuple[tuple[int, ...], ...]
    """[true][predicted] counts"""
    reliability: tuple[tuple[float, float, float], ...]
    """per bin of confidence: rows, Σ confidence, Σ right"""
    risk_coverage: tuple[tuple[float, float], ...]
    """(share kept, share of errors among the kept), surest first"""
    class_ece: tuple[float | None, ...] = ()
    """calibration error of the sites of each predicted class; None without any"""
    mean_iou: float | None = None
    """of label maps: mean over the classes that truly occur of intersection over union, from `confusion`"""
    class_iou: tuple[float | None, ...] = ()
    """of label maps: that of each class; None for a class that does not truly occur"""
    adaptive_ece: float | None = None
    """as `ece`, in bins with equally many rows each; this and what follows is None in records of older releases"""
    classwise_ece: float | None = None
    """mean over classes of the calibration error of the class's own probability"""
    brier: float | None = None
    """mean of Σ_c (p_c − 1[true class = c])², from 0 to 2"""
    brier_parts: tuple[float, float, float] | None = None
    """reliability, resolution, uncertainty: brier = first − second + third + what bins leave over"""
    aupr: float | None = None
    """average precision of the uncertainty against errors; None when all labels are right or all wrong"""
    aurc: float | None = None
    """area under the risk–coverage curve: mean share of errors over all coverages"""
    coverage: tuple[tuple[float, float | None], ...] = ()
    """(precision, largest share of labels, surest first, that reaches it; None where none does)"""
    spread: tuple[tuple[float, int, int], ...] = ()
    """per bin of uncertainty, clamped to [0, 1]: upper edge, right labels, wrong labels"""
    confidence: float | None = None
    """mean stated probability of the labels: the accuracy that they claim"""


@dataclass(frozen=True)
class RoundRecord:
    """One round, as it is written to rounds.jsonl. Times are not in it: a record depends on data and seed alone."""

    round: int
    status: str
    """"ok", "no_change" (nothing trusted), "collapsed"."""
    loss: float
    unlabelled: int
    trusted: int
    class_counts: tuple[int, ...]
    """labels per class, unlabelled side"""
    trusted_counts: tuple[int, ...]
    changed: float
    """share of labels that differ from the round before"""
    scores: Mapping[str, float]
    """label-free scores, higher is better"""
    facts: Mapping[str, float] = field(default_factory=dict)
    """what the labeller chose: sharpness, components in use, …"""
    evaluation: Evaluation | None = None
    test: Evaluation | None = None
    notes: tuple[str, ...] = ()
