"""`predict` in several real processes: one writes and talks; what ends one of them ends all, and leaves no table."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from cli_tables import copied, embasis, fit_tables
from process_runs import run_ranks, start_ranks, time_survivors, wait_for

HOST = socket.gethostname()
ROWS = 1_500_000
"""Some seconds of labelling."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on tables."""
    root = tmp_path_factory.mktemp("tables")
    fit_tables(root, "rounds=1")
    return root


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it as the current folder."""
    return copied(made, tmp_path / "here", monkeypatch)


def draw_rows(count: int) -> None:
    """rows.npy, of so many rows."""
    np.save("rows.npy", np.random.default_rng(0).normal(size=(count, 8)).astype(np.float32))


def start_and_wait(here: Path) -> list[subprocess.Popen[str]]:
    """Two processes that label, the first of which has begun to write: a file of that folder that has no name yet."""
    draw_rows(ROWS)
    ranks = start_ranks(2, "predict", "run", "rows.npy", "-o", "labels.csv", cwd=here)
    files = Path(f"/proc/{ranks[0].pid}/fd")
    while ranks[0].poll() is None:
        links = [os.readlink(file) for file in files.iterdir() if os.path.lexists(file)]
        if any(link.startswith((f"{here}/#", f"{here}/.")) for link in links):
            return ranks
        time.sleep(0.02)
    raise AssertionError(wait_for(ranks))


def test_two_processes_write_the_bytes_of_one_and_one_of_them_talks(here: Path) -> None:
    draw_rows(5000)
    first, second = run_ranks(2, "predict", "run", "rows.npy", "-o", "two.csv", cwd=here)
    assert (first.code, second.code) == (0, 0), first.stderr + second.stderr
    assert (second.stdout, second.stderr, first.stderr) == ("", "", "")
    alone = embasis("predict", "run", "rows.npy", "-o", "one.csv")
    said = "2 processes on 1 host labelled it; results do not depend on their number\n"
    assert first.stdout == alone.stdout.replace("one.csv", "two.csv") + said
    assert Path("two.csv").read_bytes() == Path("one.csv").read_bytes()


def test_an_error_that_one_process_has_ends_all_with_its_code(here: Path) -> None:
    draw_rows(5000)
    each = [{"WORDS": f"predict run {source} -o labels.csv"} for source in ("rows.npy", "missing.npy")]
    first, second = run_ranks(2, each=each, cwd=here)
    assert (first.code, second.code) == (3, 3), first.stderr + second.stderr
    assert first.stderr == f"embasis: rank 1 on host {HOST}: missing.npy: no such file\n"
    assert second.stderr == ""
    assert not Path("labels.csv").exists()


def test_a_process_that_is_killed_ends_the_other_with_8_and_no_table_is_left(here: Path) -> None:
    ranks = start_and_wait(here)
    ranks[1].kill()
    (survivor,), seconds = time_survivors(ranks, 1, 60)
    wait_for(ranks[1:])
    lost = f"rank 1 on host {HOST} was lost before all rows were labelled: labels.csv was not written"
    assert (survivor.code, survivor.stderr) == (8, f"embasis: {lost}; give the same command again\n")
    assert seconds < 20  # 3 to 5 s on an idle machine
    assert not Path("labels.csv").exists()
    assert [path.name for path in here.iterdir() if path.name.startswith(".")] == []


def test_a_signal_to_one_process_ends_both_with_143(here: Path) -> None:
    ranks = start_and_wait(here)
    ranks[1].send_signal(signal.SIGTERM)
    first, second = wait_for(ranks)
    assert (first.code, second.code) == (143, 143), first.stderr + second.stderr
    assert first.stderr == f"embasis: rank 1 on host {HOST}: interrupted\n"
    assert second.stderr == ""
    assert not Path("labels.csv").exists()
