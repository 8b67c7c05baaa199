"""What a program without embasis must know of a model: classes, versions, and how data become its input."""

from __future__ import annotations

from typing import Any

import torch

from embasis.inputs.image_inputs import ImageInputs
from embasis.inputs.map_inputs import MapInputs
from embasis.runs.checkpoint import pack_encoding, package_version
from embasis.runs.model import TrainedModel


def describe_model(model: TrainedModel) -> dict[str, Any]:
    """The facts of a model: plain values of JSON, the same for the same model."""
    thresholds = model.progress.selector.get("threshold")
    return {
        "embasis": package_version("embasis"),
        "torch": torch.__version__,
        "kind": model.inputs.kind.name,
        "method": model.method.name,
        "round": model.progress.model_round,
        "classes": list(model.schema.names),
        "thresholds": None if thresholds is None else [float(value) for value in thresholds],
        "input": describe_input(model),
    }


def describe_input(model: TrainedModel) -> dict[str, Any]:
    """What the input is made of, step by step."""
    if isinstance(model.inputs, MapInputs):
        return describe_pictures(model)
    if isinstance(model.inputs, ImageInputs):
        at = model.inputs.backbone.preparation
        return {
            "dtype": "uint8",
            "shape": ["n", 3, at.size, at.size],
            "colours": "RGB, 0 to 255",
            "resize_short_side": round(at.size / at.crop),
            "interpolation": f"{at.interpolation}, antialiased",
            "crop_centre": at.size,
        }
    return {
        "dtype": "float64" if model.needs_float64 else "float32",
        "shape": ["n", *model.shape],
        "columns": None if model.columns is None else list(model.columns),
        "encoding": pack_encoding(model.encoding),
    }


def describe_pictures(model: TrainedModel) -> dict[str, Any]:
    """The same of pictures with label maps, whose sides differ."""
    network: Any = model.progress.network
    assert isinstance(model.inputs, MapInputs)
    return {
        "dtype": "uint8",
        "shape": ["n", 3, "height", "width"],
        "colours": "RGB, 0 to 255",
        "resize_short_side": model.inputs.plan.size or None,
        "interpolation": "bilinear, antialiased",
        "sides_are_multiples_of": network.multiple,
        "pixels_of_a_site": network.stride,
    }
