"""What a method is made of: a labeller, a selector and a loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from embasis.types.alignment import Aligner
from embasis.types.restyling import Restyler
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

    def without_basis(self, state: State) -> State | None:
        """The state in which the network labels alone; None where there is no basis beside it."""
        return None

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
    align : draws the two sides together while the network is trained; None = nothing does
    restyle : shows the labelled side in the unlabelled one's style; None = nothing does
    """

    name: str
    labeller: Labeller
    selector: Selector
    loss: RoundLoss
    rounds: int | None = None
    recalibration: str = "none"
    align: Aligner | None = None
    restyle: Restyler | None = None

    @property
    def basis(self) -> BasisTerms | None:
        """Stage I's block, if the labeller wants one."""
        return self.labeller.stage_one


Recipe = Callable[..., Method]
"""A function whose arguments are the method's settings, after the number of classes."""
