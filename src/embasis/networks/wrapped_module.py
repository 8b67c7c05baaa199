"""Any torch module as a network: its answer is read as features and logits.

| the module returns | logits | features |
| --- | --- | --- |
| `Output`, or an object with `.features` and `.logits` | as they are | as they are |
| an object with `.logits`, a mapping with "logits" | that | `.features` or "features", else as for a tensor |
| a pair (features, logits) | the second | the first |
| a tensor | that | what the layer reads that makes the logits |

That layer is the last `nn.Linear`, or 1×1 `nn.Conv2d` of maps, with an output of the logits' shape. It is looked for
once, by a pass of a few rows, and a hook reads its input in every later pass. Weights stay the module's own; the block
of Stage I, where a method asks for it, is the wrapper's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from embasis.errors import ConfigError, require
from embasis.networks.network import BasisBlock, Network
from embasis.types import Output

CURE = "return a pair (features, logits), or wrap what makes features in embasis.networks.network.Network"
PROBED_ROWS = 8
"""A pass of so many rows shows what a module returns."""


class WrappedModule(nn.Module):
    """A module with features (d) whose logits `layer` makes (its name; None: the module returns features itself)."""

    def __init__(self, module: nn.Module, layer: str | None, features: int) -> None:
        super().__init__()
        self.module, self.layer, self.features = module, layer, features
        self.basis: BasisBlock | None = None

    def __getattr__(self, name: str) -> Any:
        """What the module has beside its weights: `extractor`, `window`, …"""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def forward(self, x: Tensor) -> Output:
        """Features (B, d, *S) and logits (B, C, *S)."""
        if self.layer is None:
            logits, features = read_answer(self.module, self.module(x))
            return Output(cast(Tensor, features), logits)
        kept = list[Tensor]()
        layer = self.module.get_submodule(self.layer)
        hook = layer.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0]))
        try:
            logits, _ = read_answer(self.module, self.module(x))
        finally:
            hook.remove()
        return Output(kept[-1], logits)

    def add_basis(self, components: int) -> BasisBlock:
        """The attention block of Stage I, orthonormal at the start."""
        device = next((weight.device for weight in self.module.parameters()), torch.device("cpu"))
        self.basis = BasisBlock(components, self.features).to(device)
        return self.basis


def wrap_module(module: nn.Module, rows: Tensor, classes: int) -> Network | WrappedModule:
    """The module, wrapped unless it is a `Network`; a ConfigError where features and logits cannot be read.

    `rows` (B, …) are some inputs, which go through the module once, in `eval` mode and without gradients."""
    if isinstance(module, Network):
        return module
    was_training = module.training
    try:
        answer, made = watch_layers(module.eval(), rows[:PROBED_ROWS])
    finally:
        module.train(was_training)
    logits, features = read_answer(module, answer)
    refuse_logits(module, logits, classes)
    layer = None
    if features is None:
        layer = find_layer(module, logits, made)
        features = made[layer][0]
    refuse_features(module, features, logits)
    return WrappedModule(module, layer, features.shape[1])


@torch.no_grad()
def watch_layers(module: nn.Module, rows: Tensor) -> tuple[object, dict[str, tuple[Tensor, Tensor]]]:
    """What the module returns; and input and output of each layer that could make logits, in the order they ran."""
    made, hooks = dict[str, tuple[Tensor, Tensor]](), list[RemovableHandle]()

    def watch(name: str, layer: nn.Module) -> None:
        def keep(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            made.pop(name, None)
            made[name] = (inputs[0], output)

        hooks.append(layer.register_forward_hook(keep))

    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear) or (isinstance(layer, nn.Conv2d) and set(layer.kernel_size) == {1}):
            watch(name, layer)
    try:
        device = next((parameter.device for parameter in module.parameters()), rows.device)
        return module(rows.to(device)), made
    finally:
        for hook in hooks:
            hook.remove()


def read_answer(module: nn.Module, answer: object) -> tuple[Tensor, Tensor | None]:
    """Logits, and features where the module returns them."""
    if isinstance(answer, Mapping):
        found = answer.get("logits"), answer.get("features")
    elif hasattr(answer, "logits"):
        found = answer.logits, getattr(answer, "features", None)
    elif isinstance(answer, tuple | list) and len(answer) == 2:
        found = answer[1], answer[0]
        require(isinstance(answer[0], Tensor), f"{describe_answer(module, answer)}: {CURE}", ConfigError)
    else:
        found = answer, None
    logits, features = found
    require(isinstance(logits, Tensor), f"{describe_answer(module, answer)}: {CURE}", ConfigError)
    return cast(Tensor, logits), features if isinstance(features, Tensor) else None


def describe_answer(module: nn.Module, answer: object) -> str:
    """The beginning of a refusal."""
    kind, name = type(answer).__name__, type(module).__name__
    if isinstance(answer, Mapping):
        kind += f" with {', '.join(sorted(str(key) for key in answer)) or 'nothing'}"
    elif isinstance(answer, tuple | list):
        kind += f" of {', '.join(type(part).__name__ for part in answer) or 'nothing'}"
    return f"{name} must return logits of each class, alone or with features, got a {kind}"


def refuse_logits(module: nn.Module, logits: Tensor, classes: int) -> None:
    """A ConfigError for logits of another number of classes, and for probabilities."""
    name, shape = type(module).__name__, tuple(logits.shape)
    fits = logits.ndim >= 2 and shape[1] == classes
    rule = f"{name} must return logits of shape (rows, {classes}, …) for {classes} classes, got {shape}"
    require(fits, f"{rule}; of a pair the second are the logits", ConfigError)
    positive, sums = bool((logits >= 0).all()), logits.float().sum(1)
    is_softmax = positive and bool(torch.isclose(sums, torch.ones_like(sums), atol=1e-4).all())
    rule = f"{name} must return scores before the softmax, and these are probabilities: each row sums to 1"
    require(not is_softmax, f"{rule}; leave its last softmax out", ConfigError)


def find_layer(module: nn.Module, logits: Tensor, made: Mapping[str, tuple[Tensor, Tensor]]) -> str:
    """The last layer that made the logits themselves, else the last one with an output of their shape."""
    alike = [name for name, (_, output) in made.items() if output.shape == logits.shape]
    same = [name for name in alike if made[name][1] is logits]
    rule = f"{type(module).__name__} returns logits alone, and features are what its last nn.Linear (of maps: 1×1"
    rule = f"{rule} nn.Conv2d) reads, of which none has an output of the logits' shape {tuple(logits.shape)}"
    require(alike, f"{rule}: {CURE}", ConfigError)
    return (same or alike)[-1]


def refuse_features(module: nn.Module, features: Tensor, logits: Tensor) -> None:
    """A ConfigError for features of other rows or sites than the logits."""
    shapes = tuple(features.shape), tuple(logits.shape)
    fits = features.ndim == logits.ndim and shapes[0][0] == shapes[1][0] and shapes[0][2:] == shapes[1][2:]
    rule = f"{type(module).__name__}: features (rows, d, …) and logits (rows, classes, …) must agree in all but their"
    require(fits, f"{rule} second number, got {shapes[0]} and {shapes[1]}", ConfigError)
