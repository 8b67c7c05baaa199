"""A decision is short, is in the index, and its trials are found from it and it from them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paths import ROOT

TREE = ROOT
FOLDER, NOTES = TREE / "docs" / "decisions", TREE / "benchmarks" / "notes"
DECISIONS = sorted(FOLDER.glob("[0-9]*.md"))
MOST_LINES, WIDEST_LINE = 40, 120

pytestmark = pytest.mark.skipif(not DECISIONS, reason="needs the docs of the repository")


def links(page: Path) -> set[Path]:
    """The files that a page links to."""
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    return {(page.parent / target).resolve() for target in targets}


def test_no_decision_is_longer_than_forty_lines() -> None:
    lengths = {page.name: len(page.read_text(encoding="utf-8").splitlines()) for page in DECISIONS}
    assert {name: count for name, count in lengths.items() if count > MOST_LINES} == {}


def test_no_line_of_a_decision_is_wider_than_120_characters() -> None:
    lines = [(page.name, line) for page in DECISIONS for line in page.read_text(encoding="utf-8").splitlines()]
    assert [(name, line) for name, line in lines if len(line) > WIDEST_LINE] == []


def test_every_decision_has_a_number_of_its_own() -> None:
    """Numbers are given out before a decision is written, so some may be missing."""
    numbers = [page.name[:4] for page in DECISIONS]
    assert all(number.isdigit() for number in numbers)
    assert numbers == sorted({*numbers})


def test_every_decision_is_in_the_index_with_its_title() -> None:
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    for page in DECISIONS:
        number, title = page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ").split(" ", 1)
        assert f"| [{number}]({page.name}) | {title} |" in index


def test_notes_and_their_decisions_link_to_each_other() -> None:
    for note in NOTES.glob("*.md"):
        decision = FOLDER / note.name
        assert decision.resolve() in links(note)
        assert note.resolve() in links(decision)
        assert note.resolve() in links(FOLDER / "README.md")


def test_links_of_decisions_and_notes_lead_somewhere() -> None:
    for page in [*DECISIONS, FOLDER / "README.md", *NOTES.glob("*.md")]:
        assert [str(target) for target in links(page) if not target.exists()] == []
