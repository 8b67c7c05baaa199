"""A system that starts no more threads or processes (ulimit -u): one sentence and code 5, never an abort or a hang."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_tables import ENVIRONMENT, PROGRAM, embasis, write_tables
from embasis import resources
from embasis.data.reader import Pool
from embasis.errors import ResourceError

NOBODY = 54321
"""A user who has no other processes; root has no limit."""
MORE = "let other programs of yours end, or raise the limit (ulimit -u)"
NONE = f"embasis: 10 threads are needed, 0 can be started; {MORE}\n"


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder that anybody may use, with tables and a file of weights: those of pytest are the user's own."""
    path = Path(tempfile.mkdtemp())
    write_tables(path)
    (path / "net.pt").write_bytes(b"PK\x03\x04")
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)


def limited(place: Path, limit: int, *words: str) -> tuple[int, str]:
    """The command of a user who may have so many threads in all: its code and what it said on standard error."""
    command = ["bash", "-c", f'ulimit -u {limit}; exec "$@"', "bash", *PROGRAM, *words]
    if os.getuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("without setpriv root cannot become another user here")
        caps = ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]  # what root reads it must still read
        command = ["setpriv", f"--reuid={NOBODY}", "--clear-groups", *caps, *command]
        if subprocess.run([*command[:5], "true"], capture_output=True, check=False).returncode:
            pytest.skip("root cannot become another user here")
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=100, env=ENVIRONMENT, cwd=place
    )  # fmt: skip
    return done.returncode, done.stderr


COMMANDS = {
    "fit": ("fit", "labelled.csv", "judged.csv", "-o", "run"),
    "images": ("fit", "photos", "paintings", "-o", "run", "images.workers=2"),
    "weights": ("import-weights", "net.pt", "-o", "net.safetensors"),
    "report": ("report", "run"),
    "predict": ("predict", "run", "judged.csv", "-o", "labels.csv"),
    "compare": ("compare", "blobs"),
}


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_command_that_gets_no_thread_is_one_sentence_and_code_5(place: Path, kind: str) -> None:
    before = sorted(os.listdir(place))
    assert limited(place, 1, *COMMANDS[kind]) == (5, NONE)
    assert sorted(os.listdir(place)) == before


@pytest.mark.parametrize("limit", [4, 11])
def test_a_fit_that_gets_few_threads_ends_or_says_so(place: Path, limit: int) -> None:
    if os.getuid() != 0:
        pytest.skip("how many threads a user has besides is known for a user without any")
    code, told = limited(place, limit, *COMMANDS["fit"][:-1], f"run-{limit}", "rounds=1", "source_epochs=1", "epochs=1")
    few = f"embasis: 10 threads are needed, 3 can be started; {MORE}\n"
    assert (code, told) == ((0, "") if limit == 11 else (5, few))


def test_lists_and_help_need_no_thread(place: Path) -> None:
    assert limited(place, 1, "list", "methods") == (0, "")
    assert limited(place, 1, "fit", "--help") == (0, "")


# --- later, in the middle of the work


def no_more(patch: pytest.MonkeyPatch, there: int) -> None:
    """So many threads can be started, and no others."""
    start, begun = threading.Thread.start, list[threading.Thread]()

    def few(thread: threading.Thread) -> None:
        begun.append(thread)
        if len(begun) > there:
            raise RuntimeError("can't start new thread")
        start(thread)

    patch.setattr(threading.Thread, "start", few)


def test_workers_whose_threads_cannot_be_started_are_said_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    no_more(monkeypatch, 2)
    with pytest.raises(ResourceError) as raised:
        Pool(5)
    sentence = f"image workers: 5 threads are needed, 2 can be started; set fewer workers, or {MORE}"
    assert str(raised.value) == sentence
    assert threading.active_count() == before


def test_what_is_started_to_ask_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    before, size = threading.active_count(), threading.stack_size()
    resources.require_threads()
    assert (threading.active_count(), threading.stack_size()) == (before, size)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    no_more(monkeypatch, 13)
    with pytest.raises(ResourceError) as raised:
        resources.require_threads()
    assert str(raised.value) == f"14 threads are needed, 13 can be started; {MORE}"
    assert (threading.active_count(), threading.stack_size()) == (before, size)


def test_a_thread_that_a_library_cannot_start_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("embasis.cli.compare.count_pairs", fail)
    result = embasis("compare", "blobs")
    sentence = f"embasis: no more threads can be started; {MORE}, or free some memory\n"
    assert (result.exit_code, result.stderr) == (5, sentence)


def test_a_reader_of_weights_that_cannot_be_started_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("embasis.weights.torch_import.filter_archive", lambda path, data: data)
    monkeypatch.setattr(subprocess, "run", fail)
    Path("net.pt").write_bytes(b"weights")
    result = embasis("import-weights", "net.pt", "-o", "net.safetensors")
    told = "net.pt: the process that reads it cannot be started: Resource temporarily unavailable"
    assert (result.exit_code, result.stderr) == (5, f"embasis: {told}; {MORE}\n")
    assert os.listdir() == ["net.pt"]
