"""Labels of new data by a trained model: one path for tables, images and label maps, from Python and the command line.

| step | rows with one site (tables, images) | pictures with many sites (label maps) |
| --- | --- | --- |
| open | `Inputs.open_rows` | `Inputs.open_pictures` |
| label | `label_source`: all rows in memory | `label_pictures`: one picture at a time |
| choose the trusted labels for a precision | `finish_rows`, after labelling | `with_precision`, a pass before it |
| all of this, in memory | `predict_rows` | `predict_label_maps` |
| probabilities of all classes | `predict_probabilities` | `predict_probability_maps` |
| all of this, and write | `predict_into`: a table | `predict_into`: a folder of maps |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from embasis.data.segmentation.samples import MapArrays, MapFiles
from embasis.engine.calibration import read_calibration
from embasis.engine.labels import LabelBatch, RowLabels
from embasis.engine.state import TrainState
from embasis.errors import ConfigError, InputDataError, quote, require
from embasis.functional.calibration import least_confidence
from embasis.inputs import InputKind, PictureSource, RowSource, SourceOptions
from embasis.inputs.map_inputs import unread_pictures
from embasis.methods.selectors import ConfidenceThreshold, SelectNone
from embasis.runs.label_maps import LabelMap, check_scales, draw_label_map, label_at_scales, write_maps
from embasis.runs.model import TrainedModel, label_columns
from embasis.storage import encode_table, write_output
from embasis.storage.label_map_folder import LabelMapFolder

SORT_ORDERS = ("uncertainty",)
CONFIDENCE_STEPS = 2**14
"""Bins between 0 and 1 in which the probabilities of sites are counted; each is rounded down to its bin."""
LABEL_COLUMNS = ("id", "label", "probability", "between", "within", "uncertainty", "trusted")
MOST_REASONS = 5
"""Files that a sentence names one by one."""
FEW_ANSWERS = 200
"""Reference labels below which a run's recalibration is a guess."""
ODD_DIFFERENCE = 0.1
"""A mean probability so far from the run's own says that the rows are of another kind."""

Show = Callable[[str, int, int], None]
"""Called with what is done, how many of it, and how many there are."""


@dataclass(frozen=True)
class PrecisionTarget:
    """Labels with at least `threshold` are right with the probability that is wanted."""

    threshold: float
    """2 where no label is sure enough."""
    labels: int
    rows: int
    errors: float
    """Expected among those labels."""
    warnings: tuple[str, ...]

    def sentence(self, precision: float) -> str:
        """How many labels are trusted, and how many errors are expected among them."""
        if not self.labels:
            return f"no label is sure enough for a precision of {precision:.4g}"
        share = f"{self.labels:,} of {self.rows:,} trusted ({self.labels / self.rows:.0%})"
        return f"{share} for a precision of {precision:.4g}: about {round(self.errors):,} errors expected among them"


def check_precision(precision: float) -> None:
    """Refuse what is no precision."""
    require(0 < precision < 1, f"precision must be between 0 and 1, got {precision:g}", ConfigError)


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

    def __post_init__(self) -> None:
        if self.precision is not None:
            check_precision(self.precision)
        rule = f"sort must be one of {', '.join(SORT_ORDERS)}, got {quote(self.sort)}"
        require(self.sort is None or self.sort in SORT_ORDERS, rule, ConfigError)
        check_scales(self.scales)


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
    stale: int = 0
    """Maps of earlier pictures that are still in the folder."""
    label_words: ClassVar[str] = "label"
    """What a file gets if it can be read."""

    def sentences(self, output: str, precision: float | None) -> list[str]:
        """What was written, and how many rows are trusted."""
        if self.target is not None and precision is not None:
            return [f"wrote {output}: {self.target.sentence(precision)}"]
        rows, trusted = self.rows, int(self.trusted)
        unit = "row" if rows == 1 else "rows"
        return [f"wrote {output}: {rows:,} {unit}, {trusted:,} of them trusted ({trusted / rows:.0%})"]


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
    if model.inputs.kind.has_maps:
        return write_label_maps(model, source, output, options, source_options, show)
    rows = predict_rows(model, source, options, source_options, show)
    write_output(output, encode_table(rows.columns, Path(output).suffix))
    return PredictionSummary(len(rows.columns["id"]), sum(rows.columns["trusted"]), rows.rejected, rows.target)


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
    for names, labels in iter_labels(model, source, show):
        part = label_columns(labels, names, model.schema)
        for key, column in columns.items():
            column.extend(part[key])
    for file in source.rejected:
        for key, column in columns.items():
            column.append({"id": file, "trusted": False}.get(key))
    if source.order is None:
        return columns
    places = {name: row for row, name in enumerate(columns["id"])}
    return take_rows(columns, [places[name] for name in source.order])


