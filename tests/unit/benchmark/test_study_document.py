"""The tables of docs/methods.md are written from rows of a study, between marks, for the methods of each family."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.method import document
from benchmarks.method.rows import Row, write_parquet

from embasis.methods import FAMILIES

PAGE = "".join(
    f"## {family}\n\nWords.\n\n{document.opening_mark(family)}\nold\n{document.CLOSING_MARK}\n\n" for family in FAMILIES
)


def make_row(method: str, seed: int, accuracy: float, seconds: float, **others: object) -> Row:
    """A row as the study keeps it."""
    figures = dict.fromkeys(("nll", "auroc", "trusted_share", "trusted_precision", "network_accuracy"), 0.5)
    place = {"set": "a_set", "pair": "a→b", "seed": seed, "stage": "alignment", "variant": method, "method": method}
    measured = {"accuracy": accuracy, "mean_class_accuracy": accuracy, "ece": 0.1, "cpu_seconds": seconds}
    return {**place, "mark": "x", **figures, **measured, **others}


ROWS = [
    make_row("source_only", 0, 0.5, 2.0),
    make_row("source_only", 1, 0.7, 2.0),
    make_row("source_only", 2, 0.9, 100.0),
    make_row("dan", 0, 0.6, 5.0),
    make_row("dan", 1, 0.8, 3.0),
    make_row("em_basis", 0, 0.1, 1.0, variant="em_basis after dan", stage="starts"),
]


def test_a_table_has_figures_of_the_family_beside_the_source_model() -> None:
    page = document.write_tables(PAGE, ROWS)
    discrepancy = page.split("## discrepancy")[1].split("## adversarial")[0]
    assert [line for line in discrepancy.splitlines() if line.startswith("|")] == [
        "| set | method | accuracy | ECE | cost | runs |",
        "| --- | --- | ---: | ---: | ---: | --- |",
        "| a\\_set | `source_only` | 0.700 ± 0.200 | 0.100 ± 0.000 | 1.0 | 1 pair, 3 seeds |",
        "| a\\_set | `dan` | 0.700 ± 0.141 | 0.100 ± 0.000 | 2.0 | 1 pair, 2 seeds |",
    ]
    assert "\nWithout figures here: `jan`, `rtn`, `afn`, `mcc`.\n" in discrepancy
    assert "old" not in page
    assert page.count(document.NOTHING) == len(FAMILIES) - 1
    assert "Words." in discrepancy
    assert document.write_tables(page, ROWS) == page


def test_label_maps_show_their_mean_iou_and_a_set_without_the_source_model_no_cost() -> None:
    table = document.family_table([make_row("advent", 0, 0.9, 1.0, mean_iou=0.25)], FAMILIES["label-maps"])
    assert "\n| a\\_set | `advent` | 0.250 | 0.100 | – | 1 pair, 1 seed |" in table


def test_the_command_reads_the_results_of_a_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results, page = tmp_path / "results.parquet", tmp_path / "methods.md"
    page.write_text(PAGE, encoding="utf-8")
    write_parquet(results, ROWS)
    assert document.main([str(results), "--page", str(page)]) == 0
    assert page.read_text(encoding="utf-8") == document.write_tables(PAGE, ROWS)
    assert document.main([str(results), "--page", str(page), "--sets", "digits"]) == 3
    assert capsys.readouterr().err == f"error: {results} has no set digits; it has a_set\n"


def test_the_page_has_the_marks_of_every_family_and_no_other_methods_between_them() -> None:
    if not document.PAGE.is_file():
        pytest.skip("needs the docs of the repository")
    text = document.PAGE.read_text(encoding="utf-8")
    opened = re.findall(r"<!-- figures of (\S+): .*-->", text)
    assert opened == list(FAMILIES)
    assert text.count(document.CLOSING_MARK) == len(FAMILIES)
    for family, methods in FAMILIES.items():
        inside = text.split(document.opening_mark(family))[1].split(document.CLOSING_MARK)[0]
        named = {cells[1].strip().strip("`") for line in inside.splitlines() if len(cells := line.split(" | ")) == 6}
        shown = named - {"method", "---"}
        lacking = {*re.findall(r"`(\w+)`", inside.partition(document.WITHOUT)[2])}
        assert shown - {"source_only"} <= {*methods}, family
        assert not shown or {*methods} <= shown | lacking, family
