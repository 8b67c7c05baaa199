"""The labeller of this project: EM basis, label distribution, uncertainty (method, sections 2 to 4).

| state | shape | meaning |
| --- | --- | --- |
| centre, scale | 2 d | mean and standard deviation of the labelled (0) and the unlabelled side (1) |
| mu | k d | the basis, unit rows |
| weight, bias | c d, c | the linear head f |
| sharpness | () | concentration of the components |
| p | k c | class probabilities of each component |
| tempering | () | power that makes the network no surer than the basis |
| taught | c | from round 1 on: trusted labels of each class that the network was trained on beside the labelled side |
| shares | 2 c | where they are estimated: class shares of the network's training, and of the unlabelled side |
| agreement, sound | () | κ of basis and network on the unlabelled side; 1 where that is enough, else 0 |
| alive, effective | () | components with mass; exp entropy of the mass |
| digest | 32 | sha256 of the features and labels that all this was learned from |
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from embasis.distributed import all_sum
from embasis.errors import ConfigError, require
from embasis.functional import basis, em, losses, moments, shares, sites, witness
from embasis.methods.fitting import (
    CERTAIN,
    Said,
    components_for,
    domain_statistics,
    fingerprint,
    is_unlabelled,
    labelled_shares,
    leading,
    mean_entropy,
    moved_by_em,
    opinions,
    owners,
    prepare,
    prepared,
    weights_of,
)
from embasis.methods.head import Sides, counted, learned
from embasis.randomness import generator
from embasis.types import Features, LabelDistribution, State, Stream

CENTRING = ("domain", "joint", "none")
STARTS = ("class_means", "stage1")
HEADS = ("linear", "counts")
KERNELS = ("dot", "gaussian")
PRIORS = ("auto", "labelled", "estimated")
UNCERTAINTIES = ("total_sum", "between_sum", "total_label", "between_label", "confidence", "literal")


@dataclass(frozen=True)
class EMBasisLabeller:
    """Basis by EM over both domains, a head on the basis, and the network's own prediction as further evidence."""

    classes: int
    per_class: int = 0
    """0 = three, more with many rows, fewer with fewer rows than that (decision 0018)."""
    sharpness: float = 0.0
    """0 = so that a site spreads over `perplexity` components on average (decision 0002)."""
    perplexity: float = 0.0
    """0 = as many components as one class has, at least 2."""
    iterations: int = 10
    kernel: str = "dot"
    centring: str = "domain"
    start: str = "class_means"
    head: str = "linear"
    head_penalty: float = 1e-3
    variance_weight: float = 0.0
    balance_weight: float = 1.0
    """weight of the balance term, in units of variance_weight."""
    sigma: float = 0.0
    draws: int = 0
    """sigma > 0: draws for the component probabilities; 0 = closed form."""
    evidence: float = 1.0
    """power of the network's own probabilities in the label distribution; 0 = the basis alone."""
    temper: bool = True
    """First soften the network's probabilities until they are, on average, no surer than the basis's."""
    joint: bool = True
    """EM hears labels and the network, too: a component has the sites that are likely of its class (decision 0024)."""
    least_agreement: float = 0.35
    """Where basis and network agree by less (Cohen's κ), the network may label alone (decision 0025); 0: never."""
    uncertainty: str = "total_sum"
    carry: bool = False
    """Start each round's EM from the last round's basis instead of the labelled class means."""
    prior: str = "auto"
    """Class shares that labels are judged by: the labelled side's, or estimated ones of the unlabelled side.
    auto: estimated where the basis is fitted on a sample with classes in equal parts (decision 0021)."""
    prior_strength: float = 1.0
    """estimated: the labelled side's shares count so many times as much as the unlabelled sites."""
    weight: float = 1.0
    """estimated: that of trusted labels in the network's training, where the labelled side's have 1."""

    def __post_init__(self) -> None:
        def check(rule: bool, text: str) -> None:
            require(rule, text, ConfigError)

        check(self.per_class >= 0, f"per_class must be at least 0, got {self.per_class}")
        check(self.iterations >= 0, f"iterations must be at least 0, got {self.iterations}")
        check(self.draws >= 0, f"draws must be at least 0, got {self.draws}")
        for name in (
            "sharpness", "head_penalty", "variance_weight", "balance_weight", "sigma", "evidence", "least_agreement",
            "prior_strength", "weight",
        ):  # fmt: skip
            check(getattr(self, name) >= 0, f"{name} must be at least 0, got {getattr(self, name)}")
        check(
            self.perplexity == 0 or self.perplexity > 1,
            f"perplexity must be over 1, or 0 for one class's components, got {self.perplexity}",
        )
        for name, allowed in (
            ("kernel", KERNELS), ("centring", CENTRING), ("start", STARTS), ("head", HEADS),
            ("uncertainty", UNCERTAINTIES), ("prior", PRIORS),
        ):  # fmt: skip
            value = getattr(self, name)
            check(value in allowed, f"{name} must be one of {', '.join(allowed)}, got {value!r}")

    def fit(self, stream: Stream, start: State, seed: int, round_number: int) -> State:
        """The basis and its head; then how far the network's own prediction is to be softened beside them."""
        state = dict(self._fit_basis(stream, start, seed, round_number))
        z = [self._responsibilities(part, state) for part in stream]
        agreement, sound = self._opinions(stream, z, state)
        state |= {"agreement": torch.tensor(agreement), "sound": torch.tensor(float(sound))}
        state["tempering"] = torch.tensor(self._tempering(stream, z, state) if sound else 1.0)
        if self._estimates(stream):
            state["shares"] = self._shares(stream, z, state)
        return state

    def _fit_basis(self, stream: Stream, start: State, seed: int, round_number: int) -> State:
        """Statistics of the domains → first basis → sharpness → EM → head; the old state when nothing has changed."""
        digest = fingerprint(stream, self.joint and self.evidence > 0)
        same = self._repeats() and "digest" in start and torch.equal(start["digest"], digest)
        # Summed, because the others wait for this process's sums: all go on or none does.
        if not float(all_sum(torch.tensor(0.0 if same else 1.0))):
            return {name: value for name, value in start.items() if name != "proposal"}
        centre, scale = domain_statistics(stream, self.centring)
        rows = prepared(stream, centre, scale)
        labelled = [part.y >= 0 for part in stream]
        per_class = self.centres_of_a_class(sum(len(row) for row in rows))
        mu, owner = self._first_basis(rows, stream, start, per_class)
        sharpness = self._sharpness(rows, labelled, mu, per_class)
        first = {"centre": centre, "scale": scale, "mu": mu, "sharpness": torch.tensor(sharpness)}
        first |= {"taught": start["taught"]} if "taught" in start else {}
        said = self._said(rows, stream, first, owner) if self.joint else None
        mu, stats, alive = moved_by_em(rows, labelled, mu, sharpness, self.iterations, self.kernel, said)
        weight, bias, p = self._head(rows, stream, mu, sharpness, seed, round_number)
        return {
            **first, "mu": mu, "weight": weight, "bias": bias, "p": p, "alive": alive.sum(),
            "effective": torch.tensor(em.effective_components(stats.mass)), "digest": digest,
        }  # fmt: skip

    def label(self, features: Features, state: State) -> LabelDistribution:
        """Responsibilities, mixed with the class probabilities of the components and the network's evidence."""
        z = self._responsibilities(features, state)
        q = self._evidence(features.scores, state)
        mean, between, within = moments.label_moments(z, self._named(state), q)
        if "power" in state:
            mean, between, within = witness.powered(mean, between, within, float(state["power"]))
        if self.uncertainty == "literal":  # the paper's own words, kept for comparison (decision 0004)
            noise = torch.randn(self.draws or LITERAL_DRAWS, features.x.shape[1], generator=generator(0, "literal"))
            spread = moments.literal_moments(z, state["mu"], state["weight"], state["bias"], noise)[1]
            return LabelDistribution(mean, between, within, spread.sum(1))
        return LabelDistribution(
            mean, between, within, moments.scalar_uncertainty(mean, between, within, self.uncertainty)
        )

    def _named(self, state: State) -> Tensor:
        """(K, C) class probabilities of the components; where the basis is not believed they say nothing."""
        return state["p"] if float(state.get("sound", 1.0)) else torch.full_like(state["p"], 1 / self.classes)

    def _opinions(self, stream: Stream, z: list[Tensor], state: State) -> tuple[float, bool]:
        """Cohen's κ of basis and network on the unlabelled side, and whether the basis is believed beside it."""
        if self.evidence == 0:
            return 1.0, True
        labels = (((found @ state["p"]).argmax(1), part) for found, part in zip(z, stream, strict=True))
        agreement, basis, network = opinions(labels, self.classes)
        return agreement, agreement >= self.least_agreement or self.least_agreement == 0 or network < basis

    def _responsibilities(self, features: Features, state: State) -> Tensor:
        x = prepare(features, state["centre"], state["scale"])
        return em.responsibilities(x, state["mu"], float(state["sharpness"]), self.kernel)

    def _evidence(self, scores: Tensor, state: State) -> Tensor | None:
        """The network's own probabilities, tempered; where shares were estimated, by these."""
        power = self.evidence * float(state["tempering"])
        if "shares" in state:
            trained, here = state["shares"].float()
            return shares.exchanged(scores.float().log_softmax(1), trained, here, power)
        return (power * scores.float()).softmax(1) if self.evidence > 0 else None

    def _estimates(self, stream: Stream) -> bool:
        """Whether the head is to have no class shares of its own, and the unlabelled side's are estimated."""
        return self.prior == "estimated" or (self.prior == "auto" and weights_of(stream) is not None)

    def _shares(self, stream: Stream, z: list[Tensor], state: State) -> Tensor:
        """(2, C) class shares that the network was trained with, and those of the unlabelled side."""
        unlabelled = [part for part in stream if is_unlabelled(part)]
        known = labelled_shares(stream, self.classes)
        trained = shares.taught_shares(known, state.get("taught"), self.weight)
        even = {**state, "shares": torch.stack([trained, torch.full_like(known, 1 / self.classes)])}
        pairs = zip(z, stream, strict=True)
        found = [self._likelihood(part, each, even) for each, part in pairs if is_unlabelled(part)]
        found = found or [known.unsqueeze(0)]
        here = shares.estimated_shares(torch.cat(found), known, self.prior_strength, weights_of(unlabelled))
        return torch.stack([trained, here.clamp_min(TINY)])

    def _likelihood(self, part: Features, z: Tensor, state: State) -> Tensor:
        """(n, C) of basis and network together, up to a factor of each site."""
        q = self._evidence(part.scores, state)
        assert q is not None
        return (z @ self._named(state)).clamp_min(TINY) * q.clamp_min(TINY)

    def nearness(self, features: Features, state: State) -> Tensor:
        """(N, K) how near each site is to each component: the log of z, up to a constant of the row."""
        x = prepare(features, state["centre"], state["scale"])
        return em.kernel_scores(x, state["mu"], float(state["sharpness"]), self.kernel)

    def _repeats(self) -> bool:
        """Whether the same features give the same state: no draw, and no start from the last basis."""
        return not (self.carry or self.start == "stage1" or (self.sigma > 0 and self.draws > 0))

    def _tempering(self, stream: Stream, z: list[Tensor], state: State) -> float:
        """The network's power at which its mean entropy over unlabelled rows is that of the basis."""
        unlabelled = [part for part in stream if is_unlabelled(part)]
        if not self.temper or self.evidence == 0 or not unlabelled:
            return 1.0
        asked = mean_entropy(stream, z, state["p"])
        return moments.tempering(torch.cat([part.scores for part in unlabelled]), asked, weight=weights_of(unlabelled))

    def centres_of_a_class(self, rows: int) -> int:
        """Components of each class: as asked for, or as the rows allow."""
        most = rows // self.classes
        require(
            self.per_class <= most or self.per_class == 0,
            f"per_class = {self.per_class} asks for {self.per_class * self.classes} components, "
            f"but there are only {rows} rows",
        )
        return self.per_class or max(1, min(most, components_for(most)))

    def _first_basis(
        self, rows: list[Tensor], stream: Stream, start: State, per_class: int
    ) -> tuple[Tensor, Tensor | None]:
        """The basis that EM begins with, and the class of each component where that is known."""
        if self.start == "stage1" and "proposal" in start:
            return sites.unit_rows(start["proposal"]), None
        if (self.carry or self.start == "stage1") and "mu" in start:
            return start["mu"], None
        y = torch.cat([part.y for part in stream])
        x = torch.cat([row[part.y >= 0] for row, part in zip(rows, stream, strict=True)])
        mu, owner = basis.class_means(x, y[y >= 0], self.classes, per_class)
        return sites.unit_rows(mu), owner

    def _said(self, rows: list[Tensor], stream: Stream, first: State, owner: Tensor | None) -> Said:
        """Labels, and what the network says of unlabelled sites: no surer than the first basis, in the same shares."""
        if owner is None:
            owner = owners(rows, stream, first["mu"], float(first["sharpness"]), self.kernel, self.classes)
        state = {**first, "p": losses.one_hot(owner, self.classes)}
        z = [em.responsibilities(row, first["mu"], float(first["sharpness"]), self.kernel) for row in rows]
        state["tempering"] = torch.tensor(self._tempering(stream, z, state))
        if self._estimates(stream) and self.evidence > 0:
            state["shares"] = self._shares(stream, z, state)
        words = list[Tensor]()
        for part in stream:
            heard = self._evidence(part.scores, state) if is_unlabelled(part) else losses.one_hot(part.y, self.classes)
            words.append(torch.zeros_like(part.scores) if heard is None else heard.float().clamp_min(CERTAIN).log())
        return Said(words, owner)

    def _sharpness(self, rows: list[Tensor], labelled: list[Tensor], mu: Tensor, per_class: int) -> float:
        if self.sharpness > 0:
            return self.sharpness
        target = self.perplexity or max(float(per_class), 2.0)
        sample = leading(row[~flag] for row, flag in zip(rows, labelled, strict=True))
        sample = sample if len(sample) else leading(rows)
        return em.sharpness_for_perplexity(sample @ mu.T, min(target, len(mu) * 0.9))

    def _head(
        self, rows: list[Tensor], stream: Stream, mu: Tensor, sharpness: float, seed: int, round_number: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """weight, bias and p of the head on the final basis (decision 0005)."""
        z = torch.cat([em.responsibilities(row, mu, sharpness, self.kernel) for row in rows])
        even = self._estimates(stream)  # a head without shares of its own
        sides = Sides.of(z, torch.cat([part.y for part in stream]), weights_of(stream), self.classes, even)
        if self.head == "counts":
            return counted(sides, mu.shape[1])
        noise = None
        if self.sigma > 0 and self.draws > 0:
            noise = torch.randn(self.draws, mu.shape[1], generator=generator(seed, "head", round_number))
        return learned(sides, mu, self.sigma, noise, self.head_penalty, self.variance_weight, self.balance_weight)


TINY = 1e-6
"""The least share of a class, and the least likelihood."""
LITERAL_DRAWS = 64
"""Draws of the literal reading where none are asked for."""
