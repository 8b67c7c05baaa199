"""DACS (Tranheden et al. 2021): half the classes of a labelled picture are pasted on an unlabelled one (ClassMix).

    loss = CE + weight · mean over sites of w · CE(network(mixture), mixed labels)
    labels: y where pasted, elsewhere the largest class of a teacher, which has seen the unlabelled picture
    w: 1 where pasted, elsewhere q, the share of the picture's sites with max p ≥ threshold
    teacher: after step i (from 0 on) α · teacher + (1 − α) · network, α = min(1 − 1/(i+1), decay)

The network itself predicts. Deviations: q is of each picture, not of the batch, so that the loss adds up over parts;
"unknown" is no class that can be drawn; what is pasted are whole sites, because labels are those of sites; the mixture
gets another light and contrast, and blur is left to the views of the plan. Unlabelled picture number j of a part is
mixed with labelled one number j, from the first on again where there are fewer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate

from embasis.errors import ConfigError, check_not_negative, require
from embasis.functional.augment import JITTER_DRAWS, jitter
from embasis.functional.map_alignment import draw_half_of_classes, find_pasted_sites, weight_mixtures
from embasis.methods.alignment.parts import average_weights, make_method, make_teacher
from embasis.types import UNLABELLED, Aligner, Group, Method, Passes, Phase, Seen, Sizes, trainable


@dataclass(frozen=True, kw_only=True)
class ClassMixture(Aligner):
    """The network learns mixtures of both sides, whose unlabelled parts its own average has labelled."""

    threshold: float = 0.968
    decay: float = 0.99
    light: float = 1.0

    name: ClassVar[str] = "dacs"
    takes: ClassVar[tuple[str, ...]] = ("maps",)
    trains_features: ClassVar[bool] = False
    is_game: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative(self, "light")
        for name in ("threshold", "decay"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"{name} must be in [0, 1], got {value}", ConfigError)

    def build(self, network: nn.Module, sizes: Sizes) -> nn.ModuleDict:
        """The teacher, which begins as the network."""
        return nn.ModuleDict({"teacher": make_teacher(network)})

    def groups(self, network: nn.Module, extra: nn.ModuleDict) -> Mapping[str, Group]:
        """The network; the teacher follows."""
        return {"network": Group(trainable(network))}

    def phases(self, tau: float) -> Sequence[Phase]:
        """One: labelled rows and mixtures."""
        return (Phase("learn", ("network",)),)

    def loss(self, phase: str, network: nn.Module, extra: nn.ModuleDict, seen: Seen, tau: float) -> Tensor:
        """The weighted cross-entropy of mixtures."""
        with torch.no_grad():
            p = seen.run(extra["teacher"], seen.others, UNLABELLED).logits.float().softmax(1)
            mixture, label, weight = self._mix(p, seen)
            seen.note("sure_share", (p.amax(1) >= self.threshold).float().mean())
        logits = seen.run(network, mixture, UNLABELLED).logits.float().flatten(2)
        return self.weight * seen.mean(weight * cross_entropy(logits, label, reduction="none"), UNLABELLED)

    def _mix(self, p: Tensor, seen: Seen) -> tuple[Tensor, Tensor, Tensor]:
        """Mixtures (m, …), and labels and weights (m, s) of their sites; p (m, C, h, w) of the unlabelled rows."""
        rows, classes, *grid = p.shape
        # One draw after another, so that parts of a batch draw what the whole one does.
        draws = torch.stack([torch.rand(classes + JITTER_DRAWS) for _ in range(rows)]).to(p.device)
        partner = torch.arange(rows, device=p.device) % len(seen.inputs)
        y = seen.y.unflatten(0, (len(seen.inputs), -1))[partner]
        pasted = find_pasted_sites(y, draw_half_of_classes(y, draws[:, :classes]))
        mask = interpolate(pasted.unflatten(1, grid).unsqueeze(1).float(), seen.others.shape[2:]) > 0
        mixture = torch.where(mask, seen.inputs[partner], seen.others)
        mixture = jitter(mixture, draws[:, classes:], self.light) if self.light else mixture
        p = p.flatten(2)
        return mixture, torch.where(pasted, y, p.argmax(1)), weight_mixtures(p, pasted, self.threshold)

    def settle(self, network: nn.Module, extra: nn.ModuleDict, when: str, labelled: Passes, step: int) -> None:
        """The teacher: the plain mean of all networks so far, later one that forgets."""
        if when == "step":
            average_weights(extra["teacher"], network, min(1 - 1 / step, self.decay))


def dacs(
    classes: int, *, weight: float = 1.0, threshold: float = 0.968, decay: float = 0.99, light: float = 1.0
) -> Method:
    """DACS: half the classes of a labelled picture pasted on an unlabelled one that a teacher has labelled.

    Parameters
    ----------
    weight : of the mixtures' loss, where the labelled cross-entropy has 1
    threshold : probability from which on a label of the teacher's counts as sure
    decay : share of the teacher that a step keeps, at most
    light : how far light and contrast of mixtures are changed; 0 = not at all
    """
    return make_method(ClassMixture(weight=weight, threshold=threshold, decay=decay, light=light))
