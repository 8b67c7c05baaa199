"""The site: every page is in its navigation, it builds without a warning, and it asks for nothing outside of it."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import embasis
from paths import ROOT

CONFIG, DOCS = ROOT / "mkdocs.yml", ROOT / "docs"
OUTSIDE_DOCS = {"CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "benchmarks/README.md"}
SECTIONS = (
    "Home", "Install", "Tutorials", "How-to", "Method", "Methods", "Extend", "Many machines", "Reference",
    "Reliability", "Benchmarks", "Decisions", "Glossary",
)  # fmt: skip

pytestmark = pytest.mark.skipif(not CONFIG.is_file(), reason="needs the files of the repository")


def navigation() -> str:
    return CONFIG.read_text(encoding="utf-8").split("\nnav:\n", 1)[1]


def tool(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module(name)


def test_the_navigation_has_its_sections_in_their_order() -> None:
    found = re.findall(r"^  - ([^:\n]+):", navigation(), re.MULTILINE)
    assert [name for name in found if name in SECTIONS] == list(SECTIONS)


def test_every_page_of_docs_is_in_the_navigation() -> None:
    """A new page of docs/ needs a line under `nav:` in mkdocs.yml. Notes of decisions are reached from their index."""
    listed = set(re.findall(r": (\S+\.md)$", navigation(), re.MULTILINE))
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert sorted(page for page in pages - listed if not re.fullmatch(r"decisions/\d{4}-.*", page)) == []


def test_every_page_of_the_navigation_exists() -> None:
    listed = re.findall(r": (\S+\.md)$", navigation(), re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert [page for page in listed if page not in OUTSIDE_DOCS and not (DOCS / page).is_file()] == []
    assert sorted(OUTSIDE_DOCS & set(listed)) == sorted(OUTSIDE_DOCS)


def test_the_reference_of_the_command_line_is_what_the_commands_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails: python tools/write_cli_reference.py"""
    page = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    assert page == tool("write_cli_reference", monkeypatch).compose(), "run: python tools/write_cli_reference.py"


def test_the_python_reference_has_every_public_name() -> None:
    page = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    assert [name for name in embasis.__all__ if not re.search(rf"\b{name}\b", page)] == []


def test_every_command_is_on_the_page_of_commands() -> None:
    named = re.findall(r"^\| `embasis ([\w-]+)` \|", (DOCS / "commands.md").read_text(encoding="utf-8"), re.MULTILINE)
    reference = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    assert sorted(named) == sorted(re.findall(r"^## embasis ([\w-]+)$", reference, re.MULTILINE))


def test_the_site_builds_without_a_warning_and_fetches_nothing_from_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("material", "mkdocstrings"):
        pytest.importorskip(module, reason="needs the extra docs: make docs installs it", exc_type=ImportError)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(CONFIG), "-d", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING -" not in done.stderr
    assert tool("check_site", monkeypatch).check(tmp_path / "site") == []
    assert (tmp_path / "site" / "search" / "search_index.js").is_file()


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ('<script src="https://cdn.example/a.js"></script>', "index.html fetches https://cdn.example/a.js"),
        ('<link rel="stylesheet" href="//fonts.example/b.css">', "index.html fetches //fonts.example/b.css"),
        ('<img srcset="http://example.org/c.png 2x">', "index.html fetches http://example.org/c.png"),
        (
            "<style>body { background: url(https://d.example/d.png) }</style>",
            "index.html fetches https://d.example/d.png",
        ),
        ('<a href="gone.html">gone</a>', "index.html links to gone.html"),
        ('<a href="#gone">gone</a>', "index.html links to #gone"),
        ('<p id="here"></p><a href="#here">here</a><a href="https://arxiv.org">a paper</a>', None),
    ],
)
def test_the_check_of_the_site_sees(
    page: str, fault: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "index.html").write_text(page, encoding="utf-8")
    assert tool("check_site", monkeypatch).check(tmp_path) == ([] if fault is None else [fault])
