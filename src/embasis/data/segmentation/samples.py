"""Pictures with class maps as samples: MapFiles are read from disk when they are asked for, MapArrays are in memory.

| symbol | meaning |
| --- | --- |
| C | classes of the table |
| tally (N, C) | pixels of each class in each row |

Without a draw a row is shown whole, with one as training sees it. Labels, counts and truth of rows without a map say
nothing: −1 and 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import torch
from torch import Tensor

from embasis.data.images.decode import LARGEST_PIXELS
from embasis.data.images.samples import note
from embasis.data.segmentation.arrays import MapArrays
from embasis.data.segmentation.files import MapFile
from embasis.data.segmentation.reading import common_words, label_words, labels_of, picture_of, row_words
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
from embasis.data.segmentation.views import GREY, NONE, crop_shape, signed, whole_shape
from embasis.data.workers.loading import BatchRequest, Reader, load_one
from embasis.data.workers.protocol import request_for
from embasis.errors import require
from embasis.types import AugmentKey, ClassTable, CropTarget, GroundTruth, MapPreparation, RejectedFile, View

__all__ = ["MapArrays", "MapFiles"]


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
