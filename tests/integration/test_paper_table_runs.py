"""`embasis compare SET --table paper` on miniatures of the paper's sets: every row is run, or said to be left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import Result

from cli_tables import embasis
from embasis.benchmark.paper_rows import find_table, methods_of_table
from embasis.methods import METHODS
from embasis.methods.restyling import parts
from embasis.methods.restyling.cycada import cycada
from embasis.types import Method
from image_trees import OFFICE31, VISDA17, domain, plant, whole
from page_reader import Page
from street_trees import SETS

SHORT = ("--seeds", 1, "plan.rounds=1", "plan.source_epochs=1", "plan.epochs=1")
SMALL_PICTURES = ("images.workers=0",)
PAIR = ("source=amazon", "target=webcam")
SMALL_MAPS = (
    "--backbone", "small_fcn", "network.width=16", "maps.size=24", "maps.crop_height=24", "maps.crop_width=32",
    "maps.workers=0", "plan.batch_size=4",
)  # fmt: skip


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBASIS_CACHE", str(tmp_path / "cache"))


def two_domains() -> dict[str, bytes]:
    """The two sides of that pair of Office-31, with one picture of each class."""
    return {**domain(OFFICE31, "amazon", each=1), **domain(OFFICE31, "webcam", each=1)}


def short_cycada(classes: int) -> Method:
    """CyCADA with few steps of its generators."""
    return cycada(classes, steps=4)


def grow_streets(root: Path, name: str) -> Path:
    """The packs of street scenes, of pictures that are large enough for every method."""
    for pack, tree in SETS[name][0].items():
        plant(root / pack, tree(height=24))
    return root


def check_table(name: str, result: Result, folder: Path) -> None:
    """Every method has a row of its own below the published one: printed, in compare.md and on the page."""
    assert result.exit_code == 0, result.output
    table = find_table(name)
    methods, caveats = methods_of_table(table), [row for row in table.rows if row.caveat]
    owners = {method: row.name for row in reversed(table.rows) for method in row.runs}
    printed = result.stdout.partition(", as in the paper")[2]
    blocks = printed.partition("\nIndented rows are ours")[0].split("\nmethod ")[1:]
    assert "left out" not in result.stdout
    assert [find_owners(block) for block in blocks] == [owners] * len(blocks) != []
    assert max(map(len, result.stdout.partition("\nwrote ")[0].splitlines())) <= 80
    assert all(f"\n{row.name}: " in printed for row in caveats)
    written = (folder / "compare.md").read_text(encoding="utf-8")
    assert all(f"\n| `{method}` | ours, one seed |" in written for method in methods)
    page = Page((folder / "report.html").read_text(encoding="utf-8"))
    whose = [(row["method"], row["whose"]) for row in page.table(table.heading)]
    assert [method for method, place in whose if place == "ours, one seed"] == list(methods)
    assert [method for method, place in whose if place == "published"] == [row.name for row in table.rows]
    assert all(f"{row.name}: {row.caveat}." in page.text for row in caveats)


def find_owners(block: str) -> dict[str, str]:
    """Each of our methods that a block of a printed table shows → the published row that it stands below."""
    found, owner = {}, ""
    for line in block.splitlines():
        if line.startswith("  ") and ", ours " in line:
            found[line.strip().partition(", ours ")[0]] = owner
        elif line and not line.startswith(" "):
            owner = re.split(r"(?<=\S) +(?=[–\d])", line)[0]
    return found


def test_a_miniature_of_office_is_run_row_by_row(tmp_path: Path) -> None:
    root = plant(tmp_path / "data", two_domains())
    words = ("--root", root, "--table", "paper", *PAIR, *SHORT, *SMALL_PICTURES, "-o", tmp_path / "out")
    check_table("office31", embasis("compare", "office31", *words), tmp_path / "out")


def test_a_miniature_of_visda_is_run_row_by_row(tmp_path: Path) -> None:
    root = plant(tmp_path / "data", whole(VISDA17))
    words = ("--root", root, "--table", "paper", *SHORT, *SMALL_PICTURES, "-o", tmp_path / "out")
    check_table("visda17", embasis("compare", "visda17", *words), tmp_path / "out")


@pytest.mark.parametrize("name", ["gta5_cityscapes", "synthia_cityscapes"])
def test_miniatures_of_street_scenes_are_run_row_by_row(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "cycada", short_cycada)
    monkeypatch.setattr(parts, "SOURCE_STEPS", 4)
    root = grow_streets(tmp_path / "data", name)
    words = ("--root", root, "--table", "paper", *SHORT, *SMALL_MAPS, "-o", tmp_path / "out")
    check_table(name, embasis("compare", name, *words), tmp_path / "out")


def test_on_features_that_stay_as_they_are_what_needs_others_is_left_out(tmp_path: Path) -> None:
    root = plant(tmp_path / "data", two_domains())
    words = (*PAIR, "images.head=linear", *SHORT, *SMALL_PICTURES, "-o", tmp_path / "out")
    result = embasis("compare", "office31", "--root", root, "--table", "paper", *words)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("left out: dan, rtn, dann, ")
    assert "\n  dan, ours " not in result.stdout
    assert "\n  dan, not run " in result.stdout
    assert "\n  source_only, ours " in result.stdout
    written = (tmp_path / "out" / "compare.md").read_text(encoding="utf-8")
    assert "\n| `dan` | ours, not run | – |" in written
