"""A pretrained network as training needs it: a frozen stem and a trained tail, or the whole.

| name | shape | meaning |
| --- | --- | --- |
| x | (B, 3, S, S) uint8 | pixels; the network scales them itself |
| maps | (B, c, h, w) | what the stem hands to the tail |
| features | (B, d) | pooled over the image |

Tail and whole share the weights' memory: training them changes the backbone's `state()` too, and costs no second set of
weights. `identity` is that of the weights at birth. All of it is computed in the channels-last layout, and in a stem
batch norm is folded into the convolution before it: see COMPUTED_AS for what that brings.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from embasis.errors import ConfigError, require
from embasis.types import Preparation

STAGE_LISTS = ("blocks", "stages")
"""Children that hold the stages one after another: the EfficientNet family; ConvNeXt, ResNetV2 and others."""
STAGE_PATTERNS = ("layer{}", "s{}")
"""Stages that are children themselves: ResNet and RegNet."""
NETWORK_FAULTS = (RuntimeError, TypeError, ValueError, AttributeError, IndexError, AssertionError)
"""What a network raises whose layout is another one than its names say."""
COMPUTED_AS = "batch norm folded into convolutions, channels last"
"""How a stem is computed: a part of its identity. On an AMD core EfficientNet-Lite0 reads about twice as many images a
second so (1.6 to 2.7 in two runs); features differ from those of the whole by rounding (1e-6 of the largest)."""


class PixelScaling(nn.Module):
    """(x / 255 − mean) / std, float32: the first layer of every network for images."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        for name, values in (("mean", mean), ("std", std)):
            require(len(values) == 3, f"{name} must be 3 numbers, got {len(values)}", ConfigError)
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32).view(3, 1, 1), persistent=False)
        require(bool((self.std > 0).all()), f"std must be positive, got {list(std)}", ConfigError)

    def forward(self, x: Tensor) -> Tensor:
        """Scaled pixels."""
        return (x.float() / 255 - self.mean) / self.std

    def _get_name(self) -> str:
        """The name that identities of stored runs and feature caches were hashed with."""
        return "Pixels"

    def extra_repr(self) -> str:
        """The numbers, because they are part of a backbone's identity."""
        return f"mean={self.mean.flatten().tolist()}, std={self.std.flatten().tolist()}"


class EvalMode(nn.Module):
    """Around a network that stays in eval mode while its weights are trained.

    Batch norm keeps its pretrained statistics (its weights and biases are trained): batches are small and come from two
    domains, so their own statistics would be poor; and a row's features then depend on that row alone, which is what
    makes accumulated gradients equal to those of one large batch and a resumed run equal to an undisturbed one.
    Dropout and drop-path are off for the same reason."""

    network: nn.Module

    def train(self, mode: bool = True) -> Self:
        """Only the flag of this wrapper; what it wraps stays in eval mode."""
        super().train(mode)
        self.network.eval()
        return self


