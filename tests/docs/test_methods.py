"""docs/methods.md has a paragraph for every method, in the family of the registry, and its table names them all."""

from __future__ import annotations

import re

import pytest

from embasis.methods import FAMILIES, METHODS
from paths import ROOT

PAGE = ROOT / "docs" / "methods.md"

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="needs the docs of the repository")


def paragraphs() -> dict[str, dict[str, str]]:
    """The text below each heading, by family and method."""
    families: dict[str, dict[str, str]] = {}
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        title, *parts = section.split("\n### ")
        name = title.splitlines()[0].lower().replace(" ", "-")
        families[name] = {part.splitlines()[0]: part.partition("\n")[2].strip() for part in parts}
    return families


def test_the_sections_are_the_families_in_their_order() -> None:
    assert list(paragraphs()) == list(FAMILIES)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_every_method_has_its_paragraph_in_its_family(family: str) -> None:
    there = paragraphs()[family]
    assert [name for name in FAMILIES[family] if len(there.get(name, "")) < 40] == []


def test_every_aligning_method_names_its_paper_and_its_year() -> None:
    papers = {name: text for family in paragraphs().values() for name, text in family.items()}
    others = {"em_basis", "source_only", "restyle", "advent", "mrent", "mrl2", "lrent", "lrl2", "mrkld_lrent"}
    assert [name for name in METHODS if name not in others and not re.search(r"\b(19|20)\d\d\b", papers[name])] == []


def test_the_table_of_families_names_every_method_once_in_its_family() -> None:
    head = PAGE.read_text(encoding="utf-8").partition("\n## ")[0]
    rows = re.findall(r"^\| ([a-z -]+) \| (`.*) \|$", head, re.MULTILINE)
    table = {family.replace(" ", "-"): sorted(re.findall(r"`(\w+)`", names)) for family, names in rows}
    assert table == {family: sorted(names) for family, names in FAMILIES.items()}


def test_the_readme_links_the_page() -> None:
    assert "](docs/methods.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
