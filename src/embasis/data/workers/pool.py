"""Worker processes that read images, each with a thread of this process that asks, listens and watches.

| danger | what happens |
| --- | --- |
| no answer for one file in time | that worker is killed, the file refused, the rest goes to a new worker |
| a worker dies on a file | the file is refused, the rest goes to a new worker; the second death in a call ends it |
| a worker dies while it has nothing to do | a new one is started |
| a worker does not start | ResourceError with the last words it said |
| full pipes | none: a thread sends one request, takes all its answers, and only then sends the next |
| this process is killed | the workers' pipes close, and they end |
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence

from embasis.data.workers.process import CLOSED, ReadJob, Row, RowRequest, WorkerDied, WorkerProcess, WorkerTimeout
from embasis.errors import ResourceError
from embasis.resources import MORE_THREADS

__all__ = ["Chunk", "Pool", "ReadJob", "Row", "RowRequest"]


class Chunk:
    """A few rows of a batch, read by one worker."""

    def __init__(self, call: ReadJob, items: list[RowRequest]) -> None:
        self.call, self.items = call, items
        self.refused: list[tuple[RowRequest, str]] = []
        self.error: BaseException | None = None
        self._done = threading.Event()

    def finish(self, error: BaseException | None = None) -> None:
        """Nothing more will be read."""
        self.error = error
        self._done.set()

    def wait(self) -> list[tuple[RowRequest, str]]:
        """The refused items, once all are read."""
        self._done.wait()
        if self.error is not None:
            raise self.error
        return self.refused


class Pool:
    """Some workers with a common queue of parts."""

    def __init__(self, workers: int, command: Sequence[str] | None = None) -> None:
        self.closed = False
        self._lock = threading.Lock()
        self._parts: queue.SimpleQueue[Chunk | None] = queue.SimpleQueue()
        self._links = [WorkerProcess(number, command) for number in range(workers)]
        self._threads: list[threading.Thread] = []
        for link in self._links:
            thread = threading.Thread(target=_serve, args=(link, self._parts), daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                self.close()
                there = f"image workers: {workers} threads are needed, {len(self._threads)} can be started"
                raise ResourceError(f"{there}; set fewer workers, or {MORE_THREADS}") from error
            self._threads.append(thread)

    def put(self, parts: list[Chunk]) -> None:
        """Have these read, in any order."""
        with self._lock:
            if self.closed:
                raise ResourceError(CLOSED)
            for part in parts:
                self._parts.put(part)

    def close(self) -> None:
        """End all workers now; the parts that are not read yet fail."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            for link in self._links:
                link.close()
                self._parts.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(5)


def _serve(link: WorkerProcess, parts: queue.SimpleQueue[Chunk | None]) -> None:
    """The life of a worker's thread."""
    while (part := parts.get()) is not None:
        try:
            if not part.call.cancelled:
                _read_part(link, part)
            part.finish()
        except BaseException as error:  # it belongs to whoever waits for the part
            link.stop()
            part.finish(error)
    link.stop()


def _read_part(link: WorkerProcess, part: Chunk) -> None:
    """All rows of a part, with as many workers as it takes."""
    waiting = part.items
    while waiting and not part.call.cancelled:
        done = 0
        try:
            link.start()
            link.ask(part.call, waiting)
            for item in waiting:
                reason = link.answer(item, part.call.seconds)
                done += 1
                if reason is not None:
                    part.refused.append((item, reason))
        except WorkerTimeout:
            link.stop()
            part.refused.append((waiting[done], f"took over {part.call.seconds:g} s to decode"))
            done += 1
        except WorkerDied as loss:
            _record_death(link, part.call, waiting[done].row, str(loss))
            part.refused.append((waiting[done], f"the decoder {loss} on it"))
            done += 1
        waiting = waiting[done:]


def _record_death(link: WorkerProcess, call: ReadJob, row: Row, how: str) -> None:
    """Count a death; the second in one call ends it."""
    words = link.stop()
    if link.closed:
        raise ResourceError(CLOSED)
    with call.lock:
        call.deaths.append(f"worker {link.number} {how} while it read {row.name}")
        if len(call.deaths) > 1:
            raise ResourceError(
                f"image workers: two were lost in one pass: {'; '.join(call.deaths)}. If memory is short, set fewer "
                "workers or a smaller batch; else take these files out of the data" + words
            )
