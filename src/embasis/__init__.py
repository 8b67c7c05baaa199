"""embasis: uncertainty-aware self-training.

`EMBasisClassifier` for arrays in scikit-learn's manner; `fit_tables`, `fit_images` and `fit_maps` for files, as the
command line takes them; `self_train` for any torch module and any data (`from_arrays` makes a problem of arrays).
Names are loaded when they are first used, so that `import embasis` and the command line start without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from embasis.api.classifier import EMBasisClassifier
    from embasis.api.models import ImageModel, MapModel, TableModel, fit_images, fit_maps, fit_tables
    from embasis.data.problem import from_arrays
    from embasis.engine.self_train import self_train
    from embasis.methods import METHODS
    from embasis.types import Arrays, LabelSchema, Output, Plan, Problem

__all__ = [
    "METHODS",
    "Arrays",
    "EMBasisClassifier",
    "ImageModel",
    "LabelSchema",
    "MapModel",
    "Output",
    "Plan",
    "Problem",
    "TableModel",
    "fit_images",
    "fit_maps",
    "fit_tables",
    "from_arrays",
    "self_train",
]

_HOMES = {
    "EMBasisClassifier": "embasis.api.classifier",
    "ImageModel": "embasis.api.models",
    "fit_images": "embasis.api.models",
    "MapModel": "embasis.api.models",
    "fit_maps": "embasis.api.models",
    "TableModel": "embasis.api.models",
    "fit_tables": "embasis.api.models",
    "from_arrays": "embasis.data.problem",
    "self_train": "embasis.engine.self_train",
    "METHODS": "embasis.methods",
    "Arrays": "embasis.types",
    "Output": "embasis.types",
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
