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
    """Rows that go through the network together, the labels of all their sites, and their shares of two means."""

    inputs: Tensor
    y: Tensor
    others: Tensor | None
    pseudo: PseudoLabels | None
    share: float
    other_share: float


@dataclass(frozen=True, eq=False)
class TrainingBatch:
    """Labelled inputs with y (B, *S), and unlabelled ones with the pseudo-labels of their sites, if any."""

    inputs: Tensor
    y: Tensor
    others: Tensor | None = None
    pseudo: PseudoLabels | None = None

    def __str__(self) -> str:
        """For messages: how many rows of which shape."""
        others = 0 if self.others is None else len(self.others)
        unlabelled = f" and {others:,} unlabelled" if others else ""
        shape = "×".join(str(side) for side in self.inputs.shape[1:])
        return f"a batch of {len(self.inputs):,} labelled{unlabelled} rows of shape {shape}"

    def parts(self, count: int, loss: RoundLoss) -> Iterator[BatchPart]:
        """At most `count` parts whose losses, each times its share, add up to the loss of the whole batch.

        Stage I's basis terms compare rows with each other, so with parts they are means over pairs within a part.
        """
        if count == 1:
            yield BatchPart(self.inputs, self.y.flatten(), self.others, self.pseudo, 1.0, 1.0)
            return
        count = min(count, len(self.y))  # each part has labelled rows
        left = torch.arange(len(self.y)).tensor_split(count)
        right = torch.arange(0 if self.others is None else len(self.others)).tensor_split(count)
        known = max(int((self.y >= 0).sum()), 1)
        mass = loss.mass(self.pseudo) if self.pseudo is not None else 0.0
        for rows, other in zip(left, right, strict=True):
            yield self._part(rows.to(self.y.device), other.to(self.y.device), known, mass, loss)

    def _part(self, rows: Tensor, other: Tensor, known: int, mass: float, loss: RoundLoss) -> BatchPart:
        y = self.y[rows].flatten()
        share = int((y >= 0).sum()) / known
        if self.others is None or self.pseudo is None or not len(other):
            return BatchPart(self.inputs[rows], y, None, None, share, 0.0)
        pseudo = self.pseudo[numbers_of_sites(other, len(self.pseudo) // len(self.others))]
        other_share = loss.mass(pseudo) / mass if mass else 0.0
        return BatchPart(self.inputs[rows], y, self.others[other], pseudo, share, other_share)


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
