"""How images are used: how deep training goes, and how files are read on the way."""

from __future__ import annotations

from dataclasses import dataclass

from embasis.errors import ConfigError, check_choice, require

DEPTHS = ("auto", "frozen", "partial", "full")
HEADS = ("linear", "mlp")
AUGMENTATIONS = ("none", "light", "strong")


@dataclass(frozen=True)
class ImagePlan:
    """Where a backbone is cut: what lies before the cut is computed once and kept on disk, the rest is trained."""

    depth: str = "auto"
    """"frozen" = all of it is kept, a head is trained; "full" = all of it is trained; "auto" = full with a GPU."""
    stages: int = 1
    """"partial": so many of the last stages are trained."""
    head: str = "linear"
    """"frozen": what is trained on the features; "mlp" learns a projection first."""
    augment: str = "light"
    """"full": how training views differ from the picture; features that are kept are those of the picture itself."""
    workers: int = 1
    """Processes that read files; changes no result."""
    cache: str = ""
    """Folder for kept features; "" = EMBASIS_CACHE, else the user's cache folder. Changes no result."""

    def __post_init__(self) -> None:
        for name, allowed in (("depth", DEPTHS), ("head", HEADS), ("augment", AUGMENTATIONS)):
            check_choice(self, name, allowed, "images.")
        require(self.stages >= 1, f"images.stages must be at least 1, got {self.stages}", ConfigError)
        require(0 <= self.workers <= 64, f"images.workers must be in 0..64, got {self.workers}", ConfigError)
