"""The files of numbers of a comparison have all figures; its tables stay as narrow as they were."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

from embasis.benchmark.compare import RunKey, score_run
from embasis.benchmark.scores import (
    FILE_COLUMNS,
    SCORE_COLUMNS,
    RunScore,
    csv_table,
    markdown_table,
    summarise_runs,
    table_columns,
    text_table,
)
from embasis.types import Evaluation, RoundRecord

PLAIN = RunScore("set", "a→b", "em_basis", 0, 0.9, 0.9, 0.1, 0.5, 0.8, 0.6, 0.95, 0.9, 12.0)
FULL = replace(
    PLAIN, adaptive_ece=0.09, classwise_ece=0.02, brier=0.15, aupr=0.4, aurc=0.03, coverage_95=0.7, method="full"
)


def test_a_run_has_the_figures_of_its_evaluation() -> None:
    judged = Evaluation(
        8, 5 / 8, 5 / 8, 0.5, 0.1, 0.5, 0.8, 1.0, 0.5, ((5, 3), (0, 0)), (), (),
        adaptive_ece=0.2, classwise_ece=0.3, brier=0.4, brier_parts=(0.1, 0.2, 0.5), aupr=0.6, aurc=0.7,
        coverage=((0.9, 0.5), (0.95, 0.25), (0.99, None)),
    )  # fmt: skip
    row = score_run(
        RunKey("set", "", "cbst", 0), RoundRecord(1, "ok", 0.1, 8, 8, (4, 4), (4, 4), 0.0, {}, test=judged), 2.0
    )
    found = {name: value for name, value in row.cells().items() if name in FILE_COLUMNS}
    assert found == {
        "adaptive_ece": 0.2, "classwise_ece": 0.3, "brier": 0.4, "aupr": 0.6, "aurc": 0.7, "coverage_95": 0.25,
    }  # fmt: skip


def test_the_table_of_numbers_has_every_figure_that_some_run_has() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_table(summarise_runs([PLAIN, FULL])))))
    assert {row["metric"] for row in rows} == {*SCORE_COLUMNS, *FILE_COLUMNS}
    found = {(row["method"], row["metric"]): (row["mean"], row["n"]) for row in rows}
    assert found["full", "aurc"] == ("0.03", "1")
    assert found["em_basis", "aurc"] == ("", "0")
    assert {row["metric"] for row in csv.DictReader(io.StringIO(csv_table(summarise_runs([PLAIN]))))} == {
        *SCORE_COLUMNS
    }


def test_seeds_that_never_reach_a_precision_are_left_out_of_its_mean() -> None:
    seeds = [replace(FULL, seed=0), replace(FULL, seed=1, coverage_95=None), replace(FULL, seed=2, coverage_95=0.5)]
    stat = summarise_runs(seeds)[0].stats["coverage_95"]
    assert (stat.n, round(stat.mean or 0, 6)) == (2, 0.6)


def test_printed_tables_are_as_wide_as_before() -> None:
    summaries = summarise_runs([PLAIN, FULL])
    assert table_columns(summaries) == SCORE_COLUMNS
    assert max(len(line) for line in text_table(summaries).splitlines()) <= 80
    assert not any(heading in text_table(summaries) + markdown_table(summaries) for heading in FILE_COLUMNS.values())
