"""Networks for arrays, trained from scratch: for feature vectors a linear model (the default) and a multi-layer
perceptron, for small images (tests and the embedded digits) a small convolutional network."""

from __future__ import annotations

from math import prod

from torch import nn

from embasis.errors import ConfigError, require
from embasis.networks.network import Network


def linear(shape: tuple[int, ...], classes: int) -> Network:
    """A linear classifier on the features as they are; starts at zero, so no draw decides anything."""
    width = prod(shape)
    network = Network(nn.Flatten(), width, classes)
    nn.init.zeros_(network.classifier.weight)
    nn.init.zeros_(network.classifier.bias)
    return network


def mlp(shape: tuple[int, ...], classes: int, *, hidden: int = 128, layers: int = 1, dropout: float = 0.2) -> Network:
    """A multi-layer perceptron with ReLU and dropout."""
    require(hidden >= 1, f"hidden must be at least 1, got {hidden}", ConfigError)
    require(layers >= 1, f"layers must be at least 1, got {layers}", ConfigError)
    require(0 <= dropout < 1, f"dropout must be in [0, 1), got {dropout}", ConfigError)
    width, parts = prod(shape), list[nn.Module]([nn.Flatten()])
    for _ in range(layers):
        parts += [nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout)]
        width = hidden
    return Network(nn.Sequential(*parts), hidden, classes)


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
