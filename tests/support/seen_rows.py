"""What a phase sees, made by hand: rows and scores of both sides, without a network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from embasis.types import LABELLED, Output


class HandmadeRows:
    """`Seen` of rows and scores that are given; the batch is one part."""

    labelled_share = 1.0

    def __init__(self, rows: tuple[Tensor, Tensor], logits: tuple[Tensor, Tensor], y: Tensor | None = None) -> None:
        self.both_rows, self.both_logits, self.noted = rows, logits, dict[str, float]()
        self.y = torch.zeros(len(rows[0]), dtype=torch.int64) if y is None else y
        self.inputs, self.others, self.view = rows[0], rows[1], rows[1]
        self.kept = dict[str, Tensor]()
        self.other_rows = torch.arange(len(rows[1]))

    @property
    def labelled(self) -> Output:
        return Output(self.both_rows[0], self.both_logits[0])

    @property
    def other(self) -> Output:
        return Output(self.both_rows[1], self.both_logits[1])

    def rows(self, side: int) -> Tensor:
        return self.both_rows[0 if side == LABELLED else 1]

    def logits(self, side: int) -> Tensor:
        return self.both_logits[0 if side == LABELLED else 1]

    def run(self, module: nn.Module, inputs: Tensor, side: int) -> Output:
        raise NotImplementedError

    def mean(self, values: Tensor, side: int) -> Tensor:
        return values.mean()

    def note(self, name: str, value: Tensor | float) -> None:
        self.noted[name] = float(value)


def draw_seen(labelled: int = 12, unlabelled: int = 9, width: int = 5, classes: int = 3) -> HandmadeRows:
    """Rows of two laws, as leaves that collect gradients."""
    generator = torch.Generator().manual_seed(0)

    def draw(columns: int, shift: float) -> tuple[Tensor, Tensor]:
        left = torch.randn(labelled, columns, generator=generator)
        right = torch.randn(unlabelled, columns, generator=generator) + shift
        return left.requires_grad_(), right.requires_grad_()

    return HandmadeRows(draw(width, 1.0), draw(classes, 0.5), torch.arange(labelled) % classes)
