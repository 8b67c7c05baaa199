"""A table of the paper of which every row is run: our figures below the published ones, never mixed with them."""

from __future__ import annotations

import dataclasses

import pytest

from cli_tables import embasis
from embasis.benchmark import paper_rows, published
from embasis.benchmark.paper_rows import find_table, methods_of_table, paired_markdown, paired_page_table, paired_table
from embasis.benchmark.published import PublishedRow
from embasis.errors import ConfigError
from embasis.methods import METHODS
from published_tables import make_score, small_table

SETS = ("office31", "visda17", "gta5_cityscapes", "synthia_cityscapes")
OWN = ("em_basis_paper", "em_basis")


TABLE = small_table(
    measure="accuracy in per cent",
    rows=(
        PublishedRow("Source", (50.0, 60.0), (55.0,), runs=("source_only",)),
        PublishedRow("Source", (51.0, 61.0), (56.0,), backbone="Deep", runs=("source_only",)),
        PublishedRow("DAN", (60.0, 70.0), (65.0,), (0.5, 0.1), runs=("dan",), caveat="nobody knows its kernel"),
        PublishedRow("Ours", (92.2, 100.0), (96.1,), (0.5, 0.0), runs=("em_basis",)),
    ),
    elsewhere=(PublishedRow("MIC", (None, 80.0), (90.0,), source="https://a.example"),),
)
"""Three rows of the paper of which two are one method here, one row from elsewhere."""
RUNS = [
    make_score("set", pair, method, seed, accuracy + 0.02 * seed)
    for method, accuracy in (("source_only", 0.5), ("em_basis", 0.9))
    for pair in ("a→b", "b→a")
    for seed in (0, 1)
]


def test_our_rows_stand_indented_below_the_published_one_each_once() -> None:
    assert paired_table(TABLE, RUNS) == (
        "A set, as in the paper: accuracy in per cent\n"
        "----------------------------------------------\n"
        "method                   A→B      B→A     Mean\n"
        "Source                  50.0     60.0     55.0\n"
        "  source_only, ours 51.0±1.4 51.0±1.4 51.0±1.4\n"
        "Source, Deep            51.0     61.0     56.0\n"
        "DAN                 60.0±0.5 70.0±0.1     65.0\n"
        "  dan, not run             –        –        –\n"
        "Ours (paper)        92.2±0.5  100±0.0     96.1\n"
        "  em_basis, ours    91.0±1.4 91.0±1.4 91.0±1.4\n"
        "published elsewhere, not run by us:\n"
        "MIC                        –     80.0     90.0\n"
        "\n"
        "Indented rows are ours: one network, one start and one plan for all; mean ± std\n"
        "over 2 seeds. All others are published, not run by us.\n"
        "Ours: accuracy over all images of the target.\n"
        "Published: A paper, table 1. Five runs.\n"
        "MIC: https://a.example (read in a stored copy).\n"
        "DAN: nobody knows its kernel.\n"
    )


def test_a_table_in_markdown_says_whose_a_row_is() -> None:
    text = paired_markdown(TABLE, RUNS)
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in text.splitlines() if line.startswith("| ")]
    seeds = "ours, mean ± std over 2 seeds"
    assert rows[2:] == [
        ["Source", "published"], ["`source_only`", seeds], ["Source, Deep", "published"], ["DAN", "published"],
        ["`dan`", "ours, not run"], ["Ours (paper)", "published"], ["`em_basis`", seeds],
        ["MIC", "published elsewhere"],
    ]  # fmt: skip
    assert "- DAN: nobody knows its kernel." in text


def test_every_row_of_the_paper_has_methods_that_stand_for_it() -> None:
    for name in SETS:
        table = find_table(name)
        assert [row.method for row in table.rows if not row.runs] == []
        assert methods_of_table(table)[0] == "source_only"
        assert methods_of_table(table)[-2:] == OWN
        assert [row.runs for row in table.rows if row.method == "Ours"] == [OWN]
        assert [row for row in table.elsewhere if row.runs] == []
        assert [method for method in methods_of_table(table) if method not in METHODS] == []
    assert tuple(published.read_published()) == paper_rows.PAPER_SETS == SETS


