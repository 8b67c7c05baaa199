"""How a run goes: settings of training (`Plan`), of images (`ImagePlan`), of pictures with label maps (`MapPlan`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from embasis.errors import ConfigError, check_choice, check_not_negative, require

SELECTION_SCORE = "information"
"""The score by which the collapse guard compares rounds, whatever score a round is kept by."""
OPTIMISERS = ("adam", "sgd", "lbfgs")
SCHEDULES = ("poly", "inverse")
TRAINING_PRECISIONS = ("auto", "float32", "bfloat16")
SUMS = ("exact", "fast")
DEVICES = ("auto", "cpu", "cuda")
HELD_OUT_SCORES = ("validation", "embedded_validation")
CHOICES = ("last", "information", "entropy", "density", "agreement", "labelled_accuracy", *HELD_OUT_SCORES)
DEPTHS = ("auto", "frozen", "partial", "full")
HEADS = ("linear", "mlp", "adapter")
AUGMENTATIONS = ("none", "light", "strong")


def _check_setting(settings: object, prefix: str, name: str, holds: bool, rule: str) -> None:
    require(holds, f"{prefix}{name} must be {rule}, got {getattr(settings, name)}", ConfigError)


@dataclass(frozen=True)
class Plan:
    """How training runs.

    Parameters
    ----------
    rounds : rounds of self-training after the source model
    source_epochs, epochs : passes over the labelled rows in round 0; passes over the longer side in a later round
    batch_size : rows of each side in a step; 0 = all rows in one batch (what lbfgs needs)
    optimiser : "adam", "sgd" or "lbfgs"
    source_lr, lr : learning rate of round 0, and of later rounds
    lr_power : the rate falls as (1 − t)^lr_power, t = the part of the round that is done; 0 = it stays
    schedule : "poly" = the rate falls by lr_power; "inverse" = as (1 + 10 t)^−¾, t = the part of an aligner's training
        that is done, or of the round (the schedule of the DANN family)
    momentum : of sgd
    weight_decay : weight of half the squared norm of all weights in the loss
    augment : training sees pictures in arrays turned, scaled, sheared and shifted by so much (functional/augment.py)
    collapse_share : a class with a larger share of the labels than this may be a collapse (engine/round_checks.py)
    harm_limit : by how many standard errors the nearest labelled rows must speak against what self-training has changed
        for the source model to be kept, where features are fixed (engine/harm.py); 0 = it never is
    holdout : share of the labelled rows that no training sees, so that their labels can be checked (engine/holdout.py)
    keep_round : which round's model is kept at the end: the "last" one, or the best one by a score (engine/scores.py)
    max_sites : the most sites of a side that are held in memory at once, for the basis to be fitted on; 0 = all
    accumulate_steps : parts of a batch that go through the network one after the other: the same step in less memory;
        several processes share the parts, and have 8 by default (engine/step_parts.py)
    sum : how the gradients of parts are added up: "exact" = the same bits for any number of processes, "fast" = float32
    precision : of the network's products: "float32", "bfloat16", "auto" = bfloat16 on a GPU that has it, else float32
    device : "cpu", "cuda", "auto" = the GPU if there is one, for networks of images
    seed : of everything that is drawn
    """

    rounds: int = 6
    source_epochs: int = 30
    epochs: int = 10
    batch_size: int = 64
    optimiser: str = "adam"
    source_lr: float = 1e-3
    lr: float = 1e-3
    lr_power: float = 0.0
    schedule: str = "poly"
    momentum: float = 0.9
    weight_decay: float = 1e-4
    augment: float = 0.0
    collapse_share: float = 0.95
    harm_limit: float = 0.0
    holdout: float = 0.0
    keep_round: str = "last"
    max_sites: int = 131_072
    accumulate_steps: int = 1
    sum: str = "exact"
    precision: str = "auto"
    device: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        check = partial(_check_setting, self, "plan.")
        check_not_negative(self, "rounds", "source_epochs", "epochs", "batch_size", "max_sites", prefix="plan.")
        check("source_lr", self.source_lr > 0, "positive")
        check("lr", self.lr > 0, "positive")
        check_choice(self, "optimiser", OPTIMISERS, "plan.")
        check("accumulate_steps", self.accumulate_steps >= 1, "at least 1")
        check_choice(self, "sum", SUMS, "plan.")
        check_choice(self, "precision", TRAINING_PRECISIONS, "plan.")
        check_choice(self, "device", DEVICES, "plan.")
        check_not_negative(self, "lr_power", prefix="plan.")
        check_choice(self, "schedule", SCHEDULES, "plan.")
        check("augment", 0 <= self.augment <= 3, "in [0, 3]")
        check("max_sites", self.max_sites == 0 or self.max_sites >= 1024, "0 (no limit) or at least 1024")
        check("momentum", 0 <= self.momentum < 1, "in [0, 1)")
        check_not_negative(self, "weight_decay", prefix="plan.")
        check("collapse_share", 0 < self.collapse_share <= 1, "in (0, 1]")
        check_not_negative(self, "harm_limit", prefix="plan.")
        check("holdout", 0 <= self.holdout <= 0.5, "in [0, 0.5]")
        check_choice(self, "keep_round", CHOICES, "plan.")
        rule = f"plan.keep_round = {self.keep_round} needs plan.holdout > 0 (labelled rows to check by)"
        has_held_out = self.keep_round not in HELD_OUT_SCORES or self.holdout > 0
        require(has_held_out, f"{rule}, got {self.holdout}", ConfigError)
        rule = "plan.optimiser = lbfgs needs plan.batch_size = 0 (all rows in one batch)"
        has_one_batch = self.optimiser != "lbfgs" or self.batch_size == 0
        require(has_one_batch, f"{rule}, got {self.batch_size}", ConfigError)

    @property
    def keeps_best(self) -> bool:
        """Whether the end of a run brings its best round back; else the last one stays."""
        return self.keep_round != "last"

    @property
    def score_to_keep(self) -> str:
        """The score of the round that is remembered: the one that the plan chooses by, or the collapse guard's."""
        return self.keep_round if self.keeps_best else SELECTION_SCORE


