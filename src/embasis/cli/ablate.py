"""`embasis ablate`: what each part of em_basis is worth on a data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from embasis import config as settings
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
from embasis.benchmark.compare import count_pairs
from embasis.benchmark.scores import RunScore, averaging_note
from embasis.benchmark.tables import comparison_page
from embasis.cli.compare import describe_score, read_beforehand, require_folder, runs_csv, write_files
from embasis.cli.console import echo, progress_bar
from embasis.data.datasets.domain_sets import find_data_folder
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
    tables: dict[str, Any] = {
        "data": {"dataset": dataset},
        "method": {"name": "em_basis"},
        "network": {"name": backbone},
    }
    config = settings.load(None, overrides, preset=preset, **tables)
    require_folder(output, {"the folder of data packs": find_data_folder(root or config.data.get("root"))})
    total = (1 + len(parts)) * seeds * count_pairs(dataset, config.data)
    rows: list[RunScore] = []
    read_beforehand(dataset, config, root)
    with progress_bar("em_basis, seed 0", total) as show:
        for outcome in run_ablation(dataset, parts, range(seeds), config, root):
            rows.append(outcome.score)
            show(len(rows), describe_score(outcome.score))
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