def iter_labels(model: TrainedModel, source: RowSource, show: Show) -> Iterator[tuple[list[Any], RowLabels]]:
    """Names and labels of the rows, batch by batch; why files cannot be read goes to `source.rejected`."""
    done = 0
    for batch in source.batches:
        source.rejected.update(batch.rejected)
        done += len(batch.names) + len(batch.rejected)
        show(f"labelling {source.unit}", done, source.total)
        if batch.names:
            yield batch.names, model.label(batch.x, batch.ids)


def predict_probabilities(model: TrainedModel, source: RowSource) -> Tensor:
    """(N, C) in float64: the probability of each class, in the order of `label_source`; NaN where a file cannot be
    read."""
    names, parts = list[Any](), [torch.empty(0, len(model.schema), dtype=torch.float64)]
    for part_names, labels in iter_labels(model, source, show_nothing):
        names += part_names
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


def take_rows(columns: dict[str, list[Any]], rows: list[int]) -> dict[str, list[Any]]:
    """These rows of a table, in this order."""
    return {name: [column[row] for row in rows] for name, column in columns.items()}


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
    with pictures.inputs.reader:
        parts = label_pictures(model, pictures, samples, options)
        first = next(parts, None)
        none = f"{source}: no picture can be read: {first_reasons(pictures.rejected)}"
        require(first is not None, none, InputDataError)
        assert first is not None
        for line in write_maps(folder, chain([first], parts), samples.sizes, model.schema, samples.names):
            written, trusted = written + 1, trusted + line["trusted"]
            show("labelling pictures", written, pictures.total)
    return MapPredictionSummary(written, trusted / written, pictures.rejected, target, folder.stale)


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
    for part in label_at_scales(model, source.inputs, samples, options.scales, options.flip):
        unread = unread_pictures(samples)
        source.rejected.update(unread)
        if samples.names[int(part.rows[0])] not in unread:
            yield part


def threshold_for_precision(
    values: Sequence[float], counts: Sequence[int] | None, precision: float, progress: TrainState
) -> PrecisionTarget:
    """The labels that keep it; `counts`: how many labels have each of the probabilities (None: one each)."""
    check_precision(precision)
    confidence = torch.tensor(values, dtype=torch.float64)
    count = torch.ones(len(values), dtype=torch.int64) if counts is None else torch.tensor(counts, dtype=torch.int64)
    rows = int(count.sum())
    mean = float((confidence * count).sum() / rows) if rows else 0.0
    threshold, labels, errors = least_confidence(confidence, count, precision) or (2.0, 0, 0.0)
    return PrecisionTarget(threshold, labels, rows, errors, tuple(caveats(progress, threshold, precision, mean)))


def caveats(progress: TrainState, threshold: float, precision: float, mean: float) -> list[str]:
    """Why the estimate should not be believed, if there is a reason."""
    evidence = read_calibration(progress.labeller)
    if evidence is None:
        return ["the run did not recalibrate its labels, so their probabilities are likely to be too high"]
    reasons = []
    if evidence.sites < FEW_ANSWERS:
        reasons.append(f"the run could check its probabilities on {evidence.sites} labels only")
    if abs(mean - evidence.expected_accuracy) > ODD_DIFFERENCE:
        other = f"mean probability {mean:.2f}, there {evidence.expected_accuracy:.2f}"
        reasons.append(f"these rows seem to be of another kind than those that the run adapted to ({other})")
    bins = evidence.support
    above = bins[int(min(threshold, 1.0) * len(bins) * (1 - 1e-9)) :].sum(0)
    if threshold <= 1 and float(above[0]) < 1:
        reasons.append("the run saw no label that sure, so the estimate is not supported")
    elif threshold <= 1:
        agreeing, count = float(above[2] / above[0]), float(above[0])
        spread = 2 * max(agreeing * (1 - agreeing), 1 / count) ** 0.5 / count**0.5
        if agreeing + spread < precision - ODD_DIFFERENCE:
            by_reference, by_holdout = "agree with their nearest labelled example", "are right on held-out rows"
            text = (
                f"only {agreeing:.0%} of the labels that sure {by_reference if evidence.by_reference else by_holdout}"
            )
            reasons.append(f"the estimate is not supported: {text}")
    return reasons
