"""Every relative link of the documents leads to a file, and to a heading of it where it names one."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from paths import ROOT

PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/**/*.md")})

pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="needs the docs of the repository")


def without_code(text: str) -> str:
    """The text without blocks and spans of code, in which brackets are no links."""
    return re.sub(r"`[^`\n]*`", "code", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))


@functools.cache
def anchors(page: Path) -> frozenset[str]:
    """The ids that GitHub and the site give to the headings of a page: lower case, words joined by hyphens."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", title) for title in titles]
    return frozenset(re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in plain)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text(encoding="utf-8"))):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if "://" in link or link.startswith("mailto:"):
            continue
        known = not anchor or target.suffix != ".md" or (target.is_file() and anchor in anchors(target))
        if not target.exists() or not known:
            broken.append(link)
    assert broken == []
