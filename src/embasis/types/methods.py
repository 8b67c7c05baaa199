"""What a method is made of: a labeller, a selector, a loss, and how training runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from embasis.errors import ConfigError, check_choice, check_not_negative, require
from embasis.types.values import Features, LabelDistribution, Output, PseudoLabels, State, Stream


class Labeller(Protocol):
    """Gives each site a label distribution: fit on the stream, apply on the batch.

    `fit` and `label` are all that a method must have; a labeller with a basis overrides the rest, so that its
    components can be shown."""

    def fit(self, stream: Stream, start: State, seed: int, round_number: int) -> State:
        """What is learned from all sites of both sides.

        `start` is the state that the last round returned, with Stage I's basis in round 0 and with the selected labels
        of each class that this round has trained on (methods/em_basis/state.py: `start_of_round`)."""

    def label(self, features: Features, state: State) -> LabelDistribution:
        """The label distribution of these sites."""

    @property
    def stage_one(self) -> BasisTerms | None:
        """The block that the source network is to be trained with; None = none."""
        return None

    def require_rows(self, rows: int) -> None:
        """An InputDataError where so many rows are too few; nothing is, by default."""
        return

    def component_probability(self, state: State) -> Tensor | None:
        """(K, C) class probabilities of the components of a basis; None where there is no basis."""
        return None

    def component_scores(self, features: Features, state: State) -> Tensor:
        """(N, K) how near each site is to each component; K = 0 where there is no basis."""
        return features.x.new_zeros(len(features), 0)

    def notes(self, state: State, round_number: int) -> list[str]:
        """Sentences that a person should read before relying on this round's labels; none by default."""
        return []


class Selector(Protocol):
    """Chooses the labels that the next round trains on, and their weights: fit on the stream, apply on the batch."""

    def fit(self, stream: Sequence[LabelDistribution], round_number: int) -> State:
        """Thresholds from all sites."""

    def select(
        self, distribution: LabelDistribution, state: State, ids: Tensor, seed: int, round_number: int
    ) -> PseudoLabels:
        """The trusted ones among these sites, with their weights."""


class RoundLoss(Protocol):
    """What a step of retraining makes of its unlabelled rows; it is added to the labelled cross-entropy."""

    @property
    def uses_all_rows(self) -> bool:
        """Whether unlabelled rows that are not trusted take part."""

    def __call__(self, unlabelled: Output, pseudo: PseudoLabels) -> Tensor:
        """A scalar to minimise: a mean over these rows."""

    def mass(self, pseudo: PseudoLabels) -> float:
        """What that mean is divided by; parts of a batch, each times its share of the mass, add up to the whole."""


@dataclass(frozen=True)
class BasisTerms:
    """Stage I: how many components the attention block proposes and the weights of its three terms (eq. 3 to 6).

    Parameters
    ----------
    components : K
    orthogonal, reconstruction, affinity : weights of the terms of eq. 3, 5 and 6
    """

    components: int
    orthogonal: float = 1.0
    reconstruction: float = 1.0
    affinity: float = 1.0


