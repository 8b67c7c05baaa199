"""Standard input, output and error of a command, whatever they are: closed, full, or read by nobody.

| what | then |
| --- | --- |
| a closed descriptor (`2>&-`) | /dev/null takes its place, before a file of data can get its number |
| a reader who has gone away (`| head`) | the command goes on in silence, and ends as it would have |
| an output that takes no more (a full disk) | the command goes on; its last line says so; code 5 if it would be 0 |
| an error output that takes no more | the command ends as it would have |
"""

from __future__ import annotations

import io
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

LOST_OUTPUT_CODE = 5
"""The exit code when what was printed did not arrive: a resource of the machine."""


class SteadyOutput(io.RawIOBase):
    """What a descriptor takes is written there; after its first failure the rest is dropped, and nothing raises."""

    def __init__(self, number: int, name: str) -> None:
        self.number, self.name = number, name
        self.failure: OSError | None = None
        """Why the rest is dropped."""

    def fileno(self) -> int:
        """The descriptor."""
        return self.number

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return os.isatty(self.number)

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any) -> int:
        """The bytes, or the beginning of them: whoever calls this goes on with the rest."""
        while self.failure is None:
            try:
                return os.write(self.number, data)
            except BlockingIOError:
                select.select([], [self.number], [])  # a pipe in non-blocking mode, as some programs pass on
            except OSError as error:
                self.failure = error
        return len(data)


def fill_closed_descriptors() -> None:
    """Give the descriptors 0, 1 and 2 that are closed to /dev/null; children inherit them as they are."""
    for number, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, mode)  # the lowest free number, which is this one
            os.set_inheritable(null, True)


def open_steady(number: int, name: str, before: TextIO | None) -> tuple[TextIO, SteadyOutput]:
    """A text stream on a descriptor that is like the one of Python's before, and never fails."""
    raw = SteadyOutput(number, name)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(before, "encoding", "utf-8"),
        errors=getattr(before, "errors", "backslashreplace"),
        line_buffering=getattr(before, "line_buffering", False),
        write_through=getattr(before, "write_through", False),
    ), raw


@contextmanager
def standard_streams() -> Iterator[None]:
    """While a command runs, printing never fails; if text did not arrive, the last line and the exit code say so."""
    fill_closed_descriptors()
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 — it is open as long as the process is
    sys.stdout, out = open_steady(1, "<stdout>", sys.stdout)
    sys.stderr, _ = open_steady(2, "<stderr>", sys.stderr)
    try:
        yield
    except SystemExit as end:
        sys.stdout.flush()
        if out.failure is None or isinstance(out.failure, BrokenPipeError):
            raise
        reason = f"cannot write to standard output: {out.failure.strerror}"
        print(f"embasis: {reason}; only printed text is missing; send it to another place", file=sys.stderr)
        raise SystemExit(end.code or LOST_OUTPUT_CODE) from None