def test_the_rows_that_may_be_something_else_say_so() -> None:
    doubtful = {(name, row.method) for name in SETS for row in find_table(name).rows if row.caveat}
    street = "gta5_cityscapes"
    assert doubtful == {(street, "AdvEnt"), (street, "FCAN"), ("synthia_cityscapes", "AdvEnt")}
    rows = {row.method: row for row in find_table(street).rows}
    assert "the mean of two models" in rows["AdvEnt"].caveat
    assert rows["AdvEnt"].runs == ("advent", "minent")
    assert "four models" in rows["FCAN"].caveat


@pytest.mark.parametrize("name", SETS)
def test_a_whole_table_fits_80_columns(name: str) -> None:
    table = find_table(name)
    scores = [
        dataclasses.replace(
            make_score(name, pair, method, seed, 0.9), class_names=table.keys,
            class_accuracy=(0.9 + 0.01 * seed,) * len(table.keys), class_iou=(0.5 + 0.1 * seed,) * len(table.keys),
        )
        for method in methods_of_table(table)
        for pair in (table.keys if table.kind == "pairs" else ("train→validation",))
        for seed in range(3)
    ]  # fmt: skip
    text = paired_table(table, scores)
    assert max(map(len, text.split("\nPublished: ")[0].splitlines())) <= 80
    assert all(text.count(f"\n  {method}, ours ") for method in methods_of_table(table))


def test_a_set_without_a_table_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        find_table("digits")
    known = "gta5_cityscapes, office31, synthia_cityscapes, visda17"
    assert str(caught.value) == f"the paper has no table of digits; it has one of {known}"
    assert embasis("compare", "digits", "--table", "paper").exit_code == 2
    both = embasis("compare", "office31", "--table", "paper", "--methods", "dan")
    assert both.stderr == "embasis: --table runs the methods of its rows: leave --methods out\n"
    aligned = embasis("compare", "office31", "--table", "paper", "align.name=dann")
    assert (aligned.exit_code, aligned.stderr) == (
        2,
        "embasis: --table runs every method by itself: leave align.name out\n",
    )


def test_an_indented_row_stands_below_its_own_one_in_every_block() -> None:
    names = tuple("ABCDEFGHIJKL")
    nothing = PublishedRow("GTA", (None,) * 12, (77.1,), runs=("gta",))
    rows = (PublishedRow("MCD", (50.0,) * 12, (50.0,), runs=("mcd",)), nothing)
    table = small_table(kind="classes", columns=names, short=("a heading",) * 12, keys=names, rows=rows, elsewhere=())
    scores = [
        dataclasses.replace(make_score("set", "", method, 0, 0.5), class_names=names, class_accuracy=(0.5,) * 12)
        for method in ("mcd", "gta")
    ]
    text = paired_table(table, scores)
    blocks = [[line.split("  ")[0] or line.split(",")[0] for line in block.splitlines()[1:5]]
              for block in text.split("\nmethod ")[1:]]  # fmt: skip
    assert len(blocks) == 2
    assert blocks == [["MCD", "  mcd", "GTA", "  gta"]] * 2


def test_the_page_has_the_same_rows_as_the_markdown_and_the_doubts() -> None:
    page = paired_page_table(TABLE, RUNS)
    assert page.header == ("method", "whose", "A→B", "B→A", "Mean")
    assert page.rows[1] == ["source_only", "ours, mean ± std over 2 seeds", "51.0 ± 1.4", "51.0 ± 1.4", "51.0 ± 1.4"]
    assert page.rows[4] == ["dan", "ours, not run", "–", "–", "–"]
    assert page.rows[-1] == ["MIC", "published elsewhere", "–", "80.0", "90.0"]
    assert "DAN: nobody knows its kernel." in page.note
