"""What a run needs of disk and memory at the very least, compared with what is there, before hours of work."""

from __future__ import annotations

from pathlib import Path

import torch

from embasis.config import Config
from embasis.inputs.image_inputs import PIECE, ImageInputs
from embasis.resources import require_disk, require_memory, require_writable
from embasis.runs.parts import RunParts
from embasis.storage import cache_folder, require_cache_usable
from embasis.storage.feature_cache import CACHE_ADVICE as CACHE_HINT

GENERATIONS = 3
"""Two that stay and one that is being written."""
COPIES = {"sgd": 2, "adam": 3, "lbfgs": 22}
"""Of the weights, while training: gradients and what the optimiser keeps (two times ten steps for L-BFGS)."""
A_ROW = 8
"""Bytes of a label in a table, when it is packed best."""


def require_room(built: RunParts, folder: Path) -> None:
    """The run's folder has room for its generations and labels, and memory for the optimiser."""
    weights = sum(tensor.numel() * tensor.element_size() for tensor in built.network.state_dict().values())
    begun = (folder / "HEAD").exists()  # then all but the next generation is there already
    rows = 0 if begun else A_ROW * len(built.problem.unlabelled) * (built.plan.rounds + 1)
    need = weights * (1 if begun else GENERATIONS) + rows
    require_disk(folder, need, "the run folder", "free some, or name a folder on another disk with -o")
    copies = COPIES.get(built.plan.optimiser, 2) * weights
    if next(built.network.parameters(), torch.zeros(0)).device.type == "cpu":
        hint = "take a smaller network, or plan.optimiser=sgd, which keeps less"
        require_memory(copies, f"training {weights:,} bytes of weights by {built.plan.optimiser}", hint)


def require_cache_place(config: Config) -> None:
    """A feature cache that is empty and cannot be written to is found before the images are even looked for."""
    depth = config.images.get("depth", "auto")
    if depth in ("frozen", "partial") or (depth == "auto" and not torch.cuda.is_available()):
        require_cache_usable(cache_folder(str(config.images.get("cache", ""))))


def require_cache(front: ImageInputs, images: int) -> None:
    """The feature cache has room for so many more images; features of a frozen backbone fit into memory."""
    if front.cache is None or not images:
        return
    require_writable(front.cache.path, CACHE_HINT)
    shape = (3, front.backbone.preparation.size, front.backbone.preparation.size)
    one = front.forward_stem(torch.zeros(PIECE, *shape, dtype=torch.uint8))[0].numel()
    need = images * one * (2 if front.trained else 4)
    less = "images.depth=frozen keeps less" if front.trained else "free some"
    what = f"the feature cache of {images:,} more images"
    require_disk(front.cache.path, need, what, f"{less}, or images.cache=DIR names a folder on another disk")
    if not front.trained:
        hint = "images.depth=partial reads them from disk, or take fewer images"
        require_memory(2 * need, f"the features of {images:,} images", hint)
