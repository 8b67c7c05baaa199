"""What a terminal, or whoever stands in for it, does to a command: signals, and its standard streams.

| when | the first SIGINT, SIGTERM or SIGHUP | the next one |
| --- | --- | --- |
| a command runs | Ctrl-C unwinds it: one line, code 130; SIGTERM and SIGHUP end the process | ends the process |
| a run is under way (`Stop`) | sets `code`; the step ends, the run is saved | leaves at once, with that code |
| its last line is being printed | – | ends the process |

| what a stream is | then |
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
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TextIO

from embasis.errors import Interrupted

LOST_OUTPUT_CODE = 5
"""The exit code when what was printed did not arrive: a resource of the machine."""


def handle_interrupts() -> None:
    """Ctrl-C is ours from here on; where it is ignored (nohup, the shell's &) it stays so."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, exit_on_interrupt)


def exit_on_interrupt(number: int, _: object) -> NoReturn:
    """Unwind the command, so that half-written files go; a second Ctrl-C does not wait for that.

    Not KeyboardInterrupt: outside of a command click makes "Aborted!" and code 1 of it.
    """
    signal.signal(number, signal.SIG_DFL)
    usual = sys.unraisablehook

    def exit_in_finaliser(unraisable: Any) -> None:  # there Python swallows the SystemExit
        if issubclass(unraisable.exc_type, SystemExit):
            os._exit(130)
        usual(unraisable)

    sys.unraisablehook = exit_in_finaliser
    with suppress(OSError):
        os.write(2, b"embasis: interrupted\n")  # not through sys.stderr, which may be in the middle of a write
    raise SystemExit(130)


class Stop:
    """SIGINT, SIGTERM and SIGHUP only set `code`; a second one leaves at once, with the last saved state on disk."""

    def __init__(self) -> None:
        self.code = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup and the shell's & want it so
                    self._before[number] = signal.signal(number, self._record)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            # After a signal that stopped the run the next one ends the process: one line is enough.
            signal.signal(number, signal.SIG_DFL if self.code and handler is exit_on_interrupt else handler)

    def before_training(self) -> None:
        """Raise Interrupted if a signal came; for the steps before training, which have nothing to save."""
        if self.code:
            raise Interrupted("interrupted before training; the same command goes on", self.code)

    def _record(self, number: int, _: object) -> None:
        if self.code:
            os._exit(self.code)
        self.code = 130 if number == signal.SIGINT else 143


def end_at_once(code: str | int | None) -> NoReturn:
    """End one of several processes once all is written: torch's own end of a group of them may be SIGABRT after all
    went well, and a launcher would start them again."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


class SteadyOutput(io.FileIO):
    """What a descriptor takes is written there; after its first failure the rest is dropped, and nothing raises."""

    def __init__(self, number: int, name: str) -> None:
        super().__init__(number, "w", closefd=False)
        self.name = name
        self.failure: OSError | None = None
        """Why the rest is dropped."""

    def write(self, data: Any) -> int:
        """The bytes, or the beginning of them: whoever calls this goes on with the rest."""
        while self.failure is None:
            try:
                return os.write(self.fileno(), data)
            except BlockingIOError:
                select.select([], [self.fileno()], [])  # a pipe in non-blocking mode, as some programs pass on
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
