"""torchvision beside a torch that it was not built for.

timm imports torchvision, whose wheel of the package registry is built for CUDA. Beside a CPU torch its compiled library
does not load, and its import fails with "operator torchvision::nms does not exist". Declaring two operators is enough
for the import; calling them still raises an error, and no network of ours does.
"""

from __future__ import annotations

import importlib
import sys

import torch

OPERATORS = ("nms", "qnms")
SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
kept_libraries: list[torch.library.Library] = []
"""An operator lives as long as its library does."""


def import_torchvision() -> None:
    """Import torchvision; where its compiled library does not load, by declaring two of its operators."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]  # what the import has left half done
        declare_operators()
        importlib.import_module("torchvision")


def declare_operators() -> None:
    """Two schemas without an implementation."""
    library = torch.library.Library("torchvision", "DEF")
    for name in OPERATORS:
        library.define(name + SCHEMA)
    kept_libraries.append(library)
