"""The labeller of this project: EM basis, head, label distribution, uncertainty (eq. 7 to 15 of docs/method.md).

A round, in the order of `fit` and `label`:

    features   x = unit rows of (features − centre of the side) / scale of the side        features.py
    start      μ(0): labelled class means, Stage I's block, or the last basis              start.py
    E, M step  z_nk ∝ exp(λ x_n·μ_k),  μ_k = Σ_n w_n z_nk x_n / Σ_n w_n z_nk, T times      mixture.py   eq. 12 to 14
    head       p_k = E_ε softmax f(μ_k + σ ε), trained on labels (and low variance)        head.py      eq. 10, 11
    fusion     q_n, the network's own probability, softened; None = the basis alone        fusion.py
    label      mean_n = Σ_k z_nk p_k (· q_n), its variance between and within components   functional/moments.py
    neighbours two thirds of that, a third the mean q_m of the nearest unlabelled sites    neighbours.py
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from embasis.errors import check_choice
from embasis.functional import em, losses, moments
from embasis.functional.calibration import apply_inverse_temperature
from embasis.functional.em import ClassPrior
from embasis.methods.em_basis.features import (
    PreparedSites,
    digest_features,
    domain_statistics,
    is_unlabelled,
    prepare,
    prepare_all,
    weights_of,
)
from embasis.methods.em_basis.fusion import Fusion
from embasis.methods.em_basis.head import CountHead, FittedHead, HeadData, LinearHead
from embasis.methods.em_basis.mixture import Mixture
from embasis.methods.em_basis.neighbours import Neighbours
from embasis.methods.em_basis.start import ClassMeans, Start
from embasis.methods.em_basis.state import EMBasisState, read_counts, read_previous, read_proposal
from embasis.resources import require_memory
from embasis.types import BasisTerms, Features, LabelDistribution, Labeller, State, Stream

RANK_BY = ("gini", "between")
CERTAIN = 1e-12
"""The least prior of a class: what a labelled site's other classes have."""


