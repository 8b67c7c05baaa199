"""Artefacts of every release: they load, label as they did, and report, for ever."""

from __future__ import annotations

import json
import shutil
from importlib.metadata import version
from pathlib import Path

import pytest

from cli_tables import embasis
from embasis.storage import read_newest, read_stored_table
from paths import TESTS
from storage_runs import tree

ZOO = TESTS / "zoo"
ARTEFACTS = sorted(path.parent for path in ZOO.glob("*/*/run"))


def test_this_version_is_in_the_zoo() -> None:
    assert version("embasis") in {path.parent.name for path in ARTEFACTS}


@pytest.mark.parametrize("place", ARTEFACTS, ids=lambda path: f"{path.parent.name} {path.name}")
def test_an_artefact_of_a_release_labels_as_it_did_and_reports(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place, here := tmp_path / "here")
    manifest = json.loads(next((here / "run" / "generations").glob("*/manifest.json")).read_text())
    assert manifest["version"] == place.parent.name
    before = tree(here / "run")
    assert embasis("predict", here / "run", here / "rows.csv", "-o", here / "again.csv").exit_code == 0
    old, new = read_stored_table(here / "labels.csv"), read_stored_table(here / "again.csv")
    assert list(new) == list(old)
    for column in ("id", "label", "trusted"):
        assert new[column] == old[column], column
    for column in ("probability", "between", "within", "uncertainty"):
        assert [float(x) for x in new[column]] == pytest.approx([float(x) for x in old[column]], abs=1e-5), column
    assert tree(here / "run") == before, "labelling changes nothing"
    reported = embasis("report", here / "run")
    assert reported.exit_code == 0, reported.output
    assert (here / "run" / "report.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("place", ARTEFACTS, ids=lambda path: f"{path.parent.name} {path.name}")
def test_a_run_of_a_release_can_be_gone_on_with(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place, here := tmp_path / "here")
    config = here / "run" / "config.json"
    words = ("fit", here / "labelled.csv", here / "judged.csv", "-o", here / "run", "--config", config)
    again = embasis(*words)
    assert again.exit_code == 0, again.output
    assert again.stdout.startswith(f"{here / 'run'} had ended (finished) with generation ")
    more = embasis(*words, "rounds=2", "--allow-change", "plan.rounds")
    assert more.exit_code == 0, more.output
    assert len(read_newest(here / "run").facts["records"]) == 3


def test_the_zoo_is_small() -> None:
    assert sum(path.stat().st_size for path in ZOO.rglob("*") if path.is_file()) < 300_000
