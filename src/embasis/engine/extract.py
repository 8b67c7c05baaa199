"""Features of all sites, in chunks that can be read again and again."""

from __future__ import annotations

import torch
from torch import nn

from embasis.errors import NumericalError, require
from embasis.functional.sites import to_sites
from embasis.types import Features, Samples

CHUNK = 4096
"""Rows of a chunk."""


@torch.no_grad()
def extract(network: nn.Module, samples: Samples, labelled: bool) -> list[Features]:
    """Features and scores of each site; y is the label on the labelled side and −1 on the other."""
    network.eval()
    parts = []
    for first in range(0, len(samples), CHUNK):
        rows = torch.arange(first, min(first + CHUNK, len(samples)))
        output = network(samples.inputs(rows))
        x, scores = to_sites(output.features), to_sites(output.logits)
        broken = int((~torch.isfinite(scores)).any(1).sum())
        require(not broken, f"the network's scores are not finite for {broken} of {len(scores)} rows", NumericalError)
        y = samples.labels[rows] if labelled else torch.full_like(rows, -1)
        parts.append(Features(x, scores, y, samples.ids[rows]))
    return parts
