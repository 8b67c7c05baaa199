"""embasis: uncertainty-aware self-training.

`EMBasisClassifier` for arrays in scikit-learn's manner, `fit_images` for folders of images, `self_train` for any torch
module and any data. Names are loaded when they are first used, so that `import embasis` and the command line start
without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from embasis.api.classifier import EMBasisClassifier
    from embasis.api.image_model import ImageModel, fit_images
    from embasis.engine.self_train import self_train
    from embasis.methods import METHODS
    from embasis.types import LabelSchema, Plan, Problem

__all__ = [
    "METHODS",
    "EMBasisClassifier",
    "ImageModel",
    "LabelSchema",
    "Plan",
    "Problem",
    "fit_images",
    "self_train",
]

_HOMES = {
    "EMBasisClassifier": "embasis.api.classifier",
    "ImageModel": "embasis.api.image_model",
    "fit_images": "embasis.api.image_model",
    "self_train": "embasis.engine.self_train",
    "METHODS": "embasis.methods",
    "Plan": "embasis.types",
    "Problem": "embasis.types",
    "LabelSchema": "embasis.types",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'embasis' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
