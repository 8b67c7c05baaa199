"""Signals to a fit in a process of its own: saved, the right code, in time, nobody left behind; goes on the same."""

from __future__ import annotations

import os
import pty
import random
import re
import select
import signal
import threading
import time
from pathlib import Path

import pytest

from cli_tables import embasis
from embasis.storage import read_jsonl, read_newest
from folder_runs import digests
from forked import Child, Zygote
from kill_runs import TINY, undisturbed
from signal_runs import SELDOM, alike, is_honest, orphans, pictures, stop_once, stop_until_done, term_at_calls
from storage_runs import do_not_wait
from traced import why_not


@pytest.fixture(scope="module")
def seldom(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], float]:
    """What a fit leaves that nobody disturbs, and its seconds."""
    return undisturbed(zygote, tmp_path_factory.mktemp("seldom") / "run", SELDOM)


def begun(child: Child) -> Child:
    """A fit that has said its first words: from here on it saves before it stops."""
    while not child.stdout:
        assert child.wait(0.005) is None, child.stderr
    return child


def test_a_fit_that_is_asked_to_stop_at_random_instants_ends_as_the_undisturbed_one(
    tmp_path: Path, zygote: Zygote, seldom: tuple[dict[str, str], float]
) -> None:
    expected, longest = seldom
    stops = list(stop_until_done(zygote, tmp_path / "run", SELDOM, random.Random(2), longest / 4, 7))
    assert [stop for stop in stops if not stop.right or stop.orphans] == []
    assert len(stops) > 2
    assert alike(tmp_path / "run", expected)


LAZY = """
from embasis.cli import main
from embasis.runs.run import TrainingRun
TrainingRun.save = lambda self, progress: None
main(words, prog_name="embasis")
"""


def test_a_stop_that_saves_nothing_is_found_out(tmp_path: Path, zygote: Zygote) -> None:
    path = tmp_path / "run"
    child = begun(zygote.start(path.with_suffix(".log"), *SELDOM, "-o", path, code=LAZY))
    stop = stop_once(child, signal.SIGTERM, 0, group=False, twice=False)
    assert stop is not None
    assert stop.code == 143
    assert not is_honest(path, stop.stderr)


SLEEPY = """
import time
from embasis.cli import main
from embasis.engine import train
whole, seen = train.take_step, []
def take_step(*arguments):
    seen.append(1)
    if len(seen) == 5:
        print("asleep", flush=True)
        for _ in range(600):
            time.sleep(0.1)
    return whole(*arguments)
train.take_step = take_step
main(words, prog_name="embasis")
"""


def test_a_second_signal_leaves_at_once_and_what_was_saved_is_there(tmp_path: Path, zygote: Zygote) -> None:
    words = [word.replace("save_seconds=1000", "save_seconds=0") for word in SELDOM]
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        path = tmp_path / str(code)
        child = zygote.start(path.with_suffix(".log"), *words, "-o", path, code=SLEEPY)
        while "asleep" not in child.stdout:
            assert child.wait(0.01) is None, child.stderr
        stop = stop_once(child, number, 0, group=True, twice=True)
        assert stop is not None
        assert stop.code == code, "the first signal waits for the step, the second does not"
        assert stop.seconds < 5
        assert stop.stderr == ""
        assert read_newest(path).facts["progress"]["loss_count"] >= 1


