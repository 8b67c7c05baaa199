"""From files to batches, read ahead by worker processes.

| symbol | meaning |
| --- | --- |
| row | what is read for one row of a batch: an image, or a picture and its label map |
| common, asked | what a worker has to know of all rows and of one; plain JSON |
| slots | the tensors that become of a row: shape, dtype, and what they hold when it could not be read |
| draws | a 63-bit seed for each row: the training view is made; without them the view of evaluation |

A worker is an ordinary sub-process at the end of a pipe (see `worker.py`), so it works from threads, notebooks and
scripts alike, and a decoder that crashes or never ends costs one file, not the run.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from embasis.data.images import decode
from embasis.data.images.scan import ImageFile
from embasis.data.segmentation.views import map_loader
from embasis.data.workers.pool import Chunk, Pool, ReadJob, Row, RowRequest
from embasis.data.workers.protocol import Json, failure_reason, read_checked, request_for
from embasis.errors import ConfigError, lookup, require
from embasis.types import Preparation

GREY = 128
"""The value of all pixels of a row that could not be read."""
PART = 8
"""Rows that a worker is asked for at once."""

Batch = tuple[Tensor, dict[int, str]]
Loader = Callable[[Json], tuple[Tensor, ...]]
"""From what is asked for one row to its tensors."""


class OutputSpec(NamedTuple):
    """One of the tensors that become of a row; `fill` is all that it holds when the row could not be read."""

    shape: tuple[int, ...]
    fill: float
    dtype: torch.dtype = torch.uint8

    def empty(self, rows: int) -> Tensor:
        """(B, *shape)."""
        return torch.full((rows, *self.shape), self.fill, dtype=self.dtype)


class BatchRequest(NamedTuple):
    """One batch that is to be read: its rows, what is asked for each, and what becomes of each."""

    rows: Sequence[Row]
    asked: Sequence[Json]
    slots: Sequence[OutputSpec]


class BatchResult(NamedTuple):
    """One batch: a tensor (B, …) for each slot, and {position in the batch: reason} of what could not be read."""

    tensors: list[Tensor]
    refused: dict[int, str]


def image_loader(common: Json) -> Loader:
    """Reads images by the preparation and the strength in a request."""
    preparation, strength = Preparation(*common["preparation"]), common["strength"]

    def load(asked: Json) -> tuple[Tensor, ...]:
        image = decode.decode(read_checked(asked))
        if asked["draw"] is None:
            return (decode.centre_view(image, preparation),)
        return (decode.random_view(image, preparation, strength, torch.Generator().manual_seed(asked["draw"])),)

    return load


LOADERS: dict[str, Callable[[Json], Loader]] = {"images": image_loader, "maps": map_loader}


def loader_of(common: Json) -> Loader:
    """What makes tensors of the rows of a request."""
    return lookup(LOADERS, common["kind"], "kind of rows")(common)


def load_one(load: Loader, asked: Json) -> tuple[Tensor, ...] | str:
    """The tensors of one row, or the reason why there are none."""
    try:
        return load(asked)
    except Exception as error:  # one file never ends a run
        return failure_reason(error)


@dataclass(eq=False)
class Reader:
    """Reads rows in batches, in order; the batches are the same for any number of workers."""

    workers: int = 1
    """Processes that read ahead; 0 = read in this process, without a limit of time."""
    seconds: float = 10.0
    """A file that takes a worker longer is refused."""
    command: Sequence[str] | None = None
    """What starts a worker, if not this Python with `worker.py`."""
    _refused: dict[Row, str] = field(default_factory=dict, init=False, repr=False)
    _pool: Pool | None = field(default=None, init=False, repr=False)
    _starting: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        require(self.workers >= 0, f"workers must be at least 0, got {self.workers}", ConfigError)
        limit = f"seconds must be a finite number above 0, got {self.seconds}"
        require(0 < self.seconds < math.inf, limit, ConfigError)

    def batches(
        self,
        files: Sequence[ImageFile],
        rows: Sequence[Sequence[int]],
        preparation: Preparation,
        draws: Sequence[Sequence[int]] | None = None,
        strength: str = "light",
    ) -> Iterator[Batch]:
        """The batches in order, each with {position in the batch: reason} of the rows that could not be read.

        A file that was refused once stays refused as long as this reader lives: it is not tried again.
        """
        lookup(decode.STRENGTHS, strength, "strength of augmentation")
        shape = [preparation.size, preparation.crop, preparation.interpolation]
        common = {"kind": "images", "preparation": shape, "strength": strength}
        slots = [OutputSpec((3, preparation.size, preparation.size), GREY)]

        def orders() -> Iterator[BatchRequest]:
            for number in range(len(rows)):
                chosen = [files[row] for row in rows[number]]
                seeds = draws[number] if draws else [None] * len(chosen)
                asked = [{**request_for(file), "draw": seed} for file, seed in zip(chosen, seeds, strict=True)]
                yield BatchRequest(chosen, asked, slots)

        return ((tensors[0], refused) for tensors, refused in self.read(common, orders()))

    def read(self, common: Json, orders: Iterable[BatchRequest]) -> Iterator[BatchResult]:
        """The batches in order, whatever becomes of their rows."""
        batches = (self._prepared(order) for order in orders)
        return self._here(batches, common) if self.workers == 0 else self._ahead(batches, ReadJob(common, self.seconds))

    def _prepared(self, order: BatchRequest) -> tuple[BatchResult, BatchRequest, list[RowRequest]]:
        """An empty batch with what is known to be refused, and what is to be read."""
        tensors = [slot.empty(len(order.rows)) for slot in order.slots]
        refused = {place: self._refused[row] for place, row in enumerate(order.rows) if row in self._refused}
        items = [
            RowRequest(
                place, row, order.asked[place], [tensor[place].flatten().numpy().view(np.uint8) for tensor in tensors]
            )
            for place, row in enumerate(order.rows)
            if place not in refused
        ]
        return BatchResult(tensors, refused), order, items

    def _here(
        self, batches: Iterator[tuple[BatchResult, BatchRequest, list[RowRequest]]], common: Json
    ) -> Iterator[BatchResult]:
        load = loader_of(common)
        for read, _, items in batches:
            for item in items:
                found = load_one(load, item.asked)
                if isinstance(found, str):
                    read.refused[item.place] = self._refused[item.row] = found
                else:
                    for tensor, part in zip(read.tensors, found, strict=True):
                        tensor[item.place] = part
            yield BatchResult(read.tensors, dict(sorted(read.refused.items())))

    def _ahead(
        self, batches: Iterator[tuple[BatchResult, BatchRequest, list[RowRequest]]], call: ReadJob
    ) -> Iterator[BatchResult]:
        """A window of batches is always under way: two, or more when they are too small to keep all workers busy."""
        window: deque[tuple[BatchResult, BatchRequest, list[Chunk]]] = deque()
        try:
            while True:
                while len(window) < 2 or sum(len(parts) for _, _, parts in window) < 3 * self.workers:
                    if (batch := next(batches, None)) is None:
                        break
                    read, order, items = batch
                    parts = [Chunk(call, items[start : start + PART]) for start in range(0, len(items), PART)]
                    self._started().put(parts)
                    window.append((read, order, parts))
                if not window:
                    return
                yield self._gathered(*window.popleft())
        finally:
            call.cancelled = True

    def _gathered(self, read: BatchResult, order: BatchRequest, parts: list[Chunk]) -> BatchResult:
        for part in parts:
            for item, reason in part.wait():
                read.refused[item.place] = self._refused[item.row] = reason
                for tensor, slot in zip(read.tensors, order.slots, strict=True):
                    tensor[item.place] = slot.fill
        return BatchResult(read.tensors, dict(sorted(read.refused.items())))

    def _started(self) -> Pool:
        """The workers, started when they are first needed."""
        with self._starting:
            if self._pool is None or self._pool.closed:
                self._pool = Pool(self.workers, self.command)
                weakref.finalize(self, self._pool.close)
            return self._pool

    def close(self) -> None:
        """End the workers; the next call of `batches` starts new ones."""
        if self._pool is not None:
            self._pool.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
