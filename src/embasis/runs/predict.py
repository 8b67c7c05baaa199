"""Labels of new data by a trained model: one path for tables, images and label maps, from Python and the command line.

| step | rows with one site (tables, images) | pictures with many sites (predict_maps.py) |
| --- | --- | --- |
| open | `Inputs.open_rows` | `Inputs.open_pictures` |
| label | `label_source`: all rows in memory | `label_pictures`: one picture at a time |
| choose the trusted labels for a precision | `finish_rows`, after labelling | `with_precision`, a pass before it |
| all of this, in memory | `predict_rows` | `predict_label_maps` |
| probabilities of all classes | `predict_probabilities` | `predict_probability_maps` |
| all of this, and write | `predict_into`: a table | `predict_into`: a folder of maps |

A table is written while its rows are read and labelled, batch by batch (`write_rows`), unless it is to be sorted or a
precision is to be kept: both look at all rows at once. Several processes label pieces of the rows in turn, and the
first one writes what they hand in: the same bytes as one process.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from embasis.data.parts import WHOLE
from embasis.data.shards import find_shards, shard_kind
from embasis.distributed import current_world
from embasis.engine.calibration import read_calibration
from embasis.errors import ConfigError, InputDataError, quote, require
from embasis.inputs import InputKind, RowSource, SourceOptions
from embasis.runs.model import TrainedModel
from embasis.runs.precision import threshold_for_precision
from embasis.runs.predict_maps import write_label_maps
from embasis.runs.prediction import PredictionSummary, PredictOptions, RowPrediction, first_reasons, show_nothing
from embasis.runs.row_labels import (
    LABEL_COLUMNS,
    LABEL_TYPES,
    Show,
    add_unread,
    iter_columns,
    iter_labels,
    iter_pieces,
    take_rows,
)
from embasis.runs.same_everywhere import compare_facts
from embasis.storage import encode_table, is_same, write_output
from embasis.storage.table_writer import TableWriter

EXACT_UNITS = 2**53
"""Probabilities are counted in parts of so many: float32 of at least 2^-29 without any rounding."""


def predict_into(
    model: TrainedModel,
    source: str,
    output: str,
    options: PredictOptions = PredictOptions(),  # noqa: B008 — frozen
    source_options: SourceOptions = SourceOptions(),  # noqa: B008 — frozen
    show: Show = show_nothing,
) -> PredictionSummary:
    """Write the labels of a table or of images to a .csv or .parquet file, those of pictures with maps to a folder."""
    source_options = replace(source_options, part=options.rows)
    refuse_shard(source, output)
    if model.inputs.kind.has_maps:
        return write_label_maps(model, source, output, options, source_options, show)
    if not current_world().is_first:
        hand_in_rows(model, source, options, source_options)
        return PredictionSummary(0, 0.0)
    if options.sort is None and options.precision is None:
        return write_rows(model, source, output, options, source_options, show)
    rows = predict_rows(model, source, options, source_options, show)
    write_output(output, encode_table(rows.columns, Path(output).suffix))
    trusted, right = sum_trusted(rows.columns)
    expected = expect_precision(model, trusted, right)
    return PredictionSummary(len(rows.columns["id"]), trusted, rows.rejected, rows.target, expected)


def sum_trusted(columns: Mapping[str, list[Any]]) -> tuple[int, int]:
    """How many labels are trusted, and the sum of their probabilities in units of 1 / EXACT_UNITS: a whole number, so
    that it does not depend on the batches."""
    pairs = zip(columns["probability"], columns["trusted"], strict=True)
    units = [round(probability * EXACT_UNITS) for probability, trusted in pairs if trusted]
    return len(units), sum(units)


def expect_precision(model: TrainedModel, trusted: int, right: int) -> float | None:
    """How many of the trusted labels are right by their own probabilities, where these were recalibrated."""
    known = trusted and read_calibration(model.progress.labeller) is not None
    return right / (trusted * EXACT_UNITS) if known else None


def open_rows(model: TrainedModel, source: str, options: PredictOptions, source_options: SourceOptions) -> RowSource:
    """The rows of a table or of images; an error where the processes that share them see different ones."""
    rows = model.inputs.open_rows(source, with_run_columns(model, source_options))
    compare_facts(repr((options, replace(source_options, run=""))), {"the input": rows.fingerprint})
    return rows


def hand_in_rows(model: TrainedModel, source: str, options: PredictOptions, source_options: SourceOptions) -> None:
    """Label the pieces of the rows that are this process's, for the first one, which writes them."""
    for _ in iter_pieces(model, open_rows(model, source, options, source_options), show_nothing):
        raise AssertionError("only the first process gets what is handed in")


def write_rows(
    model: TrainedModel, source: str, output: str, options: PredictOptions, source_options: SourceOptions, show: Show
) -> PredictionSummary:
    """Write the labels of rows while they are read; nothing is left where no image can be read."""
    rows, part = open_rows(model, source, options, source_options), source_options.part
    none = f"{source}: no image can be read"
    reasons = "; ".join(rows.rejected.values()) or "there is none"
    require(rows.total or part != WHOLE, f"{none}: {reasons}", InputDataError)
    types = LABEL_TYPES if rows.unit == "images" else LABEL_TYPES | {"id": "int64"}
    written, labelled, trusted, right = 0, 0, 0, 0
    with TableWriter(output, types) as table:
        for columns in iter_columns(model, rows, show):
            table.add(columns)
            written += len(columns["id"])
            labelled += sum(label is not None for label in columns["label"])
            here, probability = sum_trusted(columns)
            trusted, right = trusted + here, right + probability
        known = labelled or part != WHOLE
        require(known, f"{none}: {first_reasons(rows.rejected)}", InputDataError)
    return PredictionSummary(written, trusted, rows.rejected, expected=expect_precision(model, trusted, right))


