"""embasis: uncertainty-aware self-training.

`EMBasisClassifier` for arrays in scikit-learn's manner; `fit_tables`, `fit_images` and `fit_maps` for files, as the
command line takes them; `self_train` for any torch module and any data. Names are loaded when they are first used, so
that `import embasis` and the command line start without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from embasis.api.classifier import EMBasisClassifier
    from embasis.api.image_model import ImageModel, fit_images
    from embasis.api.map_model import MapModel, fit_maps
    from embasis.api.table_model import TableModel, fit_tables
    from embasis.engine.self_train import self_train
    from embasis.methods import METHODS
    from embasis.types import LabelSchema, Plan, Problem

__all__ = [
    "METHODS",
    "EMBasisClassifier",
    "ImageModel",
    "LabelSchema",
    "MapModel",
    "Plan",
    "Problem",
    "TableModel",
    "fit_images",
    "fit_maps",
    "fit_tables",
    "self_train",
]

_HOMES = {
    "EMBasisClassifier": "embasis.api.classifier",
    "ImageModel": "embasis.api.image_model",
    "fit_images": "embasis.api.image_model",
    "MapModel": "embasis.api.map_model",
    "fit_maps": "embasis.api.map_model",
    "TableModel": "embasis.api.table_model",
    "fit_tables": "embasis.api.table_model",
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
