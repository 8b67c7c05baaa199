"""From files to batches, read ahead by worker processes.

| symbol | meaning |
| --- | --- |
| row | what is read for one row of a batch: an image, or a picture and its label map |
| common, request | what a worker has to know of all rows and of one; plain JSON |
| outputs | the tensors that become of a row: shape, dtype, and what they hold when it could not be read |
| draws | a 63-bit seed for each row: the training view is made; without them the view of evaluation |
| chunk | a few rows of one batch, read by one worker |

A worker is an ordinary sub-process at the end of a pipe (`worker.py`), so it works from threads, notebooks and scripts
alike. Each has a thread of this process, which sends requests, receives answers and watches the clock.

| danger | what happens |
| --- | --- |
| no answer for one file in time | that worker is killed, the file rejected, the rest goes to a new worker |
| a worker dies on a file | the file is rejected, the rest goes to a new worker; the second death in a pass ends it |
| a worker dies while it has nothing to do | a new one is started |
| a worker does not start | ResourceError with the last line of its standard error |
| full pipes | none: a thread sends one request, receives all its answers, and only then sends the next |
| this process is killed | the workers' pipes close, and they end |
"""

from __future__ import annotations

import math
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from embasis.data.images.files import ImageFile
from embasis.data.images.pixels import STRENGTHS, centre_view, decode, random_view
from embasis.data.segmentation.views import map_loader
from embasis.data.worker_process import (
    CLOSED,
    Json,
    ReadJob,
    Row,
    RowRequest,
    WorkerDied,
    WorkerProcess,
    WorkerTimeout,
    describe_failure,
    read_checked,
    request_for,
)
from embasis.errors import ConfigError, ResourceError, lookup, require
from embasis.resources import MORE_THREADS
from embasis.types import Preparation

UNREAD_GREY = 128
"""The value of all pixels of a row that could not be read."""
ROWS_PER_REQUEST = 8
"""Rows that a worker reads for one request."""

Loader = Callable[[Json], tuple[Tensor, ...]]
"""From the request for one row to its tensors."""


class OutputSpec(NamedTuple):
    """One of the tensors that become of a row; `fill` is all that it holds when the row could not be read."""

    shape: tuple[int, ...]
    fill: float
    dtype: torch.dtype = torch.uint8

    def empty(self, rows: int) -> Tensor:
        """(B, *shape)."""
        return torch.full((rows, *self.shape), self.fill, dtype=self.dtype)


class BatchRequest(NamedTuple):
    """One batch that is to be read: its rows, the request for each, and what becomes of each."""

    rows: Sequence[Row]
    requests: Sequence[Json]
    outputs: Sequence[OutputSpec]


class BatchResult(NamedTuple):
    """One batch: a tensor (B, …) for each output, and {position in the batch: reason} of what could not be read."""

    tensors: list[Tensor]
    rejected: dict[int, str]


class _OpenBatch:
    """A batch that is being read; rows that are known to be unreadable are not read again."""

    def __init__(self, batch: BatchRequest, known: Mapping[Row, str]) -> None:
        self.outputs = batch.outputs
        self.tensors = [output.empty(len(batch.rows)) for output in batch.outputs]
        self.rejected = {place: known[row] for place, row in enumerate(batch.rows) if row in known}
        self.items = [
            RowRequest(place, row, batch.requests[place], [tensor[place] for tensor in self.tensors])
            for place, row in enumerate(batch.rows)
            if place not in self.rejected
        ]

    def result(self) -> BatchResult:
        """The batch once all is read, what was rejected by position."""
        return BatchResult(self.tensors, dict(sorted(self.rejected.items())))


class Chunk(NamedTuple):
    """A few rows of a batch, read by one worker; what it rejects is known once all are read."""

    job: ReadJob
    items: list[RowRequest]
    rejected: Future[list[tuple[RowRequest, str]]]


