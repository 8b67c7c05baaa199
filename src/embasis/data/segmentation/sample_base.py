"""What rows with class maps have in common, on disk or in memory: their tallies, their seeds, their aims."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from embasis.data.segmentation.views import GREY, NONE, Place, grid_of
from embasis.data.workers.loading import OutputSpec
from embasis.errors import require
from embasis.randomness import derive
from embasis.types import AugmentKey, CropTarget, MapPreparation

UNPREPARED = "pictures must be prepared for a network before they are read"


@dataclass(frozen=True, eq=False)
class Maps:
    """True classes of each row, int64 (H, W) with −1 = unknown, made when they are asked for."""

    count: int
    make: Callable[[int], Tensor]
    mark: Callable[[], bytes] = bytes
    """Bytes that differ where a map does."""

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> Tensor:
        if not 0 <= row < self.count:
            raise IndexError(f"row must be in 0..{self.count - 1}, got {row}")  # ends a loop over all rows
        return self.make(row)


def slots(shape: tuple[int, int], preparation: MapPreparation) -> list[OutputSpec]:
    """What becomes of a row whose view has this shape: input, classes and places."""
    grid = grid_of(shape, preparation)
    return [OutputSpec((3, *shape), GREY), OutputSpec(grid, NONE), OutputSpec((*grid, 2), math.nan, torch.float32)]


def tally_of(class_map: Tensor, classes: int) -> Tensor:
    """(C) int64: pixels of each class."""
    return torch.bincount(class_map.flatten(), minlength=NONE + 1)[:classes]


def commonest(tally: Tensor) -> Tensor:
    """(N) int64: the class with most pixels in each row of (N, C), the first of equals, −1 where there is none."""
    if not tally.numel():
        return torch.full((len(tally),), -1, dtype=torch.int64)
    most = tally.amax(1, keepdim=True)
    first = (tally == most).int().argmax(1)
    return torch.where(most[:, 0] > 0, first, -1)


def totals(tally: Tensor, classes: int) -> Tensor:
    """(C) int64: pixels of each class in all rows."""
    found = torch.zeros(classes, dtype=torch.int64)
    found[: tally.shape[1]] = tally.sum(0)[:classes]
    return found


def seed_of(draw: AugmentKey | None, number: int) -> int | None:
    """What the training view of the row with this id begins with."""
    return None if draw is None else derive(draw[0], "augmentation", *draw[1:], number)


def wanted_places(aim: CropTarget | None, batch: int, count: int) -> list[Place | None]:
    """The place that each row of a batch is to show, None = any."""
    if aim is None or aim.places is None:
        return [None] * count
    places = aim.places[batch]
    shape = tuple(places.shape)
    require(shape == (count, 2), f"places of batch {batch} must have shape {(count, 2)}, got {shape}")
    return [None if math.isnan(v + u) else (v, u) for v, u in places.tolist()]


def searched(aim: CropTarget | None) -> Tensor | None:
    """(C) weights of the classes that are looked for in a row's own map: where the aim says no places."""
    return None if aim is None or aim.places is not None else aim.classes.cpu()
