"""Pictures with class maps as samples: MapFiles are read from disk when they are needed, MapArrays are in memory.

| symbol | meaning |
| --- | --- |
| C | classes of the table |
| pixel_counts (N, C) | pixels of each class in each row |

Without a draw a row is shown whole, with one as training sees it. Rows without a map have no labels, counts or truth:
−1 and 0.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from embasis.data.images.header import LARGEST_PIXELS
from embasis.data.images.samples import order_by_id, record_rejected
from embasis.data.reader import BatchRequest, OutputSpec, Reader, load_one
from embasis.data.segmentation import views
from embasis.data.segmentation.labels import IGNORED
from embasis.data.segmentation.pairs import MapFile
from embasis.data.segmentation.views import Place, crop_shape, to_signed, whole_shape
from embasis.data.worker_process import request_for
from embasis.errors import require
from embasis.randomness import derive
from embasis.types import AugmentKey, ClassTable, CropTarget, GroundTruth, MapPreparation, RejectedFile, View


@dataclass(frozen=True, eq=False)
class MapTruth:
    """True classes of each row, int64 (H, W) with −1 = unknown; a map is made when it is needed."""

    count: int
    make: Callable[[int], Tensor]
    mark: Callable[[], bytes] = bytes
    """Makes bytes that differ where a map does."""

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> Tensor:
        if not 0 <= row < self.count:
            raise IndexError(f"row must be in 0..{self.count - 1}, got {row}")  # ends a loop over all rows
        return self.make(row)


class MapSamples(ABC):
    """What rows with class maps have in common; how a row is read is left to the subclass."""

    ids: Tensor
    pixel_counts: Tensor
    preparation: MapPreparation | None
    has_mixed_shapes: bool
    """Whether pictures may differ in size, so that whole ones are read one at a time."""

    @abstractmethod
    def read_class_map(self, row: int) -> Tensor:
        """The row's class map, uint8 (H, W); all 255 where there is none."""

    @abstractmethod
    def mark_maps(self) -> bytes:
        """Bytes that differ where a map of these rows does."""

    @abstractmethod
    def _read_views(
        self, batches: Sequence[Tensor], draw: AugmentKey | None, aim: CropTarget | None
    ) -> Iterator[Sequence[Tensor]]:
        """Inputs, classes and places of each batch."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def labels(self) -> Tensor:
        """(N) int64: the commonest class of each row, the first of equals, −1 where there is none."""
        if not self.pixel_counts.numel():
            return torch.full((len(self),), -1, dtype=torch.int64)
        most = self.pixel_counts.amax(1, keepdim=True)
        first = (self.pixel_counts == most).int().argmax(1)
        return torch.where(most[:, 0] > 0, first, -1)

    @property
    def truth(self) -> GroundTruth:
        """The class maps of the rows as they were given."""
        return MapTruth(len(self), lambda row: to_signed(self.read_class_map(row)), self.mark_maps)

    def counts(self, classes: int, rows: Tensor | None = None) -> Tensor:
        """(C) int64: pixels of each class."""
        pixels = self.pixel_counts if rows is None else self.pixel_counts[rows]
        totals = torch.zeros(classes, dtype=torch.int64)
        totals[: pixels.shape[1]] = pixels.sum(0)[:classes]
        return totals

    def inputs(self, rows: Tensor) -> Tensor:
        """The whole view of these rows, uint8 (B, 3, H', W')."""
        return next(self.stream([rows])).inputs

    def stream(
        self, batches: Sequence[Tensor], draw: AugmentKey | None = None, aim: CropTarget | None = None
    ) -> Iterator[View]:
        """The views of each batch; with `draw` those of training, functions of it, the aim and the ids."""
        for inputs, y, places in self._read_views(batches, draw, None if draw is None else aim):
            yield View(inputs, to_signed(y), places)

    def _ready(self) -> MapPreparation:
        """The preparation, which rows must have before they are read."""
        require(self.preparation is not None, "pictures must be prepared for a network before they are read")
        assert self.preparation is not None
        return self.preparation


def _count_pixels(class_maps: Iterator[Tensor], classes: int) -> Tensor:
    """(N, C) int64: pixels of each class in each map."""
    rows = [torch.bincount(class_map.flatten(), minlength=IGNORED + 1)[:classes] for class_map in class_maps]
    return torch.stack(rows) if rows else torch.zeros(0, classes, dtype=torch.int64)


def _output_specs(shape: tuple[int, int], preparation: MapPreparation) -> list[OutputSpec]:
    """What becomes of a row whose view has this shape: input, classes and places."""
    grid = views.grid_shape(shape, preparation)
    places = OutputSpec((*grid, 2), math.nan, torch.float32)
    return [OutputSpec((3, *shape), views.PADDING), OutputSpec(grid, IGNORED), places]


def _derive_seed(draw: AugmentKey | None, number: int) -> int | None:
    """What the training view of the row with this id begins with."""
    return None if draw is None else derive(draw[0], "augmentation", *draw[1:], number)


def _places_to_show(aim: CropTarget | None, batch: int, count: int) -> list[Place | None]:
    """The place that each row of a batch is to show, None = any."""
    if aim is None or aim.places is None:
        return [None] * count
    places = aim.places[batch]
    shape = tuple(places.shape)
    require(shape == (count, 2), f"places of batch {batch} must have shape {(count, 2)}, got {shape}")
    return [None if math.isnan(v + u) else (v, u) for v, u in places.tolist()]


def _classes_to_show(aim: CropTarget | None) -> Tensor | None:
    """(C) weights of the classes that are drawn from a row's own map: where the aim has no places."""
    return None if aim is None or aim.places is not None else aim.classes.cpu()


