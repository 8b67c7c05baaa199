"""log.txt in a run folder: what was said, with the time, also when nobody reads it; and never at the run's cost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli_tables import ENVIRONMENT, PROGRAM, embasis
from embasis.errors import RunLockedError, UntrustedError
from embasis.storage import RunFolder, atomic
from embasis.storage import run_folder as logs
from folder_runs import digests, signal_at
from forked import Zygote
from kill_runs import TINY
from signal_runs import SELDOM
from storage_runs import Faulty, tree

STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00 ")


pytestmark = pytest.mark.usefixtures("fast_runs")


def lines_of(run: Path) -> list[str]:
    """The log without its times; each line must have one, and they never go back."""
    lines = (run / "log.txt").read_text().splitlines()
    assert all(STAMP.match(line) for line in lines)
    assert sorted(line[:29] for line in lines) == [line[:29] for line in lines]
    return [line[30:] for line in lines]


def test_the_log_holds_what_the_command_said(tmp_path: Path) -> None:
    result = embasis(*TINY, "-o", tmp_path / "run")
    assert result.exit_code == 0
    assert lines_of(tmp_path / "run") == result.output.replace(str(tmp_path / "run"), "run").splitlines()


def test_the_log_goes_on_when_nobody_reads_the_terminal(tmp_path: Path) -> None:
    command = [*PROGRAM, *TINY, "-o", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(120) == 0
    assert [line.split(":")[0].split("  ")[0] for line in lines_of(tmp_path / "run")] == [
        "24 labelled and 24 unlabelled rows, 3 classes", "em_basis with linear, seed 0", "round", "round", "done",
        "about 94% of the trusted labels are believed to be right",
        "wrote run/report.html and run/labels/round-001.parquet", "label other rows with",
    ]  # fmt: skip


def test_a_stopped_run_and_the_one_that_goes_on_have_one_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("signal.getsignal", lambda number: signal.default_int_handler)
        signal_at(patch, signal.SIGTERM, 2)
        stopped = embasis(*TINY, "-o", tmp_path / "run", "source_epochs=3")
    assert stopped.exit_code == 143
    again = embasis(*TINY, "-o", tmp_path / "run", "source_epochs=3")
    assert again.exit_code == 0
    said = [*stopped.stdout.splitlines(), *stopped.stderr.splitlines(), *again.stdout.splitlines()]
    assert lines_of(tmp_path / "run") == [line.replace(str(tmp_path / "run"), "run") for line in said]


def test_a_killed_run_keeps_its_log_and_goes_on_in_it(tmp_path: Path, zygote: Zygote) -> None:
    path = tmp_path / "run"
    child = zygote.start(tmp_path / "log", *SELDOM, "-o", path)
    while "round  0" not in child.stdout:
        assert child.wait(0.01) is None, child.stderr
    child.end()
    before = (path / "log.txt").read_bytes()
    assert b"round  0  trusted" in before
    (path / "log.txt").write_bytes(before + b"half a li")  # as a kill within a write leaves it
    child = zygote.run(tmp_path / "log", *SELDOM, "-o", path)
    assert child.code == 0
    after = (path / "log.txt").read_bytes()
    assert after.startswith(before + b"half a li\n")
    assert b" resumed round " in after.removeprefix(before).splitlines()[1]


def test_a_failure_is_the_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error", str(tmp_path / "run" / "x\x1b[31m"))

    monkeypatch.setattr("embasis.engine.train.take_step", fail)
    result = embasis(*TINY, "-o", tmp_path / "run")
    assert result.exit_code == 5
    assert lines_of(tmp_path / "run")[-1] == r"embasis: run/x\x1b[31m: Input/output error"


def test_the_log_names_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(
        "embasis.cli.fit.describe_start", lambda run, progress: f"of {tmp_path}/a and /home/mallory/b\x1b[2J"
    )
    assert embasis(*TINY, "-o", tmp_path / "deep" / "run").exit_code == 0
    assert lines_of(tmp_path / "deep" / "run")[0] == r"of ~/a and ~/b\x1b[2J"
    assert "mallory" not in (tmp_path / "deep" / "run" / "log.txt").read_text()


@pytest.mark.parametrize("kind", ["open", "write"])
def test_a_log_that_cannot_be_written_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    assert embasis(*TINY, "-o", tmp_path / "whole").exit_code == 0
    real, disk = logs.atomic.disk, Faulty(1, 28, forever=True, kinds=(kind,))
    write = logs.LogFile.write

    def full(self: logs.LogFile, text: str) -> None:
        monkeypatch.setattr(atomic, "disk", disk)
        write(self, text)
        monkeypatch.setattr(atomic, "disk", real)

    monkeypatch.setattr(logs.LogFile, "write", full)
    result = embasis(*TINY, "-o", tmp_path / "run")
    assert (result.exit_code, result.stderr) == (0, "")
    assert disk.fired
    assert digests(tmp_path / "run") == digests(tmp_path / "whole")
    assert not (tmp_path / "run" / "log.txt").exists() or not (tmp_path / "run" / "log.txt").read_bytes()


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "folder"])
def test_what_is_planted_in_the_place_of_the_log_is_left_alone(tmp_path: Path, kind: str) -> None:
    place, other = tmp_path / "run" / "log.txt", tmp_path / "other"
    other.write_text("mine")
    with RunFolder(tmp_path / "run"):
        pass
    if kind == "link":
        place.symlink_to(other)
    elif kind == "hard link":
        os.link(other, place)
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.mkdir()
    assert embasis(*TINY, "-o", tmp_path / "run").exit_code == 0
    assert other.read_text() == "mine"
    assert place.is_symlink() is (kind == "link")


def test_a_full_log_keeps_its_newest_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LOG_BYTES", 4000)
    with RunFolder(tmp_path) as run:
        for number in range(500):
            run.log(f"line {number}")
            assert (tmp_path / "log.txt").stat().st_size <= 4000
    found = [int(line.split()[1]) for line in lines_of(tmp_path)]
    assert found == list(range(found[0], 500))
    assert len(found) > 15
    with RunFolder(tmp_path) as run:
        run.log("x" * 10**6)
    assert len(lines_of(tmp_path)[-1]) == logs.LOG_LINE_CHARACTERS


def test_a_refusal_leaves_the_folder_with_its_log_as_it_was(tmp_path: Path) -> None:
    assert embasis(*TINY, "-o", tmp_path / "run").exit_code == 0
    before = tree(tmp_path / "run")
    assert embasis(*TINY, "-o", tmp_path / "run", "rounds=3").exit_code == 2
    assert tree(tmp_path / "run") == before


def test_times_in_the_log_follow_the_steady_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = logs.LogFile(tmp_path, datetime(2026, 1, 1, tzinfo=UTC))
    log.write("first")
    monkeypatch.setattr("time.monotonic", lambda zero=log._zero: zero + 61.5)
    log.write("second\nthird")
    log.close()
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert lines[0].startswith("2026-01-01T00:00:0")
    assert lines[1:] == ["2026-01-01T00:01:01.500+00:00 second", "2026-01-01T00:01:01.500+00:00 third"]


def test_the_log_is_written_by_the_owner_of_the_folder_and_by_this_way_only(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    with pytest.raises(RunLockedError):
        run.log("no")
    with run, pytest.raises(UntrustedError) as caught:
        run.write_text("log.txt", "no")
    assert str(caught.value) == "path is reserved in a run folder: 'log.txt'"
    assert not (tmp_path / "log.txt").exists()


# --- what a launcher such as torchrun wants to know


def test_a_launcher_gets_the_facts_of_error_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error", str(tmp_path / "run" / "x"))

    monkeypatch.setattr("embasis.engine.train.take_step", fail)
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "torch.json"))
    assert embasis(*TINY, "-o", tmp_path / "run").exit_code == 5
    found = json.loads((tmp_path / "torch.json").read_text())
    assert found == json.loads((tmp_path / "run" / "error.json").read_text())
    assert (found["message"], found["exit_code"], found["step"]) == ("run/x: Input/output error", 5, 0)


def test_a_launcher_is_told_of_a_refusal_too_and_can_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "torch.json"))
    assert embasis(*TINY, "-o", tmp_path / "run", "plan.lr=-1").exit_code == 2
    found = json.loads((tmp_path / "torch.json").read_text())
    sentence = "plan.lr must be positive, got -1.0"
    assert found == {"kind": "ConfigError", "message": sentence, "exit_code": 2, "resolved": False}
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

    failure = ProcessFailure(0, 1, 2, str(tmp_path / "torch.json"))
    assert failure.message == sentence


def test_a_launcher_hears_nothing_of_a_stop_or_of_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "torch.json"))
    with monkeypatch.context() as patch:
        patch.setattr("signal.getsignal", lambda number: signal.default_int_handler)
        signal_at(patch, signal.SIGTERM, 1)
        assert embasis(*TINY, "-o", tmp_path / "run").exit_code == 143
    assert embasis(*TINY, "-o", tmp_path / "run").exit_code == 0
    assert not (tmp_path / "torch.json").exists()


def test_a_launcher_that_cannot_be_told_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "absent" / "torch.json"))
    result = embasis(*TINY, "-o", tmp_path / "run", "plan.lr=-1")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
