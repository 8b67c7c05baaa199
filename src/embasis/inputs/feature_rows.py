"""Features that the frozen part of a backbone has computed, on disk: what they depend on, and how they are read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from embasis.config import Config
from embasis.errors import ResourceError
from embasis.networks.backbone import Backbone
from embasis.storage.feature_cache import CACHE_ADVICE as CACHE_HINT
from embasis.storage.feature_cache import FeatureCache, cache_folder, require_cache_usable
from embasis.types import RowSamples

STEM_BATCH = 16
"""Images that go through the frozen part together."""
PIXELS_VERSION = 1
"""Raised when decoding or preparation changes a pixel: features that were kept before are then not used."""


@dataclass(frozen=True, eq=False)
class CachedFeatures(RowSamples):
    """Samples whose rows lie in the feature cache: read when they are needed, so memory stays small."""

    cache: FeatureCache
    digests: tuple[bytes, ...]
    labels: Tensor
    ids: Tensor

    def inputs(self, rows: Tensor) -> Tensor:
        """Maps of the given rows."""
        return self.cache.rows([self.digests[row] for row in rows.tolist()])


def open_cache(given: str, key: str) -> FeatureCache:
    """The feature cache in the folder that is given, else in the usual one."""
    try:
        return FeatureCache(cache_folder(given), key)
    except PermissionError as error:
        raise ResourceError(f"cannot read {error.filename}: {error.strerror}; {CACHE_HINT}") from error


def cache_key(backbone: Backbone, trained: int) -> str:
    """What features depend on beside the image: the weights, the preparation, the cut, and a GPU's coarser products."""
    parts = [backbone.identity, repr(backbone.preparation), str(trained), str(STEM_BATCH), str(PIXELS_VERSION)]
    parts += ["cuda"] if torch.cuda.is_available() else []
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]


def require_cache_place(config: Config) -> None:
    """A feature cache that is empty and cannot be written to is an error before the images are even searched for."""
    depth = config.images.get("depth", "auto")
    if depth in ("frozen", "partial") or (depth == "auto" and not torch.cuda.is_available()):
        require_cache_usable(cache_folder(str(config.images.get("cache", ""))))
