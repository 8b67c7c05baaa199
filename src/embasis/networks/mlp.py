"""Networks for feature vectors: a linear model (the default) and a multi-layer perceptron."""

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
