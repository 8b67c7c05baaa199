"""The command that takes a method apart: ablate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from embasis.cli.console import Work, echo, progress_bar, require_folder, write_into
from embasis.cli.image_options import read_beforehand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embasis.benchmark.ablation_table import Ablation
    from embasis.report.tables import RunScore


@click.command(cls=Work)
@click.argument("dataset")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--seeds", type=click.IntRange(1, 1000), default=5, show_default=True, help="Runs of each variant.")
@click.option("--root", metavar="DIR", help="Folder of data packs.  [default: $EMBASIS_DATA, else ../shared/data]")
@click.option("--only", metavar="NAME,…", help="These parts.  [default: all]")
@click.option("-o", "--output", metavar="DIR", help="Write ablate.csv, ablate.md, runs.csv, report.html there.")
@click.option("--backbone", metavar="NAME", help="See `embasis list backbones`.")
@click.option("--preset", metavar="NAME", help="Settings that come with embasis, such as paper-office31.")
def ablate(
    dataset: str,
    overrides: tuple[str, ...],
    seeds: int,
    root: str | None,
    only: str | None,
    output: str | None,
    backbone: str | None,
    preset: str | None,
) -> None:
    """Say what each part of em_basis is worth, and how surely.

    Runs em_basis with its default and with one part changed at a time, on every
    pair and seed of a data set. Positive worth always means that the part helps:
    the default against the run without it, or, for parts that are off by
    default, the run with it against the default. KEY=VALUE holds for all runs.
    Below each run stands what was replaced: a field of a part of the method.

    \b
    Parts that are on:  centring, em, joint, head, selection, recalibration,
                        evidence, temper, shares, basis (without it: cbst)
    Parts that are off: stage1, variance, weights, draw

    \b
    Examples:
      embasis ablate digits --seeds 5 -o ablate-digits
      embasis ablate blobs --only em,head,draw count=300 plan.rounds=3
      embasis ablate office_caltech10_surf --root DIR --seeds 1
    """
    from embasis import config as settings
    from embasis.benchmark.ablate import ablate as outcomes
    from embasis.benchmark.ablate import chosen
    from embasis.benchmark.ablation_table import ablation, as_text
    from embasis.benchmark.compare import count_pairs
    from embasis.data.datasets.domain_sets import where

    parts = chosen(None if only is None else only.split(","))
    tables: dict[str, Any] = {
        "data": {"dataset": dataset},
        "method": {"name": "em_basis"},
        "network": {"name": backbone},
    }
    config = settings.load(None, overrides, preset=preset, **tables)
    require_folder(output, {"the folder of data packs": where(root or config.data.get("root"))})
    total = (1 + len(parts)) * seeds * count_pairs(dataset, config.data)
    rows: list[RunScore] = []
    read_beforehand(dataset, config, root)
    with progress_bar("em_basis, seed 0", total) as show:
        for outcome in outcomes(dataset, parts, range(seeds), config, root):
            rows.append(outcome.score)
            score = outcome.score
            show(len(rows), f"{score.method} {score.pair} seed {score.seed}: accuracy {score.accuracy:.3f}")
    found = ablation(rows, parts)
    echo(as_text(found))
    if output is not None:
        write_into(Path(output), ablation_files(found, rows))
        echo(f"wrote ablate.csv, ablate.md, runs.csv and report.html in {output}")


def ablation_files(found: Ablation, rows: Sequence[RunScore]) -> dict[str, str | bytes]:
    """The tables and the page of an ablation, by file name."""
    from embasis.benchmark.ablation_table import as_columns, as_markdown, as_table
    from embasis.report.page import comparison_page
    from embasis.report.tables import caption
    from embasis.storage import encode_table

    plain = [row.cells() for row in rows]
    columns = {name: [row.get(name) for row in plain] for name in dict.fromkeys(name for row in plain for name in row)}
    title = f"What each part of em_basis is worth on {found.plain.dataset}"
    count = len(found.lines)
    lead = f"{count} part{'' if count == 1 else 's'}, changed one at a time; {caption(found.summaries)}"
    return {
        "ablate.csv": encode_table(as_columns(found), ".csv"),
        "ablate.md": as_markdown(found),
        "runs.csv": encode_table(columns, ".csv"),
        "report.html": comparison_page(title, found.summaries, lead=lead, first=[as_table(found)]),
    }
