"""One worker process, the pipes to it, and how a file is described there.

| on the pipe | meaning |
| --- | --- |
| request | one line of JSON: what all rows have in common, and for each row its files (`request_for`) |
| answer, for each row | 4 bytes: a length; so much JSON: {"reason": null or text}; the bytes of its tensors if null |

Both sides know the shapes of the tensors beforehand: (3, S, S) pixels of an image; input, classes and places of a
picture with a map.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from torch import Tensor

from embasis.data.images.files import ImageFile, hash_content
from embasis.data.images.header import UnreadableImage
from embasis.errors import ResourceError

WORKER = str(Path(__file__).with_name("worker.py"))
START_SECONDS = 60.0
"""A worker must be ready by then; importing torch alone takes 2 to 20 s."""
PIPE_BYTES = 2**20
CLOSED = "image workers: the reader was closed before all its images were read"
NO_ANSWER = "sent what is no answer"
LONGEST_ANSWER = 2**16
"""Bytes of an answer without its tensors: a worker that sends nonsense cannot take gigabytes."""
STDERR_TAIL = 2000
"""Bytes of a worker's standard error that are kept."""
Json = dict[str, Any]
"""As JSON has it."""


def request_for(file: ImageFile) -> Json:
    """All that a worker needs to read the file."""
    return {"path": file.path, "digest": file.digest.hex(), "offset": file.offset, "length": file.length}


def read_checked(request: Json) -> bytes:
    """The bytes of a file; UnreadableImage when they are not those of the scan."""
    file = ImageFile("", request["path"], bytes.fromhex(request["digest"]), request["offset"], request["length"])
    data = file.read()
    if hash_content(data) != file.digest:
        raise UnreadableImage("changed since the scan")
    return data


def describe_failure(error: Exception) -> str:
    """The reason in an error that a file led to, as part of a sentence."""
    if isinstance(error, UnreadableImage):
        return str(error)
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror} ({errno.errorcode.get(error.errno or 0, 'no number')})"
    if isinstance(error, MemoryError):
        return "needs more memory than there is"
    return f"unexpected {type(error).__name__}: {' '.join(str(error).split())[:200]}"


class Row(Protocol):
    """What is read for one row of a batch: a file or some; equal ones are the same row."""

    @property
    def name(self) -> str:
        """For messages."""

    def __hash__(self) -> int: ...


@dataclass(eq=False)
class ReadJob:
    """One pass over batches: what its chunks have in common."""

    common: Json
    seconds: float
    cancelled: bool = False
    deaths: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(eq=False)
class RowRequest:
    """One row of a batch: its place there, what a worker has to know of it, and its tensors, to be filled."""

    place: int
    row: Row
    request: Json
    targets: list[Tensor]


class WorkerDied(Exception):  # noqa: N818 — what happened to a worker, not what went wrong here
    """A worker ended, or was ended; the text describes how, as in "died with SIGSEGV"."""


class WorkerTimeout(Exception):  # noqa: N818 — as above
    """No answer in time."""


def _pipes(process: subprocess.Popen[bytes] | None) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
    """Requests, answers and standard error of a worker that was started."""
    assert process is not None
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    return process.stdin, process.stdout, process.stderr