@dataclass(frozen=True, eq=False)
class MapArrays(MapSamples):
    """Rows in memory: pictures uint8 (N, 3, H, W), maps uint8 (N, H, W) with 255 = unknown, ids (N)."""

    pictures: Tensor
    maps: Tensor | None
    ids: Tensor
    preparation: MapPreparation | None = None
    has_mixed_shapes = False

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

    @property
    def names(self) -> list[str]:
        """The rows' ids."""
        return [str(number) for number in self.ids.tolist()]

    @property
    def sizes(self) -> Tensor:
        """(N, 2) int64: height and width of the pictures."""
        return torch.tensor(self.pictures.shape[2:], dtype=torch.int64).repeat(len(self), 1)

    @cached_property
    def pixel_counts(self) -> Tensor:  # type: ignore[override] # never written, as rows are frozen
        """(N, 255) int64: pixels of each class in each row."""
        return _count_pixels((self.read_class_map(row) for row in range(len(self))), IGNORED)

    def read_class_map(self, row: int) -> Tensor:
        """The row's class map, uint8 (H, W); all 255 where there is none."""
        return torch.full(self.pictures.shape[2:], IGNORED, dtype=torch.uint8) if self.maps is None else self.maps[row]

    def mark_maps(self) -> bytes:
        """The bytes of all maps."""
        return b"" if self.maps is None else bytes(self.maps.contiguous().numpy().tobytes())

    def prepared(self, preparation: MapPreparation) -> MapArrays:
        """The same rows, made ready for a network."""
        return replace(self, preparation=preparation)

    def take(self, rows: Tensor) -> MapArrays:
        """Some of the rows, in increasing order."""
        maps = None if self.maps is None else self.maps[rows]
        return replace(self, pictures=self.pictures[rows], maps=maps, ids=self.ids[rows])

    def picture(self, row: int) -> Tensor:
        """The row's picture as it is, uint8 (3, H, W)."""
        return self.pictures[row]

    def change_rows(self, change: Callable[[Tensor], Tensor]) -> MapArrays:
        """The same maps and ids with other pictures: a function of those."""
        return replace(self, pictures=change(self.pictures))

    def _read_views(
        self, batches: Sequence[Tensor], draw: AugmentKey | None, aim: CropTarget | None
    ) -> Iterator[Sequence[Tensor]]:
        preparation, size = self._ready(), (self.pictures.shape[2], self.pictures.shape[3])
        shape = whole_shape(size, preparation) if draw is None else crop_shape(preparation)
        for number, rows in enumerate(batches):
            tensors = [spec.empty(len(rows)) for spec in _output_specs(shape, preparation)]
            places = _places_to_show(aim, number, len(rows))
            for at, (row, place) in enumerate(zip(rows.tolist(), places, strict=True)):
                class_map = None if self.maps is None else self.maps[row]
                seed = _derive_seed(draw, int(self.ids[row]))
                view = views.make_view(self.pictures[row], class_map, preparation, seed, place, _classes_to_show(aim))
                for tensor, part in zip(tensors, view, strict=True):
                    tensor[at] = part
            yield tensors


