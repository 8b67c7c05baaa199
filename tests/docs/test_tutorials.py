"""The tutorials run as they stand, in an empty folder, and print what they say, but for the digits."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from doc_pages import has_shape, read_blocks, run_block
from paths import ROOT

PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))

pytestmark = pytest.mark.skipif(not PAGES, reason="needs the docs of the repository")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_runs_and_prints_what_it_says(page: Path, tmp_path: Path) -> None:
    if page.stem == "images" and importlib.util.find_spec("timm") is None:
        pytest.skip("needs the extra images")
    for block in read_blocks(page):
        done = run_block(block, tmp_path)
        assert done.returncode == 0, f"{block.code}\n{done.stderr}"
        assert block.claim is None or has_shape(done.stdout, block.claim), f"{page.name} says otherwise:\n{done.stdout}"


def test_there_are_four_tutorials_and_each_says_what_its_commands_print() -> None:
    assert [page.stem for page in PAGES] == ["images", "label-maps", "tables", "trust"]
    for page in PAGES:
        commands = [block for block in read_blocks(page) if "embasis " in block.code and block.kind == "sh"]
        assert len(commands) >= 3
        assert [block.code for block in commands if block.claim is None] == []


@pytest.mark.parametrize(
    ("printed", "claim", "same"),
    [
        ("round 0  score 0.71\n", "round 3 score 0.5\n", True),
        ("round 0\n", "rounds 0\n", False),
        ("a\nb 12\nc\n", "a\n…\nc\n", True),
        ("a\nc\n", "a\n…\nc\n", True),
        ("a\nb\n", "a\n", False),
        ("a\n", "a\nb\n", False),
        ("wrote 1,200 (38%)\n", "wrote 3 (4%)\n", True),
        ("wrote run: 3\n", "wrote …: 4\n", True),
        ("a.b\n", "axb\n", False),
        ("1,true\n", "2,false\n", True),
    ],
)
def test_two_texts_are_compared_without_their_digits(printed: str, claim: str, same: bool) -> None:
    assert has_shape(printed, claim) is same


def test_a_claim_belongs_to_the_block_before_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```text\nnobody\n```\n\n```sh\necho 1\n```\n\nso:\n\n```text\n2\n```\n\n```python\nprint()\n```\n")
    first, second = read_blocks(page)
    assert (first.kind, first.code, first.claim) == ("sh", "echo 1\n", "2\n")
    assert (second.kind, second.claim) == ("python", None)
    assert run_block(first, tmp_path).stdout == "1\n"
