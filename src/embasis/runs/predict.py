"""Labels of new data by a trained model: one path for tables, images and label maps, from Python and the command line.

| step | rows with one site (tables, images) | pictures with many sites (label maps) |
| --- | --- | --- |
| open | `Inputs.open_rows` | `Inputs.open_pictures` |
| label | `label_source`: all rows in memory | `label_pictures`: one picture at a time |
| choose the trusted labels for a precision | `finish_rows`, after labelling | `with_precision`, a pass before it |
| all of this, in memory | `predict_rows` | `predict_label_maps` |
| probabilities of all classes | `predict_probabilities` | `predict_probability_maps` |
| all of this, and write | `predict_into`: a table | `predict_into`: a folder of maps |

A table is written while its rows are read and labelled, batch by batch (`write_rows`), unless it is to be sorted or a
precision is to be kept: both look at all rows at once.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from embasis.data.parts import WHOLE, Part
from embasis.data.segmentation.samples import MapArrays, MapFiles
from embasis.data.shards import find_shards, shard_kind
from embasis.engine.calibration import read_calibration
from embasis.engine.labels import LabelBatch
from embasis.errors import ConfigError, InputDataError, quote, require
from embasis.inputs import InputKind, PictureSource, RowSource, SourceOptions
from embasis.inputs.map_inputs import unread_pictures
from embasis.methods.selectors import ConfidenceThreshold, SelectNone
from embasis.runs.label_maps import LabelMap, check_scales, draw_label_map, label_at_scales, name_maps, write_maps
from embasis.runs.model import TrainedModel, label_columns
from embasis.runs.precision import PrecisionTarget, check_precision, threshold_for_precision
from embasis.runs.row_labels import LABEL_COLUMNS, LABEL_TYPES, Show, add_unread, iter_columns, iter_labels, take_rows
from embasis.storage import encode_table, is_same, write_output
from embasis.storage.label_map_folder import LabelMapFolder
from embasis.storage.table_writer import TableWriter

SORT_ORDERS = ("uncertainty",)
CONFIDENCE_STEPS = 2**14
"""Bins between 0 and 1 in which the probabilities of sites are counted; each is rounded down to its bin."""
MOST_REASONS = 5
"""Files that a sentence names one by one."""


@dataclass(frozen=True)
class PredictOptions:
    """What to do with labels, and at which views pictures are labelled."""

    precision: float | None = None
    """Trust the labels that are right with this probability; None = those that the run's selector trusts."""
    sort: str | None = None
    """`uncertainty`: the least sure rows first; None = as they come."""
    scales: tuple[float, ...] = (1.0,)
    """Label maps: a label is the mixture over these sizes of a picture."""
    flip: bool = False
    """Label maps: each picture is also labelled turned over."""
    part: str | None = None
    """`3/16`: the third of sixteen contiguous parts of the rows; None = all of them."""

    def __post_init__(self) -> None:
        if self.precision is not None:
            check_precision(self.precision)
        rule = f"sort must be one of {', '.join(SORT_ORDERS)}, got {quote(self.sort)}"
        require(self.sort is None or self.sort in SORT_ORDERS, rule, ConfigError)
        check_scales(self.scales)
        if self.part is not None:
            some = f"part {Part.parse(self.part)} has some of them"
            cure = "label the parts without it, and sort the joined table"
            require(self.sort is None, f"sort puts all rows in order, and {some}; {cure}", ConfigError)
            rule = f"precision needs the labels of all rows, and {some}; label all of them in one call"
            require(self.precision is None, rule, ConfigError)

    @property
    def rows(self) -> Part:
        """The part of the rows that is labelled."""
        return WHOLE if self.part is None else Part.parse(self.part)


@dataclass(frozen=True, eq=False)
class RowPrediction:
    """The table of labels: id, label, probability, between, within, uncertainty, trusted; files that could not be read
    have no label and are the last rows, unless the table is sorted."""

    columns: dict[str, list[Any]]
    rejected: dict[str, str]
    """Why files could not be read, by name."""
    target: PrecisionTarget | None = None


