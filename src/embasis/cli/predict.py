"""`embasis predict`: labels of new rows, images or pictures from the model of a run folder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from embasis.cli.console import echo, warn
from embasis.cli.image_options import label_files
from embasis.cli.mapping import write_predictions
from embasis.data.tables.pair import order_columns
from embasis.data.tables.read import read_exact, read_table
from embasis.errors import ConfigError, CorruptError, quoted, require
from embasis.report.collect import kept_round
from embasis.runs.checkpoint_schema import read_run
from embasis.runs.model import Model, label_columns, load_model
from embasis.runs.precision import PrecisionTarget, check_precision, threshold_for_precision
from embasis.storage import encode_table, require_apart, write_output

TABLE_SUFFIXES = (".csv", ".parquet")


def predict_labels(
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
    scales: tuple[float, ...],
    flip: bool,
) -> None:
    """Label the input with the run's model, write a table or a folder of maps, and print how many are trusted."""
    suffix = Path(output).suffix
    if precision is not None:
        check_precision(precision)
    require_apart(output, {"the run folder": run, "the input": input_}, folder=suffix not in TABLE_SUFFIXES)
    stored = read_run(run, generation)
    require(stored.facts.get("records"), f"{run}: no round has ended yet; go on with embasis fit", CorruptError)
    warn(describe_collapse(run, stored.facts))
    if not stored.facts.get("maps"):
        rule = f"output must end in .csv or .parquet, got {quoted(output)}"
        require(suffix in TABLE_SUFFIXES, rule, ConfigError)
        require(scales == (1.0,) and not flip, "--scales and --flip are for runs with label maps", ConfigError)
    model = load_model(stored.facts, stored.tensors, Path(run), sealed=stored.sealed)
    if model.maps is not None:
        require(sort is None, "--sort is for tables; maps.csv has mean_variance to sort by", ConfigError)
        model.maps.reader.workers = 1 if workers is None else workers
        write_predictions(model, input_, output, scales, flip, follow_links, precision)
        return
    if model.front is not None:
        model.front.reader.workers = 1 if workers is None else workers
        columns = label_files(model, input_, follow_links)
    else:
        x, ids = read_input(run, stored.facts, input_, label, id_, model.wide)
        columns = label_columns(model.verdict(x, ids), range(len(x)) if ids is None else ids.tolist(), model.schema)
    if sort == "uncertainty":
        columns = least_sure_first(columns)
    del columns["drawn"]
    target = None if precision is None else trust_by_precision(columns, precision, model)
    write_output(output, encode_table(columns, suffix))
    if target is not None and precision is not None:
        echo(f"wrote {output}: {target.sentence(precision)}")
        warn(target.warnings)
        return
    rows, trusted = len(columns["id"]), sum(columns["trusted"])
    echo(f"wrote {output}: {rows:,} row{'' if rows == 1 else 's'}, {trusted:,} of them trusted ({trusted / rows:.0%})")


def describe_collapse(run: str, facts: dict[str, Any]) -> list[str]:
    """A warning for a run whose training failed: which model labels here, and what to do."""
    if facts["progress"]["status"] != "collapsed":
        return []
    last, kept = len(facts["records"]) - 1, kept_round(facts)
    model = f"the run {run} collapsed in round {last}; its model is that of round {kept}, the best one before"
    return [f"{model}; see its report, and train again with fewer rounds or a smaller plan.lr"]


def trust_by_precision(columns: dict[str, list[Any]], precision: float, model: Model) -> PrecisionTarget:
    """Mark the labels that are right with this probability as trusted, and no others."""
    known = [value for value in columns["probability"] if value is not None]
    target = threshold_for_precision(known, None, precision, model.progress)
    columns["trusted"] = [value is not None and value >= target.threshold for value in columns["probability"]]
    return target


def least_sure_first(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The rows by falling uncertainty; those without a label need a human most, so they come first."""
    values = [math.inf if value is None else value for value in columns["uncertainty"]]
    order = sorted(range(len(values)), key=lambda row: -values[row])
    return {name: [column[row] for row in order] for name, column in columns.items()}


def read_input(
    run: str, facts: Mapping[str, Any], path: str, label: str | None, id_: str | None, wide: bool
) -> tuple[Tensor, Tensor | None]:
    """Features in the order of the run's columns, in float64 if `wide`, and ids if there are any."""
    data = facts["config"].get("data", {})
    read = read_exact if wide else read_table
    table = read(path, label or data.get("label", "label"), id_ or data.get("id"))
    ids = None if table.ids is None else torch.from_numpy(table.ids)
    return torch.from_numpy(order_columns(table, facts.get("columns"), run)), ids
