"""What restylers are made of: the rows that they learn from, the units in which they see them, and a small network of
the labelled side, whose layers say what a picture looks like and whose scores say what it shows.

| symbol | meaning |
| --- | --- |
| units | pictures (x − centre) / scale: bytes and standardised numbers alike lie mostly in −1 … 1 |
| maps | of each layer, (B, c, h, w); not normed, because what a norm takes away is style |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, cross_entropy

from embasis.functional.sites import centre_and_scale, domain_sums, to_sites
from embasis.randomness import permutation, seeded
from embasis.types import Samples, State, View

Made = TypeVar("Made", bound=nn.Module)
MOST_ROWS = 1024
"""Statistics are taken of at most so many rows of a side."""
CHUNK = 64
BYTE_CENTRE = BYTE_SCALE = 127.5
WIDTHS = (16, 32, 32)
"""Features of the source network's layers."""
SOURCE_STEPS, SOURCE_RATE = 200, 2e-3
"""How the source network is trained, by adam."""
LARGE, ROWS, ROWS_OF_LARGE = 2**12, 32, 8
"""Rows of a batch, and of one whose pictures have more than LARGE numbers."""


def read_whole(samples: Samples, seed: int, most: int = MOST_ROWS) -> Iterator[Tensor]:
    """Whole rows of a side in chunks: all of them, or so many that are drawn; one at a time where shapes differ."""
    rows = permutation(len(samples), seed, "rows to learn a style from")[:most].sort().values
    for view in samples.stream(rows.split(1 if samples.has_mixed_shapes else CHUNK)):
        yield view.inputs


def draw_views(samples: Samples, steps: range, batch: int, seed: int, purpose: str) -> Iterator[View]:
    """Views of rows as training sees them, for each of these steps: functions of the seed and the step's number."""
    rows = [permutation(len(samples), seed, purpose, step)[:batch] for step in steps]
    return samples.stream(rows, (seed, 0, steps.start))


@dataclass(frozen=True)
class Units:
    """Pictures in units, and back."""

    centre: Tensor
    scale: Tensor

    @classmethod
    def measure(cls, labelled: Samples, unlabelled: Samples, seed: int) -> Units:
        """Bytes have units of their own; of other numbers the mean, and two deviations, over both sides."""
        if not labelled.inputs(torch.tensor([0])).is_floating_point():
            return cls(torch.tensor([BYTE_CENTRE]), torch.tensor([BYTE_SCALE]))
        sides = (labelled, unlabelled)
        parts = [domain_sums(inputs.reshape(-1, 1)) for side in sides for inputs in read_whole(side, seed)]
        centre, scale = centre_and_scale(*(torch.stack(column).sum(0) for column in zip(*parts, strict=True)))
        return cls(centre.float(), 2 * scale.float())

    def apply(self, pictures: Tensor) -> Tensor:
        """Into units."""
        return (pictures.float() - self.centre) / self.scale

    def undo(self, x: Tensor) -> Tensor:
        """Out of units."""
        return x * self.scale + self.centre


def rows_of_batch(view: View) -> int:
    """Rows of a batch of pictures as large as these."""
    return ROWS if view.inputs[0].numel() <= LARGE else ROWS_OF_LARGE


class SourceNetwork(nn.Module):
    """Three 3×3 convolutions with ReLU, and scores for each site of the labels' grid; () = one label for a picture."""

    def __init__(self, shape: tuple[int, ...], grid: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.layers = SourceLayers(shape[0], find_strides(min(shape[1:])))
        self.grid = grid
        if not grid:
            with torch.no_grad():
                last = self.layers(torch.zeros(1, *shape))[-1]
        self.head: nn.Module = nn.Conv2d(WIDTHS[-1], classes, 1) if grid else nn.Linear(last.numel(), classes)

    def forward(self, x: Tensor) -> Tensor:
        """(n, C) scores of all sites of pictures in units."""
        last = self.layers(x)[-1]
        pooled = adaptive_avg_pool2d(last, list(self.grid)) if self.grid else last.flatten(1)  # type: ignore[arg-type]
        return to_sites(self.head(pooled))


class SourceLayers(nn.Module):
    """The convolutions of a source network, for pictures of any size."""

    def __init__(self, channels: int, strides: tuple[int, ...]) -> None:
        super().__init__()
        self.strides = strides
        pairs = zip((channels, *WIDTHS), WIDTHS, strides, strict=False)
        self.steps = nn.ModuleList(nn.Conv2d(old, new, 3, stride, padding=1) for old, new, stride in pairs)

    def forward(self, x: Tensor) -> list[Tensor]:
        """The maps of all layers, the finest first."""
        maps = list[Tensor]()
        for step in self.steps:
            x = torch.relu(step(x))
            maps.append(x)
        return maps


def find_strides(side: int) -> tuple[int, ...]:
    """Strides of the three layers: the maps of small pictures stay as fine as they are."""
    return (1, 2 if side >= 16 else 1, 2 if side >= 32 else 1)


def train_source_network(samples: Samples, units: Units, classes: int, seed: int) -> SourceNetwork:
    """A small network of the labelled side, trained for a few seconds and then fixed."""
    first = next(iter(samples.stream([torch.tensor([0])], (seed, 0, 0))))
    with seeded(seed, "restyling: source network"):
        network = SourceNetwork(tuple(first.inputs.shape[1:]), first.grid, classes)
    optimiser = torch.optim.Adam(network.parameters(), SOURCE_RATE)
    with torch.enable_grad():
        views = draw_views(samples, range(SOURCE_STEPS), rows_of_batch(first), seed, "restyling: source rows")
        for view in views:
            known = view.y.flatten() >= 0
            if bool(known.any()):
                optimiser.zero_grad()
                cross_entropy(network(units.apply(view.inputs))[known], view.y.flatten()[known]).backward()
                optimiser.step()
    return network.requires_grad_(False)


def pack_module(prefix: str, module: nn.Module) -> State:
    """The weights of a module, as a part of a state."""
    return {f"{prefix}.{name}": value.detach().clone() for name, value in module.state_dict().items()}


def load_module(prefix: str, module: nn.Module, state: State) -> None:
    """The weights of a part of a state, in place."""
    start = prefix + "."
    module.load_state_dict({name[len(start) :]: value for name, value in state.items() if name.startswith(start)})


def restore_module(prefix: str, make: Callable[[], Made], state: State) -> Made:
    """A module with the weights of a part of a state, fixed; no draw is made that others would see."""
    with seeded(0, "restyling: weights that are replaced"):
        module = make()
    load_module(prefix, module, state)
    return module.requires_grad_(False)


def pack_optimiser(prefix: str, optimiser: torch.optim.Optimizer) -> State:
    """What adam keeps of each weight, as a part of a state."""
    kept = optimiser.state_dict()["state"].items()
    return {f"{prefix}.adam.{number}.{name}": value.clone() for number, each in kept for name, value in each.items()}


def load_optimiser(prefix: str, optimiser: torch.optim.Optimizer, state: State) -> None:
    """What adam kept, in place; nothing where it has not begun."""
    kept: dict[int, dict[str, Tensor]] = {}
    for key, value in state.items():
        if key.startswith(f"{prefix}.adam."):
            number, name = key.removeprefix(f"{prefix}.adam.").split(".")
            kept.setdefault(int(number), {})[name] = value.clone()
    optimiser.load_state_dict({**optimiser.state_dict(), "state": kept})
