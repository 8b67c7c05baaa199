"""The part `fusion`: how the network's own probability enters the label distribution. The paper has no such part.

| symbol | shape | meaning |
| --- | --- | --- |
| z | n K | responsibilities of a chunk of sites |
| p | K C | class probabilities of each component |
| q | n C | the network's probabilities as they enter: softened, and by the class priors of the unlabelled side |
| inverse_temperature | () | power ≤ 1 of the network's probabilities |
| priors | 2 C | class priors of the network's training, and of the unlabelled side |

The basis gives Σ_k z_nk p_k, the network q_n; the label distribution is their product, normalised.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from embasis.errors import check_choice, check_not_negative
from embasis.functional import moments
from embasis.functional.metrics import kappa
from embasis.functional.sites import softmax_by_class
from embasis.methods.em_basis.features import is_unlabelled, weights_of
from embasis.types import Features, Stream

PRIORS = ("auto", "labelled", "estimated")
LEAST_PRIOR = 1e-6
"""The least prior of a class, and the least likelihood."""


@dataclass(frozen=True)
class Fusion:
    """The network labels beside the basis, unless they hardly agree: then it labels alone.

    Parameters
    ----------
    weight : power of the network's probabilities in the label distribution; 0 = only class priors enter
    soften : first soften the network's probabilities until they are, on average, no surer than the basis's
    min_kappa : where basis and network agree by less (Cohen's κ) the network may label alone (decision 0025); 0 = never
    class_priors : those of the label distribution: "labelled" = the labelled side's, "estimated" = the unlabelled
        side's, "auto" = estimated where the basis is fitted on a sample with classes in equal parts (decision 0021)
    prior_strength : "estimated": the labelled side's priors count so many times as much as the unlabelled sites
    unlabelled_weight : "estimated": that of pseudo-labels in the network's training, where the labelled side's have 1
    """

    weight: float = 1.0
    soften: bool = True
    min_kappa: float = 0.35
    class_priors: str = "auto"
    prior_strength: float = 1.0
    unlabelled_weight: float = 1.0

    def __post_init__(self) -> None:
        check_not_negative(self, "weight", "min_kappa", "prior_strength", "unlabelled_weight")
        check_choice(self, "class_priors", PRIORS)

    def estimates_priors(self, stream: Stream) -> bool:
        """Whether the head is to have no class priors of its own, and the unlabelled side's are estimated."""
        return self.class_priors == "estimated" or (self.class_priors == "auto" and weights_of(stream) is not None)

    def check_basis(self, stream: Stream, z: Sequence[Tensor], p: Tensor) -> tuple[float, bool]:
        """Cohen's κ of basis and network on the unlabelled side, and whether the basis is accepted beside it."""
        if self.weight == 0:
            return 1.0, True
        labels = (((each @ p).argmax(1), part) for each, part in zip(z, stream, strict=True))
        agreement, basis, network = agreement_with_network(labels, p.shape[1])
        return agreement, agreement >= self.min_kappa or self.min_kappa == 0 or network < basis

    def find_inverse_temperature(self, stream: Stream, z: Sequence[Tensor], p: Tensor) -> float:
        """The network's power at which its mean entropy over unlabelled rows is that of the basis."""
        unlabelled = [part for part in stream if is_unlabelled(part)]
        if not self.soften or self.weight == 0 or not unlabelled:
            return 1.0
        entropy = mean_entropy(stream, z, p)
        scores = torch.cat([part.scores for part in unlabelled])
        return moments.inverse_temperature_for_entropy(scores, entropy, weight=weights_of(unlabelled))

    def network_probability(self, scores: Tensor, inverse_temperature: float, priors: Tensor | None) -> Tensor | None:
        """(n, C) q: softened; where priors were estimated, by these. None where nothing enters."""
        power = self.weight * inverse_temperature
        if priors is not None:
            trained, here = priors.float()
            return moments.swap_priors(scores.float().log_softmax(1), trained, here, power)
        return softmax_by_class(power * scores.float()) if self.weight > 0 else None

    def estimate_priors(
        self, stream: Stream, z: Sequence[Tensor], p: Tensor, inverse_temperature: float, counts: Tensor | None
    ) -> Tensor:
        """(2, C) class priors that the network was trained with, and those of the unlabelled side, by EM."""
        classes, unlabelled = p.shape[1], [part for part in stream if is_unlabelled(part)]
        known = labelled_priors(stream, classes)
        trained = moments.training_priors(known, counts, self.unlabelled_weight)
        even = torch.stack([trained, torch.full_like(known, 1 / classes)])
        likelihood = [
            self._likelihood(part, each, p, inverse_temperature, even)
            for each, part in zip(z, stream, strict=True)
            if is_unlabelled(part)
        ] or [known.unsqueeze(0)]
        here = moments.estimate_priors(torch.cat(likelihood), known, self.prior_strength, weights_of(unlabelled))
        return torch.stack([trained, here.clamp_min(LEAST_PRIOR)])

    def _likelihood(self, part: Features, z: Tensor, p: Tensor, inverse_temperature: float, priors: Tensor) -> Tensor:
        """(n, C) of basis and network together, up to a factor of each site."""
        q = self.network_probability(part.scores, inverse_temperature, priors)
        assert q is not None
        return (z @ p).clamp_min(LEAST_PRIOR) * q.clamp_min(LEAST_PRIOR)


def agreement_with_network(labels: Iterable[tuple[Tensor, Features]], classes: int) -> tuple[float, float, float]:
    """Cohen's κ of the basis's labels and the network's over unlabelled sites (1 where there is none), and the share of
    labelled sites that each has right."""
    counts, right, known = torch.zeros(classes**2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64), 0.0
    for label, part in labels:
        other, share = part.scores.argmax(1), part.site_weight.double()
        if is_unlabelled(part):
            counts += torch.bincount(label * classes + other, share, classes**2)
        else:
            right += torch.stack([share @ (each == part.y).double() for each in (label, other)])
            known += float(share.sum())
    total = float(torch.tensor(known))
    agreement = kappa(counts.view(classes, classes)) if float(counts.sum()) else 1.0
    return agreement, float(right[0]) / max(total, 1.0), float(right[1]) / max(total, 1.0)


def mean_entropy(stream: Stream, z: Iterable[Tensor], p: Tensor) -> float:
    """Of the basis's own label distributions z·p on unlabelled rows."""
    entropies, rows = 0.0, 0.0
    for each, part in zip(z, stream, strict=True):
        if not is_unlabelled(part):
            continue
        entropy = torch.special.entr(each @ p)
        entropies += float(entropy.sum() if part.weight is None else part.weight @ entropy.sum(1))
        rows += len(part) if part.weight is None else float(part.weight.double().sum())
    return entropies / rows


def labelled_priors(stream: Stream, classes: int) -> Tensor:
    """(C) class priors of the labelled side, each class with half a site more."""
    y, weight = torch.cat([part.y for part in stream]), torch.cat([part.site_weight for part in stream])
    counts = torch.bincount(y[y >= 0], weight[y >= 0].double(), classes) + 0.5
    return counts / counts.sum()
