"""What the system itself refuses: files that grow, a full disk, a read-only folder, no TMPDIR; and a report."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from cli_tables import embasis, write_tables
from embasis.storage import read_newest
from folder_runs import digests
from forked import Zygote
from kill_runs import TINY
from storage_runs import temps

SMALL_FILES = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
from embasis.cli import main
main(words, prog_name="embasis")
"""
READ_ONLY = """
import os
from embasis.cli import main
from embasis.engine import train
whole = train.take_step
def take_step(*arguments):
    if arguments[0].state.round == 1:
        for name in ("", "generations"):
            os.chmod(os.path.join(words[-1], name), 0o555)
    return whole(*arguments)
train.take_step = take_step
if os.getuid() == 0:  # root may write everywhere
    os.makedirs(words[-1])
    os.chown(words[-1], 65534, 65534)
    os.setgid(65534)
    os.setuid(65534)
main(words, prog_name="embasis")
"""


def test_a_limit_of_file_sizes_is_one_sentence_and_code_5(tmp_path: Path, zygote: Zygote) -> None:
    child = zygote.run(tmp_path / "log", *TINY, "-o", tmp_path / "run", code=SMALL_FILES)
    assert child.code == 5
    assert re.fullmatch(
        r"embasis: cannot write \S+: File too large; (no generation exists yet|the last good generation 1 is kept)\n",
        child.stderr,
    )
    assert not temps(tmp_path / "run")
    assert zygote.run(tmp_path / "log", *TINY, "-o", tmp_path / "run").code == 0


def test_a_folder_that_becomes_read_only_is_one_sentence_and_code_5(open_folder: Path, zygote: Zygote) -> None:
    run = open_folder / "run"
    child = zygote.run(open_folder / "log", *TINY, "-o", run, code=READ_ONLY)
    assert child.code == 5, child.stderr
    assert re.fullmatch(
        r"embasis: cannot write \S+: Permission denied; the last good generation 1 is kept\n", child.stderr
    )
    assert read_newest(run).number == 1
    assert not temps(run)
    for name in ("", "generations"):
        (run / name).chmod(0o777)
    assert zygote.run(open_folder / "log", *TINY, "-o", run).code == 0


def test_a_disk_that_fills_up_keeps_the_last_generation(tmp_path: Path, zygote: Zygote) -> None:
    expected = tmp_path / "undisturbed"
    assert zygote.run(tmp_path / "log", *TINY, "-o", expected).code == 0
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=96k", "none", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        child = zygote.run(tmp_path / "log", *TINY, "-o", disk / "run")
        assert child.code == 5, child.stderr
        assert "No space left on device" in child.stderr
        assert not temps(disk / "run")
        subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
        assert zygote.run(tmp_path / "log", *TINY, "-o", disk / "run").code == 0
        assert {**digests(disk / "run"), "error.json": ""} == {**digests(expected), "error.json": ""}
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# --- no temporary folder


def test_a_fit_needs_no_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embasis.runs.run.run_page", lambda view: "page")
    assert embasis(*TINY, "-o", tmp_path / "usual").exit_code == 0
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    assert embasis(*TINY, "-o", tmp_path / "run").exit_code == 0
    assert digests(tmp_path / "run") == digests(tmp_path / "usual")


# --- a report that cannot be written


def test_a_report_that_cannot_be_written_loses_neither_model_nor_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tables(tmp_path)
    monkeypatch.chdir(tmp_path)
    fit = ("fit", "labelled.csv", "judged.csv", "-o", "run", "rounds=1")
    assert embasis(*fit).exit_code == 0
    expected = digests(Path("run"))
    Path("run/report.html").unlink()
    Path("run/report.html").mkdir()  # a page cannot take the place of a folder
    failed = embasis(*fit)
    sentence = (
        f"cannot write {Path('run/report.html')}: Is a directory; model and labels are kept; "
        "the same command, or embasis report, writes the report again"
    )
    assert (failed.exit_code, failed.stderr) == (5, f"embasis: {sentence}\n")
    assert "done: " not in failed.stdout
    note = json.loads(Path("run/error.json").read_text())
    assert (note["status"], note["message"], note["exit_code"]) == ("report_failed", sentence, 5)
    assert {name: value for name, value in digests(Path("run")).items() if name != "error.json"} == expected
    assert embasis("predict", "run", "judged.csv", "-o", "labels.csv").exit_code == 0
    Path("run/report.html").rmdir()
    reported = embasis("report", "run")
    assert reported.exit_code == 0
    assert Path("run/report.html").read_text().startswith("<!doctype html>")
    assert embasis(*fit).exit_code == 0
    assert json.loads(Path("run/error.json").read_text())["resolved"] is True


def test_a_full_disk_within_a_round_is_no_failure_of_the_report(tmp_path: Path) -> None:
    (tmp_path / "run" / "generations").mkdir(parents=True)
    (tmp_path / "run" / "rounds.jsonl").mkdir()
    failed = embasis(*TINY, "-o", tmp_path / "run")
    rounds = tmp_path / "run" / "rounds.jsonl"
    assert failed.exit_code == 5
    assert failed.stderr == f"embasis: cannot write {rounds}: Is a directory; no generation exists yet\n"
    assert "status" not in json.loads((tmp_path / "run" / "error.json").read_text())
    assert os.listdir(rounds) == []
