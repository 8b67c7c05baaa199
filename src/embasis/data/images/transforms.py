"""From an image of any size to a network's input, uint8 (3, S, S): the view of evaluation and that of training.

| symbol | meaning |
| --- | --- |
| image (3, H, W) | uint8, RGB |
| S, crop | size of the input; share of the resized short side that the centre crop keeps |
| strength | how much the training view is changed: a key of STRENGTHS |
| a, d, t | one map of colours, v → a·v + d·grey(v) + t, for brightness, contrast and saturation together |

Only integer arithmetic, and float operations on each element alone, so the number of threads changes no bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 — its usual name

from embasis.errors import lookup
from embasis.types import Preparation

LONGEST_STRIP = 4
"""Only the middle part of an image is seen, and no more of it than LONGEST_STRIP times its short side."""
CROP_RATIO = 4 / 3
"""A random crop is at most this much wider than high, or higher than wide."""
LUMA = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class Strength:
    """Ranges of the training view: least area of the crop, ± of the colours, probability of grey."""

    area: float
    colour: float = 0.0
    grey: float = 0.0


STRENGTHS: dict[str, Strength | None] = {
    "none": None,
    "light": Strength(area=0.5),
    "strong": Strength(area=0.25, colour=0.4, grey=0.1),
}


def centre_view(image: Tensor, preparation: Preparation) -> Tensor:
    """The evaluation view: short side resized to S / crop, then the S×S in the middle."""
    size, short = preparation.size, round(preparation.size / preparation.crop)
    least = min(image.shape[1:])
    # Resizing a strip of 1×5000 as a whole would take a gigabyte for pixels that the crop throws away.
    image = _crop_middle(image, min(image.shape[1], LONGEST_STRIP * least), min(image.shape[2], LONGEST_STRIP * least))
    height, width = (max(short, round(side * short / least)) for side in image.shape[1:])
    return _crop_middle(_resize_image(image, height, width, preparation.interpolation), size, size).contiguous()


def _crop_middle(image: Tensor, height: int, width: int) -> Tensor:
    top, left = (image.shape[1] - height) // 2, (image.shape[2] - width) // 2
    return image[:, top : top + height, left : left + width]


def _resize_image(image: Tensor, height: int, width: int, interpolation: str) -> Tensor:
    if image.shape[1:] == (height, width):
        return image
    return F.interpolate(image.unsqueeze(0), (height, width), mode=interpolation, antialias=True).squeeze(0)


def random_view(image: Tensor, preparation: Preparation, strength: str, draw: torch.Generator) -> Tensor:
    """The training view: a random part, resized to S×S, perhaps mirrored, its colours perhaps changed."""
    ranges = lookup(STRENGTHS, strength, "strength of augmentation")
    if ranges is None:
        return centre_view(image, preparation)
    u: list[float] = torch.rand(10, generator=draw, dtype=torch.float64).tolist()
    top, left, height, width = crop_box(image.shape[1], image.shape[2], ranges.area, u[:4])
    part = image[:, top : top + height, left : left + width]
    view = _resize_image(part, preparation.size, preparation.size, preparation.interpolation)
    view = view.flip(-1) if u[4] < 0.5 else view
    if ranges.colour:
        brightness, contrast, saturation = (1 + ranges.colour * (2 * value - 1) for value in u[5:8])
        view = change_colours(view, brightness, contrast, 0.0 if u[8] < ranges.grey else saturation)
    return view.contiguous()


def crop_box(rows: int, columns: int, least: float, u: list[float]) -> tuple[int, int, int, int]:
    """Top, left, height and width of a random part: area `least` to 1 of the image where its shape allows."""
    area = (least + (1 - least) * u[0]) * rows * columns
    shape = CROP_RATIO ** (2 * u[1] - 1)
    height, width = min(rows, math.sqrt(area / shape)), min(columns, math.sqrt(area * shape))
    high, wide = max(1, round(min(height, width * CROP_RATIO))), max(1, round(min(width, height * CROP_RATIO)))
    return int(u[2] * (rows - high + 1)), int(u[3] * (columns - wide + 1)), high, wide


def change_colours(view: Tensor, b: float, c: float, s: float) -> Tensor:
    """Brightness b, contrast c about the mean grey and saturation s: a = b·c·s, d = b·c·(1 − s), t = b·(1 − c)·mean."""
    view = view.contiguous()
    sums = view.sum(2, dtype=torch.int32).sum(1, dtype=torch.int64).tolist()
    mean = sum(weight * total for weight, total in zip(LUMA, sums, strict=True)) / view[0].numel()
    x = view.float()
    grey = x[0] * LUMA[0] + x[1] * LUMA[1] + x[2] * LUMA[2]
    x.mul_(b * c * s).add_(grey.mul_(b * c * (1 - s)).add_(b * (1 - c) * mean))
    return x.round_().clamp_(0, 255).byte()
