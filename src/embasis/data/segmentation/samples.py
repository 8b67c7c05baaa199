"""Pictures with class maps as samples: MapFiles are read from disk when they are asked for, MapArrays are in memory.

| symbol | meaning |
| --- | --- |
| C | classes of the table |
| tally (N, C) | pixels of each class in each row |

Without a draw a row is shown whole, with one as training sees it. Labels, counts and truth of rows without a map say
nothing: −1 and 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from embasis.data.images.decode import LARGEST_PIXELS
from embasis.data.images.samples import note
from embasis.data.segmentation.pairs import MapFile
from embasis.data.segmentation.views import (
    GREY,
    NONE,
    Place,
    common_words,
    crop_shape,
    grid_of,
    label_words,
    labels_of,
    picture_of,
    row_words,
    shown,
    signed,
    whole_shape,
)
from embasis.data.workers.loading import BatchRequest, OutputSpec, Reader, load_one
from embasis.data.workers.protocol import request_for
from embasis.errors import require
from embasis.randomness import derive
from embasis.types import AugmentKey, ClassTable, CropTarget, GroundTruth, MapPreparation, RejectedFile, View

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


@dataclass(frozen=True, eq=False)
class MapFiles:
    """Rows on disk in the order of their ids; a row that cannot be read is grey, without classes, and written down."""

    files: tuple[MapFile, ...]
    table: ClassTable
    ids: Tensor
    value_counts: Tensor
    preparation: MapPreparation | None = None
    reader: Reader = field(default_factory=lambda: Reader(0))
    refused: list[RejectedFile] = field(default_factory=list)
    """Rows that could not be read when they were asked for, each once."""

    @classmethod
    def of(
        cls, files: Sequence[MapFile], table: ClassTable, *, labelled: bool, counts: Tensor | None = None
    ) -> MapFiles:
        """Files in the order of their ids; label maps are never touched unless `labelled`.

        `counts` (N, C) has the pixels of each class in each file; without it a labelled side reads all its maps now.
        """
        files = files if labelled else [replace(file, label=None) for file in files]
        ids = [file.id for file in files]
        order = sorted(range(len(files)), key=ids.__getitem__)
        for first, second in pairwise(order):
            twins = f"{files[first].name} and {files[second].name} have the same id {ids[first]}"
            require(ids[first] != ids[second], f"images: {twins}; leave one of them out or give it another name")
        where = torch.tensor(order, dtype=torch.int64)
        none = torch.zeros(len(files), len(table.names), dtype=torch.int64)
        tally = none if counts is None or not labelled else _checked(counts, tuple(none.shape))[where]
        rows = cls(tuple(files[row] for row in order), table, torch.tensor(ids, dtype=torch.int64)[where], tally)
        return replace(rows, value_counts=rows._counted()) if labelled and counts is None else rows

    def _counted(self) -> Tensor:
        maps = (self._labels_of(row) for row in range(len(self)))
        tallies = [tally_of(found, len(self.table.names)) for found in maps]
        return torch.stack(tallies) if tallies else self.value_counts

    def __len__(self) -> int:
        return len(self.files)

    @property
    def names(self) -> list[str]:
        """The rows' names in every table: the paths of the pictures below the root."""
        return [file.name for file in self.files]

    @property
    def sizes(self) -> Tensor:
        """(N, 2) int64: height and width of the pictures."""
        return torch.tensor([file.size for file in self.files], dtype=torch.int64).reshape(-1, 2)

    @property
    def labels(self) -> Tensor:
        """(N) int64: the commonest class of each row, −1 where there is none."""
        return commonest(self.value_counts)

    @property
    def truth(self) -> GroundTruth:
        """The class maps of the rows as they were given, read when they are asked for."""
        return Maps(len(self), lambda row: signed(self._labels_of(row)), self._mark)

    def _mark(self) -> bytes:
        """Which row has which map, as the scan found them."""
        marks = [(file.id, b"" if file.label is None else file.label.digest) for file in self.files]
        turns = [(file.id, file.turn) for file in self.files if file.turn != 1]
        return repr((marks, self.table, turns) if turns else (marks, self.table)).encode()

    @property
    def has_mixed_shapes(self) -> bool:
        """Pictures may differ in size, so whole ones are read one at a time."""
        return True

    def counts(self, classes: int, rows: Tensor | None = None) -> Tensor:
        """Pixels of each class."""
        return totals(self.value_counts if rows is None else self.value_counts[rows], classes)

    def prepared(self, preparation: MapPreparation, reader: Reader | None = None) -> MapFiles:
        """The same rows, made ready for a network; refusals go to the same list."""
        for file in self.files:
            height, width = whole_shape(file.size, preparation)
            what = f"{file.name}: {file.size[1]:,}×{file.size[0]:,} pixels would become {width:,}×{height:,}"
            limit = f"more than {LARGEST_PIXELS // 2**20} Mpx; leave it out or set maps.size lower"
            require(height * width <= LARGEST_PIXELS, f"{what}, {limit}")
        return replace(self, preparation=preparation, reader=reader or Reader(preparation.plan.workers))

    def take(self, rows: Tensor) -> MapFiles:
        """Some of the rows, in increasing order, with a list of refusals of their own."""
        files = tuple(self.files[row] for row in rows.tolist())
        return replace(self, files=files, ids=self.ids[rows], value_counts=self.value_counts[rows], refused=[])

    def inputs(self, rows: Tensor) -> Tensor:
        """The whole view of these rows, uint8 (B, 3, H', W')."""
        return next(self.stream([rows])).inputs

    def picture(self, row: int) -> Tensor:
        """The row's picture as it is, uint8 (3, H, W); grey when it cannot be read."""
        file = self.files[row]
        found = load_one(lambda asked: (picture_of(asked),), {**request_for(file.image), "size": file.size})
        if isinstance(found, str):
            note(self.refused, [self.files[row].name], {0: found})
            return torch.full((3, *file.size), GREY, dtype=torch.uint8)
        return found[0]

    def _labels_of(self, row: int) -> Tensor:
        """uint8 (H, W); all 255 when there is no map, or it cannot be read."""
        file, table = self.files[row], self.table
        if file.label is not None:
            found = load_one(lambda asked: (labels_of(asked, table),), label_words(file))
            if not isinstance(found, str):
                return found[0]
            note(self.refused, [self.files[row].name], {0: found})
        return torch.full(file.size, NONE, dtype=torch.uint8)

    def stream(
        self, batches: Sequence[Tensor], draw: AugmentKey | None = None, aim: CropTarget | None = None
    ) -> Iterator[View]:
        """The views of each batch, read ahead; with `draw` those of training, functions of it, the aim and the ids."""
        require(self.preparation is not None, UNPREPARED)
        assert self.preparation is not None
        aim = aim if draw is not None else None
        common = common_words(self.preparation, self.table, searched(aim))
        found = self.reader.read(common, self._orders(batches, draw, aim))
        for rows, (tensors, refused) in zip(batches, found, strict=True):
            note(self.refused, [self.files[row].name for row in rows.tolist()], refused)
            inputs, y, places = tensors
            yield View(inputs, signed(y), places)

    def _orders(
        self, batches: Sequence[Tensor], draw: AugmentKey | None, aim: CropTarget | None
    ) -> Iterator[BatchRequest]:
        assert self.preparation is not None
        for number, batch in enumerate(batches):
            rows = batch.tolist()
            files = [self.files[row] for row in rows]
            wanted = wanted_places(aim, number, len(rows))
            asked = [row_words(file, seed_of(draw, file.id), wanted[at]) for at, file in enumerate(files)]
            shape = crop_shape(self.preparation) if draw is not None else self._common_shape(files)
            yield BatchRequest(files, asked, slots(shape, self.preparation))

    def _common_shape(self, files: list[MapFile]) -> tuple[int, int]:
        assert self.preparation is not None
        shapes = {whole_shape(file.size, self.preparation): file.name for file in files}
        found = ", ".join(f"{width}×{height} ({name})" for (height, width), name in list(shapes.items())[:3])
        require(len(shapes) < 2, f"whole pictures of one batch must have one shape, got {found}; read them one by one")
        return next(iter(shapes), (self.preparation.multiple, self.preparation.multiple))


def _checked(counts: Tensor, shape: tuple[int, ...]) -> Tensor:
    rule = f"counts must be int64 of shape {shape}, pixels of each class in each file"
    fits = counts.dtype == torch.int64 and counts.shape == shape
    require(fits, f"{rule}, got {counts.dtype} of shape {tuple(counts.shape)}")
    return counts
