"""SIGINT, SIGTERM and SIGHUP, from the first import of a command to its last line.

| when | the first signal | the next one |
| --- | --- | --- |
| a command runs | Ctrl-C unwinds it: one line, code 130; SIGTERM and SIGHUP end the process | ends the process |
| a run is under way (`Stop`) | sets `code`; the step ends, the run is saved | leaves at once, with that code |
| its last line is being printed | – | ends the process |
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Any, NoReturn

from embasis.errors import Interrupted


def handle_interrupts() -> None:
    """Ctrl-C is ours from here on; where it is ignored (nohup, the shell's &) it stays so."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, exit_on_interrupt)


def exit_on_interrupt(number: int, _: object) -> NoReturn:
    """Unwind the command, so that half-written files go; a second Ctrl-C does not wait for that.

    Not KeyboardInterrupt: outside of a command click makes "Aborted!" and code 1 of it.
    """
    signal.signal(number, signal.SIG_DFL)
    sys.unraisablehook = exit_in_finaliser(sys.unraisablehook)
    with suppress(OSError):
        os.write(2, b"embasis: interrupted\n")  # not through sys.stderr, which may be in the middle of a write
    raise SystemExit(130)


def exit_in_finaliser(usual: Any) -> Any:
    """Python swallows a SystemExit that is raised inside a finaliser; then the process ends without unwinding."""

    def hook(unraisable: Any) -> None:
        if issubclass(unraisable.exc_type, SystemExit):
            os._exit(130)
        usual(unraisable)

    return hook


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
