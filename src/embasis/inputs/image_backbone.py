"""The backbone that the settings of a run name, for image files and for pictures with label maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from embasis import config as settings
from embasis.config import Config
from embasis.errors import ConfigError, quote, require
from embasis.networks import PRETRAINED
from embasis.networks.backbone import Backbone

DEFAULT_BACKBONE = "efficientnet_lite0"


def backbone_settings(config: Config) -> dict[str, Any]:
    """Name and settings of the backbone, with no default left out."""
    name = str(config.network.get("name", DEFAULT_BACKBONE))
    settings.find_entry("network", name)
    rule = f"network {quote(name)} is not for image files; known for them: {', '.join(PRETRAINED)} (timm as timm:MODEL)"
    require(settings.network_family(name) in PRETRAINED, rule, ConfigError)
    bound = settings.bind_entry("network", name, config.network)
    if model := name.partition(":")[2]:
        bound["model"] = model
    return {"name": name, **bound}


def make_backbone(network: Mapping[str, Any]) -> Backbone:
    """The backbone of these settings."""
    entry = settings.find_entry("network", str(network["name"]))
    made: Backbone = entry(**{key: value for key, value in network.items() if key != "name"})
    return made