@dataclass(frozen=True)
class EMBasisLabeller(Labeller):
    """Basis by EM over both domains, a head on the basis, and the network's own prediction beside them.

    Each part is a frozen value; another composition is made by `replace(labeller, fusion=None)`.

    Parameters
    ----------
    classes : their number, C
    start : the basis that EM begins with: `ClassMeans`, `StageOne` or `WarmStart`
    mixture : the E step and the M step
    head : from a component to its class probabilities: `LinearHead` or `CountHead`
    fusion : how the network's own probability enters; None = the basis alone
    neighbours : how the nearest unlabelled sites enter; None = each site is labelled by itself
    rank_by : what sites are ranked by: "gini" = Σ_c mean (1 − mean), all of the variance; "between" = Σ_c between, the
        part by which the components disagree (decision 0004)
    """

    classes: int
    start: Start = field(default_factory=ClassMeans)
    mixture: Mixture = field(default_factory=Mixture)
    head: LinearHead | CountHead = field(default_factory=LinearHead)
    fusion: Fusion | None = None
    neighbours: Neighbours | None = None
    rank_by: str = "gini"

    def __post_init__(self) -> None:
        check_choice(self, "rank_by", RANK_BY)

    @property
    def stage_one(self) -> BasisTerms | None:
        """The block of the source network that proposes the first basis, if the part `start` wants one."""
        return self.start.stage_one(self.classes)

    def require_rows(self, rows: int) -> None:
        """An InputDataError for fewer rows than components."""
        self.start.components_per_class_for(rows, self.classes)

    def alternatives(self, part: str) -> Mapping[str | None, Any]:
        """What may take the place of a part, by the name of its class (methods/parts.py); None = it is left out."""
        stage_one, warm_start = self.start.as_stage_one(self.classes), self.start.as_warm_start()
        whole: dict[str, Mapping[str | None, Any]] = {
            "start": {"ClassMeans": ClassMeans(), "StageOne": stage_one, "WarmStart": warm_start},
            "head": {"LinearHead": LinearHead(), "CountHead": CountHead()},
            "fusion": {"Fusion": Fusion(), None: None},
            "neighbours": {"Neighbours": Neighbours(), None: None},
        }
        return whole.get(part, {})

    def fit(self, stream: Stream, start: State, seed: int, round_number: int) -> State:
        """Basis and head; then how far the network is to be softened beside them, and the class priors."""
        state = self._fit_basis(stream, start, seed, round_number)
        z = [self._responsibilities(part, state) for part in stream]
        kappa, accepted, inverse_temperature, priors = 1.0, True, 1.0, None
        if self.fusion is not None:
            kappa, accepted = self.fusion.check_basis(stream, z, state.component_probability)
            if accepted:
                inverse_temperature = self.fusion.find_inverse_temperature(stream, z, state.component_probability)
        state = replace(
            state,
            kappa=torch.tensor(kappa),
            basis_accepted=torch.tensor(float(accepted)),
            network_inverse_temperature=torch.tensor(inverse_temperature),
        )
        if self.fusion is not None and self.fusion.estimates_priors(stream):
            p, counts = self._component_probability(state), state.pseudo_label_counts
            priors = self.fusion.estimate_priors(stream, z, p, state.network_power, counts)
        return self._keep_neighbours(stream, replace(state, class_priors=priors), seed).to_tensors()

    def label(self, features: Features, state: State) -> LabelDistribution:
        """E step, then the components' class probabilities mixed by z, times the network's probability."""
        learned = EMBasisState.from_tensors(state)
        x = prepare(features, learned.centre, learned.scale)
        z, q = self.mixture.e_step(x, learned.basis, float(learned.sharpness)), None
        if self.fusion is not None:
            q = self.fusion.network_probability(features.scores, learned.network_power, learned.class_priors)
        mean, between, within = moments.label_moments(z, self._component_probability(learned), q)
        if self.neighbours is not None and q is not None and learned.neighbours is not None:
            mean, between, within = self.neighbours.pool((mean, between, within), x, learned.neighbours)
        if learned.inverse_temperature is not None:
            mean, between, within = apply_inverse_temperature(mean, between, within, float(learned.inverse_temperature))
        uncertainty = moments.scalar_uncertainty(mean, between, within, self.rank_by)
        return LabelDistribution(mean, between, within, uncertainty)

    def component_probability(self, state: State) -> Tensor | None:
        """(K, C) class probabilities of the components."""
        previous = read_previous(state)
        return None if previous is None else previous.component_probability

    def component_scores(self, features: Features, state: State) -> Tensor:
        """(N, K) how near each site is to each component: the log of z, up to a constant of the row."""
        learned = EMBasisState.from_tensors(state)
        x = prepare(features, learned.centre, learned.scale)
        return self.mixture.component_scores(x, learned.basis, float(learned.sharpness))

    def without_basis(self, state: State) -> State | None:
        """The state in which the network labels alone, as where it hardly agrees with the basis."""
        learned = EMBasisState.from_tensors(state)
        if self.fusion is None or self.fusion.weight == 0 or not learned.is_accepted:
            return None
        alone = {"basis_accepted": torch.tensor(0.0), "network_inverse_temperature": torch.tensor(1.0)}
        return replace(learned, **alone, neighbour_rows=None, neighbour_probability=None).to_tensors()

    def notes(self, state: State, round_number: int) -> list[str]:
        """A basis that the network hardly agrees with (decision 0025) or that held-out rows are labelled better without
        (decision 0047), and components that are the same."""
        learned, sentences = EMBasisState.from_tensors(state), list[str]()
        if not learned.is_accepted:
            assert learned.kappa is not None
            assert self.fusion is not None
            reason = f"the basis hardly agrees with the network (κ {float(learned.kappa):.2f}), so the network"
            if float(learned.kappa) >= self.fusion.min_kappa:
                reason = "held-out rows are labelled better without the basis, so the learner"
            sentences.append(f"{reason} labels alone in this round")
        components, different = len(learned.basis), len(torch.unique(learned.basis, dim=0))
        if different < components:  # they share their rows, so they have the same mean and never separate again
            why = "there are fewer distinct rows than components"
            sentences.append(f"only {different} of {components} components of round {round_number} differ: {why}")
        return sentences

    def _fit_basis(self, stream: Stream, start: State, seed: int, round_number: int) -> EMBasisState:
        """Centre → first basis → sharpness → E and M steps → head; the old state when nothing has changed."""
        previous, counts = read_previous(start), read_counts(start)
        digest = digest_features(stream, self._is_guided_by_network)
        if self._is_deterministic and previous is not None and torch.equal(previous.digest, digest):
            return previous
        centre, scale = domain_statistics(stream, self.mixture.centring)
        data = PreparedSites(stream, prepare_all(stream, centre, scale), self.classes)
        per_class = self.start.components_per_class_for(data.count, self.classes)
        mu, component_class = self.start.first_basis(data, previous, read_proposal(start), per_class)
        require_responsibility_memory(data, mu, round_number)
        sharpness = self.mixture.find_sharpness(data, mu, per_class)
        priors = self._class_priors(data, mu, sharpness, component_class, counts) if self.mixture.guided else None
        mu, stats, alive = self.mixture.run_em(data, mu, sharpness, priors)
        weight, bias, p = self._fit_head(data, mu, sharpness, seed, round_number)
        effective = torch.tensor(em.effective_components(stats.mass))
        return EMBasisState(
            centre, scale, mu, torch.tensor(sharpness), counts, weight, bias, p, alive.sum(), effective, digest
        )

    def _keep_neighbours(self, stream: Stream, state: EMBasisState, seed: int) -> EMBasisState:
        """Unlabelled sites and the network's probabilities of them; none where it does not enter, or labels alone."""
        state = replace(state, neighbour_rows=None, neighbour_probability=None)
        if self.neighbours is None or self.fusion is None or self.fusion.weight == 0 or not state.is_accepted:
            return state
        sites = self.neighbours.draw_sites(stream, seed)
        if sites is None:
            return state
        probability = self.fusion.network_probability(sites.scores, state.network_power, state.class_priors)
        assert probability is not None
        return replace(
            state,
            neighbour_rows=prepare(sites, state.centre, state.scale),
            neighbour_probability=probability.contiguous(),  # as a run folder gives it back
        )

    def _class_priors(
        self, data: PreparedSites, mu: Tensor, sharpness: float, component_class: Tensor | None, counts: Tensor | None
    ) -> list[ClassPrior]:
        """For each chunk its labels, or the network's probability: no surer than the first basis, by its priors."""
        sharpness = float(torch.tensor(sharpness))  # as it is stored
        if component_class is None:
            component_class = self.mixture.assign_component_classes(data, mu, sharpness)
        p, inverse_temperature, priors = losses.one_hot(component_class, self.classes), 1.0, None
        z = [self.mixture.e_step(row, mu, sharpness) for row in data.rows]
        if self.fusion is not None:
            inverse_temperature = float(torch.tensor(self.fusion.find_inverse_temperature(data.stream, z, p)))
            if self.fusion.estimates_priors(data.stream) and self.fusion.weight > 0:
                priors = self.fusion.estimate_priors(data.stream, z, p, inverse_temperature, counts)
        return [ClassPrior(self._log_prior(part, inverse_temperature, priors), component_class) for part in data.stream]

    def _log_prior(self, part: Features, inverse_temperature: float, priors: Tensor | None) -> Tensor:
        """(n, C) log of how likely each class is before the features are seen; 0 where nothing is known."""
        q: Tensor | None = None
        if not is_unlabelled(part):
            q = losses.one_hot(part.y, self.classes)
        elif self.fusion is not None:
            q = self.fusion.network_probability(part.scores, inverse_temperature, priors)
        return torch.zeros_like(part.scores) if q is None else q.float().clamp_min(CERTAIN).log()

    def _fit_head(self, data: PreparedSites, mu: Tensor, sharpness: float, seed: int, round_number: int) -> FittedHead:
        """weight, bias and p of the head on the final basis."""
        z = (self.mixture.e_step(row, mu, sharpness) for row in data.rows)
        even = self.fusion is not None and self.fusion.estimates_priors(data.stream)  # a head without priors of its own
        y = torch.cat([part.y for part in data.stream])
        return self.head.fit(HeadData.of(z, y, weights_of(data.stream), self.classes, even), mu, seed, round_number)

    def _responsibilities(self, features: Features, state: EMBasisState) -> Tensor:
        x = prepare(features, state.centre, state.scale)
        return self.mixture.e_step(x, state.basis, float(state.sharpness))

    def _component_probability(self, state: EMBasisState) -> Tensor:
        """(K, C) class probabilities of the components; where the basis is not accepted they say nothing."""
        p = state.component_probability
        return p if state.is_accepted else torch.full_like(p, 1 / self.classes)

    @property
    def _is_guided_by_network(self) -> bool:
        """Whether the basis depends on the network's scores."""
        return self.mixture.guided and self.fusion is not None and self.fusion.weight > 0

    @property
    def _is_deterministic(self) -> bool:
        """Whether the same features give the same state: no draw, and no start from the last basis."""
        return self.start.repeats and not self.head.draws_noise


def require_responsibility_memory(data: PreparedSites, mu: Tensor, round_number: int) -> None:
    """Memory for the responsibilities of all rows, which the head is learned from: once in parts, once joined.

    Checked in the first round alone: later ones take the same memory again, which may not count as free any more."""
    need, what = 2 * 4 * data.count * len(mu), f"a basis of {len(mu):,} components on {data.count:,} rows"
    if round_number == 0:
        less = "method.components_per_class=1 takes fewer components"
        require_memory(need, what, f"{less}, plan.max_sites=10000 learns them from fewer rows")