class Extractor(EvalMode):
    """A network, or a part of it: pixels → features, pixels → maps, or maps → features."""

    def __init__(self, network: nn.Module, pixels: PixelScaling | None = None, maps: bool = False) -> None:
        super().__init__()
        self.pixels, self.network, self.maps = pixels, network, maps
        self.train(False)

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, d), or maps (B, c, h, w) when this is a stem before a tail."""
        x = x if self.pixels is None else self.pixels(x)
        compute: Any = self.network.forward_features if self.maps else self.network
        features: Tensor = compute(x.contiguous(memory_format=torch.channels_last))
        return features


@dataclass(frozen=True, eq=False)
class Backbone:
    """A network without its classifier, ready to be cut; made by `wrap_network`."""

    name: str
    preparation: Preparation
    features: int
    """d of the pooled features."""
    stages: int
    """How many stages can be trained while the rest is frozen; 0: it cannot be cut."""
    identity: str
    """sha256 over name, preparation, layout and all weights: what a feature cache is keyed by."""
    network: nn.Module
    pixels: PixelScaling

    def stem(self, trained: int) -> nn.Module:
        """The frozen part: pixels → features when trained is 0, else → maps before the last `trained` stages.

        Batch norm is folded into convolutions, unless that changes more than rounding does."""
        if trained:
            stem = self._cut(trained)[0]
        else:
            stem = Extractor(share_weights(self.network, trainable=False), copy.deepcopy(self.pixels))
        quick = Extractor(share_weights(stem.network, trainable=False), stem.pixels, stem.maps)
        fold_norms(quick.network)
        x = make_noise(self.preparation.size)
        with torch.no_grad():
            return quick if is_close(quick(x), stem(x), 1e-4) else stem

    def tail(self, trained: int) -> nn.Module:
        """The rest: maps → features; all of its weights can be trained."""
        require(trained >= 1, f"trained must be at least 1, got {trained}", ConfigError)
        return self._cut(trained)[1]

    def whole(self) -> nn.Module:
        """Pixels → features; all weights can be trained."""
        return Extractor(share_weights(self.network, trainable=True), copy.deepcopy(self.pixels))

    def state(self) -> dict[str, Tensor]:
        """The weights by name; `weights=FILE` reads them again once they are stored as safetensors."""
        return {name: tensor.detach().contiguous() for name, tensor in self.network.state_dict().items()}

    def _cut(self, trained: int) -> tuple[Extractor, Extractor]:
        advice = "train its classifier alone (frozen) or all of it (full)"
        whole = f"{self.name} cannot be trained in part, because it cannot be cut between stages; {advice}"
        require(self.stages > 0, whole, ConfigError)
        rule = f"{self.name} has {self.stages} stages that can be trained, got {trained}"
        require(0 <= trained <= self.stages, rule, ConfigError)
        stem, tail = split_network(self.network, self.pixels, trained)
        other = f"the last {trained} stages of {self.name} cannot be cut off: what they compute would change; {advice}"
        require(is_cut_exact(self.whole(), stem, tail, self.preparation.size), other, ConfigError)
        return stem, tail


def wrap_network(
    name: str, network: nn.Module, preparation: Preparation, pixels: PixelScaling, layout: str = "", whole: bool = False
) -> Backbone:
    """The backbone of a network that maps scaled pixels to features (B, d); `whole`: never cut it."""
    network = network.eval().requires_grad_(False).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    full, stages = Extractor(network, pixels), 0 if whole else len(stage_names(network))
    features = measure_width(name, full, preparation.size)
    if stages and not is_cut_exact(full, *split_network(network, pixels, 1), preparation.size):
        stages = 0
    text = "\n".join([name, layout, COMPUTED_AS, repr(preparation), repr(pixels), repr(network)])
    return Backbone(name, preparation, features, stages, hash_weights(text, network), network, pixels)


def stage_names(network: nn.Module) -> list[str]:
    """Paths of the stages in their order; none where the layout is not known."""
    children = dict(network.named_children()) if hasattr(network, "forward_features") else {}
    for name in STAGE_LISTS:
        if isinstance(children.get(name), nn.Sequential | nn.ModuleList):
            return [f"{name}.{key}" for key, _ in children[name].named_children()]
    for pattern in STAGE_PATTERNS:
        names = [pattern.format(number) for number in range(1, 5)]
        if children.keys() >= set(names):
            return names
    return []


def split_network(network: nn.Module, pixels: PixelScaling, trained: int) -> tuple[Extractor, Extractor]:
    """Stem and tail: in each, what belongs to the other is replaced by the identity."""
    stages = stage_names(network)
    children = [name for name, _ in network.named_children()]
    first, last = children.index(stages[0].split(".")[0]), children.index(stages[-1].split(".")[0])
    early = children[:first] + stages[: len(stages) - trained]
    late = stages[len(stages) - trained :] + children[last + 1 :]
    stem, tail = share_weights(network, trainable=False), share_weights(network, trainable=True)
    for module, others in ((stem, late), (tail, early)):
        for name in others:
            module.set_submodule(name, nn.Identity())
    return Extractor(stem, copy.deepcopy(pixels), maps=True), Extractor(tail)


def share_weights(module: nn.Module, trainable: bool) -> nn.Module:
    """The same modules again on the same memory; only whether the weights can be trained is its own."""
    memo: dict[int, object] = {id(buffer): buffer for buffer in module.buffers()}
    memo |= {id(weight): nn.Parameter(weight.detach(), requires_grad=trainable) for weight in module.parameters()}
    return copy.deepcopy(module, memo)


def fold_norms(network: nn.Module, trained: Sequence[str] = ()) -> None:
    """Fold each batch norm into the convolution registered just before it, in place, except in the trained parts.

    An activation within the norm stays."""
    kept = {id(part) for name in trained for part in network.get_submodule(name).modules()}
    for module in [module for module in network.modules() if id(module) not in kept]:
        for (name, convolution), (after, norm) in pairwise(list(module.named_children())):
            if not isinstance(convolution, nn.Conv2d) or not isinstance(norm, nn.BatchNorm2d):
                continue
            if convolution.out_channels == norm.num_features and norm.track_running_stats:
                setattr(module, name, fuse_conv_bn_eval(convolution, norm))
                setattr(module, after, nn.Sequential(*(child for _, child in norm.named_children())))


def is_close(got: Tensor, expected: Tensor, tolerance: float) -> bool:
    """Whether two results differ by no more than rounding: by this part of the largest."""
    return bool((got - expected).abs().max() <= tolerance * expected.abs().max())


def is_cut_exact(whole: nn.Module, stem: nn.Module, tail: nn.Module, size: int) -> bool:
    """Whether tail(stem(x)) is whole(x) for a random image."""
    x = make_noise(size)
    try:
        with torch.no_grad():
            maps, expected = stem(x), whole(x)
            got = tail(maps)
    except NETWORK_FAULTS:
        return False
    return maps.ndim == 4 and got.shape == expected.shape and is_close(got, expected, 1e-5)


def make_noise(size: int) -> Tensor:
    """A random image, always the same, as a batch of one."""
    draw = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (1, 3, size, size), dtype=torch.uint8, generator=draw)


def measure_width(name: str, network: nn.Module, size: int) -> int:
    """d, found by trying one image."""
    try:
        with torch.no_grad():
            features = network(make_noise(size))
    except (RuntimeError, TypeError, ValueError, AssertionError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ConfigError(f"{name} cannot take images of {size}×{size} pixels: {reason}") from error
    shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
    fits = isinstance(features, Tensor) and features.ndim == 2 and len(features) == 1
    require(fits, f"{name} must return features (B, d), got {shape} for one image", ConfigError)
    return int(features.shape[1])


def hash_weights(text: str, network: nn.Module) -> str:
    """sha256 over a text and all weights with their names, types and shapes."""
    digest = hashlib.sha256(re.sub(r" at 0x[0-9a-f]+", "", text).encode())
    for name, tensor in network.state_dict().items():
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