class Pool:
    """Some workers with a common queue of chunks."""

    def __init__(self, workers: int, command: Sequence[str] | None = None) -> None:
        self.closed = False
        self._lock = threading.Lock()
        self._chunks: queue.SimpleQueue[Chunk | None] = queue.SimpleQueue()
        self._workers = [WorkerProcess(number, command) for number in range(workers)]
        self._threads: list[threading.Thread] = []
        for worker in self._workers:
            thread = threading.Thread(target=_serve_chunks, args=(worker, self._chunks), daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                self.close()
                there = f"image workers: {workers} threads are needed, {len(self._threads)} can be started"
                raise ResourceError(f"{there}; set fewer workers, or {MORE_THREADS}") from error
            self._threads.append(thread)

    def put(self, chunks: list[Chunk]) -> None:
        """Have these read, in any order."""
        with self._lock:
            if self.closed:
                raise ResourceError(CLOSED)
            for chunk in chunks:
                self._chunks.put(chunk)

    def close(self) -> None:
        """End all workers now; the chunks that are not read yet fail."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            for worker in self._workers:
                worker.close()
                self._chunks.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(5)


def _serve_chunks(worker: WorkerProcess, chunks: queue.SimpleQueue[Chunk | None]) -> None:
    """The life of a worker's thread."""
    while (chunk := chunks.get()) is not None:
        try:
            chunk.rejected.set_result(_read_chunk(worker, chunk.job, chunk.items))
        except BaseException as error:  # it belongs to whoever waits for the chunk
            worker.stop()
            chunk.rejected.set_exception(error)
    worker.stop()


def _read_chunk(worker: WorkerProcess, job: ReadJob, waiting: list[RowRequest]) -> list[tuple[RowRequest, str]]:
    """Read all rows of a chunk, with as many worker processes as it takes; those that are rejected, and why."""
    rejected: list[tuple[RowRequest, str]] = []
    while waiting and not job.cancelled:
        done = 0
        try:
            worker.start()
            worker.send(job, waiting)
            for item in waiting:
                reason = worker.receive(item, job.seconds)
                done += 1
                if reason is not None:
                    rejected.append((item, reason))
        except WorkerTimeout:
            worker.stop()
            rejected.append((waiting[done], f"took over {job.seconds:g} s to decode"))
            done += 1
        except WorkerDied as death:
            _record_death(worker, job, waiting[done].row, str(death))
            rejected.append((waiting[done], f"the decoder {death} on it"))
            done += 1
        waiting = waiting[done:]
    return rejected


def _record_death(worker: WorkerProcess, job: ReadJob, row: Row, how: str) -> None:
    """Count a death; the second in one pass ends it."""
    last_line = worker.stop()
    if worker.closed:
        raise ResourceError(CLOSED)
    with job.lock:
        job.deaths.append(f"worker {worker.number} {how} while it read {row.name}")
        if len(job.deaths) > 1:
            raise ResourceError(
                f"image workers: two were lost in one pass: {'; '.join(job.deaths)}. If memory is short, set fewer "
                "workers or a smaller batch; else take these files out of the data" + last_line
            )


def image_loader(common: Json) -> Loader:
    """Reads images by the preparation and the strength in a request."""
    preparation, strength = Preparation(*common["preparation"]), common["strength"]

    def load(request: Json) -> tuple[Tensor, ...]:
        image = decode(read_checked(request))
        if request["draw"] is None:
            return (centre_view(image, preparation),)
        return (random_view(image, preparation, strength, torch.Generator().manual_seed(request["draw"])),)

    return load


LOADERS: dict[str, Callable[[Json], Loader]] = {"images": image_loader, "maps": map_loader}


def make_loader(common: Json) -> Loader:
    """What makes tensors of the rows of a request."""
    return lookup(LOADERS, common["kind"], "kind of rows")(common)


def load_one(load: Loader, request: Json) -> tuple[Tensor, ...] | str:
    """The tensors of one row, or the reason why there are none."""
    try:
        return load(request)
    except Exception as error:  # one file never ends a run
        return describe_failure(error)


@dataclass(eq=False)
class Reader:
    """Reads rows in batches, in order; the batches are the same for any number of workers."""

    workers: int = 1
    """Processes that read ahead; 0 = read in this process, without a limit of time."""
    seconds: float = 10.0
    """A file that takes a worker longer is rejected."""
    command: Sequence[str] | None = None
    """What starts a worker, if not this Python with `worker.py`."""
    _rejected: dict[Row, str] = field(default_factory=dict, init=False, repr=False)
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
    ) -> Iterator[tuple[Tensor, dict[int, str]]]:
        """The batches in order, each with {position in the batch: reason} of the rows that could not be read.

        A file that was rejected once stays rejected as long as this reader lives: it is not tried again.
        """
        lookup(STRENGTHS, strength, "strength of augmentation")
        shape = [preparation.size, preparation.crop, preparation.interpolation]
        common = {"kind": "images", "preparation": shape, "strength": strength}
        outputs = [OutputSpec((3, preparation.size, preparation.size), UNREAD_GREY)]

        def batch_requests() -> Iterator[BatchRequest]:
            for number in range(len(rows)):
                chosen = [files[row] for row in rows[number]]
                seeds = draws[number] if draws else [None] * len(chosen)
                requests = [{**request_for(file), "draw": seed} for file, seed in zip(chosen, seeds, strict=True)]
                yield BatchRequest(chosen, requests, outputs)

        return ((tensors[0], rejected) for tensors, rejected in self.read(common, batch_requests()))

    def read(self, common: Json, batches: Iterable[BatchRequest]) -> Iterator[BatchResult]:
        """The batches in order, whatever becomes of their rows."""
        opened = (_OpenBatch(batch, self._rejected) for batch in batches)
        return self._read_here(opened, common) if self.workers == 0 else self._read_ahead(opened, common)

    def _read_here(self, batches: Iterator[_OpenBatch], common: Json) -> Iterator[BatchResult]:
        load = make_loader(common)
        for batch in batches:
            for item in batch.items:
                result = load_one(load, item.request)
                if isinstance(result, str):
                    self._reject(batch, item, result)
                else:
                    for target, tensor in zip(item.targets, result, strict=True):
                        target.copy_(tensor)
            yield batch.result()

    def _read_ahead(self, batches: Iterator[_OpenBatch], common: Json) -> Iterator[BatchResult]:
        """A window of batches is always under way: two, or more when they are too small to keep all workers busy."""
        job = ReadJob(common, self.seconds)
        window: deque[tuple[_OpenBatch, list[Chunk]]] = deque()
        try:
            while True:
                while len(window) < 2 or sum(len(chunks) for _, chunks in window) < 3 * self.workers:
                    if (batch := next(batches, None)) is None:
                        break
                    starts = range(0, len(batch.items), ROWS_PER_REQUEST)
                    chunks = [Chunk(job, batch.items[start : start + ROWS_PER_REQUEST], Future()) for start in starts]
                    self._started_pool().put(chunks)
                    window.append((batch, chunks))
                if not window:
                    return
                batch, chunks = window.popleft()
                for item, reason in (rejected for chunk in chunks for rejected in chunk.rejected.result()):
                    self._reject(batch, item, reason)
                yield batch.result()
        finally:
            job.cancelled = True

    def _reject(self, batch: _OpenBatch, item: RowRequest, reason: str) -> None:
        """Write down that a row could not be read; its tensors hold nothing of it."""
        self._rejected[item.row] = batch.rejected[item.place] = reason
        for target, output in zip(item.targets, batch.outputs, strict=True):
            target.fill_(output.fill)

    def _started_pool(self) -> Pool:
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

    def __exit__(self, *error: object) -> None:
        self.close()
