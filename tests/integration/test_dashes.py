"""Names that begin with a dash: used as names, or refused in a sentence that says how to write them; never misread."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from cli_tables import embasis, refused
from paths import TESTS

STORED = TESTS / "zoo" / "0.1.0" / "em_basis-linear"
FIT = ("fit", "labelled.csv", "rows.csv", "rounds=1", "source_epochs=1", "epochs=1")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run and tables, some of them with a dash before their names."""
    place = tmp_path / "here"
    shutil.copytree(STORED, place)
    monkeypatch.chdir(place)
    for name in ("-in.csv", "-house.csv", "-out.csv", "--rows.csv"):
        shutil.copy("rows.csv", place / name)
    shutil.copytree("run", place / "-run")
    assert embasis("predict", "run", "rows.csv", "-o", "labels.csv").exit_code == 0  # what all others must write
    return place


def test_an_output_may_begin_with_a_dash(here: Path) -> None:
    for words in (("-o", "-x.csv"), ("-o-x.csv",), ("--output=-x.csv",), ("--output", "--x.csv")):
        assert embasis("predict", "run", "rows.csv", *words).exit_code == 0
        name = "--x.csv" if words[-1] == "--x.csv" else "-x.csv"
        assert (here / name).read_bytes() == Path("labels.csv").read_bytes()
        (here / name).unlink()


def test_inputs_may_begin_with_a_dash_after_two_of_them_or_with_their_folder(here: Path) -> None:
    for words in (
        ("-o", "x.csv", "--", "-run", "-in.csv"),
        ("./-run", "./--rows.csv", "-o", "x.csv"),
        ("-o", "x.csv", "run", "--", "--rows.csv"),
    ):
        assert embasis("predict", *words).exit_code == 0
        assert Path("x.csv").read_bytes() == Path("labels.csv").read_bytes()
        Path("x.csv").unlink()


@pytest.mark.parametrize("name", ["-in.csv", "-house.csv", "-out.csv", "--rows.csv"])
def test_a_file_that_would_be_read_as_an_option_is_named(here: Path, name: str) -> None:
    sentence = f"'{name}' is read as an option; write ./{name} for the file of that name"
    refused(2, sentence, "predict", "run", name, "-o", "x.csv")
    refused(2, sentence, "check", "labelled.csv", name)
    refused(2, sentence, "fit", name, "rows.csv", "-o", "new")
    refused(2, "'-run' is read as an option; write ./-run for the file of that name", "report", "-run")
    assert not Path("x.csv").exists()


@pytest.mark.parametrize("option", ["--", "--seed", "--forbid-leakage", "-h", "--help", "-o"])
def test_an_option_without_its_value_does_not_swallow_the_next_one(here: Path, option: str) -> None:
    before = sorted(os.listdir())
    sentence = f"-o needs a value, got the option '{option}'; write ./{option} for a file of that name"
    refused(2, sentence, *FIT, "-o", option)
    refused(2, sentence, *FIT, "-o", option, "3")
    refused(2, "--test" + sentence[2:], *FIT, "-o", "new", "--test", option)
    assert sorted(os.listdir()) == before


def test_a_run_whose_name_begins_with_a_dash_says_how_to_use_it(here: Path) -> None:
    made = embasis(*FIT, "-o", "-new run")
    assert made.exit_code == 0
    hint = made.stdout.splitlines()[-1]
    assert hint == "label other rows with: embasis predict './-new run' INPUT -o labels.csv"
    assert embasis(*FIT, "-o", "./-new run").stdout.startswith("-new run had ended (finished)")
    assert embasis("predict", "./-new run", "rows.csv", "-o", "x.csv").exit_code == 0
    assert embasis("report", "--", "-new run").exit_code == 0


def test_an_option_that_nobody_knows_is_refused_as_ever(here: Path) -> None:
    result = embasis("predict", "run", "rows.csv", "--no-such-option")
    assert result.exit_code == 2
    assert "No such option" in result.stderr
