"""How the EM labeller fits: how fine, on which rows, by which steps, and whether anything has changed since."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from embasis.types import Stream

SHARPNESS_ROWS = 4096
"""Unlabelled rows by which the sharpness is set."""
HEAD_STEPS = 30


def components_for(rows: int) -> int:
    """How finely a class of so many rows is cut: in three; from 1,024 rows on in four, and so on, up to eight."""
    return max(3, min(8, rows.bit_length() - 7))


def leading(parts: Iterable[Tensor]) -> Tensor:
    """The first SHARPNESS_ROWS rows; hardly more than these are copied."""
    taken, count = list[Tensor](), 0
    for part in parts:
        taken.append(part)
        count += len(part)
        if count >= SHARPNESS_ROWS:
            break
    return torch.cat(taken)[:SHARPNESS_ROWS]


def weights_of(stream: Stream) -> Tensor | None:
    """The weights of all sites; None if each stands for itself."""
    plain = all(part.weight is None for part in stream)
    return None if plain else torch.cat([part.shares for part in stream])


def fingerprint(stream: Stream) -> Tensor:
    """(32) uint8: sha256 over features and labels."""
    digest = hashlib.sha256()
    for part in stream:
        digest.update(f"{part.x.dtype} {tuple(part.x.shape)}".encode())
        for column in (part.x, part.y) if part.weight is None else (part.x, part.y, part.weight):
            digest.update(column.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)


def minimise(objective: Callable[[Tensor, Tensor], Tensor], weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The smooth objective's minimum by L-BFGS from the given start."""
    weight, bias = weight.clone().requires_grad_(True), bias.clone().requires_grad_(True)
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=HEAD_STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = objective(weight, bias)
        torch.autograd.backward(loss)
        return loss

    optimiser.step(closure)
    return weight.detach(), bias.detach()
