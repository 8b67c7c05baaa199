"""How far a command is, on stderr: a bar in a terminal, else a line now and then; and how much longer it will take."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from embasis.cli import console
from embasis.cli.console import echo

Show = Callable[[float, str], None]
"""`show(done, text)`: how much of the total is done, and what is being done."""
BAR_WIDTH, BESIDE_TEXT = 12, 40
"""Characters of the bar, and of all that stands beside the text; a text is cut where the terminal has no room."""
FIRST_LINE, LONGEST_PAUSE = 30.0, 300.0
"""Seconds until the first line where there is no terminal; the pauses between lines double, up to so many seconds."""


class Pace:
    """The time that is left, if all goes on as it went since the first look; what was done before that counts not."""

    def __init__(self, total: float) -> None:
        self.total, self.begun, self.first, self.done = total, time.monotonic(), 0.0, -1.0

    def seconds_left(self, done: float) -> float | None:
        """Seconds, or None while nothing has been done, and when all has."""
        now = time.monotonic()
        if done < self.done or self.done < 0:  # the first look, or another thing of the same size
            self.begun, self.first = now, done
        self.done = done
        is_known = self.first < done < self.total
        return (self.total - done) * (now - self.begun) / (done - self.first) if is_known else None


def format_left(seconds: float | None) -> str:
    """`1:05 left`, `2:10:00 left`; nothing where it is not known."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d} left" if hours else f"{minutes}:{rest:02d} left"


@contextmanager
def progress_bar(title: str, total: float, *, lines: bool = False) -> Iterator[Show]:
    """A bar on stderr while the block runs; without a terminal nothing, or with `lines` a line now and then."""
    if not sys.stderr.isatty() or console.is_silent():
        yield print_lines(total) if lines else lambda done, text: None
        return
    from rich.console import Console

    screen = Console(stderr=True)
    if not screen.is_interactive:  # TERM=dumb: nothing can be cleared there
        yield print_lines(total) if lines else lambda done, text: None
        return
    with draw_bar(title, total, screen) as show:
        yield show


@contextmanager
def draw_bar(title: str, total: float, screen: Any) -> Iterator[Show]:
    """A bar that is taken away while a text is printed, and in the end."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    left = TextColumn("{task.fields[left]}")
    columns = (
        TextColumn("{task.description}"), BarColumn(BAR_WIDTH), TaskProgressColumn(), TimeElapsedColumn(), left,
    )  # fmt: skip
    stdout = sys.stdout.isatty()  # else what is printed would go to the bar's stream
    bar, pace = Progress(*columns, console=screen, transient=True, redirect_stdout=stdout), Pace(total)
    task = bar.add_task(title, total=total, left="")

    def show(done: float, text: str) -> None:
        room = max(screen.width - BESIDE_TEXT, 1)
        text = text if len(text) <= room else f"{text[: room - 1]}…"
        bar.update(task, completed=done, description=text, left=format_left(pace.seconds_left(done)))

    @contextmanager
    def step_aside() -> Iterator[None]:
        with suppress(OSError):
            bar.stop()
        try:
            yield
        finally:
            with suppress(OSError):
                bar.start()

    with suppress(OSError):
        bar.start()
    try:
        with console.while_printing(step_aside):
            yield show
    finally:
        with suppress(OSError):
            bar.stop()


def print_lines(total: float) -> Show:
    """Print what is shown now and then: after half a minute, and then more and more seldom."""
    pace, pause = Pace(total), FIRST_LINE
    due = time.monotonic() + pause

    def show(done: float, text: str) -> None:
        nonlocal pause, due
        left = format_left(pace.seconds_left(done))
        if time.monotonic() >= due and done < total:
            echo(", ".join(filter(None, (f"{text} ({done / total:.0%})", left))), err=True)
            pause = min(2 * pause, LONGEST_PAUSE)
            due = time.monotonic() + pause

    return show
