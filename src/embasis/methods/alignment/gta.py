"""GTA (Sankaranarayanan et al. 2018, "Generate To Adapt"): features from which inputs like the source's can be drawn.

    e_s = [onehot(y), f_s, ν], e_t = [onehot(C), f_t, ν'];  G draws inputs, D says which are real, D_c of which class
    F: CE + a · CE(D_c(G e_s), y) + a α · BCE(D(G e_t), 1)                           moves the network; a = weight
    D: CE(D_c(x_s), y) + BCE(D(x_s), 1) + BCE(D(G e_s), 0) + BCE(D(G e_t), 0)        moves the discriminator
    G: CE(D_c(G e_s), y) + BCE(D(G e_s), 1)                                          moves the generator

e_t carries no label, and D_c never reads what is drawn of the unlabelled side. What is drawn only meets the
discriminator: the network never reads it, and predicts alone.

D judges what was drawn in F, and G draws of the same e_s: a step has one pass of the network and one noise, as the
authors' has.

Deviations: the authors' D, G, F is begun at F, which so meets D and G of the step before. GroupNorm in G and no norm in
D in the place of batch norm. Their rates fall as 1 / (1 + 1e-4 i); ours follow the plan. Vectors are drawn too: the
authors draw pictures alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from embasis.errors import ConfigError, check_not_negative, require
from embasis.functional.alignment import domain_accuracy, domain_loss, generator_input
from embasis.methods.alignment.generators import Discriminator, Generator, refuse_undrawable, to_unit_range
from embasis.methods.alignment.parts import make_method
from embasis.methods.losses import labelled_loss
from embasis.types import LABELLED, UNLABELLED, Aligner, Group, Method, Output, Phase, Seen, Sizes, trainable

BETAS = (0.8, 0.999)
"""Of adam, for the generator and the discriminator."""


@dataclass(frozen=True, kw_only=True)
class DrawnInputs(Aligner):
    """The network, a discriminator and a generator, in three phases."""

    target_weight: float = 0.3
    noise: int = 512

    name: ClassVar[str] = "gta"
    is_game: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative(self, "target_weight")
        require(self.noise >= 1, f"noise must be at least 1, got {self.noise}", ConfigError)

    def build(self, network: nn.Module, sizes: Sizes) -> nn.ModuleDict:
        """The generator and the discriminator of inputs."""
        refuse_undrawable(self.name, sizes)
        generator = Generator(sizes.classes + 1 + sizes.features + self.noise, sizes.inputs)
        return nn.ModuleDict({"generator": generator, "discriminator": Discriminator(sizes.inputs, sizes.classes)})

    def groups(self, network: nn.Module, extra: nn.ModuleDict) -> Mapping[str, Group]:
        """Each by itself."""
        drawers = {name: Group(trainable(module), betas=BETAS) for name, module in extra.items()}
        return {"network": Group(trainable(network)), **drawers}

    def phases(self, tau: float) -> Sequence[Phase]:
        """F, D and G."""
        return (
            Phase("F", ("network",)),
            Phase("D", ("discriminator",), labelled=False, held=True),
            Phase("G", ("generator",), labelled=False, held=True),
        )

    def loss(self, phase: str, network: nn.Module, extra: nn.ModuleDict, seen: Seen, tau: float) -> Tensor:
        """The loss of a phase; in F beside the engine's cross-entropy."""
        if phase == "F":
            return self._network_loss(extra, seen)
        return discriminator_loss(extra, seen) if phase == "D" else generator_loss(extra, seen)

    def _encode(self, extra: nn.ModuleDict, seen: Seen) -> Tensor:
        """e_s, and below it e_t; with other noise at every call."""
        parts, classes = list[Tensor](), cast(Discriminator, extra["discriminator"]).classes.out_features
        for side in (LABELLED, UNLABELLED):
            rows = seen.rows(side)
            none = torch.full((len(rows),), classes, device=rows.device)
            label = torch.where(seen.y < 0, none, seen.y) if side == LABELLED else none
            noise = torch.randn_like(rows.new_empty(len(rows), self.noise))
            parts.append(generator_input(label, rows, noise, classes))
        return torch.cat(parts)

    def _network_loss(self, extra: nn.ModuleDict, seen: Seen) -> Tensor:
        encoded = self._encode(extra, seen)
        drawn: Tensor = extra["generator"](encoded)
        seen.kept.update(encoded=encoded.detach(), drawn=drawn.detach())
        real, scores = extra["discriminator"](drawn)
        known = len(seen.y)
        fooled = seen.mean(domain_loss(real[known:], True), UNLABELLED)
        seen.note("unlabelled_drawn_as_real", (real[known:].detach() > 0).float().mean())
        return self.weight * (class_loss(scores[:known], seen) + self.target_weight * fooled)


def class_loss(scores: Tensor, seen: Seen) -> Tensor:
    """Cross-entropy of the labelled rows, as their share of the batch's."""
    return seen.labelled_share * labelled_loss(Output(scores, scores), seen.y)


def discriminator_loss(extra: nn.ModuleDict, seen: Seen) -> Tensor:
    """What is real passes for real and of its class; what was drawn in F does not."""
    known = len(seen.y)
    real, scores = extra["discriminator"](torch.cat([to_unit_range(seen.inputs), seen.kept["drawn"]]))
    own, of_labelled, of_others = real[:known], real[known : 2 * known], real[2 * known :]
    seen.note("discriminator_accuracy", domain_accuracy(own, real[known:]))
    passing = seen.mean(domain_loss(own, True), LABELLED) + seen.mean(domain_loss(of_labelled, False), LABELLED)
    return class_loss(scores[:known], seen) + passing + seen.mean(domain_loss(of_others, False), UNLABELLED)


def generator_loss(extra: nn.ModuleDict, seen: Seen) -> Tensor:
    """What is drawn of labelled rows passes for real and of its class; features have no gradient."""
    drawn = extra["generator"](seen.kept["encoded"][: len(seen.y)])
    real, scores = extra["discriminator"](drawn)
    seen.note("drawn_class_accuracy", (scores.detach().argmax(1) == seen.y).float().mean())
    return class_loss(scores, seen) + seen.mean(domain_loss(real, True), LABELLED)


def gta(classes: int, *, weight: float = 0.1, target_weight: float = 0.3, noise: int = 512) -> Method:
    """GTA: features of both sides from which a generator can draw inputs like the labelled ones.

    Parameters
    ----------
    weight : of what the discriminator makes of drawn inputs, where the labelled cross-entropy has 1
    target_weight : of inputs drawn of the unlabelled side, where those of the labelled side have 1
    noise : random numbers that the generator gets beside features and label
    """
    return make_method(DrawnInputs(weight=weight, target_weight=target_weight, noise=noise))
