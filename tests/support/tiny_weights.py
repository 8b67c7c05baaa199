"""What tests share: a tiny backbone and its images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from embasis.networks import pretrained
from embasis.networks.backbone import Backbone
from embasis.randomness import seeded


def tiny(model: str = "test_resnet", size: int = 64, **settings: Any) -> Backbone:
    with seeded(3, "test network"):
        return pretrained.timm(model=model, size=size, pretrained=False, **settings)


def images(count: int = 3, size: int = 64) -> Tensor:
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(7))