@dataclass(frozen=True, eq=False)
class Method:
    """A self-training method: three parts. Another composition is made by `dataclasses.replace` of a part.

    Parameters
    ----------
    name : the recipe's name
    labeller : gives each site a label distribution
    selector : chooses the labels that the next round trains on
    loss : what a step of retraining makes of them
    rounds : at most so many, whatever the plan says; None = as many as the plan says
    recalibration : "reference", "weighted" or "none": what the labels' probabilities are made to hold for
        (engine/calibration.py)
    """

    name: str
    labeller: Labeller
    selector: Selector
    loss: RoundLoss
    rounds: int | None = None
    recalibration: str = "none"

    @property
    def basis(self) -> BasisTerms | None:
        """Stage I's block, if the labeller wants one."""
        return self.labeller.stage_one


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
    momentum : of sgd
    weight_decay : weight of half the squared norm of all weights in the loss
    augment : training sees pictures in arrays turned, scaled, sheared and shifted by so much (functional/augment.py)
    collapse_share : a class with a larger share of the labels than this may be a collapse (engine/collapse.py)
    holdout : share of the labelled rows that no training sees, so that their labels can be checked (engine/holdout.py)
    keep_round : which round's model is kept at the end: the "last" one, or the best one by a score (engine/scores.py)
    max_sites : the most sites of a side that are held in memory at once, for the basis to be fitted on; 0 = all
    accumulate_steps : parts of a batch that go through the network one after the other: the same step in less memory
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
    momentum: float = 0.9
    weight_decay: float = 1e-4
    augment: float = 0.0
    collapse_share: float = 0.95
    holdout: float = 0.0
    keep_round: str = "last"
    max_sites: int = 131_072
    accumulate_steps: int = 1
    precision: str = "auto"
    device: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        def check(rule: bool, text: str) -> None:
            require(rule, text, ConfigError)

        check_not_negative(self, "rounds", "source_epochs", "epochs", "batch_size", "max_sites", prefix="plan.")
        for name in ("source_lr", "lr"):
            check(getattr(self, name) > 0, f"plan.{name} must be positive, got {getattr(self, name)}")
        check_choice(self, "optimiser", OPTIMISERS, "plan.")
        check(self.accumulate_steps >= 1, f"plan.accumulate_steps must be at least 1, got {self.accumulate_steps}")
        check_choice(self, "precision", TRAINING_PRECISIONS, "plan.")
        check_choice(self, "device", DEVICES, "plan.")
        check_not_negative(self, "lr_power", prefix="plan.")
        check(0 <= self.augment <= 3, f"plan.augment must be in [0, 3], got {self.augment}")
        check(
            self.max_sites == 0 or self.max_sites >= 1024,
            f"plan.max_sites must be 0 (no limit) or at least 1024, got {self.max_sites}",
        )
        check(0 <= self.momentum < 1, f"plan.momentum must be in [0, 1), got {self.momentum}")
        check_not_negative(self, "weight_decay", prefix="plan.")
        check(0 < self.collapse_share <= 1, f"plan.collapse_share must be in (0, 1], got {self.collapse_share}")
        check(0 <= self.holdout <= 0.5, f"plan.holdout must be in [0, 0.5], got {self.holdout}")
        check_choice(self, "keep_round", CHOICES, "plan.")
        held_out = f"plan.keep_round = {self.keep_round} needs plan.holdout > 0 (labelled rows to check by)"
        check(self.keep_round not in HELD_OUT_SCORES or self.holdout > 0, f"{held_out}, got {self.holdout}")
        check(
            self.optimiser != "lbfgs" or self.batch_size == 0,
            f"plan.optimiser = lbfgs needs plan.batch_size = 0 (all rows in one batch), got {self.batch_size}",
        )

    @property
    def keeps_best(self) -> bool:
        """Whether the end of a run brings its best round back; else the last one stays."""
        return self.keep_round != "last"

    @property
    def score_to_keep(self) -> str:
        """The score of the round that is remembered: the one that the plan chooses by, or the collapse guard's."""
        return self.keep_round if self.keeps_best else SELECTION_SCORE


SELECTION_SCORE = "information"
"""The score by which the collapse guard compares rounds, whatever score a round is kept by."""
OPTIMISERS = ("adam", "sgd", "lbfgs")
TRAINING_PRECISIONS = ("auto", "float32", "bfloat16")
DEVICES = ("auto", "cpu", "cuda")
HELD_OUT_SCORES = ("validation", "embedded_validation")
CHOICES = ("last", "information", "entropy", "density", "agreement", "labelled_accuracy", *HELD_OUT_SCORES)

Recipe = Callable[..., Method]
"""A function whose arguments are the method's settings, after the number of classes."""
