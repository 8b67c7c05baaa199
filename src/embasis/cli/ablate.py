"""`embasis ablate`: what each part of em_basis is worth on a data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from embasis.benchmark.ablate import (
    Ablation,
    ablation_columns,
    ablation_markdown,
    ablation_page_table,
    ablation_text,
    run_ablation,
    select_parts,
    summarise_ablation,
)
from embasis.benchmark.comparison_page import comparison_page
from embasis.benchmark.scores import RunScore, averaging_note
from embasis.cli.compare import collect_scores, load_comparison, prepare_comparison, runs_csv, write_files
from embasis.cli.console import echo
from embasis.storage import encode_table


def ablate_parts(
    dataset: str,
    overrides: tuple[str, ...],
    seeds: int,
    root: str | None,
    only: str | None,
    output: str | None,
    backbone: str | None,
    preset: str | None,
) -> None:
    """Run em_basis whole and with one part changed at a time, print the table, and write it if a folder is named."""
    parts = select_parts(None if only is None else only.split(","))
    config = load_comparison(dataset, "em_basis", overrides, {"network": {"name": backbone}}, preset)
    pairs = prepare_comparison(dataset, config, root, output)
    runs = run_ablation(dataset, parts, range(seeds), config, root)
    rows = collect_scores(runs, "em_basis, seed 0", (1 + len(parts)) * seeds * pairs)
    result = summarise_ablation(rows, parts)
    echo(ablation_text(result))
    if output is not None:
        write_files(Path(output), ablation_files(result, rows))
        echo(f"wrote ablate.csv, ablate.md, runs.csv and report.html in {output}")


def ablation_files(result: Ablation, rows: Sequence[RunScore]) -> dict[str, str | bytes]:
    """The tables and the page of an ablation, by file name."""
    title = f"What each part of em_basis is worth on {result.plain.dataset}"
    count = len(result.lines)
    lead = f"{count} part{'' if count == 1 else 's'}, changed one at a time; {averaging_note(result.summaries)}"
    return {
        "ablate.csv": encode_table(ablation_columns(result), ".csv"),
        "ablate.md": ablation_markdown(result),
        "runs.csv": runs_csv(rows),
        "report.html": comparison_page(title, result.summaries, lead=lead, first=[ablation_page_table(result)]),
    }
