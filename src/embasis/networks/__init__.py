"""Networks by name. An entry's settings are its signature, after the shape of one input and the number of classes.

`PRETRAINED` are those for images of any size: an entry makes a `Backbone`, which is trained in part, in full or not.
"""

from embasis.networks.image import small_cnn
from embasis.networks.pretrained import efficientnet_lite0, timm
from embasis.networks.vector import linear, mlp

BACKBONES = {
    "linear": linear,
    "mlp": mlp,
    "small_cnn": small_cnn,
}

PRETRAINED = {
    "efficientnet_lite0": efficientnet_lite0,
    "timm": timm,
}

__all__ = ["BACKBONES", "PRETRAINED"]
