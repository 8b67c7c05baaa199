"""Tables, images and pictures with label maps in Python: two sides in, a trained model out that labels other data.

from embasis import ImageModel, MapModel, TableModel, fit_images, fit_maps, fit_tables
model = fit_tables("labelled.csv", "unlabelled.csv", output="run", rounds=3)
model.predict("new.csv", precision=0.95)               # label, probability, between, within, trusted
model = fit_images("photos", "paintings")
model.predict(["new/1.jpg", "new/2.jpg"])              # the same
model = fit_maps("rendered", "streets", output="run", rounds=3)
for picture in model.predict("new"):                   # name, labels, confidence, variance, trusted
    print(picture.name, picture.labels.shape, picture.trusted.mean())
model.save("model"); model = MapModel.load("model")
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from embasis.api.fitted_model import FittedModel, Labels, data_table, predict_options, run_config
from embasis.data.images.folders import ImageOptions
from embasis.errors import InputDataError, quote, require
from embasis.inputs import PictureSource, RowSource, SourceOptions
from embasis.networks.backbone import Backbone
from embasis.runs.predict import predict_probabilities, with_run_columns
from embasis.runs.predict_maps import predict_label_maps, predict_probability_maps
from embasis.runs.prediction import PredictOptions, first_reasons
from embasis.types import PathLike

WITHOUT_WORKERS = 64
"""Fewer files than these are read in this process, where nothing limits the time that one takes."""


@dataclass(frozen=True, eq=False, repr=False)
class TableModel(FittedModel):
    """A model adapted to an unlabelled table, made by `fit_tables` or `TableModel.load`."""

    KIND: ClassVar[str] = "table"
    WRONG_KIND: ClassVar[str] = "the run was trained on images, not on tables or arrays"

    def predict(self, rows: Any, *, precision: float | None = None, sort: str | None = None) -> Labels:
        """Labels of rows.

        Parameters
        ----------
        rows : path or array
            A table, a data frame or a mapping, whose columns are matched by name, or an array (N, …) with the features
            in the run's order.
        precision : float, optional
            Trust the labels that are right with this probability, by the run's own estimate.
        sort : {"uncertainty"}, optional
            The least sure rows first; else as they come.
        """
        return self._label_rows(self._open(rows), PredictOptions(precision, sort))

    def predict_proba(self, rows: Any) -> NDArray[np.float64]:
        """(N, C) the probability of each of `classes` for each row; `rows` as for `predict`."""
        return predict_probabilities(self.model, self._open(rows)).numpy()

    def _open(self, rows: Any) -> RowSource:
        """The rows of a table or an array."""
        return self.model.inputs.open_rows(rows, with_run_columns(self.model, SourceOptions(run=str(self.home))))


def fit_tables(labelled: PathLike, unlabelled: PathLike, *, output: PathLike | None = None, **words: Any) -> TableModel:
    """Train on a labelled table, adapt to an unlabelled one; `embasis fit` in Python.

    Parameters
    ----------
    labelled, unlabelled : path
        .csv, .npy, .npz or .parquet files.
    output : path, optional
        The run goes to that folder, and the same call goes on where it was; None = nothing is kept.
    **words
        `test`, a labelled table to score on; `corrections`, a table of labels that a person has corrected; `label` and
        `id`, names of columns; `drop`, a list of columns that are not read; `method`; `seed`; and other settings as on
        the command line: rounds=3, network="mlp".

    Returns
    -------
    TableModel
    """
    drop = words.pop("drop", ())
    data = data_table(words, labelled, unlabelled, "test", "corrections", "label", "id")
    data |= {"drop": [drop] if isinstance(drop, str) else list(drop)} if drop else {}
    return TableModel._fit(run_config(words, data=data), output)


@dataclass(frozen=True, eq=False, repr=False)
class ImageModel(FittedModel):
    """A model adapted to the unlabelled images, made by `fit_images` or `ImageModel.load`."""

    KIND: ClassVar[str] = "images"
    WRONG_KIND: ClassVar[str] = "the run was trained on arrays, not on images"

    def predict(self, images: Any, *, precision: float | None = None, sort: str | None = None) -> Labels:
        """Labels of images.

        Parameters
        ----------
        images : path or sequence
            A folder, list or file; or a sequence of paths, arrays (H, W, 3), tensors (3, H, W) or PIL images.
        precision : float, optional
            Trust the labels that are right with this probability, by the run's own estimate.
        sort : {"uncertainty"}, optional
            The least sure images first; else as they were given.
        """
        options = PredictOptions(precision, sort)
        return self._label_rows(self._open(images), options)

    def predict_proba(self, images: Any) -> NDArray[np.float64]:
        """(N, C) the probability of each of `classes` for each image, in the order of `predict`; NaN for one that
        cannot be read."""
        return predict_probabilities(self.model, self._open(images)).numpy()

    def _open(self, images: Any) -> RowSource:
        """Images, read in this process where they are few: another one takes seconds to start."""
        require_there(images)
        source = self.model.inputs.open_rows(images, SourceOptions())
        self.model.inputs.set_workers(0 if source.total < WITHOUT_WORKERS else 1)
        return source


def fit_images(
    labelled: PathLike,
    unlabelled: PathLike,
    *,
    output: PathLike | None = None,
    backbone: str | Backbone | None = None,
    options: ImageOptions | None = None,
    **words: Any,
) -> ImageModel:
    """Train on labelled images, adapt to unlabelled ones; `embasis fit` in Python.

    Parameters
    ----------
    labelled : path
        A folder with a sub-folder for each class, or a .csv with columns path and label.
    unlabelled : path
        A folder of images at any depth, or a .csv with a column path.
    output : path, optional
        The run goes to that folder, and the same call goes on where it was; None = nothing but features is kept.
    backbone : str or Backbone, optional
        A name, or `embasis.networks.pretrained.custom_backbone(…)`.
    options : ImageOptions, optional
        What to do with unreadable files, links and classes that are missing.
    **words
        `test`, labelled images to score on; `corrections`, a table of labels that a person has corrected; `depth`
        ("auto", "frozen", "partial", "full"); `method`; `seed`; and other settings as on the command line: rounds=3,
        **{"plan.lr": 1e-4}.

    Returns
    -------
    ImageModel
    """
    data = data_table(words, labelled, unlabelled, "test", "corrections")
    if options is not None:
        data |= {key: value for key, value in asdict(options).items() if value != getattr(ImageOptions(), key)}
    network = {"name": backbone} if isinstance(backbone, str) else {}
    config = run_config(words, data=data, network=network, method={"name": "em_basis"}, images={"depth": "auto"})
    return ImageModel._fit(config, output, backbone if isinstance(backbone, Backbone) else None)


@dataclass(frozen=True, eq=False, repr=False)
class PictureLabels:
    """The labels of one picture at its own size, (H, W) each; confidence and variance are scaled as in the PNG."""

    name: str
    """Its path below the folder, or its place among pictures in memory."""
    labels: NDArray[np.uint8]
    """Places among the model's `classes`."""
    confidence: NDArray[np.uint8]
    """255 · probability of the label."""
    variance: NDArray[np.uint8]
    """255 · Σ p (1 − p) / (1 − 1/C): 0 = sure, 255 = every class is as probable as any other."""
    trusted: NDArray[np.bool_]
    """Whether the label is trusted."""

    def __repr__(self) -> str:
        height, width = self.labels.shape
        return f"PictureLabels({quote(self.name)}, {height}×{width}, {self.trusted.mean():.0%} trusted)"


