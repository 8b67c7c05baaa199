"""Images in Python: two folders in, a trained model out that labels paths, arrays and PIL images.

from embasis import ImageModel, fit_images
model = fit_images("photos", "paintings")
found = model.predict(["new/1.jpg", "new/2.jpg"])      # label, probability, between, within, trusted
model.save("model"); model = ImageModel.load("model")
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from embasis import config as settings
from embasis.data.images.decode import convert_picture
from embasis.data.images.files import ImageFile, escape_name
from embasis.data.images.folders import ImageOptions, load_images, require_budget, strip_folders
from embasis.data.images.scan import scan_file, scan_folder
from embasis.data.images.transforms import centre_view
from embasis.engine.features import CHUNK_ROWS
from embasis.engine.labels import RowLabels
from embasis.engine.self_train import TrainingEvent, train_rounds
from embasis.errors import ConfigError, InputDataError, NumericalError, require
from embasis.inputs.image_inputs import PIECE, open_image_inputs
from embasis.networks.backbone import Backbone
from embasis.runs.checkpoint import begin_folder, environment_of, pack_state
from embasis.runs.checkpoint_schema import read_run
from embasis.runs.fingerprint import fingerprint
from embasis.runs.model import Model, label_columns, load_model, model_of_run
from embasis.runs.parts import RunParts, build, validate_settings
from embasis.runs.run import TrainingRun
from embasis.storage import RunFolder, read_newest, require_apart
from embasis.types import Problem, RoundRecord

PathLike = str | os.PathLike[str]
FEW = 64
"""Fewer files than these are read in this process, where nothing limits the time that one takes."""


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels of N images, in the order they were given; an image that could not be read has the label None."""

    names: list[str]
    label: list[str | None]
    probability: NDArray[np.float64]
    between: NDArray[np.float64]
    within: NDArray[np.float64]
    uncertainty: NDArray[np.float64]
    trusted: NDArray[np.bool_]
    reasons: dict[str, str]
    """Why images could not be read, by name."""

    def __len__(self) -> int:
        return len(self.names)

    def columns(self) -> dict[str, list[Any]]:
        """A table for pandas.DataFrame or a CSV writer."""
        numbers = ("probability", "between", "within", "uncertainty")
        return {
            "id": list(self.names),
            "label": list(self.label),
            **{name: getattr(self, name).tolist() for name in numbers},
            "trusted": self.trusted.tolist(),
        }