@dataclass(frozen=True, eq=False)
class PredictionSummary:
    """What was written, for whoever prints it."""

    rows: int
    """Rows, or pictures, that are written."""
    trusted: float
    """How many of the rows are trusted; of pictures: the mean share of their pixels."""
    rejected: dict[str, str] = field(default_factory=dict)
    target: PrecisionTarget | None = None
    expected: float | None = None
    """How many of the trusted labels are expected to be right; None where probabilities were not recalibrated."""
    stale: int = 0
    """Maps of earlier pictures that are still in the folder."""
    label_words: ClassVar[str] = "label"
    """What a file gets if it can be read."""

    def sentences(self, output: str, precision: float | None) -> list[str]:
        """What was written, and how many rows are trusted."""
        if self.target is not None and precision is not None:
            return [f"wrote {output}: {self.target.sentence(precision)}"]
        rows, trusted = self.rows, int(self.trusted)
        if not rows:
            return [f"wrote {output}: no rows, this part of the input has none"]
        unit = "row" if rows == 1 else "rows"
        wrote = f"wrote {output}: {rows:,} {unit}, {trusted:,} of them trusted ({trusted / rows:.0%})"
        if self.expected is None:
            return [wrote]
        return [wrote, f"about {self.expected:.0%} of the trusted labels are believed to be right"]


@dataclass(frozen=True, eq=False)
class MapPredictionSummary(PredictionSummary):
    """What was written of pictures with label maps."""

    label_words: ClassVar[str] = "labels"

    def sentences(self, output: str, precision: float | None) -> list[str]:
        """What was written, and how much of the pictures is trusted."""
        pictures = "1 picture" if self.rows == 1 else f"{self.rows:,} pictures"
        what = f"labels, confidence, variance and trust of {pictures}, {self.trusted:.0%} trusted"
        if self.target is None or precision is None:
            return [f"wrote {output}: {what}"]
        return [f"wrote {output}: {what}", f"at the sites of the network {self.target.sentence(precision)}"]


def show_nothing(what: str, done: int, total: int) -> None:
    """For those who do not show how far the labelling is."""


def predict_into(
    model: TrainedModel,
    source: str,
    output: str,
    options: PredictOptions = PredictOptions(),
    source_options: SourceOptions = SourceOptions(),  # noqa: B008 — frozen
    show: Show = show_nothing,
) -> PredictionSummary:
    """Write the labels of a table or of images to a .csv or .parquet file, those of pictures with maps to a folder."""
    source_options = replace(source_options, part=options.rows)
    refuse_shard(source, output)
    if model.inputs.kind.has_maps:
        return write_label_maps(model, source, output, options, source_options, show)
    if options.sort is None and options.precision is None:
        return write_rows(model, source, output, source_options, show)
    rows = predict_rows(model, source, options, source_options, show)
    write_output(output, encode_table(rows.columns, Path(output).suffix))
    trusted, right = sum_trusted(rows.columns)
    expected = expect_precision(model, trusted, right)
    return PredictionSummary(len(rows.columns["id"]), trusted, rows.rejected, rows.target, expected)


def sum_trusted(columns: Mapping[str, list[Any]]) -> tuple[int, float]:
    """How many labels are trusted, and the sum of their probabilities."""
    pairs = zip(columns["probability"], columns["trusted"], strict=True)
    probabilities = [probability for probability, trusted in pairs if trusted]
    return len(probabilities), math.fsum(probabilities)


def expect_precision(model: TrainedModel, trusted: int, right: float) -> float | None:
    """How many of the trusted labels are right by their own probabilities, where these were recalibrated."""
    return right / trusted if trusted and read_calibration(model.progress.labeller) is not None else None


def write_rows(
    model: TrainedModel, source: str, output: str, source_options: SourceOptions, show: Show
) -> PredictionSummary:
    """Write the labels of rows while they are read; nothing is left where no image can be read."""
    rows, part = model.inputs.open_rows(source, with_run_columns(model, source_options)), source_options.part
    none = f"{source}: no image can be read"
    reasons = "; ".join(rows.rejected.values()) or "there is none"
    require(rows.total or part != WHOLE, f"{none}: {reasons}", InputDataError)
    types = LABEL_TYPES if rows.unit == "images" else LABEL_TYPES | {"id": "int64"}
    written, labelled, trusted, right = 0, 0, 0, 0.0
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
    rows = model.inputs.open_rows(source, with_run_columns(model, source_options))
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
    for batch, labels in iter_labels(model, source, show):
        part = {} if labels is None else label_columns(labels, batch.names, model.schema)
        for key, column in columns.items():
            column.extend(part.get(key, ()))
    add_unread(columns, source.rejected)
    if source.order is None:
        return columns
    places = {name: row for row, name in enumerate(columns["id"])}
    return take_rows(columns, [places[name] for name in source.order])


def predict_probabilities(model: TrainedModel, source: RowSource) -> Tensor:
    """(N, C) in float64: the probability of each class, in the order of `label_source`; NaN where a file cannot be
    read."""
    names, parts = list[Any](), [torch.empty(0, len(model.schema), dtype=torch.float64)]
    for batch, labels in iter_labels(model, source, show_nothing):
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


