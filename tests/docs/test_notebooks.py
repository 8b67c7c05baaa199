"""The notebooks of examples/ run from the first cell to the last, and carry no outputs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from notebooks import read_cells, run_notebook
from paths import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
PRINTED = {
    "torch_module": r"(round \d: \d+ trusted, score 0\.\d+, accuracy 0\.\d+\n){5}the network alone: 0\.\d+\n",
    "trust_and_review": r"\d+ of 800 labels are trusted after 3 rounds\n(.*0\.\d+.*\n){4}(\w+( \d+){8}\n){3}",
    "vectors": r"right on the second machine: 0\.\d+ before, 0\.\d+ after\n(.*0\.\d+.*\n){4}",
}

pytestmark = pytest.mark.skipif(not NOTEBOOKS, reason="needs the examples of the repository")


def test_there_are_three_notebooks() -> None:
    assert [notebook.stem for notebook in NOTEBOOKS] == sorted(PRINTED)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_runs_from_its_first_cell_to_its_last(notebook: Path, tmp_path: Path) -> None:
    done = run_notebook(notebook, tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(PRINTED[notebook.stem], done.stdout), done.stdout
    if notebook.stem == "vectors":
        before, after = (float(value) for value in re.findall(r"0\.\d+", done.stdout.splitlines()[0]))
        assert after > before + 0.02


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_is_of_the_format_and_stores_no_output(notebook: Path) -> None:
    book = json.loads(notebook.read_text(encoding="utf-8"))
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    cells = read_cells(notebook)
    assert len({cell["id"] for cell in cells}) == len(cells)
    for cell in cells:
        assert cell["cell_type"] in ("markdown", "code")
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
        assert [line for line in "".join(cell["source"]).splitlines() if len(line) > 120] == []