@dataclass(frozen=True, eq=False)
class MapFiles(MapSamples):
    """Rows on disk in the order of their ids; a row that cannot be read is grey, without classes, and written down."""

    files: tuple[MapFile, ...]
    table: ClassTable
    ids: Tensor
    pixel_counts: Tensor
    preparation: MapPreparation | None = None
    reader: Reader = field(default_factory=lambda: Reader(0))
    rejected: list[RejectedFile] = field(default_factory=list)
    """Rows that could not be read when they were needed, each once."""
    has_mixed_shapes = True

    @classmethod
    def of(
        cls, files: Sequence[MapFile], table: ClassTable, *, labelled: bool, counts: Tensor | None = None
    ) -> MapFiles:
        """Files in the order of their ids; label maps are never touched unless `labelled`.

        `counts` (N, C) has the pixels of each class in each file; without it a labelled side reads all its maps now.
        """
        files = files if labelled else [replace(file, label=None) for file in files]
        order, ids = order_by_id([file.image for file in files])
        pixels = torch.zeros(len(files), len(table.names), dtype=torch.int64)
        if counts is not None and labelled:
            rule = f"counts must be int64 of shape {tuple(pixels.shape)}, pixels of each class in each file"
            fits = counts.dtype == torch.int64 and counts.shape == pixels.shape
            require(fits, f"{rule}, got {counts.dtype} of shape {tuple(counts.shape)}")
            pixels = counts[order]
        rows = cls(tuple(files[row] for row in order.tolist()), table, ids, pixels)
        if counts is not None or not labelled:
            return rows
        class_maps = (rows.read_class_map(row) for row in range(len(rows)))
        return replace(rows, pixel_counts=_count_pixels(class_maps, len(table.names)))

    @property
    def names(self) -> list[str]:
        """The rows' names in every table: the paths of the pictures below the root."""
        return [file.name for file in self.files]

    @property
    def sizes(self) -> Tensor:
        """(N, 2) int64: height and width of the pictures."""
        return torch.tensor([file.size for file in self.files], dtype=torch.int64).reshape(-1, 2)

    def mark_maps(self) -> bytes:
        """Which row has which map, as the scan found them."""
        marks = [(file.id, b"" if file.label is None else file.label.digest) for file in self.files]
        turns = [(file.id, file.turn) for file in self.files if file.turn != 1]
        return repr((marks, self.table, turns) if turns else (marks, self.table)).encode()

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
        return replace(self, files=files, ids=self.ids[rows], pixel_counts=self.pixel_counts[rows], rejected=[])

    def picture(self, row: int) -> Tensor:
        """The row's picture as it is, uint8 (3, H, W); grey when it cannot be read."""
        file = self.files[row]
        request = {**request_for(file.image), "size": file.size}
        tensors = load_one(lambda request: (views.read_picture(request),), request)
        if isinstance(tensors, str):
            record_rejected(self.rejected, [file.name], {0: tensors})
            return torch.full((3, *file.size), views.PADDING, dtype=torch.uint8)
        return tensors[0]

    def read_class_map(self, row: int) -> Tensor:
        """The row's class map, uint8 (H, W); all 255 when there is no map, or it cannot be read."""
        file, table = self.files[row], self.table
        if file.label is not None:
            tensors = load_one(lambda request: (views.read_label_map(request, table),), views.label_request(file))
            if not isinstance(tensors, str):
                return tensors[0]
            record_rejected(self.rejected, [file.name], {0: tensors})
        return torch.full(file.size, IGNORED, dtype=torch.uint8)

    def _read_views(
        self, batches: Sequence[Tensor], draw: AugmentKey | None, aim: CropTarget | None
    ) -> Iterator[Sequence[Tensor]]:
        """Those of each batch, read ahead."""
        common = views.common_request(self._ready(), self.table, _classes_to_show(aim))
        results = self.reader.read(common, self._requests(batches, draw, aim))
        for rows, (tensors, rejected) in zip(batches, results, strict=True):
            record_rejected(self.rejected, [self.files[row].name for row in rows.tolist()], rejected)
            yield tensors

    def _requests(
        self, batches: Sequence[Tensor], draw: AugmentKey | None, aim: CropTarget | None
    ) -> Iterator[BatchRequest]:
        preparation = self._ready()
        for number, batch in enumerate(batches):
            files = [self.files[row] for row in batch.tolist()]
            seeds = [_derive_seed(draw, file.id) for file in files]
            requests = list(map(views.row_request, files, seeds, _places_to_show(aim, number, len(files))))
            shape = crop_shape(preparation) if draw is not None else self._common_shape(files)
            yield BatchRequest(files, requests, _output_specs(shape, preparation))

    def _common_shape(self, files: list[MapFile]) -> tuple[int, int]:
        preparation = self._ready()
        shapes = {whole_shape(file.size, preparation): file.name for file in files}
        named = ", ".join(f"{width}×{height} ({name})" for (height, width), name in list(shapes.items())[:3])
        require(len(shapes) < 2, f"whole pictures of one batch must have one shape, got {named}; read them one by one")
        return next(iter(shapes), (preparation.multiple, preparation.multiple))