class WorkerProcess:
    """One worker process: the pipes to it and its start and end; used by one thread, except for `close`."""

    def __init__(self, number: int, command: Sequence[str] | None) -> None:
        self.number, self.closed = number, False
        self._command = list(command) if command else [sys.executable, "-P", WORKER]
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._stderr = b""

    def start(self) -> None:
        """Have a worker that is ready."""
        if self._process is not None and self._process.poll() is None:
            return
        self.stop()
        with self._lock:
            if self.closed:
                raise ResourceError(CLOSED)
            self._process = self._spawn()
        try:
            ready = self._read_json(START_SECONDS)
        except (WorkerDied, WorkerTimeout) as loss:
            if self.closed:
                raise ResourceError(CLOSED) from None
            how = "was not ready" if isinstance(loss, WorkerTimeout) else str(loss)
            text = f"image worker {self.number}: {how} within {START_SECONDS:g} s of its start{self.stop()}"
            raise ResourceError(text) from None
        assert ready == {"ready": True}

    def _spawn(self) -> subprocess.Popen[bytes]:
        # Its own process group: a Ctrl-C or a SIGTERM to ours must not take the workers before the run is saved.
        paths = os.pathsep.join(path for path in sys.path if path)
        environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        pipe = subprocess.PIPE
        # Until it has that group, a signal to ours reaches it too, and would kill it before it can ignore signals.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        try:
            process = subprocess.Popen(
                self._command, bufsize=0, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, process_group=0
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ResourceError(f"image worker {self.number} cannot be started: {error}; set workers to 0") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        # Room for some images, so that worker and thread wake each other less often; where the system allows it.
        with suppress(OSError, AttributeError):
            fcntl.fcntl(_pipes(process)[1].fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        return process

    def send(self, job: ReadJob, items: list[RowRequest]) -> None:
        """Send a request; the answers come one by one."""
        request = {**job.common, "seconds": job.seconds, "files": [item.request for item in items]}
        requests, _, _ = _pipes(self._process)
        try:
            rest = memoryview(json.dumps(request).encode("ascii") + b"\n")
            while rest:
                rest = rest[requests.write(rest) or 0 :]
        except OSError:
            raise WorkerDied(self._describe_end()) from None

    def receive(self, item: RowRequest, seconds: float) -> str | None:
        """Write the next row where it belongs; or the reason why there is none."""
        answer = self._read_json(seconds)
        reason = answer.get("reason", NO_ANSWER) if isinstance(answer, dict) else NO_ANSWER
        if reason is None:
            for target in item.targets:
                self._fill(target.flatten().numpy().view(np.uint8).data, seconds)
            return None
        if not isinstance(reason, str) or reason == NO_ANSWER:
            raise WorkerDied(NO_ANSWER)
        return reason

    def _read_json(self, seconds: float) -> Any:
        length = bytearray(4)
        self._fill(memoryview(length), seconds)
        size = int.from_bytes(length, "big")
        if size > LONGEST_ANSWER:
            raise WorkerDied(NO_ANSWER)
        text = bytearray(size)
        self._fill(memoryview(text), seconds)
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise WorkerDied(NO_ANSWER) from None

    def _fill(self, target: memoryview, seconds: float) -> None:
        """Read exactly this many bytes; the worker's standard error is drained meanwhile."""
        _, out, err = (pipe.fileno() for pipe in _pipes(self._process))
        poll = select.poll()
        poll.register(out, select.POLLIN)
        poll.register(err, select.POLLIN)
        while target:
            before = time.monotonic()
            ready = dict(poll.poll(1000 * min(1.0, max(0.0, seconds))))
            if err in ready and not self._drain_stderr(err):
                poll.unregister(err)
            if out in ready:
                if not (count := os.readv(out, [target])):
                    raise WorkerDied(self._describe_end())
                target = target[count:]
            elif seconds <= 0:
                raise WorkerTimeout
            # If all of us were stopped for a minute, that minute is not the worker's fault: it counts as a second.
            seconds -= min(1.0, time.monotonic() - before)

    def _drain_stderr(self, err: int) -> bool:
        text = os.read(err, 65536)
        self._stderr = (self._stderr + text)[-STDERR_TAIL:]
        return bool(text)

    def _describe_end(self) -> str:
        """How the worker ended; it has closed its pipes, so it is about to."""
        assert self._process is not None
        try:
            code = self._process.wait(5)
        except subprocess.TimeoutExpired:
            return "closed its pipe"
        if code >= 0:
            return f"ended with exit code {code}"
        with suppress(ValueError):
            return f"died with {signal.Signals(-code).name}"
        return f"died with signal {-code}"

    def stop(self) -> str:
        """End the worker; the last line of its standard error, for the end of a message."""
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return ""
        process.kill()
        process.wait()
        pipes = _pipes(process)
        with suppress(OSError):
            os.set_blocking(pipes[2].fileno(), False)
            self._drain_stderr(pipes[2].fileno())
        for pipe in pipes:
            pipe.close()
        text, self._stderr = self._stderr.decode("utf-8", "replace"), b""
        last = [line.strip() for line in text.splitlines() if line.strip()][-1:]
        return "".join(f"; it said: {line[:300]}" for line in last)

    def close(self) -> None:
        """From another thread: no worker from now on. The thread meets the closed pipe and tidies up."""
        with self._lock:
            self.closed = True
            if self._process is not None:
                self._process.kill()
