"""The maps that a backbone computes on its way, at strides that grow from stage to stage.

| name | shape | meaning |
| --- | --- | --- |
| x | (B, 3, H, W) uint8 | pixels; sides are multiples of the last map's stride |
| maps | (B, c, H / s, W / s) | of a stage with stride s |

A stride can be traded for dilation: the strided convolution steps by one pixel, and those behind it reach f times as
far, f being the product of the strides that are gone. With symmetric padding the old map is the new one at every f-th
pixel, old[i] = new[f i]; with the padding "same" of TensorFlow, that of EfficientNet-Lite, it is old[i] = new[f i + f −
1], because that pads an even side at its end alone. Both hold up to the border where sides are multiples of the old
stride. What sums over whole maps, such as squeeze-and-excitation, has f² times as many pixels and is only alike.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import suppress
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from embasis.errors import ConfigError, require
from embasis.networks.backbone import (
    NETWORK_FAULTS,
    Backbone,
    EvalMode,
    PixelScaling,
    fold_norms,
    is_close,
    make_noise,
    stage_names,
)

PROBE_SIDE = 64
"""Pixels of the picture by which strides and widths are found."""


class FeatureMaps(EvalMode):
    """Pixels → some of a backbone's maps, finest first."""

    def __init__(self, network: nn.Module, pixels: PixelScaling, chosen: Sequence[int]) -> None:
        super().__init__()
        self.pixels, self.network, self.chosen = pixels, network, list(chosen)
        forms = measure_maps(network, self.chosen)
        self.strides, self.widths = [stride for stride, _ in forms], [width for _, width in forms]
        self.train(False)

    def forward(self, x: Tensor) -> list[Tensor]:
        """The chosen maps."""
        return compute_maps(self.network, self.pixels(x).contiguous(memory_format=torch.channels_last), self.chosen)


def take_pyramid(backbone: Backbone, stages: int, finest: int) -> FeatureMaps:
    """One map for each stride from `finest` on; the last `stages` stages can be trained, −1: everything."""
    network, forms = copy_measured(backbone)
    strides = [stride for stride, _ in forms]
    rule = f"{backbone.name} has maps of strides {', '.join(map(str, sorted(set(strides))))}, got stride {finest}"
    require(finest in strides, rule, ConfigError)
    chosen = [at for at, stride in enumerate(strides) if stride >= finest and stride not in strides[at + 1 :]]
    return make_feature_maps(backbone, network, stages, chosen)


def take_last_map(backbone: Backbone, stages: int, stride: int) -> FeatureMaps:
    """The last map alone, at a stride not larger than its own: strides beyond it become dilations."""
    network, forms = copy_measured(backbone)
    old = forms[-1][0]
    rule = f"stride must be a power of two and at most {old}, that of the last map of {backbone.name}, got {stride}"
    require(stride >= 1 and stride & (stride - 1) == 0 and stride <= old, rule, ConfigError)
    if stride < old:
        dilate_stages(network, stride, old)
        reached = 0
        with suppress(*NETWORK_FAULTS):  # its parts may not fit together any more
            reached = measure_maps(network)[-1][0]
        refused = f"{backbone.name} cannot be computed at stride {stride}: its strides cannot be traded for dilation"
        require(reached == stride, f"{refused}; use stride {old} or another backbone", ConfigError)
    return make_feature_maps(backbone, network, stages, [len(forms) - 1])


def copy_measured(backbone: Backbone) -> tuple[nn.Module, list[tuple[int, int]]]:
    """A copy of the backbone's network, with (stride, width) of each of its maps."""
    network = copy.deepcopy(backbone.network)
    try:
        forms = measure_maps(network)
    except NETWORK_FAULTS as error:
        reason = "what it computes on its way are no maps that any size of picture has"
        raise ConfigError(f"{backbone.name} cannot be used for label maps: {reason}; use a ResNet") from error
    return network, forms


def make_feature_maps(backbone: Backbone, network: nn.Module, stages: int, chosen: Sequence[int]) -> FeatureMaps:
    """The network without what lies behind its last map, its first stages frozen; folded where that changes nothing."""
    rule = f"stages must be −1 (train all of {backbone.name}) or in 0..{backbone.stages}, got {stages}"
    require(-1 <= stages <= backbone.stages, rule, ConfigError)
    prune: Any = network.prune_intermediate_layers
    prune(list(chosen), prune_norm=True, prune_head=True)
    free = freeze_stages(network, stages)
    whole = FeatureMaps(network, copy.deepcopy(backbone.pixels), chosen)
    quick = copy.deepcopy(whole)
    fold_norms(quick.network, free)
    x = make_noise(PROBE_SIDE)
    with torch.no_grad():
        alike = all(is_close(got, expected, 1e-4) for got, expected in zip(quick(x), whole(x), strict=True))
    return quick if alike else whole


def freeze_stages(network: nn.Module, stages: int) -> list[str]:
    """Let only the last `stages` stages be trained (−1: everything); the names of what can be."""
    names = stage_names(network)
    free = names[len(names) - stages :] if stages >= 0 else [""]
    network.requires_grad_(False)
    for name in free:
        network.get_submodule(name).requires_grad_(True)
    return free


def dilate_stages(network: nn.Module, stride: int, old: int) -> None:
    """Strides beyond `stride` become dilations, in place; `old` is the stride of the last map before."""
    stages = [network.get_submodule(name) for name in stage_names(network)]
    steps = [max((max(part.stride) for part in list_convolutions(stage)), default=1) for stage in stages]
    reached, rate = max(old // prod(steps), 1), 1
    for stage, step in zip(stages, steps, strict=True):
        if reached * step <= stride:
            reached *= step
            step = 1
        rate = dilate_stage(stage, rate, step)


def dilate_stage(stage: nn.Module, rate: int, step: int) -> int:
    """Dilate a stage by `rate`, and by rate × step behind its strided convolutions if step > 1; the last rate."""
    passed = rate
    for part in list_convolutions(stage):
        strided = step > 1 and max(part.stride) > 1
        reach = rate if strided else passed
        if strided:
            part.stride, passed = (1, 1), rate * step
        part.dilation = (part.dilation[0] * reach, part.dilation[1] * reach)
        if not isinstance(part.padding, str):
            part.padding = (part.padding[0] * reach, part.padding[1] * reach)
    return rate * step


def list_convolutions(stage: nn.Module) -> list[nn.Conv2d]:
    """In the order in which they are registered, that is of computing."""
    return [part for part in stage.modules() if isinstance(part, nn.Conv2d)]


def compute_maps(network: nn.Module, x: Tensor, chosen: Sequence[int] | None = None) -> list[Tensor]:
    """The maps of timm's `forward_intermediates`; all unless some are chosen."""
    compute: Any = network.forward_intermediates
    maps: list[Tensor] = compute(x, indices=None if chosen is None else list(chosen), intermediates_only=True)
    return maps


def measure_maps(network: nn.Module, chosen: Sequence[int] | None = None) -> list[tuple[int, int]]:
    """(stride, width) of each map, found by trying one picture."""
    with torch.no_grad():
        maps = compute_maps(network, make_noise(PROBE_SIDE).float() / 255, chosen)
    shapes = [tuple(values.shape) for values in maps]
    if any(len(shape) != 4 or PROBE_SIDE % shape[-1] for shape in shapes):
        raise ValueError(shapes)
    return [(PROBE_SIDE // shape[-1], shape[1]) for shape in shapes]
