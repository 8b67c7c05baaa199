"""Stage I's attention-like block: its weights are the proposed basis (method, section 1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from embasis.functional import basis, sites
from embasis.types import BasisTerms


class BasisBlock(nn.Module):
    """W (K, d); Z = X Wᵀ on centred unit features."""

    def __init__(self, components: int, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(components, features))
        nn.init.orthogonal_(self.weight)

    def loss(self, features: Tensor, y: Tensor, terms: BasisTerms) -> Tensor:
        """a·‖WWᵀ − I‖² + b·‖X − ZW‖² + c·‖ZZᵀ − YYᵀ‖², each per entry, on the labelled sites of the batch."""
        known = y >= 0
        if not bool(known.any()):  # a batch of views that show no class
            return terms.orthogonal * basis.orthogonality(self.weight)
        rows = sites.to_sites(features)[known]
        x = sites.unit_rows(rows - rows.mean(0, keepdim=True))
        return (
            terms.orthogonal * basis.orthogonality(self.weight)
            + terms.reconstruction * basis.reconstruction(x, self.weight)
            + terms.affinity * basis.affinity(x, self.weight, y[known])
        )
