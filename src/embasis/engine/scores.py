"""What is known of a round without a true label: scores by which it can be chosen, and what its basis stands for.

| score | meaning; higher is better |
| --- | --- |
| information | H(mean prediction) − mean H(prediction), in units of log C: sure, and of many classes |
| agreement | share of unlabelled rows where labeller and network name the same class |
| entropy | 1 − mean H(prediction) / log C: sure |
| density | −(1/n) Σ_ij P_ij log P_ij, P_i = softmax over j ≠ i of cosine(prediction_i, prediction_j) / 0.05:
  predictions that lie in tight groups (soft-neighbourhood density, on DENSITY_SITES sites drawn by their ids) |
| labelled_accuracy | the network's accuracy on the labelled rows it was trained on |
| validation | share of right labels among the sites of held-out labelled rows |
| embedded_validation | 1 − (E[w·wrong] + η (E[w] − 1)), η = −Cov(w·wrong, w) / Var(w): the same for the unlabelled
  side, by importance weights w of held-out sites (deep embedded validation; engine/holdout.py) |

The last two are there where the plan holds rows out. All are written down in every round; `plan.keep_round` names the
one by which a round is kept. Predictions are the labels' distributions, not the network's own.

| of the basis | shape | meaning |
| --- | --- | --- |
| p | k c | class probabilities of each component |
| z | n k | responsibilities of the unlabelled sites |
| w | n | how many sites of the side each one stands for |
| share | k | Σ_n w_n z_nk / Σ_n w_n |
| nearest | k m | ids of the rows with the largest kernel values, the nearest first |

The basis is summarised from features that a round holds anyway: one product with the basis, no pass over the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from embasis.engine.holdout import HeldOut
from embasis.engine.label_chunks import label_chunk
from embasis.engine.labels import LabelBatch
from embasis.functional.metrics import class_counts
from embasis.functional.sites import softmax_by_class
from embasis.functional.validation import accuracy_of, embedded_risk, neighbourhood_density
from embasis.randomness import uniforms
from embasis.types import Features, Labeller, State

DENSITY_SITES = 2048
"""The most sites by which density is measured: the same ones in every round."""
NEAREST = 5
"""Rows that are named for each component of a basis."""


@dataclass(eq=False)
class LabelSummary:
    """Sums over the unlabelled sites: of their labels, of what is trusted, and of what the scores need."""

    classes: int
    seed: int = 0
    counts: Tensor = field(init=False)
    """(C) labels of each class"""
    trusted: Tensor = field(init=False)
    """(C) trusted labels of each class"""
    mean: Tensor = field(init=False)
    """(C) Σ p"""
    entropy: float = 0.0
    trusted_probability: float = 0.0
    """Σ probability of the trusted labels"""
    agreeing: int = 0
    by_part: list[Tensor] = field(default_factory=list)
    """for each part (C) trusted labels of each class"""
    sample: Tensor = field(init=False)
    """(n, C) predictions of the sites of the smallest keys, a key being a hash of a site's id"""
    keys: Tensor = field(init=False)
    """(n) those keys, rising"""

    def __post_init__(self) -> None:
        self.sample, self.keys = torch.empty(0, self.classes), torch.empty(0, dtype=torch.float64)
        self.counts, self.trusted = torch.zeros(2, self.classes, dtype=torch.int64)
        self.mean = torch.zeros(self.classes, dtype=torch.float64)

    def add(self, part: LabelBatch) -> None:
        """Take in all sites of a part."""
        wide, label = part.distribution.mean.double(), part.distribution.label
        self.counts += class_counts(label, self.classes)
        self.by_part.append(class_counts(part.pseudo.label, self.classes))
        self.trusted += self.by_part[-1]
        self.mean += wide.sum(0)
        self.entropy += float(torch.special.entr(wide).sum())
        self.trusted_probability += float(wide.amax(1)[part.pseudo.label >= 0].sum())
        self.agreeing += int((label == part.network).sum())
        self._draw(part)

    def _draw(self, part: LabelBatch) -> None:
        """The smallest keys of two parts together are the smallest of all, so parts do not matter."""
        key = uniforms(part.ids, self.seed, "density")
        if len(self.keys) == DENSITY_SITES:
            near = torch.nonzero(key < self.keys[-1]).squeeze(1)
            mean, key = part.distribution.mean[near], key[near]
        else:
            mean = part.distribution.mean
        keys = torch.cat([self.keys, key])
        first = torch.argsort(keys, stable=True)[:DENSITY_SITES]
        self.sample, self.keys = torch.cat([self.sample, mean.float()])[first], keys[first]

    @property
    def sites(self) -> int:
        """How many there are."""
        return int(self.counts.sum())

    def expected_precision(self) -> float | None:
        """How many of the trusted labels are right by their own probabilities; None without any."""
        trusted = int(self.trusted.sum())
        return self.trusted_probability / trusted if trusted else None

    def information(self) -> float:
        """H(E p) − E H(p), divided by log C; in [0, 1]."""
        if not self.sites or self.classes < 2:
            return 0.0
        whole = float(torch.special.entr(self.mean / self.sites).sum())
        return (whole - self.entropy / self.sites) / math.log(self.classes)

    def certainty(self) -> float:
        """1 − E H(p) / log C; in [0, 1]."""
        if not self.sites or self.classes < 2:
            return 0.0
        return 1 - self.entropy / self.sites / math.log(self.classes)


