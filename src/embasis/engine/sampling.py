"""Features of a side that fit in memory: of all its sites, or of a sample in which every class has its part.

| symbol | meaning |
| --- | --- |
| limit | the most sites that are held (plan.max_sites; 0 = no limit) |
| quota | the most sites of one class: limit / C |
| key | a number in [0, 1) for each site, a hash of its id: the sites of the smallest keys are the sample |
| weight | how many of the extracted sites each one of the sample stands for: seen / kept of its class |

The class of a site is its label on the labelled side and the network's on the other one. The smallest keys of two parts
together are the smallest of all, so the sample is the same whatever the parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from embasis.engine.features import extract, join_tensors
from embasis.randomness import permutation, uniforms
from embasis.types import Features, Plan, Samples

LEAST_ROWS = 256
"""Where rows have many sites each, features of at least so many rows are extracted."""
CHUNK_SITES = 4096
"""Sites of a chunk of a sample."""


@dataclass(frozen=True, eq=False)
class FeatureSample:
    """Chunks of features; `whole`: all sites of the side are there, in order."""

    chunks: list[Features]
    whole: bool


def sample_features(
    network: nn.Module, samples: Samples, plan: Plan, labelled: bool, round_number: int, balanced: bool = True
) -> FeatureSample:
    """All sites of a side if they are few, else a sample; `balanced`: with equal parts for all classes."""
    rows = draw_rows(samples, plan, round_number)
    held, count, whole, seen = list[Features](), 0, rows is None, list[Tensor]()
    for chunk in extract(network, samples, plan, labelled, rows):
        held.append(chunk)
        count += len(chunk)
        seen.append(torch.bincount(classes_of_sites(chunk, balanced), minlength=chunk.scores.shape[1]))
        whole = whole and (not plan.max_sites or count <= plan.max_sites)  # rows may have more sites than the first
        if not whole and count > 2 * plan.max_sites:
            held = [draw_sample(join_features(held), plan, round_number, balanced)]
            count = len(held[0])
    if whole:
        return FeatureSample(held, whole)
    sample = draw_sample(join_features(held), plan, round_number, balanced)
    return FeatureSample(split_features(weigh_sample(sample, torch.stack(seen).sum(0)) if balanced else sample), whole)


def draw_rows(samples: Samples, plan: Plan, round_number: int) -> Tensor | None:
    """Numbers of the rows whose features are extracted; None = all, if their sites are few."""
    sites = sites_of_a_row(samples)
    if not plan.max_sites or len(samples) * sites <= plan.max_sites:
        return None
    count = max(LEAST_ROWS, math.ceil(plan.max_sites / sites)) if sites > 1 else plan.max_sites
    return permutation(len(samples), plan.seed, "survey", round_number)[:count].sort().values


def sites_of_a_row(samples: Samples) -> int:
    """Sites of the first row: what is typical for the side."""
    return math.prod(next(iter(samples.stream([torch.tensor([0])]))).grid) if len(samples) else 1


def draw_sample(chunk: Features, plan: Plan, round_number: int, balanced: bool) -> Features:
    """At most plan.max_sites sites, those of the smallest keys in each class."""
    classes, label = chunk.scores.shape[1] if balanced else 1, classes_of_sites(chunk, balanced)
    key = uniforms(chunk.ids, plan.seed, "reservoir", round_number)
    kept = [
        smallest(torch.nonzero(label == number).squeeze(1), key, plan.max_sites // classes) for number in range(classes)
    ]
    return take_features(chunk, torch.cat(kept).sort().values)


def classes_of_sites(chunk: Features, balanced: bool) -> Tensor:
    """The class of each site; one for all if none is to have a part of its own."""
    return torch.where(chunk.y >= 0, chunk.y, chunk.scores.argmax(1)) if balanced else torch.zeros_like(chunk.y)


def weigh_sample(sample: Features, seen: Tensor) -> Features:
    """The sample with its weights; `seen`: (C) sites of each class that were extracted."""
    label = classes_of_sites(sample, True)
    kept = torch.bincount(label, minlength=len(seen)).clamp_min(1)
    return replace(sample, weight=(seen / kept)[label])


def draw_in_shares(sample: Features, count: int, seed: int, purpose: str) -> Features:
    """At most so many sites in the shares of their side, each for itself: those of the smallest −log u / weight."""
    key = -uniforms(sample.ids, seed, purpose).clamp_min(1e-12).log() / sample.site_weight
    return replace(take_features(sample, torch.argsort(key, stable=True)[:count].sort().values), weight=None)


def smallest(sites: Tensor, key: Tensor, count: int) -> Tensor:
    """Those of the smallest keys."""
    return sites if len(sites) <= count else sites[torch.argsort(key[sites], stable=True)[:count]]


def take_features(chunk: Features, sites: Tensor) -> Features:
    """Some sites of a chunk."""
    weight = None if chunk.weight is None else chunk.weight[sites]
    return Features(chunk.x[sites], chunk.scores[sites], chunk.y[sites], chunk.ids[sites], weight=weight)


def split_features(chunk: Features) -> list[Features]:
    """The chunk cut up, so that what is computed of it needs little memory at a time."""
    columns = (column.split(CHUNK_SITES) for column in (chunk.x, chunk.scores, chunk.y, chunk.ids))
    parts = [Features(*part) for part in zip(*columns, strict=True)]
    if chunk.weight is None:
        return parts
    return [replace(part, weight=weight) for part, weight in zip(parts, chunk.weight.split(CHUNK_SITES), strict=True)]


def join_features(parts: list[Features]) -> Features:
    """The sites of all parts."""
    x, scores, y, ids = (join_tensors([getattr(part, name) for part in parts]) for name in ("x", "scores", "y", "ids"))
    plain = all(part.weight is None for part in parts)
    return Features(x, scores, y, ids, weight=None if plain else join_tensors([part.site_weight for part in parts]))
