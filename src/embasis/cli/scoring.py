"""Commands that use models and compare methods: predict, compare."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from embasis.cli.console import Work, echo, progress_bar, require_folder, warn, write_into
from embasis.cli.image_options import label_files, read_beforehand
from embasis.errors import ConfigError, CorruptError, quoted, require

if TYPE_CHECKING:
    from torch import Tensor

    from embasis.report.tables import RunScore
    from embasis.runs.model import Model
    from embasis.runs.precision import PrecisionTarget

FIVE = ("source_only", "pseudo_label", "cbst", "mrkld_lrent", "em_basis")


@click.command(cls=Work)
@click.argument("run")
@click.argument("input_", metavar="INPUT")
@click.option("-o", "--output", required=True, metavar="FILE", help=".csv or .parquet; for label maps a folder.")
@click.option("--sort", type=click.Choice(["uncertainty"]), help="Order of the rows: least sure first.")
@click.option("--precision", type=float, metavar="P", help="Trust the labels that are right with probability P.")
@click.option("--label", metavar="COLUMN", help="A column to ignore.  [default: the run's]")
@click.option("--id", "id_", metavar="COLUMN", help="The column of row ids.  [default: the run's]")
@click.option("--workers", type=click.IntRange(0, 64), help="Images: processes that read files.  [default: 1]")
@click.option("--follow-links", is_flag=True, help="Images: follow symbolic links.")
@click.option("--generation", type=int, metavar="N", help="This state of the run, and no other if it is damaged.")
@click.option("--scales", default="1", show_default=True, metavar="A,B,…", help="Label maps: look at these scales.")
@click.option("--flip", is_flag=True, help="Label maps: look at each picture turned over, too.")
def predict(
    run: str,
    input_: str,
    output: str,
    sort: str | None,
    precision: float | None,
    label: str | None,
    id_: str | None,
    workers: int | None,
    follow_links: bool,
    generation: int | None,
    scales: str,
    flip: bool,
) -> None:
    """Label the rows of INPUT with the model of a run folder.

    INPUT is a table; for a run on images it is a folder, one image, or a .csv
    with a column path. Writes id (for images the path), label, probability, its
    variance in two parts (between, within), uncertainty, and whether the label
    is trusted. Columns of tables are matched by name; images come in the order
    of their names, and one that cannot be read has no label.

    For a run with label maps OUTPUT is a folder: labels/, confidence/, variance/
    and trusted/ get a PNG for each picture, maps.csv a line. Labels have the
    numbers and colours of the labelled side's maps.

    With --precision the trusted labels are as many as can be had so that, by the
    run's own estimate, this share of them is right; how many errors that leaves
    is said, and a warning where the estimate has nothing to rest on.

    \b
    Examples:
      embasis predict run new.csv -o labels.csv
      embasis predict run new.parquet -o labels.parquet --sort uncertainty
      embasis predict run photos -o labels.csv --sort uncertainty
      embasis predict run photos -o labels.csv --precision 0.95
      embasis predict run streets -o maps --scales 0.75,1,1.25 --flip
    """
    from embasis.cli.mapping import scales_of, write_predictions

    sizes, suffix = scales_of(scales), Path(output).suffix
    from embasis.runs.model import label_columns, load_model
    from embasis.runs.precision import check_precision

    if precision is not None:
        check_precision(precision)
    from embasis.runs.checkpoint_schema import read_run
    from embasis.storage import encode_table, require_apart, write_output

    require_apart(output, {"the run folder": run, "the input": input_}, folder=suffix not in (".csv", ".parquet"))
    found = read_run(run, generation)
    require(found.facts.get("records"), f"{run}: no round has ended yet; go on with embasis fit", CorruptError)
    warn(collapse(run, found.facts))
    if not found.facts.get("maps"):
        require(
            suffix in (".csv", ".parquet"), f"output must end in .csv or .parquet, got {quoted(output)}", ConfigError
        )
        require(sizes == (1.0,) and not flip, "--scales and --flip are for runs with label maps", ConfigError)
    model = load_model(found.facts, found.tensors, Path(run), sealed=found.sealed)
    if model.maps is not None:
        require(sort is None, "--sort is for tables; maps.csv has mean_variance to sort by", ConfigError)
        model.maps.reader.workers = 1 if workers is None else workers
        write_predictions(model, input_, output, sizes, flip, follow_links, precision)
        return
    if model.front is not None:
        model.front.reader.workers = 1 if workers is None else workers
        columns = label_files(model, input_, follow_links)
    else:
        x, ids = read_input(run, found.facts, input_, label, id_, model.wide)
        columns = label_columns(model.verdict(x, ids), range(len(x)) if ids is None else ids.tolist(), model.schema)
    if sort == "uncertainty":
        columns = least_sure_first(columns)
    del columns["drawn"]
    kept = None if precision is None else keep_promise(columns, precision, model)
    write_output(output, encode_table(columns, suffix))
    if kept is not None and precision is not None:
        echo(f"wrote {output}: {kept.sentence(precision)}")
        warn(kept.warnings)
        return
    rows, trusted = len(columns["id"]), sum(columns["trusted"])
    echo(f"wrote {output}: {rows:,} row{'' if rows == 1 else 's'}, {trusted:,} of them trusted ({trusted / rows:.0%})")


def collapse(run: str, facts: dict[str, Any]) -> list[str]:
    """What to know of a run whose training failed: which model labels here, and what to do."""
    from embasis.runs.view import kept_round

    if facts["progress"]["status"] != "collapsed":
        return []
    last, kept = len(facts["records"]) - 1, kept_round(facts)
    told = f"the run {run} collapsed in round {last}; its model is that of round {kept}, the best one before"
    return [f"{told}; see its report, and train again with fewer rounds or a smaller plan.lr"]


def keep_promise(columns: dict[str, list[Any]], precision: float, model: Model) -> PrecisionTarget:
    """Mark the labels that are right with this probability as trusted, and no others."""
    from embasis.runs.precision import threshold_for_precision

    known = [value for value in columns["probability"] if value is not None]
    kept = threshold_for_precision(known, None, precision, model.progress)
    columns["trusted"] = [value is not None and value >= kept.threshold for value in columns["probability"]]
    return kept


def least_sure_first(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The rows by falling uncertainty; those without a label need a human most, so they come first."""
    values = [math.inf if value is None else value for value in columns["uncertainty"]]
    order = sorted(range(len(values)), key=lambda row: -values[row])
    return {name: [column[row] for row in order] for name, column in columns.items()}