@dataclass(frozen=True, eq=False)
class ImageModel:
    """A model adapted to the unlabelled images, made by `fit_images` or `ImageModel.load`."""

    model: Model
    tensors: Mapping[str, Tensor]
    facts: Mapping[str, Any]
    records: tuple[RoundRecord, ...] = ()
    """One for the source model and one for each round; empty for a loaded model."""
    unlabelled: Labels | None = None
    """The labels of the unlabelled side after the last round; None for a loaded model."""

    @classmethod
    def load(cls, path: PathLike, backbone: Backbone | None = None) -> ImageModel:
        """The model of a run folder, or of one that `save` wrote; `backbone` again if it was a module of your own."""
        found = read_run(Path(path))
        require(found.facts.get("backbone"), f"{path}: the run was trained on arrays, not on images", InputDataError)
        model = load_model(found.facts, found.tensors, Path(path), backbone, found.sealed)
        return cls(model, found.tensors, found.facts)

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in their order."""
        return self.model.schema.names

    def predict(self, images: Any) -> Labels:
        """Labels of a folder or file, or of a sequence of paths, arrays (H, W, 3), tensors (3, H, W) or PIL images."""
        if isinstance(images, str | os.PathLike):
            path = os.fspath(images)
            require(os.path.lexists(path), f"{path}: no such file or folder", InputDataError)
            scan = scan_folder(path) if os.path.isdir(path) else scan_file(path)
            return self._files(list(scan.files), {item.name: item.reason for item in scan.rejected})
        items = [images] if is_picture(images) else list(images)
        require(len(items) > 0, "images: at least one is needed, got none")
        if all(isinstance(item, str | os.PathLike) for item in items):
            return self._paths([os.fspath(item) for item in items])
        mixed = any(isinstance(item, str | os.PathLike) for item in items)
        require(not mixed, "images: paths and pictures cannot be mixed in one call", InputDataError)
        return self._pictures(items)

    def save(self, path: PathLike) -> None:
        """A folder that `ImageModel.load` and `embasis predict` read; a folder that exists must be empty."""
        home = Path(path)
        empty = not home.exists() or (home.is_dir() and not any(home.iterdir()))
        require(empty, f"{home} exists and is not an empty folder", ConfigError)
        with RunFolder(home) as folder:
            begin_folder(folder, self._built())
            folder.publish(self.tensors, self.facts)

    def _built(self) -> RunParts:
        model = self.model
        problem: Any = None
        return RunParts(
            problem, model.progress.network, model.method, model.plan, model.standardiser,
            settings.upgrade(self.facts["config"]), model.shape, model.front,
        )  # fmt: skip

    def _paths(self, paths: Sequence[str]) -> Labels:
        """Each path by itself, so that one that cannot be read does not stop the others."""
        files, reasons = list[ImageFile](), dict[str, str]()
        for path in dict.fromkeys(paths):
            scan = scan_file(path)
            files += scan.files
            reasons |= {item.name: item.reason for item in scan.rejected}
        return in_order(self._files(files, reasons), [escape_name(os.fsencode(path)) for path in paths])

    def _files(self, files: Sequence[ImageFile], reasons: dict[str, str]) -> Labels:
        parts: list[dict[str, list[Any]]] = []
        if self.model.front is not None:
            self.model.front.reader.workers = 0 if len(files) < FEW else 1  # a process takes seconds to start
        for good, verdict, broken in self.model.files(files):
            reasons |= broken
            if verdict is not None:
                parts.append(label_columns(verdict, [file.name for file in good], self.model.schema))
        return labels_of(parts, reasons)

    def _pictures(self, items: Sequence[Any]) -> Labels:
        front = self.model.front
        require(front is not None, "the model was trained on arrays, not on images", InputDataError)
        assert front is not None
        parts = []
        for numbers in torch.arange(len(items)).split(CHUNK_ROWS):  # so many views are in memory, however many pictures
            views = [centre_view(convert_picture(items[row]), front.backbone.preparation) for row in numbers.tolist()]
            rows = torch.cat(
                [front.forward_stem(torch.stack(views[at : at + PIECE])) for at in range(0, len(views), PIECE)]
            )
            names = [str(row) for row in numbers.tolist()]
            parts.append(label_columns(self.model.verdict(rows, numbers), names, self.model.schema))
        return labels_of(parts, {})


def is_picture(images: Any) -> bool:
    """Whether this is one picture and not several: a PIL image, or an array or tensor without a dimension for rows."""
    return getattr(images, "ndim", 0) in (2, 3) or not isinstance(images, Iterable)


def labels_of(parts: Iterable[dict[str, list[Any]]], reasons: dict[str, str]) -> Labels:
    """Columns as one value; names without a label at the end."""
    columns: dict[str, list[Any]] = {}
    for part in parts:
        for name, column in part.items():
            columns.setdefault(name, []).extend(column)
    missing = len(reasons)

    def numbers(name: str) -> NDArray[np.float64]:
        return np.array([*columns.get(name, []), *[np.nan] * missing], dtype=np.float64)

    return Labels(
        names=[*columns.get("id", []), *reasons],
        label=[*columns.get("label", []), *[None] * missing],
        probability=numbers("probability"),
        between=numbers("between"),
        within=numbers("within"),
        uncertainty=numbers("uncertainty"),
        trusted=np.array([*columns.get("trusted", []), *[False] * missing], dtype=bool),
        reasons=reasons,
    )


def in_order(found: Labels, names: Sequence[str]) -> Labels:
    """The same labels in the order that was asked for, repeats included."""
    where = {name: row for row, name in enumerate(found.names)}
    rows = [where[name] for name in names]
    return Labels(
        list(names), [found.label[row] for row in rows], found.probability[rows], found.between[rows],
        found.within[rows], found.uncertainty[rows], found.trusted[rows], found.reasons,
    )  # fmt: skip


def fit_images(
    labelled: PathLike,
    unlabelled: PathLike,
    *,
    test: PathLike | None = None,
    output: PathLike | None = None,
    backbone: str | Backbone | None = None,
    depth: str = "auto",
    method: str = "em_basis",
    seed: int = 0,
    options: ImageOptions | None = None,
    **words: Any,
) -> ImageModel:
    """Train on labelled images, adapt to unlabelled ones; `embasis fit` in Python.

    `labelled` is a folder with a sub-folder for each class, or a .csv with columns path and label; `unlabelled` is a
    folder of images at any depth. With `output` the run goes to that folder, and the same call goes on where it was.
    `backbone` is a name or `embasis.networks.pretrained.custom_backbone(…)`. Other settings are keywords as on the
    command line: rounds=3, **{"plan.lr": 1e-4}.
    """
    raw: dict[str, Any] = {"seed": seed, "method": {"name": method}, "images": {"depth": depth}, "network": {}}
    if isinstance(backbone, str):
        raw["network"] = {"name": backbone}
    for name, value in words.items():
        settings.place(raw, name, value)
    config = settings.resolve(raw)
    chosen = options or ImageOptions()
    if output is not None:
        sides = {"the labelled side": labelled, "the unlabelled side": unlabelled, "the test side": test}
        require_apart(output, sides, folder=True, run=True)
    problem = load_images(labelled, unlabelled, test=test, options=chosen)
    problem = strip_folders(problem, labelled, unlabelled, test)
    front = open_image_inputs(config, backbone if isinstance(backbone, Backbone) else None)
    validate_settings(problem, config, front)
    with front.reader:
        seen = max(total for _, total in front.cache_features(problem))
        ready = front.feature_problem(problem)
        require_budget(ready.rejected, seen + len(problem.rejected), chosen.budget)
        if output is not None:
            return in_folder(TrainingRun(ready, config, RunFolder(Path(output)), front))
        return in_memory(build(ready, config, front), ready)


def in_memory(built: RunParts, problem: Problem) -> ImageModel:
    """The whole run, with nothing on disk but features."""
    last, verdict = ended(train_rounds(built.problem, built.network, built.method, built.plan))
    assert last is not None
    tensors, facts = pack_state(
        built, problem, fingerprint(problem), last.state, {"environment": environment_of(built)}
    )
    return made(model_of_run(built, last.state), tensors, facts, last.state.records, verdict, problem)


def in_folder(run: TrainingRun) -> ImageModel:
    """The run in its folder, from wherever it stands."""
    run.prepare()
    with run.folder:
        run.open()
        _, verdict = ended(run.events())
    if run.model is None:
        raise NumericalError(f"{run.folder.path}: the run has not ended")
    found = read_newest(run.folder.path)
    return made(run.model, found.tensors, found.facts, run.model.progress.records, verdict, run.problem)


def ended(moments: Iterator[TrainingEvent]) -> tuple[TrainingEvent | None, RowLabels | None]:
    """The last moment, and the labels of the round that is kept."""
    last: TrainingEvent | None = None
    verdict: RowLabels | None = None
    for event in moments:
        last = event
        if event.is_kept and isinstance(event.labels, RowLabels):
            verdict = event.labels
    return last, verdict


def made(
    model: Model,
    tensors: Mapping[str, Tensor],
    facts: Mapping[str, Any],
    records: Sequence[RoundRecord],
    verdict: RowLabels | None,
    problem: Problem,
) -> ImageModel:
    """The model with the labels of the unlabelled side."""
    labels = None
    if verdict is not None and len(verdict.pseudo):
        labels = labels_of([label_columns(verdict, list(problem.row_names or ()), model.schema)], {})
    return ImageModel(model, tensors, facts, tuple(records), labels)