@pytest.mark.parametrize(
    "workers", [1, pytest.param(0, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
def test_a_signal_to_the_whole_group_saves_although_workers_read(tmp_path: Path, zygote: Zygote, workers: int) -> None:
    words, path = pictures(tmp_path, workers), tmp_path / "run"
    child = zygote.start(path.with_suffix(".log"), *words, "-o", path)
    while "classes" not in child.stdout:
        assert child.wait(0.01) is None, child.stderr
    stop = stop_once(child, signal.SIGTERM, 0.3, group=True, twice=False)
    assert stop is not None
    assert stop.code == 143, stop.stderr
    assert stop.stderr.startswith("embasis: interrupted; saved round ")
    assert stop.orphans == 0
    expected, _ = undisturbed(zygote, tmp_path / "undisturbed", pictures(tmp_path, 0))
    found, _ = undisturbed(zygote, path, words)
    different = {name for name in expected if found.get(name) != expected[name]}
    assert different <= ({"config.json", "facts"} if workers else set()), "the number of workers is in the settings"


TERMINAL = """
import fcntl, os, termios
handle = os.open(words[0], os.O_RDWR)
fcntl.ioctl(handle, termios.TIOCSCTTY, 0)
for number in (0, 1, 2):
    os.dup2(handle, number)
from embasis.cli import main
main(words[1:], prog_name="embasis")
"""


def read_until(handle: int, wanted: bytes, child: Child, rest: bool = True) -> bytes:
    """What a terminal shows, up to those words or to its end; with the `rest` until it is silent."""
    seen = b""
    while wanted not in seen and child.wait(0) is None:
        if select.select([handle], [], [], 0.1)[0]:
            seen += os.read(handle, 4096)
    while rest and select.select([handle], [], [], 0.2)[0]:
        try:
            seen += os.read(handle, 4096)
        except OSError:
            break
    return seen


def test_ctrl_c_at_a_terminal_is_one_line_and_code_130(tmp_path: Path, zygote: Zygote) -> None:
    keyboard, screen = pty.openpty()
    child = zygote.start(tmp_path / "log", os.ttyname(screen), *SELDOM, "-o", tmp_path / "run", code=TERMINAL)
    try:
        assert b"classes" in read_until(keyboard, b"seed 3", child, rest=False)
        os.write(keyboard, b"\x03")
        seen = read_until(keyboard, b"the same command goes on", child)
        assert child.wait(30) == 130, seen
    finally:
        os.close(keyboard)
        os.close(screen)
    assert b"Traceback" not in seen
    assert seen.count(b"embasis: interrupted; saved round ") == 1
    assert read_newest(tmp_path / "run").number > 0


def test_a_fit_that_was_stopped_and_continued_ends_as_the_undisturbed_one(
    tmp_path: Path, zygote: Zygote, seldom: tuple[dict[str, str], float]
) -> None:
    path = tmp_path / "run"
    child = begun(zygote.start(path.with_suffix(".log"), *SELDOM, "-o", path))
    child.send(signal.SIGSTOP, group=True)
    time.sleep(1)
    child.send(signal.SIGCONT, group=True)
    assert child.wait(120) == 0
    assert digests(path) == seldom[0]
    assert all(row["seconds"] >= 0 for row in read_jsonl(path / "timings.jsonl"))


def test_a_fit_that_was_killed_says_what_it_found_when_it_goes_on(tmp_path: Path, zygote: Zygote) -> None:
    path = tmp_path / "run"
    child = begun(zygote.start(path.with_suffix(".log"), *SELDOM, "-o", path))
    while not (path / "generations" / "000002").exists():
        assert child.wait(0.01) is None
    child.end()
    (path / "generations" / ".embasis-tmp-0123456789abcdef").mkdir()
    (path / ".embasis-tmp-fedcba9876543210").write_text("half")
    stop = zygote.start(path.with_suffix(".log"), *SELDOM, "-o", path)
    begun(stop).send(signal.SIGTERM)
    assert stop.wait(60) in (0, 143)
    ignored = r"ignored [2-4] incomplete publishes"
    gone = f"process {child.pid}, which had locked the folder, is gone"
    first = rf"resumed round \d from generation \d+; epoch \d+, step \d+; {ignored}; {gone}"
    assert re.fullmatch(first, stop.stdout.splitlines()[0]), stop.stdout


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_sigterm_at_a_system_call_is_heard_and_loses_nothing(tmp_path: Path, zygote: Zygote) -> None:
    count, good = term_at_calls(zygote, tmp_path, 30)
    assert count >= 3
    assert good == count


# --- in this process


def test_a_fit_in_a_thread_works_and_handlers_are_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    do_not_wait(monkeypatch)
    monkeypatch.setattr("embasis.runs.run.run_page", lambda view: "page")
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before, codes = [signal.getsignal(number) for number in numbers], list[int]()
    thread = threading.Thread(target=lambda: codes.append(embasis(*TINY, "-o", tmp_path / "thread").exit_code))
    thread.start()
    thread.join()
    codes.append(embasis(*TINY, "-o", tmp_path / "main").exit_code)
    assert codes == [0, 0]
    assert [signal.getsignal(number) for number in numbers] == before
    assert digests(tmp_path / "thread") == digests(tmp_path / "main")


def test_nobody_is_left_behind_by_a_process_that_has_ended() -> None:
    assert orphans(2**22 - 1, seconds=0) == 0
    assert orphans(os.getsid(0), seconds=0) > 0, "the search sees living processes"
