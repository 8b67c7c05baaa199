"""The networks of CyCADA's pixel stage: generators that translate pictures to the other side, and discriminators.

No layer uses batch statistics: a picture is translated alike whatever stands beside it.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

WIDTH, WIDEST, BLOCKS, GROUPS = 16, 32, 3, 4
"""Filters at the finest and at the coarsest maps, residual blocks between, groups of a norm."""


class PictureGenerator(nn.Module):
    """Pictures (B, c, H, W) in units → x + what three residual blocks, at a coarser scale, would change of it.

    Its last layer begins at zero: before it has learned anything it changes nothing."""

    def __init__(self, channels: int, halvings: int) -> None:
        super().__init__()
        self.halvings = halvings
        widths = [min(WIDTH * 2**number, WIDEST) for number in range(halvings + 1)]
        self.first = make_layer(channels, widths[0])
        self.down = nn.ModuleList(make_layer(a, b, 2) for a, b in pairwise(widths))
        self.blocks = nn.ModuleList(
            nn.Sequential(make_layer(widths[-1], widths[-1]), nn.Conv2d(widths[-1], widths[-1], 3, padding=1))
            for _ in range(BLOCKS)
        )
        self.up = nn.ModuleList(make_layer(a, b) for a, b in pairwise(widths[::-1]))
        self.last = nn.Conv2d(widths[0], channels, 3, padding=1)
        for weight in self.last.parameters():
            nn.init.zeros_(weight)

    def forward(self, x: Tensor) -> Tensor:
        """Of the shape of x."""
        values, sizes = self.first(x), list[torch.Size]()
        for layer in self.down:
            sizes.append(values.shape[-2:])
            values = layer(values)
        for block in self.blocks:
            values = values + block(values)
        for layer in self.up:
            values = layer(interpolate(values, sizes.pop(), mode="nearest"))
        translated: Tensor = x + self.last(values)
        return translated


class PatchDiscriminator(nn.Sequential):
    """Pictures → a score for each patch: 1 = a picture of the side, 0 = a generated one."""

    def __init__(self, channels: int) -> None:
        super().__init__(
            nn.Conv2d(channels, WIDTH, 4, 2, padding=1), nn.LeakyReLU(0.2),
            nn.Conv2d(WIDTH, WIDEST, 4, 2, padding=1), nn.GroupNorm(GROUPS, WIDEST), nn.LeakyReLU(0.2),
            nn.Conv2d(WIDEST, 1, 3, padding=1),
        )  # fmt: skip


def make_layer(before: int, after: int, stride: int = 1) -> nn.Sequential:
    """A 3×3 convolution, normed within groups of channels of one picture, and a ReLU."""
    return nn.Sequential(nn.Conv2d(before, after, 3, stride, padding=1), nn.GroupNorm(GROUPS, after), nn.ReLU())


def count_halvings(side: int) -> int:
    """How often a generator halves pictures of this side: small ones stay as fine as they are."""
    return (side >= 16) + (side >= 32)
