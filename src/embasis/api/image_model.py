"""Images in Python: two folders in, a trained model out that labels paths, arrays and PIL images.

from embasis import ImageModel, fit_images
model = fit_images("photos", "paintings")
found = model.predict(["new/1.jpg", "new/2.jpg"])      # label, probability, between, within, trusted
model.save("model"); model = ImageModel.load("model")
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from embasis.api.fitted_model import FittedModel, Labels, fit_run, run_config
from embasis.data.images.folders import ImageOptions
from embasis.errors import InputDataError, require
from embasis.inputs.base import SourceOptions
from embasis.networks.backbone import Backbone
from embasis.runs.predict import PredictOptions, finish_rows, label_source
from embasis.types import PathLike

WITHOUT_WORKERS = 64
"""Fewer files than these are read in this process, where nothing limits the time that one takes."""


@dataclass(frozen=True, eq=False)
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
        if isinstance(images, str | os.PathLike):
            require(os.path.lexists(images), f"{os.fspath(images)}: no such file or folder", InputDataError)
        options, inputs = PredictOptions(precision, sort), self.model.inputs
        source = inputs.open_rows(images, SourceOptions())
        inputs.set_workers(0 if source.total < WITHOUT_WORKERS else 1)  # a process takes seconds to start
        columns = label_source(self.model, source)
        return Labels.of(finish_rows(self.model, columns, source.rejected, options))


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
    data = {"labelled": os.fspath(labelled), "unlabelled": os.fspath(unlabelled)}
    data |= {name: os.fspath(words.pop(name)) for name in ("test", "corrections") if words.get(name) is not None}
    words.pop("test", None), words.pop("corrections", None)
    chosen = {} if options is None else {k: v for k, v in asdict(options).items() if v != getattr(ImageOptions(), k)}
    network = {"name": backbone} if isinstance(backbone, str) else {}
    config = run_config(
        {"data": {**data, **chosen}, "network": network, "method": {"name": "em_basis"}, "images": {"depth": "auto"}},
        words,
    )
    own = backbone if isinstance(backbone, Backbone) else None
    return ImageModel._of(fit_run(config, "images", output, own))
