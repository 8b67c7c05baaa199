"""Reads a model that `embasis export --as torch` wrote: needs torch and safetensors (for images timm), not embasis."""

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn


def load_exported(folder: str) -> tuple[Callable[[Tensor], tuple[Tensor, Tensor]], dict[str, Any]]:
    """A function from inputs (n, …) to probabilities and scores (n, classes); and what model.json says."""
    facts = json.loads(Path(folder, "model.json").read_text(encoding="utf-8"))
    t, number = load_file(Path(folder, "model.safetensors")), facts["numbers"]
    layers = [getattr(nn, name)(**options) for name, options in facts["layers"]]
    if facts["backbone"]:
        layers.insert(0, import_module("timm").create_model(facts["backbone"], num_classes=0))
    body, cut = nn.Sequential(*layers).eval(), int(bool(facts["backbone"]))
    body.load_state_dict({name[5:]: tensor for name, tensor in t.items() if name.startswith("body.")})

    def scale(x: Tensor, by: str) -> Tensor:
        return ((x - t[f"{by}.centre"]) / t[f"{by}.scale"]).float()

    @torch.no_grad()
    def predict(x: Tensor) -> tuple[Tensor, Tensor]:
        features = body[cut:](scale(body[:cut](scale(x, "input")), "rows"))
        scores = scale(features, "domain") @ t["classifier.weight"].T + t["classifier.bias"]
        unit = nn.functional.normalize(scale(features, "basis"), dim=1)
        z = (number["sharpness"] * (unit @ t["basis.mean"].T - t["basis.offset"])).softmax(1)
        q = (number["power"] * scores + t["network.offset"]).softmax(1)
        mean = (z @ t["basis.probability"]).clamp_min(1e-12) * q.clamp_min(1e-12)
        mean = mean / mean.sum(1, keepdim=True)
        if number["share"]:
            near = (unit @ t["bank.rows"].T).topk(number["neighbours"], 1).indices
            mean = (1 - number["share"]) * mean + number["share"] * t["bank.probability"][near].mean(1)
        return (number["inverse_temperature"] * mean.clamp_min(1e-12).log()).softmax(1), scores

    return predict, facts
