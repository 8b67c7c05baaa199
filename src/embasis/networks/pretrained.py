"""Pretrained networks for images by name, and a user's own: each a `Backbone` with its own size, crop and scaling."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from embasis.errors import ConfigError, IncompatibleError, quote, require
from embasis.networks.backbone import Backbone, PixelScaling, wrap_network
from embasis.networks.torchvision_import import import_torchvision
from embasis.types import Preparation
from embasis.weights import files as weight_files


def efficientnet_lite0(*, size: int = 0, weights: str = "") -> Backbone:
    """EfficientNet-Lite0, ImageNet weights from the package registry (the default for images).

    Its input is RGB / 127.5 − 1, that is mean = std = 0.5. `size` 0 is its own, 224; `weights` is a safetensors file.
    """
    given = weight_files.read_weights(weights) if weights else None
    network = import_timm().create_model("tf_efficientnet_lite0", pretrained=False, num_classes=0)
    if given is None:
        tensors = weight_files.lite0_tensors()[:-2]
        network.load_state_dict(dict(zip(network.state_dict(), tensors, strict=True)))
    else:
        weight_files.load_weights(network, given, classifier_names(network), weights, "efficientnet_lite0")
    return wrap_timm("efficientnet_lite0", network, size)


def timm(
    *, model: str = "resnet50", size: int = 0, weights: str = "", pretrained: bool = True, stride_first: bool = False
) -> Backbone:
    """Any timm model by name: --backbone timm:resnet50.

    `size` 0 is the model's own; `weights` is a safetensors file, else they come from timm's hub unless `pretrained` is
    false (random weights). `stride_first`: a ResNet whose weights were made for the original layout, with the stride in
    the first 1×1 convolution of a block; in the other layout such weights silently lose about 10 points."""
    name, config = f"timm:{model}", find_timm_config(model)
    given = weight_files.read_weights(weights) if weights else None
    file = weight_files.fetch_weights(name, config) if pretrained and given is None else None
    network = create_timm_model(model, name, file)
    if given is not None:
        weight_files.load_weights(network, given, classifier_names(network), weights, name)
    if stride_first:
        move_strides(network, name)
    return wrap_timm(name, network, size)


def custom_backbone(
    module: nn.Module, features: int, preparation: Preparation, mean: Sequence[float], std: Sequence[float]
) -> Backbone:
    """A user's module that maps images (B, 3, S, S), scaled by mean and std, to features (B, d); it is copied.

    Its identity covers its weights and its printed layout, but not the code of its forward: a changed forward needs a
    changed weight or name of a layer."""
    kind = type(module)
    layout = f"{kind.__module__}.{kind.__qualname__}"
    made = wrap_network("own module", copy.deepcopy(module), preparation, PixelScaling(mean, std), layout, whole=True)
    rule = f"own module: features must be {made.features}, what the module returns for one image, got {features}"
    require(made.features == features, rule, ConfigError)
    return made


def import_timm() -> Any:
    """timm, or one sentence that says what to do."""
    try:
        import_torchvision()
        import timm as library
    except Exception as error:  # torchvision beside a torch it was not built for fails in many ways
        reason = str(error).strip().split("\n")[0]
        raise ConfigError(
            f"pretrained networks need timm and torchvision, which cannot be imported ({reason}): "
            'pip install "embasis[images]", in an environment of its own if other packages fix their versions'
        ) from error
    return library


def is_timm_model(name: str) -> bool:
    """Whether timm is there and has a model of this name."""
    try:
        return bool(import_timm().is_model(name.partition(".")[0]))
    except ConfigError:
        return False


def find_timm_config(model: str) -> dict[str, Any]:
    """What timm knows of a model: where its weights are, its size, its classifier."""
    library = import_timm()
    base, _, tag = model.partition(".")
    if not library.is_model(base):
        close = difflib.get_close_matches(model, library.list_models(), n=5, cutoff=0.6)
        close = close or library.list_models(f"*{base}*")[:5]
        hint = f"close: {', '.join(close)}" if close else "timm.list_models() names all"
        raise ConfigError(f"unknown timm model {quote(model)}; {hint}")
    try:
        config = library.get_pretrained_cfg(model)
    except RuntimeError as error:
        tags = ", ".join(library.list_pretrained(f"{base}.*")) or "none"
        raise ConfigError(f"unknown weights {quote(tag)} of timm model {quote(base)}; known: {tags}") from error
    return config.to_dict() if config else {}


def create_timm_model(model: str, name: str, file: str | None) -> nn.Module:
    """The model without its classifier, without dropout; with the weights of a safetensors file of the hub."""
    overlay = {"file": file, "custom_load": False} if file else None
    options = {"num_classes": 0, "pretrained": bool(file), "pretrained_cfg_overlay": overlay}
    try:
        network: nn.Module = import_timm().create_model(model, **options)
    except Exception as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        kind = IncompatibleError if file else ConfigError
        raise kind(f"{name} cannot be made{f' from {file}' if file else ''}: {reason}") from error
    return network


def classifier_names(network: nn.Module) -> tuple[str, ...]:
    """The names of a timm model's classifiers."""
    names = network.pretrained_cfg.get("classifier") or ()  # type: ignore[union-attr, operator]
    return (names,) if isinstance(names, str) else tuple(names)


def wrap_timm(name: str, network: nn.Module, size: int) -> Backbone:
    """A timm model with the size, crop, interpolation, mean and std it was trained with."""
    data = import_timm().data.resolve_model_data_config(network)
    fixed = bool(network.pretrained_cfg.get("fixed_input_size"))  # type: ignore[union-attr, operator]
    channels, height, side = data["input_size"]
    rule = f"{name} takes images of {channels}×{height}×{side}; only three channels and squares are supported"
    require(channels == 3 and height == side, rule, ConfigError)
    interpolation = "bilinear" if data["interpolation"] == "bilinear" else "bicubic"
    preparation = Preparation(side, float(data["crop_pct"]), interpolation)
    if size:
        allowed = not fixed or size == side
        require(allowed, f"{name} takes images of {side}×{side} pixels only, got size {size}", ConfigError)
        preparation = replace(preparation, size=size)
    return wrap_network(name, network, preparation, PixelScaling(data["mean"], data["std"]))


def move_strides(network: nn.Module, name: str) -> None:
    """The original layout of ResNets: the stride is in the first convolution of a down-sampling bottleneck."""
    blocks = [getattr(network, f"layer{number}", [None])[0] for number in (2, 3, 4)]
    fits = all(hasattr(block, "conv3") and block.conv2.stride == (2, 2) for block in blocks)
    rule = f"stride_first is for ResNets with bottlenecks, such as resnet50 and resnet101; {name} is none"
    require(fits, rule, ConfigError)
    for block in blocks:
        block.conv1.stride, block.conv2.stride = (2, 2), (1, 1)