def first_reasons(rejected: dict[str, str]) -> str:
    """Why the first files could not be read."""
    return "; ".join(f"{name}: {reason}" for name, reason in list(rejected.items())[:MOST_REASONS])


def write_label_maps(
    model: TrainedModel, source: str, output: str, options: PredictOptions, source_options: SourceOptions, show: Show
) -> PredictionSummary:
    """Maps of all pictures in a folder, and their table; nothing is written where no picture can be read."""
    pictures = model.inputs.open_pictures(source, source_options)
    folder = LabelMapFolder(output, pictures.inputs.table)
    model, target = with_precision(model, pictures, options, show)
    trusted, written = 0.0, 0
    (samples,) = pictures.samples()  # the files of a path are one set of samples
    files = name_maps(samples.names, pictures.names)
    with pictures.inputs.reader:
        parts = label_pictures(model, pictures, samples, options)
        first = next(parts, None)
        none = f"{source}: no picture can be read: {first_reasons(pictures.rejected)}"
        require(first is not None or options.rows != WHOLE, none, InputDataError)
        parts = parts if first is None else chain([first], parts)
        for line in write_maps(folder, parts, samples.sizes, model.schema, files):
            written, trusted = written + 1, trusted + line["trusted"]
            show("labelling pictures", written, pictures.total)
    return MapPredictionSummary(written, trusted / max(written, 1), pictures.rejected, target, stale=folder.stale)


def predict_label_maps(
    model: TrainedModel, source: PictureSource, options: PredictOptions, show: Show = show_nothing
) -> Iterator[tuple[str, LabelMap]]:
    """The name and the maps of each picture that can be read, one by one, in the order of their ids."""
    model, _ = with_precision(model, source, options, show)
    for name, part in enlarge_labels(model, source, options):
        yield name, draw_label_map(part, model.schema)


def predict_probability_maps(
    model: TrainedModel, source: PictureSource, options: PredictOptions
) -> Iterator[tuple[str, Tensor]]:
    """The name and the probabilities (C, H, W) of each picture that can be read, as `predict_label_maps` has them."""
    for name, part in enlarge_labels(model, source, options):
        mean = part.distribution.mean.float()
        yield name, (mean / mean.sum(1, keepdim=True)).T.unflatten(1, part.grid).contiguous()


def enlarge_labels(
    model: TrainedModel, source: PictureSource, options: PredictOptions
) -> Iterator[tuple[str, LabelBatch]]:
    """The name and the labels at each pixel of each picture that can be read."""
    with source.inputs.reader:
        for samples in source.samples():
            for part in label_pictures(model, source, samples, options):
                row = int(part.rows[0])
                height, width = (int(size) for size in samples.sizes[row])
                yield samples.names[row], part.enlarged(0, (height, width))


def with_precision(
    model: TrainedModel, source: PictureSource, options: PredictOptions, show: Show
) -> tuple[TrainedModel, PrecisionTarget | None]:
    """The model that trusts the sites which keep the precision, by a first pass over all pictures."""
    if options.precision is None:
        return model, None
    counts, done = torch.zeros(CONFIDENCE_STEPS + 1, dtype=torch.int64), 0
    with source.inputs.reader:
        for samples in source.samples():
            for part in label_pictures(model, replace(source, rejected={}), samples, options):
                steps = (part.distribution.mean.amax(1).double() * CONFIDENCE_STEPS).floor().long()
                counts += torch.bincount(steps, minlength=CONFIDENCE_STEPS + 1)
                done += 1
                show("looking at pictures", done, source.total)
    values = [step / CONFIDENCE_STEPS for step in range(CONFIDENCE_STEPS + 1)]
    target = threshold_for_precision(values, counts.tolist(), options.precision, model.progress)
    selector = ConfidenceThreshold(min(target.threshold, 1.0)) if target.labels else SelectNone()
    return replace(model, method=replace(model.method, selector=selector)), target


def label_pictures(
    model: TrainedModel, source: PictureSource, samples: MapFiles | MapArrays, options: PredictOptions
) -> Iterator[LabelBatch]:
    """The labels of the pictures that can be read, one by one; why others cannot goes to `source.rejected`."""
    parts = label_at_scales(model, source.inputs, samples, options.scales, options.flip, source.short_side)
    for part in parts:
        unread = unread_pictures(samples)
        source.rejected.update(unread)
        if samples.names[int(part.rows[0])] not in unread:
            yield part
