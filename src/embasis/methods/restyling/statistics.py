"""The floor of restyling: each channel gets the mean and the deviation that it has on the unlabelled side.

x ← (x − μ_L) / σ_L · σ_U + μ_U, with μ and σ of a channel over all pixels of a side; of vectors, of each column.
What a method that draws pictures anew gains has to be measured against this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from embasis.functional.sites import centre_and_scale, domain_sums, to_sites
from embasis.functional.style import move_statistics
from embasis.methods.baselines import SoftmaxLabeller
from embasis.methods.losses import PseudoLabelLoss
from embasis.methods.restyling.parts import read_whole
from embasis.methods.selectors import SelectNone
from embasis.types import Method, Restyler, Samples, State


@dataclass(frozen=True, kw_only=True)
class ChannelStatistics(Restyler):
    """Moves means and deviations of channels."""

    name: ClassVar[str] = "restyle"
    takes_vectors: ClassVar[bool] = True
    is_cheap: ClassVar[bool] = True
    summary: ClassVar[str] = "each colour gets the mean and the spread that it has on this side"

    def fit(self, labelled: Samples, unlabelled: Samples, start: State, seed: int) -> State:
        """Means and deviations of both sides."""
        pairs = [measure_channels(side, seed) for side in (labelled, unlabelled)]
        centres, scales = zip(*pairs, strict=True)
        return {"centre": torch.stack(centres).float(), "scale": torch.stack(scales).float()}

    def restyle(self, pictures: Tensor, state: State) -> Tensor:
        """The rows with the other side's means and deviations."""
        return move_statistics(pictures, state["centre"], state["scale"])


def measure_channels(samples: Samples, seed: int) -> tuple[Tensor, Tensor]:
    """(c) mean and deviation of each channel of a side."""
    parts = [domain_sums(to_sites(inputs.float())) for inputs in read_whole(samples, seed)]
    count, total, square = (torch.stack(column).sum(0) for column in zip(*parts, strict=True))
    return centre_and_scale(count, total, square)


def restyle(classes: int, *, weight: float = 1.0) -> Method:
    """The labelled side with the colours of the other: means and deviations of channels; no other adaptation.

    Parameters
    ----------
    weight : share of the new style, 0 … 1
    """
    restyler = ChannelStatistics(weight=weight)
    return Method("restyle", SoftmaxLabeller(), SelectNone(), PseudoLabelLoss(0.0), rounds=0, restyle=restyler)