@dataclass(frozen=True, eq=False, repr=False)
class MapModel(FittedModel):
    """A model adapted to the unlabelled pictures, made by `fit_maps` or `MapModel.load`."""

    KIND: ClassVar[str] = "maps"
    WRONG_KIND: ClassVar[str] = "the run was trained without label maps"

    def predict(
        self,
        pictures: Any,
        *,
        precision: float | None = None,
        scales: Sequence[float] = (1.0,),
        flip: bool = False,
        workers: int = 0,
    ) -> list[PictureLabels]:
        """Label maps of pictures; `predict_into` writes as many as there are without keeping them in memory.

        Parameters
        ----------
        pictures : path or sequence
            A folder (with images/, as in training, or of pictures), a list or file; or a sequence of paths, arrays
            (H, W, 3), tensors (3, H, W) or PIL images.
        precision : float, optional
            Trust the sites that are right with this probability, by the run's own estimate; all pictures are labelled
            twice then.
        scales : sequence of float, default (1.0,)
            Labels are the mixture over these sizes of each picture.
        flip : bool, default False
            Each picture is also labelled turned over.
        workers : int, default 0
            Processes that read files; 0 = this one.

        Returns
        -------
        list of PictureLabels
            In the order of their names' hashes, or in that of pictures in memory; files that cannot be read are left
            out, and an InputDataError names the first ones if that is so for all.
        """
        options = predict_options({"precision": precision, "scales": scales, "flip": flip})
        source = self._open(pictures, workers)
        labelled = [
            PictureLabels(
                name, one.labels.numpy(), one.confidence.numpy(), one.variance.numpy(), one.trusted.numpy() > 0
            )
            for name, one in predict_label_maps(self.model, source, options)
        ]
        require(labelled, f"no picture can be read: {first_reasons(source.rejected)}", InputDataError)
        return labelled

    def predict_proba(
        self, pictures: Any, *, scales: Sequence[float] = (1.0,), flip: bool = False, workers: int = 0
    ) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Name and probabilities (C, H, W) of each picture that can be read, one by one, in the order of `predict`.

        C are `classes`, H and W the picture's own size; all parameters are those of `predict`."""
        options = predict_options({"scales": scales, "flip": flip})
        maps = predict_probability_maps(self.model, self._open(pictures, workers), options)
        return ((name, part.numpy()) for name, part in maps)

    def _open(self, pictures: Any, workers: int) -> PictureSource:
        """Pictures by path or in memory."""
        require_there(pictures)
        self.model.inputs.set_workers(workers)
        return self.model.inputs.open_pictures(pictures, SourceOptions())


def fit_maps(labelled: PathLike, unlabelled: PathLike, *, output: PathLike | None = None, **words: Any) -> MapModel:
    """Train on pictures with label maps, adapt to pictures without; `embasis fit` in Python.

    Parameters
    ----------
    labelled : path
        A folder with images/, labels/ (a PNG of class numbers or colours for each picture) and classes.toml.
    unlabelled : path
        A folder of pictures.
    output : path, optional
        The run goes to that folder, and the same call goes on where it was; None = nothing is kept.
    **words
        `test`, a labelled folder to score on; `corrections`, a folder of corrected maps named like their pictures;
        `classes`, a file that says what the maps mean; `method`; `seed`; and other settings as on the command line:
        rounds=3, **{"maps.size": 512, "network.name": "deeplab_v2"}.

    Returns
    -------
    MapModel
    """
    data = data_table(words, labelled, unlabelled, "test", "corrections", "classes")
    return MapModel._fit(run_config(words, data=data), output)


def require_there(source: Any) -> None:
    """An InputDataError for a path at which there is nothing."""
    if isinstance(source, str | os.PathLike):
        require(os.path.lexists(source), f"{os.fspath(source)}: no such file or folder", InputDataError)
