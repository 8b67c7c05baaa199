"""Networks by name. An entry's settings are its signature, after the shape of one input and the number of classes."""

from embasis.networks.image import small_cnn
from embasis.networks.vector import linear, mlp

BACKBONES = {
    "linear": linear,
    "mlp": mlp,
    "small_cnn": small_cnn,
}

__all__ = ["BACKBONES"]
