"""docs/method.md: every equation of the paper has a row, and every function, file and decision that it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import embasis
from paths import ROOT

DOCS = ROOT / "docs"
PAGE = DOCS / "method.md"
PACKAGE = Path(embasis.__file__).parent
EQUATIONS = 21
"""Numbered equations of the paper: 16 in its body, 5 in the appendix."""
NAMED = re.compile(r"`(\w+)(?:\(\))?` in `([\w/]+\.py)`")
LAST_SECTION = "## What differs from the paper"

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="needs the docs of the repository")


def rows() -> list[list[str]]:
    """The cells of every row of the tables of equations."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines if line.startswith("|")]
    return [row for row in cells if row[0].isdigit() or row[0] == "–"]


def definitions(path: Path) -> set[str]:
    """Names of the functions and classes at the top of a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def test_every_equation_of_the_paper_has_one_row() -> None:
    assert [int(row[0]) for row in rows() if row[0].isdigit()] == list(range(1, EQUATIONS + 1))


def test_every_row_says_what_it_means_what_was_repaired_where_it_is_and_whether_it_is_on() -> None:
    assert {len(row) for row in rows()} == {6}
    assert [row[0] for row in rows() if not all(row)] == []


def test_every_function_that_is_named_stands_in_the_file_that_is_named() -> None:
    named = NAMED.findall(PAGE.read_text(encoding="utf-8"))
    assert len(named) > EQUATIONS
    for name, file in named:
        assert (PACKAGE / file).is_file(), f"{file} is not there"
        assert name in definitions(PACKAGE / file), f"{name} is not in {file}"


def test_every_equation_that_is_computed_names_its_function() -> None:
    computed = [row for row in rows() if row[3] != "none"]
    assert [row[0] for row in computed if not NAMED.search(row[3])] == []
    assert [row[0] for row in rows() if row[3] == "none"] == ["17", "18", "19", "20", "21"]


def test_every_file_that_is_named_exists() -> None:
    files = re.findall(r"`([\w/]+\.py)`", PAGE.read_text(encoding="utf-8"))
    assert [file for file in files if not (PACKAGE / file).is_file()] == []


def test_every_decision_that_is_named_exists() -> None:
    numbers = set(re.findall(r"\b00\d\d\b", PAGE.read_text(encoding="utf-8")))
    assert numbers <= {path.name[:4] for path in (DOCS / "decisions").glob("0*.md")}


def test_what_differs_is_said_in_ten_points() -> None:
    last = PAGE.read_text(encoding="utf-8").split(LAST_SECTION + "\n", 1)[1]
    assert re.findall(r"^(\d+)\.", last, re.MULTILINE) == [str(number) for number in range(1, 11)]
