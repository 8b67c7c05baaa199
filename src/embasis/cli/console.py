"""What all commands share: printing that never stops a run, and one sentence for every failure."""

from __future__ import annotations

import os
import re
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from embasis.errors import ConfigError, EmbasisError, EmbasisWarning, Interrupted, require, reveal, shorten
from embasis.report import public
from embasis.resources import MORE_THREADS, lacks_memory, lacks_threads, require_threads

DEBUG, RUN_ERROR = "embasis.debug", "embasis.run_error"
"""Keys of a command's context: whether tracebacks are wanted, and the facts of a run that has failed."""
LAUNCHER = "TORCHELASTIC_ERROR_FILE"
"""The variable in which torchrun names the file for a failure; it makes 1 of every exit code."""
OTHER_FOLDER = "name another folder with -o"
BUG = "this is a bug in embasis; run again with --debug"


def echo(text: str = "", err: bool = False) -> None:
    """Print, with control characters made visible. A reader who has gone away (`| head`) is no reason to stop."""
    if is_silent():
        return
    shown = "\n".join(reveal(line) for line in text.split("\n"))
    for copy in _copies:
        copy(shown)
    with _step_aside[-1]() if _step_aside and (sys.stderr if err else sys.stdout).isatty() else nullcontext():
        try:
            click.echo(shown, err=err)
        except UnicodeEncodeError:
            click.echo(shown.encode("ascii", "backslashreplace").decode(), err=err)
        except OSError:
            with suppress(OSError):  # what is still in the buffer goes there too when Python ends
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2 if err else 1)


_silent = [False]
"""Whether this is a process that another one talks for; the last entry counts."""


def is_silent() -> bool:
    """Whether another process talks for this one."""
    return _silent[-1]


@contextmanager
def silence(silent: bool = True) -> Iterator[None]:
    """Nothing is printed meanwhile, if `silent`."""
    _silent.append(silent)
    try:
        yield
    finally:
        _silent.pop()


def speak() -> AbstractContextManager[None]:
    """What is printed meanwhile is printed, whoever else talks."""
    return silence(False)


_copies: list[Callable[[str], None]] = []
"""Functions that get every text that is printed."""


@contextmanager
def copy_output(copy: Callable[[str], None]) -> Iterator[None]:
    """Whatever is printed meanwhile goes there too, also when nobody reads the terminal any more."""
    _copies.append(copy)
    try:
        yield
    finally:
        _copies.remove(copy)


_step_aside: list[Callable[[], AbstractContextManager[None]]] = []
"""What is on the last line of the terminal, and leaves it while a text is printed."""


