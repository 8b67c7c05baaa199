"""Ctrl-C anywhere in a command: one line and code 130, and never "Aborted!" and code 1."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli_tables import ENVIRONMENT, embasis
from kill_runs import TINY

BEGIN = """
import atexit, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = ["embasis", "list", "methods"]
def press(*_):
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):
        pass  # Python hears signals between two steps
"""
END = """
from embasis.__main__ import main
main()
"""
PLACES = {
    "before click has read its words": "import click; click.Group.make_context = press",
    "while a command runs": "import embasis.cli.list as command; command.read_entries = press",
    "while an error is said": """
import embasis.cli.list as command, embasis.cli.console as console
def fail(*_): raise OSError("no")
command.read_entries, console.explain_failure = fail, press
""",
    "as the command ends": "import embasis.cli.console as t; t.Commands.invoke = lambda *_: press()",
    "in a finaliser": """
import embasis.cli.list as command
class Thing:
    def __del__(self): press()
def entries(*_):
    Thing()
    while True: pass
command.read_entries = entries
""",
}
"""Where the signal comes, and the code that sends it from there."""


def said(code: str, *, ours: bool = True) -> tuple[int, str]:
    """How the program ends, as a shell says it, and what it says on standard error."""
    listen = "" if ours else "import embasis.__main__ as program; program.handle_interrupts = lambda: None"
    command = [sys.executable, "-c", BEGIN + code + "\n" + listen + END]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=ENVIRONMENT)
    return 128 - done.returncode if done.returncode < 0 else done.returncode, done.stderr


@pytest.mark.parametrize("place", PLACES)
def test_a_ctrl_c_is_one_line_and_code_130(place: str) -> None:
    assert said(PLACES[place]) == (130, "embasis: interrupted\n")


def test_without_an_ear_of_our_own_click_makes_code_1_of_a_ctrl_c() -> None:
    assert said(PLACES["before click has read its words"], ours=False) == (1, "\nAborted!\n")


def test_a_ctrl_c_that_is_ignored_stays_ignored() -> None:
    ignored = "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    code, told = said(ignored + "import embasis.cli.console as t; t.Commands.invoke = lambda *_: press()")
    assert (code, told) == (0, "")


TWICE = """
def slow():
    import time
    try:
        press()
    finally:
        print("unwinding", flush=True)
        press()
        time.sleep(60)
import embasis.cli.list as command
command.read_entries = lambda *_: slow()
"""


def test_a_second_ctrl_c_does_not_wait_for_the_unwinding() -> None:
    assert said(TWICE) == (130, "embasis: interrupted\n")


HEARD = """
from embasis.terminal import Stop
def run(*_):
    with Stop() as stop:
        press()
    print("code", stop.code, file=sys.stderr, flush=True)
    press()
    print("not reached", file=sys.stderr, flush=True)
import embasis.cli.list as command
command.read_entries = run
"""


def test_after_a_signal_that_a_run_has_heard_the_next_one_ends_the_process_without_another_line() -> None:
    assert said(HEARD) == (130, "code 130\n")


def test_the_installed_program_listens(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("embasis")
    if not program.exists():
        pytest.skip("embasis is not installed as a program here")
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "embasis 0.1.0\n"
    assert "embasis.__main__" in program.read_text()


@pytest.mark.parametrize("place", ["cli.fit.require_run_room", "runs.run.TrainingRun.open"])
def test_a_signal_before_the_first_step_does_not_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    steps = list[object]()
    monkeypatch.setattr("embasis.engine.train.take_step", lambda *arguments: steps.append(arguments))
    monkeypatch.setattr(f"embasis.{place}", lambda *_: signal.raise_signal(signal.SIGTERM))
    result = embasis(*TINY, "-o", tmp_path / "run")
    sentence = "embasis: interrupted before training; the same command goes on\n"
    assert (result.exit_code, result.stderr, steps) == (143, sentence, [])