def refuse_shard(source: str, output: str) -> None:
    """A ConfigError for an output that is one of the shards which a list names; those of a folder lie in the input."""
    if os.path.isdir(source) or not shard_kind(source):
        return
    for shard in find_shards(source, follow_links=True).files:
        rule = f"output {output} is a shard of the input {source}; name another place"
        require(not is_same(output, shard.path), rule, ConfigError)


def is_table_path(output: str) -> bool:
    """Whether the output is a table of labels; else it is a folder of label maps."""
    return Path(output).suffix in (".csv", ".parquet")


def check_output(output: str, options: PredictOptions, kind: InputKind) -> None:
    """A ConfigError for an output of label maps, or options for them, where the run labels rows, and the reverse."""
    is_table = is_table_path(output)
    if kind.has_maps:
        require(options.sort is None, "--sort is for tables; maps.csv has mean_variance to sort by", ConfigError)
        rule = f"the run has label maps: output must be a folder for them, got {quote(output)}"
        require(not is_table, rule, ConfigError)
        return
    require(is_table, f"output must end in .csv or .parquet, got {quote(output)}", ConfigError)
    one = options.scales == (1.0,) and not options.flip
    require(one, "--scales and --flip are for runs with label maps", ConfigError)


def with_run_columns(model: TrainedModel, source_options: SourceOptions) -> SourceOptions:
    """Tables are read as the run's were: its columns, and its names of label and id unless others are given."""
    data = model.resolved.get("data", {})
    label, id_ = source_options.label or data.get("label", "label"), source_options.id or data.get("id")
    named = replace(source_options, label=label, id=id_)
    return replace(named, columns=model.columns, encoding=model.encoding, float64=model.needs_float64)


def predict_rows(
    model: TrainedModel, source: str, options: PredictOptions, source_options: SourceOptions, show: Show = show_nothing
) -> RowPrediction:
    """Labels of a table, or of images in the order of their names; an InputDataError where none can be read."""
    rows = open_rows(model, source, options, source_options)
    reasons = "; ".join(rows.rejected.values()) or "there is none"
    require(rows.total, f"{source}: no image can be read: {reasons}", InputDataError)
    columns = label_source(model, rows, show)
    known = any(label is not None for label in columns["label"])
    require(known, f"{source}: no image can be read: {first_reasons(rows.rejected)}", InputDataError)
    if rows.unit == "images":
        columns = take_rows(columns, sorted(range(len(columns["id"])), key=columns["id"].__getitem__))
    return finish_rows(model, columns, rows.rejected, options)


def label_source(model: TrainedModel, source: RowSource, show: Show = show_nothing) -> dict[str, list[Any]]:
    """The columns of all rows of a source, in its order; files that cannot be read are last, and have no label."""
    columns: dict[str, list[Any]] = {key: [] for key in LABEL_COLUMNS}
    for piece in iter_pieces(model, source, show):
        for key, column in columns.items():
            column.extend(piece.columns[key])
    add_unread(columns, source.rejected)
    if source.order is None:
        return columns
    places = {name: row for row, name in enumerate(columns["id"])}
    return take_rows(columns, [places[name] for name in source.order])


def predict_probabilities(model: TrainedModel, source: RowSource) -> Tensor:
    """(N, C) in float64: the probability of each class, in the order of `label_source`; NaN where a file cannot be
    read."""
    names, parts = list[Any](), [torch.empty(0, len(model.schema), dtype=torch.float64)]
    for batch, labels in iter_labels(model, source):
        names += batch.names
        if labels is not None:
            mean = labels.distribution.mean.double()
            parts.append(mean / mean.sum(1, keepdim=True))
    names += source.rejected
    parts.append(torch.full((len(source.rejected), len(model.schema)), torch.nan, dtype=torch.float64))
    if source.order is None:
        return torch.cat(parts)
    places = {name: row for row, name in enumerate(names)}
    return torch.cat(parts)[[places[name] for name in source.order]]


def finish_rows(
    model: TrainedModel, columns: dict[str, list[Any]], rejected: dict[str, str], options: PredictOptions
) -> RowPrediction:
    """The rows in the order that is wanted, and with the trust that keeps a precision."""
    if options.sort == "uncertainty":  # rows without a label need a human most, so they come first
        values = [math.inf if value is None else value for value in columns["uncertainty"]]
        columns = take_rows(columns, sorted(range(len(values)), key=lambda row: -values[row]))
    if options.precision is None:
        return RowPrediction(columns, rejected)
    known = [value for value in columns["probability"] if value is not None]
    target = threshold_for_precision(known, None, options.precision, model.progress)
    trusted = [value is not None and value >= target.threshold for value in columns["probability"]]
    return RowPrediction({**columns, "trusted": trusted}, rejected, target)
