"""What the components of a basis stand for: their classes, their part of the unlabelled side, and its nearest rows.

| symbol | shape | meaning |
| --- | --- | --- |
| p | k c | class probabilities of each component |
| z | n k | responsibilities of the unlabelled sites |
| w | n | how many sites of the side each one stands for |
| share | k | Σ_n w_n z_nk / Σ_n w_n |
| nearest | k m | ids of the rows with the largest kernel values, the nearest first |

It is computed from features that a round holds anyway, so it costs one product of them with the basis and no pass over
the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from embasis.types import Features, Labeller, State

NEAREST = 5
"""Rows that are named for each component."""


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
        mass += weight @ near.softmax(1).double()
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
