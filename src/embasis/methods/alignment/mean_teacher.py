"""Mean teacher, self-ensembling (Tarvainen 2017, French et al. 2018): an average of past networks labels another view.

    loss = CE + weight · {mean_t [max p_T > threshold] · ‖p − p_T‖² / C + balance · kept · Σ_c BCE(mean p_c, 1/C)}
    teacher: after step i (from 0 on) α · teacher + (1 − α) · network, α = min(1 − 1/(i+1), decay)

The network sees the training view, the teacher another one: a warp, other light, or noise on vectors. `kept` is the
share of rows on which the teacher is sure. When training ends the network takes the teacher's weights.

Deviations: the teacher has no dropout, buffers are copied and not averaged, and its first steps are a plain mean, so
that a short run does not predict by the weights that it began with. Rounds before the last one report the network's
labels, not the teacher's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from embasis.errors import ConfigError, check_not_negative, require
from embasis.functional.consistency import class_imbalance, confident_distance
from embasis.functional.sites import to_sites
from embasis.methods.alignment.parts import average_weights, make_method, make_teacher
from embasis.types import UNLABELLED, Aligner, Group, Method, Passes, Phase, Seen, Sizes, trainable


@dataclass(frozen=True, kw_only=True)
class AveragedTeacher(Aligner):
    """The network agrees with its own average on another view of the unlabelled rows."""

    weight: float = 3.0
    threshold: float = 0.968
    balance: float = 0.005
    decay: float = 0.99

    name: ClassVar[str] = "mean_teacher"
    takes: ClassVar[tuple[str, ...]] = ("rows", "maps")
    trains_features: ClassVar[bool] = False
    is_game: ClassVar[bool] = True
    second_view: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative(self, "balance")
        for name in ("threshold", "decay"):
            value = getattr(self, name)
            require(0 <= value < 1, f"{name} must be in [0, 1), got {value}", ConfigError)

    def build(self, network: nn.Module, sizes: Sizes) -> nn.ModuleDict:
        """The teacher, which begins as the network."""
        return nn.ModuleDict({"teacher": make_teacher(network)})

    def groups(self, network: nn.Module, extra: nn.ModuleDict) -> Mapping[str, Group]:
        """The network; the teacher follows."""
        return {"network": Group(trainable(network))}

    def phases(self, tau: float) -> Sequence[Phase]:
        """One, of the whole batch: balance is that of all its rows."""
        return (Phase("learn", ("network",), whole=True),)

    def loss(self, phase: str, network: nn.Module, extra: nn.ModuleDict, seen: Seen, tau: float) -> Tensor:
        """How far the two are apart, and how unequal the network's classes are."""
        with torch.no_grad():
            teacher = to_sites(seen.run(extra["teacher"], seen.view, UNLABELLED).logits).float()
            kept = (teacher.softmax(1).amax(1) > self.threshold).float().mean()
        seen.note("sure_share", kept)
        student = seen.logits(UNLABELLED)
        distance = confident_distance(student, teacher, self.threshold).mean()
        return self.weight * (distance + self.balance * kept * class_imbalance(student))

    def settle(self, network: nn.Module, extra: nn.ModuleDict, when: str, labelled: Passes, step: int) -> None:
        """The teacher follows after each step, and the network becomes the teacher at the end."""
        if when == "step":
            average_weights(extra["teacher"], network, min(1 - 1 / step, self.decay))
        elif when == "end":
            network.load_state_dict(extra["teacher"].state_dict())


def mean_teacher(
    classes: int, *, weight: float = 3.0, threshold: float = 0.968, balance: float = 0.005, decay: float = 0.99
) -> Method:
    """Mean teacher: the network agrees with its own average on another view; the average predicts.

    Parameters
    ----------
    weight : of all that follows, where the labelled cross-entropy has 1
    threshold : a row counts where the teacher's largest probability is above it
    balance : of the term that keeps classes equally many, where the distance has 1
    decay : share of the teacher that a step keeps, at most
    """
    return make_method(AveragedTeacher(weight=weight, threshold=threshold, balance=balance, decay=decay))