def read_input(
    run: str, facts: Mapping[str, Any], path: str, label: str | None, id_: str | None, wide: bool
) -> tuple[Tensor, Tensor | None]:
    """Features in the order of the run's columns, in float64 if `wide`, and ids if there are any."""
    import torch

    from embasis.data.tables.pair import in_order
    from embasis.data.tables.read import read_exact, read_table

    data = facts["config"].get("data", {})
    read = read_exact if wide else read_table
    table = read(path, label or data.get("label", "label"), id_ or data.get("id"))
    ids = None if table.ids is None else torch.from_numpy(table.ids)
    return torch.from_numpy(in_order(table, facts.get("columns"), run)), ids


@click.command(cls=Work)
@click.argument("dataset")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--methods", default=",".join(FIVE), show_default=True, metavar="A,B,…", help="Names, or `all`.")
@click.option("--seeds", type=click.IntRange(1, 1000), default=5, show_default=True, help="Runs of each method.")
@click.option("--root", metavar="DIR", help="Folder of data packs.  [default: $EMBASIS_DATA, else ../shared/data]")
@click.option("-o", "--output", metavar="DIR", help="Write compare.csv, compare.md, runs.csv, report.html there.")
@click.option("--backbone", metavar="NAME", help="See `embasis list backbones`.")
@click.option("--preset", metavar="NAME", help="Settings that come with embasis, such as paper-office31.")
def compare(
    dataset: str,
    overrides: tuple[str, ...],
    methods: str,
    seeds: int,
    root: str | None,
    output: str | None,
    backbone: str | None,
    preset: str | None,
) -> None:
    """Run methods on one data set: mean ± std over seeds.

    The table is printed; files are written only with -o. Data sets with several
    domains are run on every ordered pair, unless source=… or target=… is given.
    Data sets of the paper get its table too: ours first, published rows apart.

    \b
    Examples:
      embasis compare digits --methods em_basis,cbst --seeds 3 -o results
      embasis compare blobs --methods all --seeds 2 count=300 plan.rounds=3
      embasis compare office31 --root DIR --preset paper-office31
    """
    from embasis import config as settings
    from embasis.benchmark.compare import compare as outcomes
    from embasis.benchmark.compare import count_pairs
    from embasis.benchmark.paper_tables import paper_table
    from embasis.data.datasets.domain_sets import where
    from embasis.report.tables import as_text, summarise

    names = list(dict.fromkeys(settings.registry("method") if methods == "all" else methods.split(",")))
    tables: dict[str, Any] = {
        "data": {"dataset": dataset},
        "method": {"name": ",".join(names)},
        "network": {"name": backbone},
    }
    config = settings.load(None, overrides, preset=preset, **tables)
    require_folder(output, {"the folder of data packs": where(root or config.data.get("root"))})
    total = len(names) * seeds * count_pairs(dataset, config.data)
    rows: list[RunScore] = []
    read_beforehand(dataset, config, root)
    with progress_bar(f"{names[0]}, seed 0", total) as show:
        for outcome in outcomes(dataset, names, range(seeds), config, root):
            rows.append(outcome.score)
            score = outcome.score
            show(len(rows), f"{score.method} {score.pair} seed {score.seed}: accuracy {score.accuracy:.3f}")
    echo(as_text(summarise(rows)))
    if (layout := paper_table(dataset, rows)) is not None:
        echo(layout)
    if output is not None:
        write_into(Path(output), comparison_files(f"Methods on {dataset}", rows))
        echo(f"wrote compare.csv, compare.md, runs.csv and report.html in {output}")


def comparison_files(title: str, rows: Sequence[RunScore], runs: Sequence[Any] = ()) -> dict[str, str | bytes]:
    """The tables and the page of a comparison, by file name."""
    from embasis.benchmark.paper_tables import paper_markdown
    from embasis.report.page import comparison_page
    from embasis.report.tables import as_csv, as_markdown, summarise
    from embasis.storage import encode_table

    summaries = summarise(rows)
    plain = [row.cells() for row in rows]
    columns = {name: [row.get(name) for row in plain] for name in dict.fromkeys(name for row in plain for name in row)}
    layouts = [paper_markdown(dataset, rows) for dataset in dict.fromkeys(row.dataset for row in rows)]
    return {
        "compare.csv": as_csv(summaries),
        "compare.md": "\n".join([as_markdown(summaries), *(layout for layout in layouts if layout is not None)]),
        "runs.csv": encode_table(columns, ".csv"),
        "report.html": comparison_page(title, summaries, runs),
    }