def summarise_labels(parts: Iterable[LabelBatch], classes: int, seed: int = 0) -> LabelSummary:
    """Sums over all unlabelled sites."""
    summary = LabelSummary(classes, seed)
    for part in parts:
        summary.add(part)
    return summary


def held_out_scores(held: HeldOut | None, labeller: Labeller, state: State) -> dict[str, float]:
    """The scores that need labelled rows of their own; none without them."""
    if held is None:
        return {}
    chunks = held.whole.chunks
    label = torch.cat([label_chunk(labeller, part, state).label for part in chunks])
    truth, share = torch.cat([part.y for part in chunks]), torch.cat([part.site_weight for part in chunks])
    wrong = label_chunk(labeller, held.sites, state).label != held.sites.y
    return {
        "validation": accuracy_of(label, truth, share),
        "embedded_validation": 1 - embedded_risk(wrong.double(), held.weight),
    }


def label_free_scores(summary: LabelSummary, labelled: list[Features]) -> dict[str, float]:
    """All scores of this round."""
    named, truth, share = (
        torch.cat(columns)
        for columns in zip(*((part.scores.argmax(1), part.y, part.site_weight) for part in labelled), strict=True)
    )
    return {
        "information": summary.information(),
        "entropy": summary.certainty(),
        "density": neighbourhood_density(summary.sample),
        "agreement": summary.agreeing / summary.sites if summary.sites else 1.0,
        "labelled_accuracy": accuracy_of(named, truth, share),
    }


@dataclass(frozen=True, eq=False)
class BasisSummary:
    """The components of a round's basis."""

    p: Tensor
    share: Tensor
    nearest: Tensor
    """(k, m) ids; m = 0 where rows have many sites"""


@torch.no_grad()
def summarise_basis(
    labeller: Labeller, chunks: Sequence[Features], state: State, many_sites: bool
) -> BasisSummary | None:
    """None where the labeller has no basis, or there are no sites."""
    p = labeller.component_probability(state)
    if p is None or not any(len(chunk) for chunk in chunks):
        return None
    components = len(p)
    mass, total = torch.zeros(components, dtype=torch.float64), 0.0
    score, ids = torch.empty(0, components), torch.empty(0, components, dtype=torch.int64)
    for chunk in chunks:
        near = labeller.component_scores(chunk, state)
        weight = chunk.site_weight.double()
        mass += softmax_by_class(near).double().T @ weight
        total += float(weight.sum())
        if not many_sites:
            score, ids = nearest_of(torch.cat([score, near]), torch.cat([ids, repeat_ids(chunk.ids, components)]))
    return BasisSummary(p.float(), (mass / total).float(), ids.T.contiguous())


def repeat_ids(ids: Tensor, count: int) -> Tensor:
    """(n, count) the same ids in each column."""
    return ids.unsqueeze(1).expand(-1, count)


def nearest_of(score: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The NEAREST rows of each column by their score, the first ones where several are equal."""
    order = score.argsort(dim=0, descending=True, stable=True)[:NEAREST]
    return score.gather(0, order), ids.gather(0, order)
