"""`embasis compare office31 --table paper` on a miniature of the data set: every row is run, or said to be left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_tables import embasis
from embasis.benchmark.paper_rows import find_table, methods_of_table
from image_trees import OFFICE31, plant, whole

SHORT = ("--seeds", "1", "plan.rounds=1", "plan.source_epochs=1", "plan.epochs=1", "images.workers=0")


def test_a_miniature_of_office_is_run_row_by_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBASIS_CACHE", str(tmp_path / "cache"))
    root = plant(tmp_path / "data", whole(OFFICE31))
    pair = ("source=amazon", "target=webcam")
    result = embasis("compare", "office31", "--root", root, "--table", "paper", *pair, *SHORT, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    names = methods_of_table(find_table("office31"))
    assert all(f"\n  {name}, ours " in result.stdout for name in names)
    assert "left out" not in result.stdout
    page = (tmp_path / "out" / "compare.md").read_text(encoding="utf-8")
    assert all(f"\n| `{name}` | ours, one seed |" in page for name in names)


def test_on_features_that_stay_as_they_are_what_needs_others_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBASIS_CACHE", str(tmp_path / "cache"))
    root = plant(tmp_path / "data", whole(OFFICE31))
    words = ("source=amazon", "target=webcam", "images.head=linear", *SHORT)
    result = embasis("compare", "office31", "--root", root, "--table", "paper", *words)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("left out: dan, rtn, dann, ")
    assert "\n  dan, ours " not in result.stdout
    assert "\n  source_only, ours " in result.stdout
