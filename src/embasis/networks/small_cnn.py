"""A small convolutional network for small images: tests and the embedded digits."""

from __future__ import annotations

from torch import nn

from embasis.errors import ConfigError, require
from embasis.networks.network import Network


def small_cnn(
    shape: tuple[int, ...], classes: int, *, width: int = 16, features: int = 64, dropout: float = 0.2
) -> Network:
    """Two 3×3 convolutions, pooling and a dense layer; for images of 8×8 and a little more."""
    require(len(shape) == 3, f"small_cnn needs images (channels, height, width), got shape {shape}", ConfigError)
    require(min(shape[1:]) >= 4, f"small_cnn needs images of at least 4×4, got {shape[1]}×{shape[2]}", ConfigError)
    require(width >= 1, f"width must be at least 1, got {width}", ConfigError)
    require(features >= 1, f"features must be at least 1, got {features}", ConfigError)
    require(0 <= dropout < 1, f"dropout must be in [0, 1), got {dropout}", ConfigError)
    body = nn.Sequential(
        nn.Conv2d(shape[0], width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * width * (shape[1] // 2) * (shape[2] // 2), features),
        nn.ReLU(),
        nn.Dropout(dropout),
    )
    return Network(body, features, classes)
