"""The page of a comparison: one figure for all methods, and its answer at the top."""

from __future__ import annotations

import dataclasses
import re

from embasis.benchmark.comparison_page import MOST_CURVES, comparison_page, mean_by_round, rounds_panels
from embasis.benchmark.scores import summarise_runs
from embasis.report import RunView
from page_reader import Page
from page_views import evaluation, record, score, view


def run_of(method: str, accuracy: float = 0.75, rounds: int = 3) -> RunView:
    records = tuple(
        dataclasses.replace(record(n), evaluation=evaluation(accuracy - 0.125 * (rounds - 1 - n)))
        for n in range(rounds)
    )
    return dataclasses.replace(view(), config={"method": {"name": method}}, rounds=records, best_round=rounds - 1)


def test_all_methods_are_in_one_figure_and_a_method_without_rounds_has_no_line() -> None:
    runs = [run_of("source_only", 0.5, 1), run_of("cbst", 0.75), run_of("em_basis", 1.0)]
    rows = [score("source_only", accuracy=0.5), score("cbst", accuracy=0.75), score("em_basis", accuracy=1.0)]
    html = comparison_page("Three methods on set", summarise_runs(rows), runs)
    page = Page(html)
    labels = [label for label in page.marks if " by round: " in label]
    assert [label.partition(" by round")[0] for label in labels] == [
        "Accuracy of the labels", "Trusted share", "Right among the trusted",
    ]  # fmt: skip
    assert page.picture("Accuracy of the labels by round") == [
        *(f"em_basis, Accuracy of the labels, round {n}: {0.75 + 0.125 * n:.4g}" for n in range(3)),
        *(f"cbst, Accuracy of the labels, round {n}: {0.5 + 0.125 * n:.4g}" for n in range(3)),
    ]
    assert not [mark for marks in page.marks.values() for mark in marks if "source_only" in mark and "round" in mark]
    assert "No rounds follow the first of source_only, so there is no line." in page.text
    assert len(re.findall("<h3><bdi>Round by round", html)) == 1
    assert "Run 1:" not in html


def test_lines_are_means_over_the_runs_of_a_method() -> None:
    runs = [run_of("em_basis", 0.75), run_of("em_basis", 1.0)]
    (panel,) = rounds_panels(runs)
    assert panel.caption.startswith("Each line is a method, the mean over its 2 runs.")
    accuracy = {n: 0.625 + 0.125 * n for n in range(3)}
    assert mean_by_round(runs, lambda r: r.evaluation and r.evaluation.accuracy) == accuracy
    assert [row[:3] for row in panel.table.rows] == [["em_basis", str(n), f"{a:.4g}"] for n, a in accuracy.items()]


def test_of_many_methods_the_best_have_lines_and_the_table_has_all() -> None:
    runs = [run_of(f"method {n}", 0.5 + n / 40, 2) for n in range(MOST_CURVES + 2)]
    (panel,) = rounds_panels(runs)
    assert "method 0," not in panel.pictures[0]
    assert "method 1," not in panel.pictures[0]
    assert f"method {MOST_CURVES + 1}," in panel.pictures[0]
    assert {row[0] for row in panel.table.rows} == {f"method {n}" for n in range(MOST_CURVES + 2)}
    assert f"Drawn are the {MOST_CURVES} with the best labels; the table has all." in panel.caption


def test_nothing_is_drawn_where_no_method_has_rounds() -> None:
    assert rounds_panels([run_of("source_only", 0.5, 1)]) == []
    assert rounds_panels([dataclasses.replace(view(), rounds=())]) == []


def test_the_headline_names_the_best_method_where_there_is_one() -> None:
    rows = [score("cbst", accuracy=0.8), score("em_basis", accuracy=0.9)]
    found = re.findall("<h1><bdi>(.*)</bdi></h1>", comparison_page("Methods on set", summarise_runs(rows)))
    assert found == ["Methods on set: em_basis has the highest accuracy, 0.900"]
    tied = [score("cbst", accuracy=0.9), score("em_basis", accuracy=0.9)]
    assert "<h1><bdi>Methods on set</bdi></h1>" in comparison_page("Methods on set", summarise_runs(tied))


def test_where_all_methods_tie_nothing_is_bold() -> None:
    rows = [score("cbst", accuracy=0.75), score("em_basis", accuracy=0.75)]
    html = comparison_page("Two methods on set", summarise_runs(rows))
    assert 'class="best"' not in html
    assert "All have the same accuracy." in html
    assert "Bold:" not in html


def test_runs_of_several_seeds_are_told_apart() -> None:
    runs = [dataclasses.replace(run_of("cbst"), config={"method": {"name": "cbst"}, "seed": seed}) for seed in (0, 1)]
    page = Page(comparison_page("One method", summarise_runs([score("cbst", 0), score("cbst", 1)]), runs))
    assert [row["run"] for row in page.table("Runs")] == ["1. cbst, seed 0", "2. cbst, seed 1"]
