"""Pictures and class maps held in memory as samples; their views are made in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from embasis.data.segmentation.sample_base import (
    UNPREPARED,
    Maps,
    commonest,
    searched,
    seed_of,
    slots,
    tally_of,
    totals,
    wanted_places,
)
from embasis.data.segmentation.views import NONE, crop_shape, shown, signed, whole_shape
from embasis.errors import require
from embasis.types import AugmentKey, CropTarget, GroundTruth, MapPreparation, View


@dataclass(frozen=True, eq=False)
class MapArrays:
    """Rows in memory: pictures uint8 (N, 3, H, W), maps uint8 (N, H, W) with 255 = unknown, ids (N)."""

    pictures: Tensor
    maps: Tensor | None
    ids: Tensor
    preparation: MapPreparation | None = None

    def __post_init__(self) -> None:
        count, shape = len(self.pictures), tuple(self.pictures.shape)
        fits = self.pictures.dtype == torch.uint8 and len(shape) == 4 and shape[1] == 3 and min(shape[2:]) > 0
        require(fits, f"pictures must be uint8 (N, 3, H, W), got {self.pictures.dtype} of shape {shape}")
        if self.maps is not None:
            fits = self.maps.dtype == torch.uint8 and self.maps.shape == (count, *shape[2:])
            got = f"{self.maps.dtype} of shape {tuple(self.maps.shape)}"
            require(fits, f"maps must be uint8 of shape {(count, *shape[2:])}, got {got}")
        fits = self.ids.dtype == torch.int64 and self.ids.shape == (count,)
        require(fits, f"ids must be {count} int64 values, got {self.ids.dtype} of shape {tuple(self.ids.shape)}")
        require(bool((self.ids[1:] > self.ids[:-1]).all()), "ids must be strictly increasing: unique and in order")

    @classmethod
    def of(cls, pictures: Tensor, maps: Tensor | None = None, ids: Tensor | None = None) -> MapArrays:
        """Rows in the order of their ids (0 … N − 1 unless given); unlabelled unless maps are given."""
        if ids is None:
            return cls(pictures, maps, torch.arange(len(pictures)))
        order = torch.argsort(ids)
        return cls(pictures[order], None if maps is None else maps[order], ids[order])

    def __len__(self) -> int:
        return len(self.pictures)

    @property
    def names(self) -> list[str]:
        """The rows' ids."""
        return [str(number) for number in self.ids.tolist()]

    @property
    def sizes(self) -> Tensor:
        """(N, 2) int64: height and width of the pictures."""
        return torch.tensor(self.pictures.shape[2:], dtype=torch.int64).repeat(len(self), 1)

    @property
    def labels(self) -> Tensor:
        """(N) int64: the commonest class of each row, −1 where there is none."""
        return commonest(self.value_counts)

    @property
    def truth(self) -> GroundTruth:
        """The class maps of the rows."""
        known = self.maps
        mark = (lambda: b"") if known is None else (lambda: bytes(known.contiguous().numpy().tobytes()))
        return Maps(len(self), lambda row: signed(self._map(row)), mark)

    @property
    def has_mixed_shapes(self) -> bool:
        """All pictures have one size."""
        return False

    def counts(self, classes: int, rows: Tensor | None = None) -> Tensor:
        """Pixels of each class."""
        return totals(self.value_counts if rows is None else self.value_counts[rows], classes)

    @cached_property
    def value_counts(self) -> Tensor:
        """(N, 255) int64: pixels of each class in each row."""
        tallies = [tally_of(self._map(row), NONE) for row in range(len(self))]
        return torch.stack(tallies) if tallies else torch.zeros(0, NONE, dtype=torch.int64)

    def _map(self, row: int) -> Tensor:
        return torch.full(self.pictures.shape[2:], NONE, dtype=torch.uint8) if self.maps is None else self.maps[row]

    def prepared(self, preparation: MapPreparation) -> MapArrays:
        """The same rows, made ready for a network."""
        return replace(self, preparation=preparation)

    def take(self, rows: Tensor) -> MapArrays:
        """Some of the rows, in increasing order."""
        maps = None if self.maps is None else self.maps[rows]
        return replace(self, pictures=self.pictures[rows], maps=maps, ids=self.ids[rows])

    def inputs(self, rows: Tensor) -> Tensor:
        """The whole view of these rows, uint8 (B, 3, H', W')."""
        return next(self.stream([rows])).inputs

    def picture(self, row: int) -> Tensor:
        """The row's picture as it is, uint8 (3, H, W)."""
        return self.pictures[row]

    def stream(
        self, batches: Sequence[Tensor], draw: AugmentKey | None = None, aim: CropTarget | None = None
    ) -> Iterator[View]:
        """The views of each batch; with `draw` those of training, functions of it, the aim and the ids."""
        require(self.preparation is not None, UNPREPARED)
        assert self.preparation is not None
        aim = aim if draw is not None else None
        size = (self.pictures.shape[2], self.pictures.shape[3])
        shape = whole_shape(size, self.preparation) if draw is None else crop_shape(self.preparation)
        for number, rows in enumerate(batches):
            tensors = [slot.empty(len(rows)) for slot in slots(shape, self.preparation)]
            wanted = wanted_places(aim, number, len(rows))
            for at, row in enumerate(rows.tolist()):
                labels = None if self.maps is None else self.maps[row]
                seed = seed_of(draw, int(self.ids[row]))
                view = shown(self.pictures[row], labels, self.preparation, seed, wanted[at], searched(aim))
                for tensor, part in zip(tensors, view, strict=True):
                    tensor[at] = part
            yield View(tensors[0], signed(tensors[1]), tensors[2])
