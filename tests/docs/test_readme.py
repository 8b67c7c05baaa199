"""The README stays short, shows one picture and one table, and the pages that took what it lost are there."""

from __future__ import annotations

import re

import pytest

from embasis import errors
from paths import ROOT

PAGE = ROOT / "README.md"
MOST_LINES, MOST_WORDS, WIDEST_LINE = 120, 900, 120
LARGEST_PICTURE = 200_000

pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="needs the docs of the repository")


def read() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_it_has_at_most_120_lines_and_900_words() -> None:
    assert len(read().splitlines()) <= MOST_LINES
    assert len(read().split()) <= MOST_WORDS


def test_no_line_is_wider_than_120_characters_tables_included() -> None:
    assert [line for line in read().splitlines() if len(line) > WIDEST_LINE] == []


def test_its_first_block_is_the_two_commands() -> None:
    first = re.findall(r"^```\n(.*?)^```$", read(), re.MULTILINE | re.DOTALL)[0]
    assert [line.partition("#")[0].strip() for line in first.splitlines()] == ["make demo", "make test"]


def test_it_shows_one_picture_of_at_most_200_kilobytes_and_names_the_command_that_makes_it() -> None:
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", read())
    assert (ROOT / picture).stat().st_size <= LARGEST_PICTURE
    (tool,) = re.findall(r"`python (tools/\w+\.py)`", read())
    assert f'"{picture.rpartition("/")[2]}"' in (ROOT / tool).read_text(encoding="utf-8")


@pytest.mark.parametrize("way", ["Images", "Label maps", "Tables"])
def test_each_of_the_three_ways_in_has_the_four_commands(way: str) -> None:
    block = re.search(rf"^\*\*{way}\*\*.*?^```\n(.*?)^```$", read(), re.MULTILINE | re.DOTALL)
    assert block
    assert [line.split()[:2] for line in block[1].splitlines()] == [
        ["embasis", "check"],
        ["embasis", "fit"],
        ["embasis", "predict"],
        ["embasis", "report"],
    ]


def test_its_one_table_has_five_sets_and_names_the_best_other_method() -> None:
    _, rule, *rows = [line for line in read().splitlines() if line.startswith("|")]
    assert rule.count("---") == 5
    assert len(rows) == 5
    for row in rows:
        source, cbst, best, ours = (float(value) for value in re.findall(r"0\.\d{3}", row))
        assert 0 < source < 1
        assert best >= cbst
        (bold,) = re.findall(r"\*\*(0\.\d{3})\*\*", row)
        assert float(bold) == max(source, cbst, best, ours)


def test_it_says_that_its_figures_are_development_figures_and_where_it_loses() -> None:
    section = read().split("\n## What to expect\n", 1)[1].split("\n## ", 1)[0]
    assert "development figures" in section
    assert "does not win everywhere" in section
    assert "](benchmarks/README.md)" in section


def test_the_page_of_commands_has_every_exit_code_of_the_code() -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8").split("## Exit codes", 1)[1]
    listed = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", text, re.MULTILINE) for code in row.split(",")}
    classes = [each for each in vars(errors).values() if isinstance(each, type) and hasattr(each, "exit_code")]
    raised = {each.exit_code for each in classes}
    assert {2, 3, 4, 5, 6, 7} <= raised
    assert raised <= listed
    assert {0, 1, 130, 143} <= listed
