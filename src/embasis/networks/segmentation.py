"""Networks for label maps: a grid of sites for a picture, one for each stride × stride pixels.

| name | shape | meaning |
| --- | --- | --- |
| x | (B, 3, H, W) uint8 | pixels; H and W are multiples of `network.multiple` |
| features | (B, d, h, w) | h = H / network.stride |
| logits | (B, C, h, w) | |

No layer uses statistics of the batch: the labels of a picture do not depend on those beside it.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from embasis.errors import ConfigError, require
from embasis.networks.backbone import Backbone, PixelScaling
from embasis.networks.feature_maps import FeatureMaps, take_last_map, take_pyramid
from embasis.networks.network import Network, SiteGrid

DILATION_RATES = (6, 12, 18, 24)
"""Of the four convolutions of DeepLab v2 at output stride 8."""


def deeplab_v2(backbone: Backbone, classes: int, *, stages: int = -1, stride: int = 8) -> Network:
    """DeepLab v2: the backbone's last map at output stride 8, four dilated convolutions on it; for GPUs.

    `stages` last stages are trained, −1: all; the head is ASPP-L of Chen et al., its rates scaled to other strides."""
    taps = take_last_map(backbone, stages, stride)
    width = taps.widths[0]
    head = DilatedHead(width, classes, [max(1, round(rate * 8 / stride)) for rate in DILATION_RATES])
    return use_channels_last(Network(LastMap(taps), width, classes, head=head, grid=SiteGrid(stride, stride)))


def fast_segment(backbone: Backbone, classes: int, *, stages: int = 2, width: int = 96, stride: int = 8) -> Network:
    """A small network for two cores: maps of several strides are added up and mixed; one classifier for all sites."""
    require(width >= 8 and width % 8 == 0, f"width must be a multiple of 8, got {width}", ConfigError)
    taps = take_pyramid(backbone, stages, stride)
    body, coarsest = AddedMaps(taps, width), taps.strides[-1]
    return use_channels_last(Network(body, width, classes, by_domain=True, grid=SiteGrid(stride, coarsest)))


def small_fcn(shape: tuple[int, ...], classes: int, *, width: int = 64) -> Network:
    """A small network for pictures of 64×64 and a little more, from scratch: six convolutions, four of them dilated."""
    require(len(shape) == 3, f"small_fcn needs pictures (channels, height, width), got shape {shape}", ConfigError)
    require(shape[0] == 3, f"small_fcn needs pictures of 3 channels, got {shape[0]}", ConfigError)
    rule = f"small_fcn needs sides of at least 16 pixels, got {shape[1]}×{shape[2]}"
    require(min(shape[1:]) >= 16, rule, ConfigError)
    require(width >= 16 and width % 4 == 0, f"width must be a multiple of 4, at least 16, got {width}", ConfigError)
    # To a quarter of the size, then wider and wider dilated: a site sees 30 pixels in each direction, and more.
    sizes = (3, width // 4, width // 2, width * 3 // 4, width, width, width)
    shapes = zip(pairwise(sizes), (2, 2, 1, 1, 1, 1), (1, 1, 1, 2, 3, 4), strict=True)
    steps = nn.Sequential(*(make_step(*pair, stride, dilation) for pair, stride, dilation in shapes))
    body = nn.Sequential(OrderedDict(pixels=PixelScaling((0.5,) * 3, (0.25,) * 3), steps=steps))
    return Network(body, width, classes, grid=SiteGrid(4, 4))  # its norms are slow with channels last


class LastMap(nn.Module):
    """The only one of some feature maps."""

    def __init__(self, taps: FeatureMaps) -> None:
        super().__init__()
        self.taps = taps

    def forward(self, x: Tensor) -> Tensor:
        """(B, d, h, w)."""
        last: Tensor = self.taps(x)[0]
        return last


class DilatedHead(nn.Module):
    """Σ over rates of a 3×3 convolution with that dilation, d → C; weights N(0, 0.01²), no bias at the start."""

    def __init__(self, features: int, classes: int, rates: list[int]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Conv2d(features, classes, 3, padding=rate, dilation=rate) for rate in rates)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        for branch in self.branches:
            nn.init.normal_(branch.weight, std=0.01)  # type: ignore[arg-type]
            nn.init.zeros_(branch.bias)  # type: ignore[arg-type]

    def forward(self, features: Tensor) -> Tensor:
        """Logits (B, C, h, w)."""
        return torch.stack([branch(features) for branch in self.branches]).sum(0)


class AddedMaps(nn.Module):
    """Maps of all strides, each through a 1×1 convolution, enlarged to the finest and added; then two blocks."""

    def __init__(self, taps: FeatureMaps, width: int) -> None:
        super().__init__()
        self.taps = taps
        self.sides = nn.ModuleList(nn.Conv2d(channels, width, 1) for channels in taps.widths)
        self.blocks = nn.Sequential(ResidualBlock(width), ResidualBlock(width))

    def forward(self, x: Tensor) -> Tensor:
        """(B, width, h, w)."""
        total, *coarser = [side(values) for side, values in zip(self.sides, self.taps(x), strict=True)]
        for coarse in coarser:
            total = total + interpolate(coarse, total.shape[-2:], mode="bilinear", align_corners=False)
        return torch.relu(self.blocks(total))


class ResidualBlock(nn.Module):
    """x + a depthwise 3×3 and a 1×1 convolution of x, normed within groups of channels of one picture."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, width)
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.pointwise = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Of the shape of x."""
        change: Tensor = self.pointwise(self.depthwise(torch.relu(self.norm(x))))
        return x + change


def make_step(before: int, after: int, stride: int, dilation: int) -> nn.Sequential:
    """A 3×3 convolution, each channel normed over its picture, and a ReLU.

    Norming over the picture instead of the batch learns nearly as fast, keeps pictures apart from those beside them,
    and takes away some of what makes domains differ: brightness, contrast, the strength of textures."""
    convolution = nn.Conv2d(before, after, 3, stride, padding=dilation, dilation=dilation, bias=False)
    nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
    return nn.Sequential(convolution, nn.GroupNorm(after, after), nn.ReLU())


def use_channels_last(network: Network) -> Network:
    """Channels last: what convolutions on a CPU are quickest with."""
    made: Network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return made
