"""From image files to batches, read ahead by worker processes.

| symbol | meaning |
| --- | --- |
| files | all images of a side |
| rows | for each batch the numbers of its files |
| draws | a 63-bit seed for each row: the training view is made; without them the view of evaluation |
| batch (B, 3, S, S) | uint8; a row that could not be read is grey, with its reason beside the batch |

A worker is an ordinary sub-process at the end of a pipe (see `worker.py`), so it works from threads, notebooks and
scripts alike, and a decoder that crashes or never ends costs one file, not the run.
"""

from __future__ import annotations

import errno
import hashlib
import math
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType

import torch
from torch import Tensor

from embasis.data.image import decode
from embasis.data.image.pool import Call, Item, Part, Pool
from embasis.data.image.scan import ImageFile
from embasis.errors import ConfigError, lookup, require
from embasis.types import Preparation

GREY = 128
"""The value of all pixels of a row that could not be read."""
PART = 8
"""Images that a worker is asked for at once."""

Batch = tuple[Tensor, dict[int, str]]


def load_one(file: ImageFile, preparation: Preparation, strength: str, draw: int | None) -> Tensor | str:
    """The view of one file, or the reason why there is none."""
    try:
        data = file.read()
        if hashlib.blake2b(data, digest_size=16).digest() != file.digest:
            return "changed since the scan"
        image = decode.decode(data)
        if draw is None:
            return decode.centre(image, preparation)
        return decode.drawn(image, preparation, strength, torch.Generator().manual_seed(draw))
    except decode.Unreadable as error:
        return str(error)
    except OSError as error:
        return f"cannot be read: {error.strerror} ({errno.errorcode.get(error.errno or 0, 'no number')})"
    except MemoryError:
        return "needs more memory than there is"
    except Exception as error:  # one file never ends a run
        return f"unexpected {type(error).__name__}: {' '.join(str(error).split())[:200]}"


@dataclass(eq=False)
class Reader:
    """Reads images in batches, in order; the batches are the same for any number of workers."""

    workers: int = 1
    """Processes that read ahead; 0 = read in this process, without a limit of time."""
    seconds: float = 10.0
    """A file that takes a worker longer is refused."""
    command: Sequence[str] | None = None
    """What starts a worker, if not this Python with `-m embasis.data.image.worker`."""
    _refused: dict[ImageFile, str] = field(default_factory=dict, init=False, repr=False)
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
        call = Call(preparation, strength, self.seconds)
        batches = (self._batch(files, rows[i], draws[i] if draws else None, preparation) for i in range(len(rows)))
        return self._here(batches, call) if self.workers == 0 else self._ahead(batches, call)

    def _batch(
        self, files: Sequence[ImageFile], rows: Sequence[int], draws: Sequence[int] | None, preparation: Preparation
    ) -> tuple[Tensor, dict[int, str], list[Item]]:
        """An empty batch, what is known to be refused, and what is to be read."""
        pixels = torch.full((len(rows), 3, preparation.size, preparation.size), GREY, dtype=torch.uint8)
        chosen = [files[row] for row in rows]
        refused = {place: self._refused[file] for place, file in enumerate(chosen) if file in self._refused}
        items = [
            Item(place, file, draws[place] if draws else None, pixels[place].flatten().numpy())
            for place, file in enumerate(chosen)
            if place not in refused
        ]
        return pixels, refused, items

    def _here(self, batches: Iterator[tuple[Tensor, dict[int, str], list[Item]]], call: Call) -> Iterator[Batch]:
        for pixels, refused, items in batches:
            for item in items:
                found = load_one(item.file, call.preparation, call.strength, item.draw)
                if isinstance(found, str):
                    refused[item.place] = self._refused[item.file] = found
                else:
                    pixels[item.place] = found
            yield pixels, dict(sorted(refused.items()))

    def _ahead(self, batches: Iterator[tuple[Tensor, dict[int, str], list[Item]]], call: Call) -> Iterator[Batch]:
        """A window of batches is always under way: two, or more when they are too small to keep all workers busy."""
        window: deque[tuple[Tensor, dict[int, str], list[Part]]] = deque()
        try:
            while True:
                while len(window) < 2 or sum(len(parts) for _, _, parts in window) < 3 * self.workers:
                    if (batch := next(batches, None)) is None:
                        break
                    pixels, refused, items = batch
                    parts = [Part(call, items[start : start + PART]) for start in range(0, len(items), PART)]
                    self._started().put(parts)
                    window.append((pixels, refused, parts))
                if not window:
                    return
                yield self._gathered(*window.popleft())
        finally:
            call.cancelled = True

    def _gathered(self, pixels: Tensor, refused: dict[int, str], parts: list[Part]) -> Batch:
        for part in parts:
            for item, reason in part.wait():
                refused[item.place] = self._refused[item.file] = reason
                pixels[item.place] = GREY
        return pixels, dict(sorted(refused.items()))

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
