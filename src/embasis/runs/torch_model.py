"""A trained model as files that torch reads without embasis: model.safetensors, model.json and load_model.py.

| tensor | meaning |
| --- | --- |
| input.centre, input.scale | of a table's columns, or of pixels from 0 to 255 |
| body.… | weights of the layers, and of the timm network before them |
| rows.centre, rows.scale | of the timm network's features, where the layers are trained on these |
| domain.centre, domain.scale | of the features, before the classifier |
| classifier.weight, classifier.bias | |
| basis.centre, basis.scale, basis.mean, basis.offset, basis.probability | components and their class probabilities |
| network.offset | log class priors, as they enter beside the network's scores |
| bank.rows, bank.probability | kept rows for neighbours |

A step that a model does not have is there as one that changes nothing: centre 0 and scale 1, one component that says
nothing, a share of 0. So the loader (load_model.py) has no branches for methods.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from embasis.errors import ConfigError, require
from embasis.inputs.image_inputs import ImageInputs
from embasis.networks.backbone import Extractor
from embasis.networks.network import Network
from embasis.runs import load_model as plain_loader
from embasis.runs.model import TrainedModel
from embasis.runs.model_facts import describe_model
from embasis.runs.model_graph import UNLABELLED_SIDE, BasisLabels, build_graph

LAYERS: Mapping[type[nn.Module], tuple[str, ...]] = {
    nn.Flatten: (),
    nn.ReLU: (),
    nn.Dropout: ("p",),
    nn.Linear: ("in_features", "out_features"),
    nn.Conv2d: ("in_channels", "out_channels", "kernel_size", "stride", "padding"),
    nn.GroupNorm: ("num_groups", "num_channels"),
    nn.MaxPool2d: ("kernel_size",),
}
"""Layers of the networks for arrays, and what makes each."""
TIMM_NAMES = {"efficientnet_lite0": "tf_efficientnet_lite0"}
OTHER_FORM = "--as onnx writes it as a graph"
Pack = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors by name, and facts."""


def encode_plain(model: TrainedModel) -> dict[str, bytes]:
    """The files by name; a ConfigError for a network that a short loader cannot make."""
    graph = build_graph(model)
    labels, numbers = pack_distribution(graph.labels, graph.network.features, len(model.schema))
    body, facts = (
        pack_images(model, graph.network) if isinstance(model.inputs, ImageInputs) else pack_table(model, graph.network)
    )
    whole = {**no_scale("input"), **no_scale("rows"), **no_scale("domain"), **body, **labels}
    whole |= {"classifier.weight": graph.network.classifier.weight, "classifier.bias": graph.network.classifier.bias}
    if (domains := graph.network.domains) is not None:
        whole |= scale_tensors("domain", domains.centre[UNLABELLED_SIDE], domains.scale[UNLABELLED_SIDE])
    tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in whole.items()}
    text = json.dumps({**describe_model(model), **facts, "numbers": numbers}, indent=2, ensure_ascii=False)
    return {
        "model.safetensors": safetensors.torch.save(tensors),
        "model.json": f"{text}\n".encode(),
        "load_model.py": Path(plain_loader.__file__).read_bytes(),
    }


def scale_tensors(name: str, centre: Tensor, scale: Tensor) -> dict[str, Tensor]:
    """The tensors of one standardisation."""
    return {f"{name}.centre": centre, f"{name}.scale": scale}


def no_scale(name: str) -> dict[str, Tensor]:
    """A standardisation that changes nothing."""
    return scale_tensors(name, torch.tensor(0.0), torch.tensor(1.0))


def pack_table(model: TrainedModel, network: Network) -> Pack:
    """Of rows in memory: standardised, then through the layers."""
    scaled = model.standardiser
    tensors = {} if scaled is None else scale_tensors(
        "input", scaled.centre[UNLABELLED_SIDE].view(model.shape), scaled.scale[UNLABELLED_SIDE].view(model.shape)
    )  # fmt: skip
    return {**tensors, **name_body(network.extractor)}, {"backbone": None, "layers": describe_layers(network.extractor)}


