"""A command that several processes work on: one of them talks, and all end with one code."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

import click

from embasis.cli import console
from embasis.distributed import Peers, join
from embasis.distributed.meeting import leave
from embasis.errors import RelayedFailure, reveal


@contextmanager
def work_together() -> Iterator[None]:
    """Join the processes that a launcher has started; a failure of one ends all, with its code."""
    with join() as world:
        if world.peers is None:
            yield
            return
        world.peers.report = lambda error: print_failure(world.peers, str(error), error.exit_code)
        with console.silence(world.rank > 0), unwind_on_termination():
            try:
                yield
                leave(world)
            except BaseException as error:
                end_process(world.peers, error)


@contextmanager
def unwind_on_termination() -> Iterator[None]:
    """SIGTERM and SIGHUP end the command as Ctrl-C does, so that the others end with the same code; a run under way
    has a handler of its own, which saves it."""
    before = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            before[number] = signal.signal(number, exit_terminated)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_terminated(number: int, _: object) -> NoReturn:
    """Unwind the command; the next signal does not wait for that."""
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(143)


def end_process(peers: Peers, error: BaseException) -> NoReturn:
    """Tell the others, print the first failure once, and leave without waiting for anybody."""
    peers.begin_leaving()
    if isinstance(error, SystemExit):  # a signal outside of training
        sentence, code = "interrupted", error.code if isinstance(error.code, int) else 1
    else:
        sentence, code = console.explain_failure(error)
    context = click.get_current_context(silent=True)
    if context is not None and context.meta.get(console.DEBUG) and not isinstance(error, RelayedFailure):
        with console.speak():
            console.echo("".join(traceback.format_exception(error)).rstrip(), err=True)
    code = print_failure(peers, sentence, code)
    console.write_launcher_error(error, None if context is None else context.meta.get(console.RUN_ERROR))
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    peers.wait_for_others()
    os._exit(code)


def print_failure(peers: Peers | None, sentence: str, code: int) -> int:
    """Print the first failure of all processes, unless another one does, or another thread of this one has; the code of
    that failure."""
    assert peers is not None
    with peers.speaking:
        note, prints = peers.fail(sentence, code)
        if prints and not peers.has_spoken:
            peers.has_spoken = True
            with console.speak():
                console.echo(f"embasis: {reveal(note.sentence)}", err=True)
    return note.code
