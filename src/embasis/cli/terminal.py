"""What all commands share: printing that never stops a run, progress, one sentence for every failure."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import click

from embasis.errors import ConfigError, EmbasisError, EmbasisWarning, Interrupted, require
from embasis.report.records import public, visible
from embasis.resources import is_short

DEBUG, STOOD = "embasis.debug", "embasis.stood"
"""What a command keeps in its context: whether tracebacks are wanted, and the facts of a run that has failed."""
LAUNCHER = "TORCHELASTIC_ERROR_FILE"
"""The variable by which torchrun says where a failure is to be written; it makes 1 of every exit code."""
BUG = "this is a bug in embasis; run again with --debug"


def say(text: str = "", err: bool = False) -> None:
    """Print, with control characters made visible. A reader who has gone away (`| head`) is no reason to stop."""
    shown = "\n".join(visible(line) for line in text.split("\n"))
    for take in _takers:
        take(shown)
    try:
        click.echo(shown, err=err)
    except UnicodeEncodeError:
        click.echo(shown.encode("ascii", "backslashreplace").decode(), err=err)
    except OSError:
        with suppress(OSError):  # what is still in the buffer goes there too when Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2 if err else 1)


_takers: list[Callable[[str], None]] = []


@contextmanager
def copied(take: Callable[[str], None]) -> Iterator[None]:
    """Whatever is said meanwhile goes there too, also when nobody reads the terminal any more."""
    _takers.append(take)
    try:
        yield
    finally:
        _takers.remove(take)


def shareable(text: str, path: Path | None = None) -> str:
    """Text as a folder may hold it that gets shared: the run by its name, and whose computer it was is left out."""
    if path is not None and len(path.parts) > 1:
        text = text.replace(str(path), path.name)
    home = os.path.expanduser("~")
    text = text.replace(home, "~") if len(home) > 1 else text
    return "\n".join(public(line) for line in text.split("\n"))


def warn(texts: Sequence[str]) -> None:
    """A line on stderr for each."""
    for text in texts:
        say(f"warning: {text}", err=True)


def require_folder(output: str | Path | None) -> None:
    """Refuse an output that is a file where files are to be written into a folder."""
    there = output is not None and Path(output).exists() and not Path(output).is_dir()
    require(not there, f"output {output} is a file; name a folder", ConfigError)


class Commands(click.Group):
    """Commands in the order they were added; every failure a sentence on stderr and its exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """As they were added."""
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """--debug may stand anywhere."""
        own = args[: args.index("--")] if "--" in args else args
        ctx.meta[DEBUG] = "--debug" in own
        return super().parse_args(ctx, [word for word in own if word != "--debug"] + args[len(own) :])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; warnings of ours are printed, errors become sentences."""
        with warnings.catch_warnings():
            warnings.simplefilter("always", EmbasisWarning)
            warnings.showwarning = show_warning(warnings.showwarning)
            try:
                return super().invoke(ctx)
            except (click.ClickException, click.exceptions.Exit, click.Abort):
                raise
            except (Exception, KeyboardInterrupt) as error:
                sentence, code = failure(error)
                tell_launcher(error, ctx.meta.get(STOOD))
                if ctx.meta.get(DEBUG):
                    say("".join(traceback.format_exception(error)).rstrip(), err=True)
                say(f"embasis: {visible(sentence)}", err=True)
                ctx.exit(code)


def show_warning(usual: Callable[..., None]) -> Callable[..., None]:
    """Our warnings as one line; those of others as usual."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, EmbasisWarning):
            say(f"warning: {visible(str(message))}", err=True)
        else:
            usual(message, category, filename, lineno, file, line)

    return show


def failure(error: BaseException) -> tuple[str, int]:
    """What to tell the user, and the exit code."""
    if isinstance(error, EmbasisError):
        return str(error), error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 130
    if is_short(error):
        return "not enough memory; fewer rows, fewer features or a smaller plan.batch need less", 5
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}", 5
    return f"{type(error).__name__}: {error}; {BUG}", 1


def facts_of(error: BaseException, path: Path | None = None) -> dict[str, Any]:
    """A failure for machines, without the places of this one; for torchrun it must have a `message`."""
    sentence, code = failure(error)
    return {
        "kind": type(error).__name__, "message": shareable(sentence, path), "exit_code": code, "resolved": False
    }  # fmt: skip


def tell_launcher(error: BaseException, stood: Mapping[str, Any] | None) -> None:
    """The same facts as in error.json, where a launcher asks for them; `stood` are those of a run."""
    place = os.environ.get(LAUNCHER)
    if place and not isinstance(error, Interrupted):
        from embasis.storage import files

        with suppress(OSError, EmbasisError):
            files.write_output(place, files.json_bytes(dict(stood or facts_of(error)), LAUNCHER))


@contextmanager
def progress_bar(title: str, total: float) -> Iterator[Callable[[float, str], None]]:
    """A bar on stderr; `show(done, words)` moves it. Nothing when stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, words: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    stdout = sys.stdout.isatty()  # else what is printed would go to the bar's stream
    bar = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=stdout)
    task = bar.add_task(title, total=total)
    with suppress(OSError):
        bar.start()
    try:
        yield lambda done, words: bar.update(task, completed=done, description=words)
    finally:
        with suppress(OSError):
            bar.stop()


def write_into(folder: Path, contents: Mapping[str, str | bytes]) -> None:
    """These files in that folder, which is made if need be."""
    from embasis.storage import files

    with files.writing(folder):
        files.disk.make(folder)
    for name, data in contents.items():
        files.write_output(folder / name, data)
