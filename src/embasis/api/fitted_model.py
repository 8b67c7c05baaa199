"""What models of tables, images and label maps have in common in Python: load, save, predict into a file, export.

These commands are one call here, over the same `TrainedModel`:

| command | Python |
| --- | --- |
| `embasis fit A B -o RUN --corrections C` | `fit_tables`, `fit_images`, `fit_maps` with `output=`, `corrections=` |
| `embasis predict RUN INPUT -o OUT --precision P` | `model.predict_into(INPUT, OUT, precision=P)` |
| `embasis export RUN -o OUT --as csv` | `model.export(OUT, "csv")` |

Only the command line has `check`, `report`, `fit --allow-change`, `fit --accept-data-change`, `predict --generation`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from embasis import config as settings
from embasis.config import Config
from embasis.engine.batch import device_of
from embasis.engine.labels import RowLabels
from embasis.engine.self_train import TrainingEvent, train_rounds
from embasis.errors import ConfigError, InputDataError, NumericalError, quote, require
from embasis.inputs import RowSource, SourceOptions, kind_of_run
from embasis.inputs.fingerprint import fingerprint
from embasis.inputs.load import image_options, load_problem, open_inputs
from embasis.networks.backbone import Backbone
from embasis.runs.checkpoint import begin_folder, describe_environment, pack_state, read_run
from embasis.runs.export import ExportOptions, export_labels
from embasis.runs.finished_run import ExportSummary
from embasis.runs.model import TrainedModel, label_columns, load_model, model_of_run
from embasis.runs.parts import RunParts, build, resolve_for_problem
from embasis.runs.precision import PrecisionTarget
from embasis.runs.predict import check_output, finish_rows, is_table_path, label_source, predict_into
from embasis.runs.prediction import PredictionSummary, PredictOptions, RowPrediction
from embasis.runs.run import TrainingRun
from embasis.storage import RunFolder, read_newest, require_apart
from embasis.types import PathLike, Problem, RoundRecord

SIDES = {
    "labelled": "the labelled side", "unlabelled": "the unlabelled side", "test": "the test side",
    "corrections": "the corrections", "classes": "the classes",
}  # fmt: skip
"""What a run reads and never writes to, in words."""
NUMBERS = ("probability", "between", "within", "uncertainty")
SHORT_NAMES = {
    "method": "method.name", "align": "align.name", "network": "network.name", "learner": "learner.name",
    "depth": "images.depth",
}  # fmt: skip
"""Settings that Python calls otherwise than a config file."""
MOST_NAMES, MOST_NAME = 4, 20
"""Classes that a model's `repr` names, and characters of a name."""


@dataclass(frozen=True, eq=False, repr=False)
class Labels:
    """Labels of N rows or images, in the order they were given; an image that could not be read has the label None."""

    names: list[Any]
    label: list[str | None]
    probability: NDArray[np.float64]
    between: NDArray[np.float64]
    within: NDArray[np.float64]
    uncertainty: NDArray[np.float64]
    trusted: NDArray[np.bool_]
    reasons: dict[str, str]
    """Why images could not be read, by name."""
    target: PrecisionTarget | None = None
    """What a precision that was given means: threshold, expected errors, warnings."""

    @classmethod
    def of(cls, rows: RowPrediction) -> Labels:
        """A table of labels as arrays; NaN where there is no label."""
        columns = rows.columns
        numbers = {
            name: np.array([np.nan if value is None else value for value in columns[name]], dtype=np.float64)
            for name in NUMBERS
        }
        trusted = np.array(columns["trusted"], dtype=bool)
        names, label = list(columns["id"]), list(columns["label"])
        return cls(names, label, **numbers, trusted=trusted, reasons=rows.rejected, target=rows.target)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        unread = f", {len(self.reasons):,} that cannot be read" if self.reasons else ""
        return f"Labels({len(self):,} rows, {int(self.trusted.sum()):,} trusted{unread})"

    def columns(self) -> dict[str, list[Any]]:
        """A table for pandas.DataFrame or a CSV writer."""
        numbers = {name: getattr(self, name).tolist() for name in NUMBERS}
        return {"id": list(self.names), "label": list(self.label), **numbers, "trusted": self.trusted.tolist()}


