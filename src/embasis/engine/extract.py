"""Features of all sites, in chunks that can be read again and again."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from embasis.engine.batch import autocast, device_of, look
from embasis.errors import NumericalError, require
from embasis.functional.sites import to_sites
from embasis.networks.model import Network
from embasis.types import Features, LabelDistribution, Labeller, Plan, Samples, State

CHUNK = 512
"""Rows of a chunk. Every chunk that is computed has exactly so many (the last one is filled up and cut), because a
matrix product may round a row differently in another shape: so the batch a row comes in changes no bit of its label."""


LARGE, FEW = 2**14, 16
"""Inputs of more than LARGE numbers (images) go through the network FEW at a time."""


def fill(rows: Tensor, size: int = CHUNK) -> Tensor:
    """The rows, with zeros below up to `size`."""
    missing = size - len(rows)
    return rows if missing <= 0 else torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])])


@torch.no_grad()
def extract(network: nn.Module, samples: Samples, plan: Plan, labelled: bool) -> list[Features]:
    """Features and scores of each site; y is the label on the labelled side and −1 on the other."""
    network.eval()
    outputs = passes(network, samples, plan, side=0 if labelled else 1)
    parts = []
    for first in range(0, len(samples), CHUNK):
        rows = torch.arange(first, min(first + CHUNK, len(samples)))
        x, scores = gathered(outputs, len(rows))
        broken = int((~torch.isfinite(scores)).any(1).sum())
        require(not broken, f"the network's scores are not finite for {broken} of {len(scores)} rows", NumericalError)
        y = samples.labels[rows] if labelled else torch.full_like(rows, -1)
        parts.append(Features(x, scores, y, samples.ids[rows]))
    return parts


def rows_at_once(samples: Samples) -> int:
    """How many rows go through the network together: always so many, the last ones are filled up and cut."""
    return CHUNK if math.prod(samples.inputs(torch.tensor([0])).shape[1:]) <= LARGE else FEW


def passes(network: nn.Module, samples: Samples, plan: Plan, side: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Features and scores of the rows in order, as many together as go through the network at once."""
    if not len(samples):
        return
    size, device = rows_at_once(samples), device_of(network)
    for inputs in samples.stream(torch.arange(len(samples)).split(size)):
        with autocast(network, plan):
            output = look(network, fill(inputs, size).to(device), side)
        count = len(inputs)
        yield to_sites(output.features[:count]).float().cpu(), to_sites(output.logits[:count]).float().cpu()


@torch.no_grad()
def rescored(network: Network, chunk: Features, samples: Samples, plan: Plan) -> Features:
    """The chunk's features with the unlabelled side's scores as they are now, computed in the shape of a pass."""
    size, device = rows_at_once(samples), device_of(network)
    parts = []
    for rows in chunk.x.split(size):
        with autocast(network, plan):
            scores = network.judge(fill(rows, size).to(device), 1)
        parts.append(scores[: len(rows)].float().cpu())
    return Features(chunk.x, torch.cat(parts), chunk.y, chunk.ids)


def gathered(outputs: Iterator[tuple[Tensor, Tensor]], count: int) -> tuple[Tensor, Tensor]:
    """The next `count` rows; a chunk is always a whole number of passes."""
    xs, scores = [], []
    while count > 0:
        x, score = next(outputs)
        xs.append(x)
        scores.append(score)
        count -= len(x)
    return (xs[0], scores[0]) if len(xs) == 1 else (torch.cat(xs), torch.cat(scores))


def label_chunk(labeller: Labeller, chunk: Features, state: State) -> LabelDistribution:
    """The labeller's verdict on a chunk, computed in the one shape that all chunks have."""
    count = len(chunk)
    if count < CHUNK:
        y = torch.nn.functional.pad(chunk.y, (0, CHUNK - count), value=-1)
        chunk = Features(fill(chunk.x), fill(chunk.scores), y, fill(chunk.ids))
    found = labeller.label(chunk, state)
    return LabelDistribution(found.mean[:count], found.between[:count], found.within[:count], found.uncertainty[:count])
