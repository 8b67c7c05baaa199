"""DAN (Long et al. 2015): the kernel mean embeddings of both sides' features agree.

    loss = CE + weight · MMD²(f_s, f_t)

Deviations: one kernel mixture with fixed equal weights at one layer, the quadratic unbiased estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from embasis.functional.alignment import gaussian_kernel, squared_distances, squared_mmd
from embasis.methods.alignment.parts import make_method
from embasis.types import LABELLED, UNLABELLED, Aligner, Method, Phase, Seen


@dataclass(frozen=True, kw_only=True)
class MeanDiscrepancy(Aligner):
    """weight · MMD² between the rows that the classifier reads."""

    name: ClassVar[str] = "dan"

    def phases(self, tau: float) -> Sequence[Phase]:
        """One, of the whole batch."""
        return (Phase("align", ("network",), whole=True),)

    def loss(self, phase: str, network: nn.Module, extra: nn.ModuleDict, seen: Seen, tau: float) -> Tensor:
        """The discrepancy of these rows."""
        labelled, unlabelled = seen.rows(LABELLED), seen.rows(UNLABELLED)
        kernel = gaussian_kernel(squared_distances(torch.cat([labelled, unlabelled])))
        discrepancy = squared_mmd(kernel, len(labelled))
        seen.note("discrepancy", discrepancy.detach())
        return self.weight * discrepancy


def dan(classes: int, *, weight: float = 1.0) -> Method:
    """DAN: the features of both sides have one mean in the space of a Gaussian kernel.

    Parameters
    ----------
    weight : of the discrepancy, where the labelled cross-entropy has 1
    """
    return make_method(MeanDiscrepancy(weight=weight))
