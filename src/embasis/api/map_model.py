"""Pictures with label maps in Python: two folders in, a trained model out that labels every pixel of other pictures.

from embasis import MapModel, fit_maps
model = fit_maps("rendered", "streets", output="run", rounds=3)
for picture in model.predict("new"):                   # name, labels, confidence, variance, trusted
    print(picture.name, picture.labels.shape, picture.trusted.mean())
model.save("model"); model = MapModel.load("model")
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from embasis.api.fitted_model import FittedModel, fit_run, predict_options, run_config
from embasis.errors import InputDataError, require
from embasis.inputs.base import SourceOptions
from embasis.runs.predict import predict_label_maps
from embasis.types import PathLike


@dataclass(frozen=True, eq=False)
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


@dataclass(frozen=True, eq=False)
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
        if isinstance(pictures, str | os.PathLike):
            require(os.path.lexists(pictures), f"{os.fspath(pictures)}: no such file or folder", InputDataError)
        options = predict_options({"precision": precision, "scales": scales, "flip": flip})
        self.model.inputs.set_workers(workers)
        source = self.model.inputs.open_pictures(pictures, SourceOptions())
        labelled = [
            PictureLabels(
                name, one.labels.numpy(), one.confidence.numpy(), one.variance.numpy(), one.trusted.numpy() > 0
            )
            for name, one in predict_label_maps(self.model, source, options)
        ]
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(source.rejected.items())[:5])
        require(labelled, f"no picture can be read: {reasons}", InputDataError)
        return labelled


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
    data = {"labelled": os.fspath(labelled), "unlabelled": os.fspath(unlabelled)}
    for name in ("test", "corrections", "classes"):
        if (path := words.pop(name, None)) is not None:
            data[name] = os.fspath(path)
    return MapModel._of(fit_run(run_config({"data": data}, words), "maps", output))