@dataclass(frozen=True)
class ImagePlan:
    """Where a backbone is cut: what lies before the cut is computed once and kept on disk, the rest is trained."""

    depth: str = "auto"
    """"frozen" = all of it is kept, a head is trained; "full" = all of it is trained; "auto" = full with a GPU."""
    stages: int = 1
    """"partial": so many of the last stages are trained."""
    head: str = "linear"
    """"frozen": what is trained on the features; "mlp" and "adapter" learn a projection first."""
    augment: str = "light"
    """"full": how training views differ from the picture; features that are kept are those of the picture itself."""
    workers: int = 1
    """Processes that read files; changes no result."""
    cache: str = ""
    """Folder for kept features; "" = EMBASIS_CACHE, else the user's cache folder. Changes no result."""

    def __post_init__(self) -> None:
        for name, allowed in (("depth", DEPTHS), ("head", HEADS), ("augment", AUGMENTATIONS)):
            check_choice(self, name, allowed, "images.")
        _check_setting(self, "images.", "stages", self.stages >= 1, "at least 1")
        _check_setting(self, "images.", "workers", 0 <= self.workers <= 64, "in 0..64")


@dataclass(frozen=True)
class MapPlan:
    """How pictures with label maps are shown to a network, in training and in prediction."""

    size: int = 256
    """Pixels of the short side that a picture is resized to; 0 = as it is."""
    crop_height: int = 256
    crop_width: int = 256
    """Training views; sides are cut down to what the network can take."""
    least_scale: float = 0.75
    most_scale: float = 1.5
    """Training views are enlarged by a factor between these."""
    flip: bool = True
    colour: float = 0.2
    """Range of brightness, contrast and saturation in training."""
    blur: float = 0.2
    """Share of training views that are blurred."""
    rare: float = 0.5
    """Share of training views that contain a place of a rarely labelled class."""
    window: int = 0
    """Pixels of the side of a sliding window in prediction; 0 = whole pictures."""
    workers: int = 1
    """Processes that read files; changes no result."""

    def __post_init__(self) -> None:
        check = partial(_check_setting, self, "maps.")
        check("size", self.size == 0 or self.size >= 16, "0 or at least 16")
        check("window", self.window == 0 or self.window >= 64, "0 or at least 64")
        check("crop_height", self.crop_height >= 16, "at least 16")
        check("crop_width", self.crop_width >= 16, "at least 16")
        order = f"maps.least_scale and most_scale must be in order and in [0.1, 10], got {self.least_scale}"
        in_order = 0.1 <= self.least_scale <= self.most_scale <= 10
        require(in_order, f"{order} and {self.most_scale}", ConfigError)
        for name in ("colour", "blur", "rare"):
            check(name, 0 <= getattr(self, name) <= 1, "in [0, 1]")
        check("workers", 0 <= self.workers <= 64, "in 0..64")


@dataclass(frozen=True)
class MapPreparation:
    """A plan for one network: `stride` pixels are the side of a site, sides of inputs are multiples of `multiple`."""

    plan: MapPlan
    stride: int
    multiple: int

    def __post_init__(self) -> None:
        rule = f"multiple must be a multiple of the stride {self.stride}, got {self.multiple}"
        require(self.stride >= 1 and self.multiple % self.stride == 0, rule, ConfigError)