def pack_images(model: TrainedModel, network: Network) -> Pack:
    """Of images: the timm network, with the weights that training gave it, and the layers behind it."""
    inputs, settings = model.inputs, model.resolved["network"]
    assert isinstance(inputs, ImageInputs)
    moved = "--as torch takes the networks of timm as they are, and network.stride_first changes one"
    require(not settings.get("stride_first"), f"{moved}; {OTHER_FORM}", ConfigError)
    pixels = inputs.backbone.pixels
    tensors = scale_tensors("input", 255 * pixels.mean.double(), 255 * pixels.std.double())
    weights, layers = dict(inputs.backbone.state()), list[Any]()
    if isinstance(network.extractor, Extractor):  # trained in part or in full
        weights |= network.extractor.network.state_dict()
    else:
        layers = describe_layers(network.extractor)
        tensors |= name_body(network.extractor, 1)
        if model.standardiser is not None:
            scaled = model.standardiser
            tensors |= scale_tensors("rows", scaled.centre[UNLABELLED_SIDE], scaled.scale[UNLABELLED_SIDE])
    name = inputs.backbone.name.removeprefix("timm:")
    tensors |= {f"body.0.{key}": value for key, value in weights.items()}
    return tensors, {"backbone": TIMM_NAMES.get(name, name), "layers": layers}


def list_layers(extractor: nn.Module) -> list[nn.Module]:
    """The layers one after the other."""
    return list(extractor) if isinstance(extractor, nn.Sequential) else [extractor]


def describe_layers(extractor: nn.Module) -> list[tuple[str, dict[str, Any]]]:
    """The name of each layer in torch.nn, and what it is made with; a ConfigError for one that is not known."""
    described = []
    for layer in list_layers(extractor):
        name = type(layer).__name__
        rule = f"--as torch knows the layers of the networks for arrays, and {name} is none of them"
        require(type(layer) in LAYERS, f"{rule}; {OTHER_FORM}", ConfigError)
        described.append((name, {key: getattr(layer, key) for key in LAYERS[type(layer)]}))
    return described


def name_body(extractor: nn.Module, first: int = 0) -> dict[str, Tensor]:
    """The weights of the layers, which are numbered from `first` on."""
    layers = enumerate(list_layers(extractor), first)
    return {f"body.{at}.{name}": value for at, layer in layers for name, value in layer.state_dict().items()}


def pack_distribution(labels: nn.Module, features: int, classes: int) -> Pack:
    """From features and scores to the mean of the label distribution."""
    if not isinstance(labels, BasisLabels):  # one component, and the network's own probability beside it
        tensors = {**no_scale("basis"), "basis.mean": torch.zeros(1, features), "basis.offset": torch.zeros(1)}
        tensors |= {"basis.probability": torch.full((1, classes), 1 / classes), "network.offset": torch.zeros(classes)}
        own = {"sharpness": 0.0, "power": labels.inverse_temperature, "inverse_temperature": 1.0}
        return tensors, {**own, "share": 0.0, "neighbours": 0}
    fusion, mean = labels.labeller.fusion, labels.basis.float()
    power = 0.0 if fusion is None else fusion.weight * labels.power
    offset = torch.zeros(classes)
    if labels.has_priors:
        trained, here = labels.priors.float().log()
        offset = here - power * trained
    gaussian = labels.labeller.mixture.kernel == "gaussian"
    tensors = scale_tensors("basis", labels.centre, labels.scale)
    tensors |= {"basis.mean": mean, "basis.offset": mean.square().sum(1) / 2 if gaussian else torch.zeros(len(mean))}
    tensors |= {"basis.probability": labels.p, "network.offset": offset}
    part, share = labels.labeller.neighbours, 0.0
    if part is not None and labels.has_neighbours:
        share, tensors = part.share, {**tensors, "bank.rows": labels.bank, "bank.probability": labels.bank_probability}
    kept = min(part.count, len(labels.bank)) if part is not None and share else 0
    softened = 1.0 if labels.inverse_temperature is None else labels.inverse_temperature
    numbers = {"sharpness": labels.sharpness, "power": power, "inverse_temperature": softened}
    return tensors, {**numbers, "share": share, "neighbours": kept}