@dataclass(frozen=True, eq=False, repr=False)
class FittedModel:
    """A model adapted to the unlabelled side of a run, made by a `fit_…` function or by `load`."""

    KIND: ClassVar[str] = ""
    """The kind of input that it labels."""
    WRONG_KIND: ClassVar[str] = ""
    """What is wrong with a run of another kind."""

    model: TrainedModel
    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, Any]
    records: tuple[RoundRecord, ...] = ()
    """One for the source model and one for each round; empty for a loaded model."""
    unlabelled: Labels | None = None
    """The labels of the unlabelled side after the last round; None for a loaded model, and for label maps."""
    home: Path | None = None
    """The run folder, if there is one."""

    def __repr__(self) -> str:
        names = ", ".join(quote(name, MOST_NAME) for name in self.classes[:MOST_NAMES])
        more = ", …" if len(self.classes) > MOST_NAMES else ""
        rounds, home = self.model.progress.model_round, "" if self.home is None else f", run {quote(str(self.home))}"
        what = f"{len(self.classes)} classes: {names}{more}; {self.model.method.name}, round {rounds}{home}"
        return f"{type(self).__name__}({what})"

    @classmethod
    def load(cls, path: PathLike, backbone: Backbone | None = None) -> Self:
        """The model of a run folder, or of one that `save` wrote.

        Parameters
        ----------
        path : path
            The folder.
        backbone : Backbone, optional
            The module of your own again, if the run on images was made with one.
        """
        stored = read_run(Path(path))
        require(kind_of_run(stored.facts).name == cls.KIND, f"{path}: {cls.WRONG_KIND}", InputDataError)
        model = load_model(stored.facts, stored.tensors, Path(path), backbone, stored.sealed)
        return cls(model, stored.tensors, stored.facts, home=Path(path))

    @classmethod
    def _fit(cls, config: Config, output: PathLike | None, backbone: Backbone | None = None) -> Self:
        """Load the data that [data] names, and train: in the folder `output`, where the same call goes on, or in
        memory."""
        if output is not None:
            require_apart(output, {words: config.data.get(key) for key, words in SIDES.items()}, folder=True, run=True)
        problem, config = load_problem(config, cls.KIND)
        inputs = open_inputs(problem, config, backbone)
        resolve_for_problem(problem, config, inputs)
        try:
            ready = inputs.read(problem, image_options(config.data).budget)
            if output is not None:
                return cls._train_in_folder(TrainingRun(ready, config, RunFolder(Path(output)), inputs))
            return cls._train_in_memory(build(ready, config, inputs), ready)
        finally:
            inputs.close()

    @classmethod
    def _train_in_memory(cls, parts: RunParts, problem: Problem) -> Self:
        """The whole run, with nothing on disk but features."""
        last, labels = last_event(train_rounds(parts.problem, parts.network, parts.method, parts.plan))
        assert last is not None
        kept = {"environment": describe_environment(parts.plan.seed, device_of(parts.network).type)}
        tensors, metadata = pack_state(parts, problem, fingerprint(problem), last.state, kept)
        model, records = model_of_run(parts, last.state), tuple(last.state.records)
        return cls(model, tensors, metadata, records, labels_of_rows(labels, problem))

    @classmethod
    def _train_in_folder(cls, run: TrainingRun) -> Self:
        """The run in its folder, from wherever it stands."""
        run.prepare()
        with run.folder:
            run.open()
            _, labels = last_event(run.events())
        if run.model is None:
            raise NumericalError(f"{run.folder.path}: the run has not ended")
        stored, records = read_newest(run.folder.path), tuple(run.model.progress.records)
        rows = labels_of_rows(labels, run.problem)
        return cls(run.model, stored.tensors, stored.facts, records, rows, run.folder.path)

    def _label_rows(self, source: RowSource, options: PredictOptions) -> Labels:
        """The labels of rows with one site each."""
        columns = label_source(self.model, source)
        return Labels.of(finish_rows(self.model, columns, source.rejected, options))

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in their order."""
        return self.model.schema.names

    def save(self, path: PathLike) -> None:
        """Write a folder that `load` and `embasis predict` read; a folder that exists must be empty."""
        home = Path(path)
        empty = not home.exists() or (home.is_dir() and not any(home.iterdir()))
        require(empty, f"{home} exists and is not an empty folder", ConfigError)
        environment = describe_environment(self.model.plan.seed, device_of(self.model.progress.network).type)
        with RunFolder(home) as folder:
            begin_folder(folder, settings.upgrade_config(self.metadata["config"]), environment, self.model.inputs)
            folder.publish(self.tensors, self.metadata)

    def predict_into(self, source: PathLike, output: PathLike, **options: Any) -> PredictionSummary:
        """Write the labels of new data, as `embasis predict` does.

        Parameters
        ----------
        source : path
            A table; for images a folder, one image, or a .csv with a column path; for label maps pictures.
        output : path
            A .csv or .parquet file; for label maps a folder.
        **options
            `precision`, `sort`, `scales`, `flip` and `part` as in `PredictOptions`; `label`, `id` and `follow_links` as
            in `SourceOptions`; `workers`, the number of processes that read files (1).
        """
        self.model.inputs.set_workers(int(options.pop("workers", 1)))
        reading = {name: options.pop(name) for name in ("label", "id", "follow_links") if name in options}
        chosen, to = predict_options(options), os.fspath(output)
        require_apart(to, {"the run folder": self.home, "the input": source}, folder=not is_table_path(to))
        check_output(to, chosen, self.model.inputs.kind)
        run = "the model" if self.home is None else str(self.home)
        return predict_into(self.model, os.fspath(source), to, chosen, SourceOptions(**reading, run=run))

    def export(self, output: PathLike, form: str, **options: Any) -> ExportSummary:
        """Write the labels of the run's unlabelled side for other tools, as `embasis export` does.

        Parameters
        ----------
        output : path
            A file .csv, .parquet or .json; for `folder` a folder.
        form : str
            "csv" or "parquet" for tables and images, "folder" for images, "coco" for label maps.
        **options
            `everything`: untrusted labels, too (False); for `folder`: `images`, the run's unlabelled folder, and
            `copy`, to copy the images instead of linking to them (False).
        """
        rule = "the model has no run folder, which keeps the labels: give output= to fit, or load the run"
        require(self.home is not None, rule, InputDataError)
        return export_labels(str(self.home), os.fspath(output), ExportOptions(form, **options))


def predict_options(given: Mapping[str, Any]) -> PredictOptions:
    """Options by name; an unknown one is a TypeError, as with any call."""
    scales = given.get("scales", (1.0,))
    return PredictOptions(**{**given, "scales": tuple(float(scale) for scale in scales)})


def data_table(words: dict[str, Any], labelled: PathLike, unlabelled: PathLike, *names: str) -> dict[str, Any]:
    """[data]: the two sides, and those of the `words` that have these names, which are taken out."""
    given = {"labelled": labelled, "unlabelled": unlabelled} | {name: words.pop(name, None) for name in names}
    return {name: os.fspath(value) for name, value in given.items() if value is not None}


def run_config(words: Mapping[str, Any], **tables: dict[str, Any]) -> Config:
    """Settings as the command line would have them: `words` are seed, method and all others by bare or dotted name."""
    raw: dict[str, Any] = tables
    for name in sorted(words, key=lambda word: word not in SHORT_NAMES):  # which keys are known depends on the names
        settings.set_value(raw, SHORT_NAMES.get(name, name), words[name])
    return settings.make_config(raw)


def last_event(events: Iterator[TrainingEvent]) -> tuple[TrainingEvent | None, RowLabels | None]:
    """The last event, and the labels of the round that is kept, if they are labels of rows."""
    last: TrainingEvent | None = None
    labels: RowLabels | None = None
    for event in events:
        last = event
        if event.is_kept and isinstance(event.labels, RowLabels):
            labels = event.labels
    return last, labels


def labels_of_rows(labels: RowLabels | None, problem: Problem) -> Labels | None:
    """The labels of the unlabelled side by the names of its rows."""
    if labels is None or not len(labels.pseudo):
        return None
    names = problem.row_names or problem.unlabelled.ids.tolist()
    return Labels.of(RowPrediction(label_columns(labels, list(names), problem.schema), {}))