@contextmanager
def while_printing(step_aside: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Each text that is printed to the terminal meanwhile is printed in the block of this."""
    _step_aside.append(step_aside)
    try:
        yield
    finally:
        _step_aside.remove(step_aside)


def make_shareable(text: str, path: Path | None = None) -> str:
    """Text for a folder that may be shared: the run by its name, and without paths or names of this computer."""
    if path is not None and len(path.parts) > 1:
        text = text.replace(str(path), path.name)
    home = os.path.expanduser("~")
    text = text.replace(home, "~") if len(home) > 1 else text
    text = re.sub(r" on host [^\s:;]+", "", text)
    return "\n".join(public(line) for line in text.split("\n"))


def warn(texts: Sequence[str]) -> None:
    """Print a line on stderr for each text."""
    for text in texts:
        echo(f"warning: {text}", err=True)


def format_count(number: int, unit: str) -> str:
    """no errors, 1 error, 2 errors."""
    return f"{number or 'no'} {unit}{'' if number == 1 else 's'}"


def run_command(
    module: str, function: str, options: Mapping[str, Any], threads: bool = True, shared: bool = False
) -> None:
    """Import the module and call its function; threads that its libraries cannot do without are tried before that.

    Several processes may work on a command that is `shared`; any other one refuses them."""
    if shared and os.environ.get("WORLD_SIZE", "1") != "1":
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a lost process is one sentence, not torch's pages
    if threads:
        require_threads()
        if not shared:
            import_module("embasis.distributed").require_alone()
    with import_module("embasis.cli.many_processes").work_together() if shared else nullcontext():
        getattr(import_module(module), function)(**options)


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

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """As usual, but a long argument is quoted only in part."""
        with short_usage_errors():
            return super().make_context(*args, **extra)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command and its arguments; none of them is read as what it is not meant for."""
        name, command, arguments = super().resolve_command(ctx, args)
        if command is not None:
            refuse_dashes(command, arguments)
        return name, command, arguments

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; warnings of ours are printed, errors become sentences."""
        with warnings.catch_warnings():
            warnings.simplefilter("always", EmbasisWarning)
            warnings.showwarning = show_warning(warnings.showwarning)
            try:
                with short_usage_errors():
                    return super().invoke(ctx)
            except (click.ClickException, click.exceptions.Exit, click.Abort):
                raise
            except (Exception, KeyboardInterrupt) as error:
                sentence, code = explain_failure(error)
                write_launcher_error(error, ctx.meta.get(RUN_ERROR))
                if ctx.meta.get(DEBUG):
                    echo("".join(traceback.format_exception(error)).rstrip(), err=True)
                echo(f"embasis: {reveal(sentence)}", err=True)
                ctx.exit(code)


@contextmanager
def short_usage_errors() -> Iterator[None]:
    """Shorten the sentence in which click quotes an argument that it cannot use."""
    try:
        yield
    except click.ClickException as error:
        vars(error)["message"] = shorten(error.message)  # it is final for type checkers
        raise


def refuse_dashes(command: click.Command, arguments: Sequence[str]) -> None:
    """An option whose value was forgotten must not swallow the next one; a file named like an option is not one."""
    options = [item for item in command.params if isinstance(item, click.Option)]
    names = {"-h", "--help", *(name for item in options for name in item.opts)}
    valued = {name for item in options if not item.is_flag for name in item.opts}
    before = ""
    for word in arguments:
        if before in valued:
            rule = f"{before} needs a value, got the option {word!r}; write ./{word} for a file of that name"
            require(word not in {*names, "--"}, rule, ConfigError)
            before = ""
            continue
        if word == "--":
            return
        odd = word.startswith("-") and word.partition("=")[0] not in names and os.path.lexists(word)
        require(not odd, f"{word!r} is read as an option; write ./{word} for the file of that name", ConfigError)
        before = word


def quote_path(path: Path) -> str:
    """A path as it can be typed in a command."""
    return shlex.quote(f"./{path}" if str(path).startswith("-") else str(path))


def show_warning(usual: Callable[..., None]) -> Callable[..., None]:
    """Our warnings as one line; those of others as usual."""

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, EmbasisWarning):
            echo(f"warning: {reveal(shorten(str(message)))}", err=True)
        else:
            usual(message, category, *place, **more)

    return show


def explain_failure(error: BaseException) -> tuple[str, int]:
    """The sentence for the user, and the exit code."""
    if isinstance(error, EmbasisError):
        return str(error), error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 130
    if lacks_threads(error):
        return f"no more threads can be started; {MORE_THREADS}, or free some memory", 5
    if lacks_memory(error):
        return "not enough memory; fewer rows, fewer features or a smaller plan.batch_size need less", 5
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        denied = "cannot use " if where and isinstance(error, PermissionError) else ""
        return shorten(f"{denied}{where}{error.strerror or error}"), 5
    return shorten(f"{type(error).__name__}: {error}; {BUG}"), 1


def failure_facts(error: BaseException, path: Path | None = None) -> dict[str, Any]:
    """A failure as facts for machines, without paths of this one; for torchrun there must be a `message`."""
    sentence, code = explain_failure(error)
    message = make_shareable(sentence, path)
    return {"kind": type(error).__name__, "message": message, "exit_code": code, "resolved": False}


def write_launcher_error(error: BaseException, run_error: Mapping[str, Any] | None) -> None:
    """Write the facts of error.json where a launcher wants them; `run_error` are those of a run."""
    place = os.environ.get(LAUNCHER)
    if place and not isinstance(error, Interrupted):
        from embasis.storage import atomic

        with suppress(OSError, EmbasisError):
            atomic.write_output(place, atomic.encode_json(dict(run_error or failure_facts(error)), LAUNCHER))
