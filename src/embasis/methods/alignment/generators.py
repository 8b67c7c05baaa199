"""Generators and discriminators of inputs: what GTA draws with, and what judges it.

| input | generator | discriminator |
| --- | --- | --- |
| vector (d) | two hidden layers of 256 | two hidden layers of 256 |
| grid (c, h, w) | a grid of 2×2 … 8×8, its sides doubled k times | halved k times |

At a side of h / 2^j a generator has 16 · 2^j channels, a discriminator half as many. Grids have sides of 4 … 64 that
halving brings to 8 or less: 8, 16, 28, 32 and 64 do. A generator norms groups of channels of one grid, a discriminator
norms nothing: no batch statistics.

Inputs are arrays in units of about one, standardised or scaled to 0 … 1: a generator ends with a linear layer, which
draws in the inputs' own unit, below zero too. Pixels of 0 … 255 are read as −1 … 1 (`to_unit_range`).
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor, nn

from embasis.errors import ConfigError, require
from embasis.types import Sizes

HIDDEN, CHANNELS = 256, 16
SMALLEST_SIDE, LARGEST_SIDE, LARGEST_START, START = 4, 64, 8, 2
"""Sides of grids that can be drawn; a generator begins with sides of START, or of what is left when a side is odd."""


class Generator(nn.Module):
    """Rows (n, width) → inputs (n, …)."""

    def __init__(self, width: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.body = make_vectors(width, shape[0]) if len(shape) == 1 else make_grids(width, shape)

    def forward(self, rows: Tensor) -> Tensor:
        """(n, …)."""
        drawn: Tensor = self.body(rows)
        return drawn


class Discriminator(nn.Module):
    """Inputs (n, …) → scores (n): positive for real ones, and scores of classes (n, C)."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        layers, width = list[nn.Module](), shape[0]
        halvings = count_halvings(shape)
        for number in range(halvings):
            layers += [nn.Conv2d(width, CHANNELS * 2**number, 4, 2, 1), nn.LeakyReLU(0.2)]
            width = CHANNELS * 2**number
        width *= prod(side >> halvings for side in shape[1:])
        layers += [nn.Flatten()]
        for hidden in (HIDDEN, HIDDEN) if len(shape) == 1 else ():
            layers += [nn.Linear(width, hidden), nn.LeakyReLU(0.2)]
            width = hidden
        self.body = nn.Sequential(*layers)
        self.real, self.classes = nn.Linear(width, 1), nn.Linear(width, classes)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """(n), (n, C)."""
        hidden = self.body(inputs)
        return self.real(hidden).squeeze(1), self.classes(hidden)


def make_vectors(width: int, features: int) -> nn.Sequential:
    """Two hidden layers."""
    return nn.Sequential(
        nn.Linear(width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, features)
    )


def make_grids(width: int, shape: tuple[int, ...]) -> nn.Sequential:
    """A small grid, whose sides are doubled again and again; the last doubling draws the input."""
    doublings = count_halvings(shape)
    start = tuple(side >> doublings for side in shape[1:])
    channels = [CHANNELS * 2 ** (doublings - number) for number in range(doublings)]
    layers: list[nn.Module] = [nn.Linear(width, channels[0] * prod(start)), nn.Unflatten(1, (channels[0], *start))]
    for before, after in zip(channels, [*channels[1:], shape[0]], strict=True):
        layers += [nn.GroupNorm(8, before), nn.ReLU(), nn.ConvTranspose2d(before, after, 4, 2, 1)]
    return nn.Sequential(*layers)


def count_halvings(shape: tuple[int, ...]) -> int:
    """How often the sides of a grid are halved: as long as they are even and greater than START."""
    sides, count = shape[1:], 0
    while sides and all(side % 2 == 0 and side > START for side in sides):
        sides, count = tuple(side // 2 for side in sides), count + 1
    return count


def refuse_undrawable(name: str, sizes: Sizes) -> None:
    """A ConfigError for inputs that no generator here can draw."""
    shape = sizes.inputs
    sides = shape[1:] if len(shape) == 3 else ()
    drawable = len(shape) == 1 or (
        len(shape) == 3
        and all(SMALLEST_SIDE <= side <= LARGEST_SIDE and side % 2 == 0 for side in sides)
        and all(side >> count_halvings(shape) <= LARGEST_START for side in sides)
    )
    got = "×".join(str(side) for side in shape)
    rule = f"{name} draws vectors, and pictures with sides of {SMALLEST_SIDE} to {LARGEST_SIDE} that halving brings"
    cure = "scale them to 32×32, or train one layer on frozen features (head=adapter), which are vectors"
    require(drawable, f"{rule} to {LARGEST_START} or less, got inputs of {got}; {cure}", ConfigError)


def to_unit_range(inputs: Tensor) -> Tensor:
    """Inputs as a discriminator reads them: pixels of 0 … 255 as −1 … 1, numbers as they are."""
    return inputs if inputs.is_floating_point() else inputs.to(torch.float32) / 127.5 - 1
