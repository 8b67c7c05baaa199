"""`embasis compare`: methods on one data set; and the output folder that compare, ablate and demo have in common."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from embasis import config as settings
from embasis.benchmark.choice import expand_names, leave_out
from embasis.benchmark.compare import Outcome, count_pairs, iter_problems, run_comparison
from embasis.benchmark.comparison_page import comparison_page
from embasis.benchmark.paper_rows import find_table, methods_of_table, paired_markdown, paired_page_table, paired_table
from embasis.benchmark.published import PublishedTable, paper_markdown, paper_table
from embasis.benchmark.scores import TABLE_WIDTH, RunScore, csv_table, markdown_table, summarise_runs, text_table
from embasis.cli.benchmark_commands import FIVE_METHODS
from embasis.cli.console import OTHER_FOLDER, echo
from embasis.cli.progress import progress_bar
from embasis.config import Config
from embasis.data.datasets.domain_sets import find_data_folder
from embasis.data.images.folders import ImageOptions
from embasis.errors import ConfigError, require
from embasis.inputs import ReadProgress
from embasis.inputs.load import open_inputs
from embasis.report import RunView
from embasis.resources import require_writable
from embasis.runs.checkpoint import describe_environment
from embasis.storage import atomic, encode_table, refuse_lost_link, require_apart


def compare_methods(
    dataset: str,
    overrides: tuple[str, ...],
    methods: str | None,
    table: str | None,
    seeds: int,
    root: str | None,
    output: str | None,
    backbone: str | None,
    learner: str | None,
    preset: str | None,
) -> None:
    """Run the methods on every pair and seed, print the table, and write it into a folder if one is named."""
    require(table is None or methods is None, "--table runs the methods of its rows: leave --methods out", ConfigError)
    published = None if table is None else find_table(dataset)
    candidates = expand_names(methods or FIVE_METHODS) if published is None else methods_of_table(published)
    network = {"network": {"name": backbone}, "learner": {"name": learner}}
    config = load_comparison(dataset, ",".join(candidates), overrides, network, preset)
    alone = "--table runs every method by itself: leave align.name out"
    require(published is None or not config.align, alone, ConfigError)
    config = with_trained_head(config) if published is not None and not published.is_iou else config
    choice = leave_out(candidates, () if published else (methods or FIVE_METHODS).split(","), config, root)
    if choice.sentence:
        echo(textwrap.fill(choice.sentence, TABLE_WIDTH))
    names = choice.names
    pairs = prepare_comparison(dataset, config, root, output)
    views = list[RunView]()
    runs = run_comparison(dataset, names, range(seeds), config, root)
    rows = collect_scores(keep_views(runs, views), f"{names[0]}, seed 0", len(names) * seeds * pairs)
    echo(text_table(summarise_runs(rows)))
    if (layout := paired_table(published, rows) if published else paper_table(dataset, rows)) is not None:
        echo(layout)
    if output is not None:
        write_files(Path(output), comparison_files(f"Methods on {dataset}", rows, views, published))
        echo(f"wrote compare.csv, compare.md, runs.csv and report.html in {output}")


def keep_views(runs: Iterable[Outcome], views: list[RunView]) -> Iterator[Outcome]:
    """The runs as they come; what a page shows of each is added to `views`."""
    for outcome in runs:
        views.append(view_outcome(outcome))
        yield outcome


def view_outcome(outcome: Outcome) -> RunView:
    """A run in memory as the report reads it."""
    last, score = outcome.records[-1], outcome.score
    return RunView(
        config={**outcome.built.resolved, "data": {"dataset": score.dataset}},
        environment=describe_environment(score.seed),
        rounds=outcome.records,
        timings=[],
        labels=None,
        status="finished" if last.status == "ok" else last.status,
        best_round=outcome.kept,
        classes=outcome.built.problem.schema.names,
    )


def with_trained_head(config: Config) -> Config:
    """Frozen features get a head with a layer that can be trained, unless the settings name one: alignment needs it."""
    return msgspec.structs.replace(config, images={"head": "adapter", **config.images})


def load_comparison(
    dataset: str, method: str, overrides: tuple[str, ...], network: Mapping[str, Any], preset: str | None
) -> Config:
    """The settings that hold for all runs of a comparison; `network` are the tables that choose what is trained."""
    tables: dict[str, Any] = {"data": {"dataset": dataset}, "method": {"name": method}, **network}
    return settings.load(None, overrides, preset=preset, **tables)


def prepare_comparison(dataset: str, config: Config, root: str | None, output: str | None) -> int:
    """Refuse an output folder that cannot be one, fill the feature cache, and count the pairs of the data set."""
    require_folder(output, {"the folder of data packs": find_data_folder(root or config.data.get("root"))})
    pairs = count_pairs(dataset, config.data)
    read_beforehand(dataset, config, root)
    return pairs


def collect_scores(runs: Iterable[Outcome], title: str, total: int) -> list[RunScore]:
    """The scores of these runs, with a bar."""
    rows = list[RunScore]()
    with progress_bar(title, total) as show:
        for outcome in runs:
            rows.append(score := outcome.score)
            show(len(rows), f"{score.method} {score.pair} seed {score.seed}: accuracy {score.accuracy:.3f}")
    return rows


def read_beforehand(dataset: str, config: Config, root: str | None) -> None:
    """Fill the feature cache with all images of a data set, with a bar, so that a comparison can begin at once."""
    with progress_bar("reading images", 1, lines=True) as show:
        for pair, problem in iter_problems(dataset, config.seed, root, config.data):
            inputs = open_inputs(problem, config)
            if not inputs.keeps_features(problem):
                return

            def watch(progress: ReadProgress, name: str = pair or dataset) -> None:
                done, total = progress.done, progress.total
                show(done / max(total, 1), f"reading images, {name}: {done:,} of {total:,}")

            inputs.read(problem, ImageOptions().budget, watch)


def comparison_files(
    title: str, rows: Sequence[RunScore], runs: Sequence[RunView] = (), table: PublishedTable | None = None
) -> dict[str, str | bytes]:
    """The tables and the page of a comparison, by file name; `table`: the paper's, of which all rows were run."""
    summaries = summarise_runs(rows)
    layouts: list[str | None] = [paper_markdown(dataset, rows) for dataset in dict.fromkeys(r.dataset for r in rows)]
    layouts = layouts if table is None else [paired_markdown(table, rows)]
    return {
        "compare.csv": csv_table(summaries),
        "compare.md": "\n".join([markdown_table(summaries), *(layout for layout in layouts if layout is not None)]),
        "runs.csv": runs_csv(rows),
        "report.html": comparison_page(title, summaries, runs, first=[paired_page_table(table, rows)] if table else ()),
    }


def runs_csv(rows: Sequence[RunScore]) -> bytes:
    """A line for each run, with a column for each figure that any of them has."""
    plain = [row.cells() for row in rows]
    columns = {name: [row.get(name) for row in plain] for name in dict.fromkeys(name for row in plain for name in row)}
    return encode_table(columns, ".csv")


def require_folder(output: str | Path | None, inputs: Mapping[str, Path] | None = None) -> None:
    """Refuse an output for several files that is a file, lies in one of these folders or in a run, or is closed."""
    if output is not None:
        refuse_lost_link(Path(output))
        there = os.path.exists(output) and not os.path.isdir(output)
        require(not there, f"output {output} is a file; name a folder", ConfigError)
        require_apart(output, inputs or {})
        require_writable(Path(output), OTHER_FOLDER)


def write_files(folder: Path, contents: Mapping[str, str | bytes]) -> None:
    """Write these files in that folder, which is made if need be."""
    with atomic.explain_write_errors(folder):
        atomic.disk.make(folder)
    for name, data in contents.items():
        atomic.write_output(folder / name, data)
