"""What a process printed while it had a run folder: `log.txt`, each line with its time.

Appended to, so that it survives kills and goes on with the run; not synced, and of a bounded size. A log is no part of
what a run promises: where it cannot be written it is shorter, and the run goes on.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from embasis.storage import atomic

LOG_NAME = "log.txt"
LOG_BYTES, LOG_LINE_CHARACTERS = 2**20, 2000
"""Bytes of the file, and characters of a line. A log that is full keeps the newest quarter of its lines."""


class LogFile:
    """The log of one folder for one process. `began` is the time by the clock, from which a steady one counts."""

    def __init__(self, folder: Path, began: datetime) -> None:
        self._path, self._began, self._zero = folder / LOG_NAME, began, time.monotonic()
        self._handle: int | None = None

    def write(self, text: str) -> None:
        """Append all lines of the text; none, if the disk takes none."""
        # A clock that jumps would put later lines before earlier ones.
        now = self._began + timedelta(seconds=time.monotonic() - self._zero)
        stamp = now.isoformat(timespec="milliseconds")
        data = b"".join(
            atomic.encode_text(f"{stamp} {line[:LOG_LINE_CHARACTERS]}\n") for line in text.split("\n") if line
        )
        with suppress(OSError):
            if self._handle is not None and os.fstat(self._handle).st_size + len(data) > LOG_BYTES:
                self.close()
            if self._handle is None:
                self._handle = self._open(len(data))
            atomic.disk.write_all(self._handle, data)

    def _open(self, room: int) -> int:
        """With room for so many bytes. Only a file of our own is written to: no link, no pipe that nobody reads."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        handle = atomic.disk.open(self._path, flags, 0o666)
        try:
            state = os.fstat(handle)
            if not stat.S_ISREG(state.st_mode) or state.st_nlink != 1:
                raise OSError
            if state.st_size > LOG_BYTES - room:
                atomic.disk.put(self._path, self._newest(handle, state.st_size))
                os.close(handle)
                handle = atomic.disk.open(self._path, flags, 0o666)
            elif state.st_size and os.pread(handle, 1, state.st_size - 1) != b"\n":
                atomic.disk.write_all(handle, b"\n")  # the process before was killed within a line
        except OSError:
            os.close(handle)
            raise
        return handle

    def _newest(self, handle: int, size: int) -> bytes:
        """The end of the file, from the beginning of a line on."""
        tail = os.pread(handle, LOG_BYTES // 4, max(0, size - LOG_BYTES // 4))
        return tail.partition(b"\n")[2].rpartition(b"\n")[0] + b"\n"

    def close(self) -> None:
        """Nothing more is to come."""
        handle, self._handle = self._handle, None
        if handle is not None:
            with suppress(OSError):
                atomic.disk.close(handle)
