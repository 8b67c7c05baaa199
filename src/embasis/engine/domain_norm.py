"""Both domains alike before the classifier: the unlabelled side's features are matched to the labelled side's.

| symbol | shape | meaning |
| --- | --- | --- |
| c, s | d | centre and scale of the labelled side, fixed when training begins |
| centre, scale | d | of the unlabelled side: (x − centre) / scale is distributed as (x − c) / s on the labelled side |

"Distributed" means mean and deviation of each feature; they need no labels. Only networks with `domains` have this:
those of images.
"""

from __future__ import annotations

from torch import Tensor, nn

from embasis.engine.features import FeatureSample, sample_features, score_again
from embasis.functional.sites import centre_and_scale, matched_scale, sum_parts
from embasis.networks.network import DomainNorm, Network
from embasis.types import Features, Plan, Problem


def domain_norm_of(network: nn.Module) -> DomainNorm | None:
    """The network's scales by domain, if it has any."""
    return network.domains if isinstance(network, Network) else None


def init_domain_norm(network: nn.Module, problem: Problem, plan: Plan) -> None:
    """Before the first step: each side's own mean and deviation."""
    scales = domain_norm_of(network)
    if scales is None:
        return
    mean, deviation = statistics(sample_features(network, problem.labelled, plan, True, 0, balanced=False).chunks)
    scales.centre[0], scales.scale[0] = mean, deviation
    scales.centre[1], scales.scale[1] = mean, deviation
    if len(problem.unlabelled) and not problem.same_domain:
        unlabelled = sample_features(network, problem.unlabelled, plan, False, 0, balanced=False)
        scales.centre[1], scales.scale[1] = statistics(unlabelled.chunks)


def match_domains(
    network: nn.Module, labelled: FeatureSample, unlabelled: FeatureSample, problem: Problem, plan: Plan
) -> FeatureSample:
    """The unlabelled features with scores by scales that are new: the sides are alike again after training.

    The new scales are written to the network, in place."""
    scales = domain_norm_of(network)
    if not isinstance(network, Network) or scales is None or not unlabelled.chunks or problem.same_domain:
        return unlabelled
    fixed = scales.centre[0].cpu().double(), scales.scale[0].cpu().double()
    new = matched_scale(fixed, statistics(labelled.chunks), statistics(unlabelled.chunks))
    scales.centre[1], scales.scale[1] = new
    chunks = [score_again(network, chunk, problem.unlabelled, plan) for chunk in unlabelled.chunks]
    return FeatureSample(chunks, unlabelled.whole)


def statistics(chunks: list[Features]) -> tuple[Tensor, Tensor]:
    """(d) mean and deviation over all chunks."""
    return centre_and_scale(*sum_parts((chunk.x for chunk in chunks), len(chunks), chunks[0].x.shape[1]))
