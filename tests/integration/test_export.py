"""Labels of a run on tables for the next tool, and every wrong way to ask for them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cli_tables
from cli_tables import copied, embasis, fit_tables
from embasis.runs import finished_run as module
from embasis.storage import encode_table, read_newest, read_stored_table
from folder_runs import config, go
from resealed import reseal
from storage_runs import tree

COLUMNS = ["id", "label", "probability", "between", "within", "uncertainty", "trusted"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables and a finished run of two rounds."""
    return fit_tables(tmp_path_factory.mktemp("export"), "rounds=2", unlabelled="unlabelled.csv")


THREADS = """
import os, sys
import pyarrow.parquet  # what arrow starts when it is imported is not of interest
from embasis.data.formats import read_columns
from embasis.data.tables import read_raw
from embasis.errors import EmbasisError
from embasis.storage import read_stored_table
from pathlib import Path

before = len(os.listdir("/proc/self/task"))
for path in sys.argv[1:]:
    for read in (read_stored_table, read_raw, lambda path: read_columns(Path(path))):
        try:
            read(path)
        except (EmbasisError, OSError) as error:
            print(type(error).__name__)
print(len(os.listdir("/proc/self/task")) - before)
"""


def damaged(data: bytes, number: int) -> bytes:
    """The bytes of a parquet file with some of its pages spoiled, and the footer whole."""
    values = bytearray(data)
    for place in range(4 + 7 * number, len(data) * 2 // 3, 97):
        values[place] ^= 0xFF
    return bytes(values)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc to count threads")
def test_parquet_files_are_read_by_no_thread_of_arrow(made: Path, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.parquet", tmp_path / "bad.parquet"
    good.write_bytes(encode_table({"a": np.arange(5000.0), "b": np.arange(5000.0) % 7}, ".parquet"))
    bad.write_bytes(damaged(good.read_bytes(), 0))
    command = [sys.executable, "-c", THREADS, str(good), str(bad)]
    found = subprocess.run(command, env=cli_tables.ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert (found.returncode, found.stdout) == (0, "CorruptError\nInputDataError\nOSError\n0\n"), found.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_export_of_damaged_labels_never_aborts(here: Path) -> None:
    """Code 4 in every process; bare pyarrow with its threads was seen to abort (134) as it ended."""
    path = module.read_finished_run(Path("run")).labels
    data, codes = path.read_bytes(), []
    for number in range(40):
        path.write_bytes(damaged(data, number))
        words = [*cli_tables.PROGRAM, "export", "run", "-o", "out.csv", "--as", "csv"]
        codes.append(subprocess.run(words, env=cli_tables.ENVIRONMENT, capture_output=True, timeout=120).returncode)
    assert {*codes} == {4}


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return copied(made, tmp_path / "here", monkeypatch)


def refused(code: int, sentence: str, *words: object) -> None:
    """One sentence, the code, and nothing written."""
    before = tree(Path())
    cli_tables.refused(code, sentence, *words)
    assert tree(Path()) == before


def as_of(round_: int, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the run has ended so, with that best round."""

    def newest(path: Path) -> Any:
        found = read_newest(path)
        progress = {**found.facts["progress"], "status": status, "best_round": round_}
        return replace(found, facts={**found.facts, "progress": progress})

    monkeypatch.setattr(module, "read_run", newest)


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("every", [False, True])
def test_the_table_has_the_labels_of_the_last_round_that_were_asked_for(here: Path, form: str, every: bool) -> None:
    result = embasis("export", "run", "-o", f"out.{form}", "--as", form, *(["--all"] if every else []))
    assert result.exit_code == 0, result.output
    last = read_stored_table("run/labels/round-002.parquet")
    rows = [row for row, trusted in enumerate(last["trusted"]) if trusted or every]
    found = read_stored_table(f"out.{form}")
    assert list(found) == COLUMNS
    assert 0 < len(rows) < 60 or every
    for name in COLUMNS:
        wanted = [last[name][row] for row in rows]
        text = [str(cell).lower() if isinstance(cell, bool) else str(cell) for cell in wanted]
        assert found[name] == (wanted if form == "parquet" else text)
    which = "trusted or not" if every else "trusted"
    assert result.stdout == f"wrote out.{form}: {len(rows)} labels of round 2, {which}\n"


def test_the_same_export_again_gives_the_same_bytes(here: Path) -> None:
    for form in ("csv", "parquet"):
        for name in ("a", "b", "b"):
            assert embasis("export", "run", "-o", f"{name}.{form}", "--as", form).exit_code == 0
        assert Path(f"a.{form}").read_bytes() == Path(f"b.{form}").read_bytes()


def test_after_a_collapse_the_labels_are_those_of_the_round_that_is_kept(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_of(1, "collapsed", monkeypatch)
    assert embasis("export", "run", "-o", "out.parquet", "--as", "parquet", "--all").exit_code == 0
    found, kept = read_stored_table("out.parquet"), read_stored_table("run/labels/round-001.parquet")
    assert found["probability"] == kept["probability"]
    assert kept["probability"] != read_stored_table("run/labels/round-002.parquet")["probability"]


def test_ids_and_labels_that_look_like_formulas_are_escaped(here: Path) -> None:
    path = Path("run/labels/round-002.parquet")
    columns = read_stored_table(path)
    columns["id"] = ["=cmd()", "@x", "../x", "/etc/passwd", "zeile\nzwei", 'a,"b"'] + [f"-{n}" for n in range(54)]
    path.write_bytes(encode_table(columns, ".parquet"))
    reseal(Path("run"))
    assert embasis("export", "run", "-o", "out.csv", "--as", "csv", "--all").exit_code == 0
    lines = Path("out.csv").read_text().split("\n")
    assert [line.partition(",")[0] for line in lines[1:5]] == ["'=cmd()", "'@x", "../x", "/etc/passwd"]
    assert read_stored_table("out.csv")["id"] == columns["id"]


SUITED = "the run labelled a table: --as csv or parquet or label-studio or onnx or torch"
WRONG: dict[str, tuple[str, tuple[str, ...]]] = {
    "folder of a table": (
        f"--as folder is for runs on images, {SUITED}",
        ("-o", "out", "--as", "folder", "--images", "photos"),
    ),
    "coco of a table": (
        f"--as coco is for runs on pictures with label maps, {SUITED}",
        ("-o", "out.json", "--as", "coco"),
    ),
    "ending": ("output must end in .csv for --as csv, got 'out.parquet'", ("-o", "out.parquet", "--as", "csv")),
    "no ending": ("output must end in .parquet for --as parquet, got 'out'", ("-o", "out", "--as", "parquet")),
    "copy": ("--copy is for --as folder, got --as csv", ("-o", "out.csv", "--as", "csv", "--copy")),
    "images": ("--images is for --as folder, got --as csv", ("-o", "out.csv", "--as", "csv", "--images", "x")),
    "into the run": (
        "output run/labels/round-002.csv lies in the run folder run; name a place outside of it",
        ("-o", "run/labels/round-002.csv", "--as", "csv"),
    ),
    "onto the run": (
        "output run/../run/x.csv lies in the run folder run; name a place outside of it",
        ("-o", "run/../run/x.csv", "--as", "csv"),
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_combination_is_refused_with_a_sentence(here: Path, kind: str) -> None:
    sentence, words = WRONG[kind]
    refused(2, sentence, "export", "run", *words)


def test_an_unknown_form_is_refused_with_the_known_ones(here: Path) -> None:
    result = embasis("export", "run", "-o", "x", "--as", "xml")
    assert result.exit_code == 2
    assert "'csv', 'parquet', 'folder', 'coco'" in result.stderr


def test_a_run_that_goes_on_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    go(Path("run"), config(), stop_after=5)
    refused(4, "run: the run has not ended yet; go on with embasis fit", "export", "run", "-o", "x.csv", "--as", "csv")


def test_what_is_no_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert embasis("export", "nothing", "-o", "x.csv", "--as", "csv").exit_code == 4
    assert os.listdir() == []


def test_a_run_without_a_trusted_label_says_how_to_get_the_others(here: Path) -> None:
    path = Path("run/labels/round-002.parquet")
    columns = read_stored_table(path)
    path.write_bytes(encode_table({**columns, "trusted": [False] * 60}, ".parquet"))
    reseal(Path("run"))
    refused(3, module.NONE_TRUSTED, "export", "run", "-o", "x.csv", "--as", "csv")
    assert embasis("export", "run", "-o", "x.csv", "--as", "csv", "--all").exit_code == 0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda c: {k: v for k, v in c.items() if k != "within"}, "columns are missing: within"),
        (lambda c: {**c, "label": ["../x"] * 60}, "labels that are no class of the run: '../x'"),
    ],
)
def test_a_damaged_table_of_the_run_is_refused(here: Path, change: Any, sentence: str) -> None:
    path = Path("run/labels/round-002.parquet")
    path.write_bytes(encode_table(change(read_stored_table(path)), ".parquet"))
    reseal(Path("run"))
    refused(4, f"{path}: {sentence}", "export", "run", "-o", "x.csv", "--as", "csv")


def test_an_output_that_cannot_be_written_leaves_nothing(here: Path) -> None:
    Path("x.csv").mkdir()
    refused(5, "cannot write x.csv: it is not a regular file", "export", "run", "-o", "x.csv", "--as", "csv")
    where = "cannot write nowhere/x.csv: folder nowhere does not exist"
    refused(5, where, "export", "run", "-o", "nowhere/x.csv", "--as", "csv")
