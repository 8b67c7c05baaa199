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

from embasis.engine.extract import rescored
from embasis.engine.survey import Survey, survey
from embasis.functional.sites import centre_and_scale, matched_scale, summed
from embasis.networks.model import DomainScale, Network
from embasis.types import Features, Plan, Problem


def scales_of(network: nn.Module) -> DomainScale | None:
    """The network's scales by domain, if it has any."""
    return network.domains if isinstance(network, Network) else None


def begin_scales(network: nn.Module, problem: Problem, plan: Plan) -> None:
    """Before the first step: each side's own mean and deviation."""
    scales = scales_of(network)
    if scales is None:
        return
    mean, deviation = statistics(survey(network, problem.labelled, plan, True, 0, balanced=False).chunks)
    scales.centre[0], scales.scale[0] = mean, deviation
    scales.centre[1], scales.scale[1] = mean, deviation
    if len(problem.unlabelled) and not problem.shared:
        found = survey(network, problem.unlabelled, plan, False, 0, balanced=False)
        scales.centre[1], scales.scale[1] = statistics(found.chunks)


def matched(network: nn.Module, labelled: Survey, unlabelled: Survey, problem: Problem, plan: Plan) -> Survey:
    """The unlabelled features with scores by scales that are new: the sides are alike again after training."""
    scales = scales_of(network)
    if not isinstance(network, Network) or scales is None or not unlabelled.chunks or problem.shared:
        return unlabelled
    fixed = scales.centre[0].cpu().double(), scales.scale[0].cpu().double()
    new = matched_scale(fixed, statistics(labelled.chunks), statistics(unlabelled.chunks))
    scales.centre[1], scales.scale[1] = new
    chunks = [rescored(network, chunk, problem.unlabelled, plan) for chunk in unlabelled.chunks]
    return Survey(chunks, unlabelled.whole)


def statistics(chunks: list[Features]) -> tuple[Tensor, Tensor]:
    """(d) mean and deviation over all chunks."""
    return centre_and_scale(*summed((chunk.x for chunk in chunks), len(chunks), chunks[0].x.shape[1]))
