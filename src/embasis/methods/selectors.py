"""Which labels are trusted, as what (hard, drawn, soft) and with which weight.

| symbol | shape | meaning |
| --- | --- | --- |
| keep | () | share of each predicted class that is trusted in a round |
| threshold, share | c | what `fit` learns, see functional/selection.py |
| weight | () | mean of 1 / (Var + floor) over the trusted sites |
| ceiling | c | confidence at the threshold: the λ_c of class-balanced self-training |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from embasis.errors import ConfigError, check_choice, check_not_negative, require
from embasis.functional import losses, moments, selection
from embasis.randomness import uniforms
from embasis.types import LabelDistribution, PseudoLabels, State

LABELS = ("mode", "draw", "soft", "entropy", "l2")
WEIGHTS = ("equal", "inverse_variance")
SELECTS = ("class", "all")
AT_ONCE = 64
"""Classes that are counted in one pass: their two histograms take 67 MB, and those of more classes no more."""


@dataclass(frozen=True)
class SelectNone:
    """No pseudo-labels at all."""

    def fit(self, stream: Sequence[LabelDistribution], round_number: int) -> State:
        """Nothing to learn."""
        return {}

    def select(
        self, distribution: LabelDistribution, state: State, ids: Tensor, seed: int, round_number: int
    ) -> PseudoLabels:
        """Label −1 and weight 0 everywhere."""
        return PseudoLabels(torch.full((len(distribution),), -1), torch.zeros(len(distribution)))


@dataclass(frozen=True)
class SelectAll:
    """Every site, with weight 1."""

    def fit(self, stream: Sequence[LabelDistribution], round_number: int) -> State:
        """Nothing to learn."""
        return {}

    def select(
        self, distribution: LabelDistribution, state: State, ids: Tensor, seed: int, round_number: int
    ) -> PseudoLabels:
        """The mode of each."""
        return PseudoLabels(distribution.label, torch.ones(len(distribution)))


@dataclass(frozen=True)
class ConfidenceThreshold:
    """Every site whose most probable class reaches one threshold (the first pseudo-label method).

    Parameters
    ----------
    threshold : probability from which on a label is trusted
    """

    threshold: float = 0.9

    def __post_init__(self) -> None:
        require(0 < self.threshold <= 1, f"threshold must be in (0, 1], got {self.threshold}", ConfigError)

    def fit(self, stream: Sequence[LabelDistribution], round_number: int) -> State:
        """Nothing to learn: the threshold is a setting."""
        return {}

    def select(
        self, distribution: LabelDistribution, state: State, ids: Tensor, seed: int, round_number: int
    ) -> PseudoLabels:
        """The mode where it is probable enough."""
        trusted = distribution.mean.amax(1) >= self.threshold
        return PseudoLabels(torch.where(trusted, distribution.label, -1), trusted.float())


@dataclass(frozen=True)
class ClassBalanced:
    """The surest share of each predicted class; the share grows from keep_first by keep_step up to keep_max.

    Parameters
    ----------
    keep_first, keep_step, keep_max : share that is trusted in the first round, what it grows by, its most;
        keep_max = 0: up to the share of the class's labels that is expected to be right (decision 0028)
    labels : what a trusted site is trained on: "mode", "draw" (one class drawn from its distribution), "soft" (the
        distribution), "entropy" or "l2" (the distribution, regularised)
    weights : "equal", or "inverse_variance" (eq. 16)
    temperature : "draw": the distribution is raised to 1/temperature before the draw
    alpha : "entropy", "l2": strength of the label regulariser
    floor : "inverse_variance": added to the variance before it is inverted
    selects : "class" = a threshold for each predicted class; "all" = one for all sites, whatever their classes
    """

    keep_first: float = 0.2
    keep_step: float = 0.05
    keep_max: float = 0.5
    labels: str = "mode"
    weights: str = "equal"
    temperature: float = 1.0
    alpha: float = 0.25
    floor: float = 0.05
    selects: str = "class"

    def __post_init__(self) -> None:
        require(0 < self.keep_first <= 1, f"keep_first must be in (0, 1], got {self.keep_first}", ConfigError)
        check_not_negative(self, "keep_step")
        most = f"keep_max must be 0 (what is expected to be right) or in [keep_first, 1] = [{self.keep_first}, 1]"
        in_order = self.keep_max == 0 or self.keep_first <= self.keep_max <= 1
        require(in_order, f"{most}, got {self.keep_max}", ConfigError)
        for name, allowed in (("labels", LABELS), ("weights", WEIGHTS), ("selects", SELECTS)):
            check_choice(self, name, allowed)
        for name in ("temperature", "alpha", "floor"):
            require(getattr(self, name) > 0, f"{name} must be positive, got {getattr(self, name)}", ConfigError)

    def share_of_round(self, round_number: int) -> float:
        """`keep_first` for the first retraining, then growing."""
        return min(self.keep_first + self.keep_step * round_number, self.keep_max or 1.0)

    def fit(self, stream: Sequence[LabelDistribution], round_number: int) -> State:
        """The exact order statistic of each class, or of all sites, by two passes of counting."""
        classes, most = stream[0].mean.shape[1], self.share_of_round(round_number)
        groups = classes if self.selects == "class" else 1
        keep = most if self.keep_max else self._expected(stream, groups).clamp_max(most)
        pairs = [self._thresholds(stream, range(groups)[first:][:AT_ONCE], keep) for first in range(0, groups, AT_ONCE)]
        threshold, share = (torch.cat(parts).repeat(classes // groups) for parts in zip(*pairs, strict=True))
        weight = self._mean_weight(stream, threshold) if self.weights == "inverse_variance" else torch.ones(())
        return {"threshold": threshold, "share": share, "weight": weight}

    def _thresholds(
        self, stream: Sequence[LabelDistribution], groups: range, keep: float | Tensor
    ) -> tuple[Tensor, Tensor]:
        """threshold and share of some groups; whole numbers are counted, so it does not matter which go together."""
        keep = keep[groups.start : groups.stop] if isinstance(keep, Tensor) else keep
        if isinstance(stream, list) and sum(map(len, stream)) <= selection.SORTED_SITES:
            sites = zip(*self._keys(stream, groups), strict=True)
            group, key = (torch.cat(columns) for columns in sites)
            return selection.sort_thresholds(group, key, len(groups), keep)
        high, low = torch.zeros(2, len(groups), selection.RADIX_BINS, dtype=torch.int64)
        for group, key in self._keys(stream, groups):
            selection.high_counts(group, key, len(groups), into=high)
        chosen, _ = selection.rank_bin(high, selection.ranks(high, keep))
        for group, key in self._keys(stream, groups):
            selection.low_counts(group, key, chosen, into=low)
        return selection.threshold_of(high, low, keep)

    def _keys(self, stream: Sequence[LabelDistribution], groups: range) -> Iterator[tuple[Tensor, Tensor]]:
        """The sites of these groups, part by part: place of the group among them, and key of the uncertainty."""
        for part in stream:
            place, key = self._group(part) - groups.start, selection.order_key(part.uncertainty)
            if self.selects == "class" and part.mean.shape[1] > len(groups):
                here = (place >= 0) & (place < len(groups))
                place, key = place[here], key[here]
            yield place, key

    def _group(self, part: LabelDistribution) -> Tensor:
        """Which threshold each site is for."""
        return part.label if self.selects == "class" else torch.zeros_like(part.label)

    def _expected(self, stream: Sequence[LabelDistribution], groups: int) -> Tensor:
        """(groups) the mean probability of the labels: the share of them that is expected to be right."""
        sums = torch.zeros(2, groups, dtype=torch.float64)
        for part in stream:
            terms = torch.stack([part.mean.amax(1).double(), torch.ones(len(part), dtype=torch.float64)])
            sums.index_add_(1, self._group(part), terms)
        total, count = sums
        expected: Tensor = total / count.clamp_min(1)
        return expected

    def _mean_weight(self, stream: Sequence[LabelDistribution], threshold: Tensor) -> Tensor:
        """The mean of 1 / (Var + floor) over the sites up to the threshold: what weights are measured by."""
        sums = torch.zeros(2, dtype=torch.float64)
        for part in stream:
            sure = part.uncertainty.float().clamp_min(0) <= threshold[part.label]
            raw = 1 / (part.variance.sum(1)[sure].double().clamp_min(0) + self.floor)
            sums += torch.stack([raw.sum(), torch.tensor(float(len(raw)), dtype=torch.float64)])
        total, count = sums
        return (total / count).float() if float(count) else torch.ones(())

    def select(
        self, distribution: LabelDistribution, state: State, ids: Tensor, seed: int, round_number: int
    ) -> PseudoLabels:
        """Trusted sites with the label and the weight that the settings ask for."""
        mode = distribution.label
        score, threshold = distribution.uncertainty, state["threshold"]
        at = torch.nonzero(score.float().clamp_min(0) == threshold[mode]).squeeze(1)  # only these need a draw
        chance = torch.ones(len(mode), dtype=torch.float64)
        chance[at] = uniforms(ids[at], seed, "ties", round_number)
        trusted = selection.is_trusted(mode, score, threshold, state["share"], chance)
        label = mode
        if self.labels == "draw":
            label = moments.draw_labels(
                distribution.mean, uniforms(ids, seed, "hard labels", round_number), self.temperature
            )
        weight = torch.ones(len(mode))
        if self.weights == "inverse_variance":
            # summed in float64: how float32 rounds depends on how many rows are beside each other
            variance = distribution.variance.double().sum(1).float()
            weight = losses.inverse_variance(variance, self.floor, mean=state["weight"])
        return PseudoLabels(
            torch.where(trusted, label, -1), torch.where(trusted, weight, 0.0), self._target(distribution, state)
        )

    def _target(self, distribution: LabelDistribution, state: State) -> Tensor | None:
        if self.labels == "soft":
            return distribution.mean
        if self.labels in ("entropy", "l2"):
            # The confidence at the threshold; a class that trusts nothing keeps 1, so that it gains nothing.
            ceiling = torch.where(state["threshold"] >= 0, 1 - state["threshold"], 1.0)
            smooth = losses.entropy_smoothed if self.labels == "entropy" else losses.l2_smoothed
            return smooth(distribution.mean, ceiling, self.alpha)
        return None
