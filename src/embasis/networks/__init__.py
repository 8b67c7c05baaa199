"""Networks by name. An entry's settings are its signature, after the shape of one input and the number of classes.

`PRETRAINED` are those for images of any size: an entry makes a `Backbone`, which is trained in part, in full or not.
`SEGMENTERS` make a network for label maps of such a `Backbone`; their settings come after it and the number of classes.
"""

from embasis.networks.network import adapter, linear, mlp, small_cnn
from embasis.networks.pretrained import efficientnet_lite0, timm
from embasis.networks.segmentation import deeplab_v2, fast_segment, small_fcn

BACKBONES = {"linear": linear, "mlp": mlp, "adapter": adapter, "small_cnn": small_cnn, "small_fcn": small_fcn}
PRETRAINED = {"efficientnet_lite0": efficientnet_lite0, "timm": timm}
SEGMENTERS = {"deeplab_v2": deeplab_v2, "fast_segment": fast_segment}

__all__ = ["BACKBONES", "PRETRAINED", "SEGMENTERS"]
