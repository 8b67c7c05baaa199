"""Features of all sites, in chunks that can be read again and again."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from embasis.errors import NumericalError, require
from embasis.functional.sites import to_sites
from embasis.types import Features, LabelDistribution, Labeller, Samples, State

CHUNK = 512
"""Rows of a chunk. Every chunk that is computed has exactly so many (the last one is filled up and cut), because a
matrix product may round a row differently in another shape: so the batch a row comes in changes no bit of its label."""


def fill(rows: Tensor) -> Tensor:
    """The rows, with zeros below up to CHUNK."""
    missing = CHUNK - len(rows)
    return rows if missing <= 0 else torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])])


@torch.no_grad()
def extract(network: nn.Module, samples: Samples, labelled: bool) -> list[Features]:
    """Features and scores of each site; y is the label on the labelled side and −1 on the other."""
    network.eval()
    parts = []
    for first in range(0, len(samples), CHUNK):
        rows = torch.arange(first, min(first + CHUNK, len(samples)))
        output = network(fill(samples.inputs(rows)))
        x, scores = to_sites(output.features[: len(rows)]), to_sites(output.logits[: len(rows)])
        broken = int((~torch.isfinite(scores)).any(1).sum())
        require(not broken, f"the network's scores are not finite for {broken} of {len(scores)} rows", NumericalError)
        y = samples.labels[rows] if labelled else torch.full_like(rows, -1)
        parts.append(Features(x, scores, y, samples.ids[rows]))
    return parts


def label_chunk(labeller: Labeller, chunk: Features, state: State) -> LabelDistribution:
    """The labeller's verdict on a chunk, computed in the one shape that all chunks have."""
    count = len(chunk)
    if count < CHUNK:
        y = torch.nn.functional.pad(chunk.y, (0, CHUNK - count), value=-1)
        chunk = Features(fill(chunk.x), fill(chunk.scores), y, fill(chunk.ids))
    found = labeller.label(chunk, state)
    return LabelDistribution(found.mean[:count], found.between[:count], found.within[:count], found.uncertainty[:count])
