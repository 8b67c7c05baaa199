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
