"""The rows of one training step, on the network's device, and how they are cut into parts that fit its memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from embasis.networks.network import Network
from embasis.types import Output, Plan, PseudoLabels, RoundLoss


@dataclass(frozen=True, eq=False)
class BatchPart:
    """Rows that go through the network together, the labels of all their sites, and their shares of means."""

    inputs: Tensor
    y: Tensor
    others: Tensor | None
    pseudo: PseudoLabels | None
    share: float
    """of the labelled sites with a label"""
    other_share: float
    """of the mass of the pseudo-labels"""
    view: Tensor | None = None
    row_share: float = 1.0
    """of the labelled rows"""
    other_row_share: float = 1.0
    """of the unlabelled rows"""
    other_rows: Tensor | None = None
    """numbers of the unlabelled rows on their side"""


@dataclass(frozen=True, eq=False)
class TrainingBatch:
    """Labelled inputs with y (B, *S), and unlabelled ones with the pseudo-labels of their sites, if any.

    With an aligner (`aligned`) unlabelled rows may stand without pseudo-labels, in a second `view` too, with their
    numbers `other_rows`, and each part has rows of both sides."""

    inputs: Tensor
    y: Tensor
    others: Tensor | None = None
    pseudo: PseudoLabels | None = None
    view: Tensor | None = None
    aligned: bool = False
    other_rows: Tensor | None = None

    def __str__(self) -> str:
        """For messages: how many rows of which shape."""
        others = 0 if self.others is None else len(self.others)
        unlabelled = f" and {others:,} unlabelled" if others else ""
        shape = "×".join(str(side) for side in self.inputs.shape[1:])
        return f"a batch of {len(self.inputs):,} labelled{unlabelled} rows of shape {shape}"

    def as_part(self) -> BatchPart:
        """The whole batch in one part."""
        y, rows = self.y.flatten(), self.other_rows
        return BatchPart(self.inputs, y, self.others, self.pseudo, 1.0, 1.0, self.view, other_rows=rows)

    def parts(self, count: int, loss: RoundLoss) -> Iterator[BatchPart]:
        """At most `count` parts whose losses, each times its share, add up to the loss of the whole batch.

        Stage I's basis terms compare rows with each other, so with parts they are means over pairs within a part.
        """
        if count == 1:
            yield self.as_part()
            return
        count = min(count, len(self.y))  # each part has labelled rows
        if self.aligned and self.others is not None:
            count = min(count, len(self.others))
        left = torch.arange(len(self.y)).tensor_split(count)
        right = torch.arange(0 if self.others is None else len(self.others)).tensor_split(count)
        known = max(int((self.y >= 0).sum()), 1)
        mass = loss.mass(self.pseudo) if self.pseudo is not None else 0.0
        for rows, other in zip(left, right, strict=True):
            yield self._part(rows.to(self.y.device), other.to(self.y.device), known, mass, loss)

    def _part(self, rows: Tensor, other: Tensor, known: int, mass: float, loss: RoundLoss) -> BatchPart:
        y = self.y[rows].flatten()
        share, row_share = int((y >= 0).sum()) / known, len(rows) / len(self.y)
        if self.others is None or not len(other):
            return BatchPart(self.inputs[rows], y, None, None, share, 0.0, None, row_share, 0.0)
        pseudo, other_share = None, 0.0
        if self.pseudo is not None:
            pseudo = self.pseudo[numbers_of_sites(other, len(self.pseudo) // len(self.others))]
            other_share = loss.mass(pseudo) / mass if mass else 0.0
        view, of_others = None if self.view is None else self.view[other], len(other) / len(self.others)
        part = (self.inputs[rows], y, self.others[other], pseudo, share, other_share, view, row_share, of_others)
        return BatchPart(*part, other_rows=None if self.other_rows is None else self.other_rows[other])


def numbers_of_sites(rows: Tensor, sites: int) -> Tensor:
    """Numbers of all sites of rows that have so many each."""
    return (rows.unsqueeze(1) * sites + torch.arange(sites, device=rows.device)).flatten()


def forward(network: nn.Module, inputs: Tensor, side: int) -> Output:
    """Features and logits of rows of one side; a module of the user's own does not know sides."""
    output: Output = network(inputs, side) if isinstance(network, Network) else network(inputs)
    return output


def device_of(network: nn.Module) -> torch.device:
    """Where the network's weights are."""
    return next((parameter.device for parameter in network.parameters()), torch.device("cpu"))


def move_labels(pseudo: PseudoLabels, device: torch.device) -> PseudoLabels:
    """Pseudo-labels on a device."""
    if device.type == "cpu":
        return pseudo
    target = None if pseudo.target is None else pseudo.target.to(device)
    return PseudoLabels(pseudo.label.to(device), pseudo.weight.to(device), target)


def autocast(network: nn.Module, plan: Plan) -> AbstractContextManager[object]:
    """Products in bfloat16 where the plan wants that, or "auto" and the device has it; float32 otherwise."""
    device = device_of(network).type
    if plan.precision == "bfloat16" or (plan.precision == "auto" and device == "cuda" and has_bfloat16()):
        return torch.autocast(device, torch.bfloat16)
    return nullcontext()


def has_bfloat16() -> bool:
    """Whether the GPU computes in bfloat16 itself; older ones would imitate it, slowly."""
    return bool(torch.cuda.is_bf16_supported(including_emulation=False))
