"""CyCADA (Hoffman et al. 2018): pictures are translated to and fro between the sides, then scores play a game.

    pixels:   LS-GAN both ways + cycle · (|G'(G x_s) − x_s| + |G(G' x_t) − x_t|)
              + cycle / 2 · (|G x_t − x_t| + |G' x_s − x_s|)
              + semantic · (CE(c(G x_s), y) + CE(c(G' x_t), argmax c(x_t)))
    features: CE + weight · BCE(D(z_t), source)        moves the network
              BCE(D(z_s), source) + BCE(D(z_t), other)  moves D, which sees scores site by site

G translates labelled pictures to the other side, G' goes back; c is a small network of the labelled side, trained first
and then fixed. On GTA5 the published pixel stage has no semantic term (the released command is that of a plain
CycleGAN): `semantic` = 0.

Deviations: 16 filters, three residual blocks, discriminators of two layers (published: 64, nine, five); G adds to a
picture and begins with nothing, so that few steps leave the labels true; cycle = 1 as for the published digits, since
from there 10 (streets) changes nothing in some hundred steps; no pool of old pictures; the game of scores begins with
the source training and is not held up while D is weak (published: after it, while D is right more than 60 %).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from embasis.errors import ConfigError, check_not_negative, require
from embasis.functional.alignment import domain_accuracy, domain_loss
from embasis.functional.style import absolute_difference, least_squares_loss
from embasis.methods.alignment.parts import SiteClassifier, make_method
from embasis.methods.restyling.cyclegan import PatchDiscriminator, PictureGenerator, count_halvings
from embasis.methods.restyling.parts import (
    SourceNetwork,
    Units,
    draw_views,
    load_module,
    load_optimiser,
    pack_module,
    pack_optimiser,
    restore_module,
    train_source_network,
)
from embasis.randomness import seeded
from embasis.types import LABELLED, UNLABELLED, Aligner, Method, Phase, Restyler, Samples, Seen, Sizes, State, View

RATE, BETAS = 2e-4, (0.5, 0.999)
"""Of adam; the rate falls to 0 in the second half."""
STEPS_A_CALL = 25
"""After so many steps of the generators the run can be stopped."""
LARGE, ROWS, ROWS_OF_LARGE = 2**12, 32, 4
"""Rows of a batch, and of one whose pictures have more than LARGE numbers."""


@dataclass(frozen=True, eq=False)
class CycleNetworks:
    """Two generators, their discriminators and the source network, with the units of pictures."""

    to: PictureGenerator
    back: PictureGenerator
    discriminator: PatchDiscriminator
    own_discriminator: PatchDiscriminator
    source: SourceNetwork
    units: Units

    @classmethod
    def build(cls, view: View, classes: int, units: Units, seed: int) -> CycleNetworks:
        """Fresh, for pictures like those of a view."""
        shape = tuple(view.inputs.shape[1:])
        halvings = count_halvings(min(shape[1:]))
        with seeded(seed, "restyling: painters"):
            to, back = PictureGenerator(shape[0], halvings), PictureGenerator(shape[0], halvings)
            discriminator, own_discriminator = PatchDiscriminator(shape[0]), PatchDiscriminator(shape[0])
            source = SourceNetwork(shape, view.grid, classes).requires_grad_(False)
        return cls(to, back, discriminator, own_discriminator, source, units)

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """By their names in a state."""
        return {
            "to": self.to, "back": self.back, "source": self.source,
            "discriminator": self.discriminator, "own_discriminator": self.own_discriminator,
        }  # fmt: skip

    def optimisers(self) -> Mapping[str, torch.optim.Adam]:
        """One for the generators, one for the discriminators."""
        pairs = {"generators": (self.to, self.back), "discriminators": (self.discriminator, self.own_discriminator)}
        return {
            name: torch.optim.Adam([weight for module in pair for weight in module.parameters()], RATE, betas=BETAS)
            for name, pair in pairs.items()
        }


@dataclass(frozen=True, kw_only=True)
class CycleGAN(Restyler):
    """Labelled pictures as a generator, trained against a discriminator of the other side, makes them."""

    classes: int
    steps: int = 400
    cycle: float = 1.0
    semantic: float = 1.0

    name: ClassVar[str] = "cycada"
    summary: ClassVar[str] = "a generator draws each picture so that a discriminator takes it for one of this side"

    def is_fitted(self, state: State) -> bool:
        """Whether all steps have been taken."""
        return "step" in state and int(state["step"]) >= self.steps

    def fit(self, labelled: Samples, unlabelled: Samples, start: State, seed: int) -> State:
        """The next steps of the generators; at first the source network too, at the end the generator alone is left."""
        view = next(iter(labelled.stream([torch.tensor([0])], (seed, 0, 0))))
        networks, taken = self._open(labelled, unlabelled, view, start, seed), int(start.get("step", torch.tensor(0)))
        optimisers = networks.optimisers()
        for name, optimiser in optimisers.items():
            load_optimiser(name, optimiser, start)
        steps, rows = range(taken, min(taken + STEPS_A_CALL, self.steps)), count_rows(view)
        left = draw_views(labelled, steps, rows, seed, "restyling: labelled rows")
        right = draw_views(unlabelled, steps, rows, seed, "restyling: unlabelled rows")
        with torch.enable_grad():
            for step, here, there in zip(steps, left, right, strict=True):
                for optimiser in optimisers.values():
                    optimiser.param_groups[0]["lr"] = RATE * min(1.0, 2 - 2 * step / self.steps)
                self._take_step(networks, optimisers, here, networks.units.apply(there.inputs))
        return self._close(networks, optimisers, steps.stop)

    def _open(self, labelled: Samples, unlabelled: Samples, view: View, start: State, seed: int) -> CycleNetworks:
        """The networks as they were left, or fresh ones."""
        if start:
            networks = CycleNetworks.build(view, self.classes, Units(start["centre"], start["scale"]), seed)
            for name, module in networks.modules.items():
                load_module(name, module, start)
            return networks
        units = Units.measure(labelled, unlabelled, seed)
        networks = CycleNetworks.build(view, self.classes, units, seed)
        return replace(networks, source=train_source_network(labelled, units, self.classes, seed))

    def _close(self, networks: CycleNetworks, optimisers: Mapping[str, torch.optim.Optimizer], step: int) -> State:
        """What is kept: everything until the last step, then the generator."""
        numbers = {"step": step, "halvings": networks.to.halvings}
        kept: dict[str, Tensor] = {name: torch.tensor(number) for name, number in numbers.items()}
        kept |= {"centre": networks.units.centre, "scale": networks.units.scale}
        if step >= self.steps:
            return {**kept, **pack_module("to", networks.to)}
        for name, module in networks.modules.items():
            kept |= pack_module(name, module)
        for name, optimiser in optimisers.items():
            kept |= pack_optimiser(name, optimiser)
        return kept

    def _take_step(
        self, networks: CycleNetworks, optimisers: Mapping[str, torch.optim.Optimizer], here: View, other: Tensor
    ) -> None:
        """The generators, then the discriminators by the same pictures."""
        own = networks.units.apply(here.inputs)
        fake_other, fake_own = networks.to(own), networks.back(other)
        loss = self.generators_loss(networks, (own, here.y.flatten(), other), fake_other, fake_own)
        optimisers["generators"].zero_grad()
        torch.autograd.backward(loss)
        optimisers["generators"].step()
        optimisers["discriminators"].zero_grad()
        for discriminator, real, made in (
            (networks.discriminator, other, fake_other),
            (networks.own_discriminator, own, fake_own),
        ):
            known = least_squares_loss(discriminator(real), True)
            known = known + least_squares_loss(discriminator(made.detach()), False)
            torch.autograd.backward(known / 2)
        optimisers["discriminators"].step()

    def generators_loss(
        self, networks: CycleNetworks, seen: tuple[Tensor, Tensor, Tensor], fake_other: Tensor, fake_own: Tensor
    ) -> Tensor:
        """Of labelled pictures, their labels and unlabelled pictures, and of what the generators made of both."""
        own, y, other = seen
        loss = least_squares_loss(networks.discriminator(fake_other), True)
        loss = loss + least_squares_loss(networks.own_discriminator(fake_own), True)
        loss = loss + self.cycle * (
            cycle_loss(networks.back, fake_other, own) + cycle_loss(networks.to, fake_own, other)
        )
        loss = loss + self.cycle / 2 * (cycle_loss(networks.to, other, other) + cycle_loss(networks.back, own, own))
        return loss + self.semantic * sum(semantic_losses(networks.source, (fake_other, y), (fake_own, other)))

    def restyle(self, pictures: Tensor, state: State) -> Tensor:
        """The pictures as the generator makes them."""
        units = Units(state["centre"], state["scale"])
        generator = restore_module("to", lambda: PictureGenerator(pictures.shape[1], int(state["halvings"])), state)
        with torch.no_grad():
            return units.undo(generator(units.apply(pictures)))


def count_rows(view: View) -> int:
    """Rows of a batch of pictures as large as these."""
    return ROWS if view.inputs[0].numel() <= LARGE else ROWS_OF_LARGE


def cycle_loss(generator: nn.Module, pictures: Tensor, wanted: Tensor) -> Tensor:
    """How far the generator is from bringing these pictures to what they should be."""
    return absolute_difference(generator(pictures), wanted)


def semantic_losses(
    source: nn.Module, fake_other: tuple[Tensor, Tensor], fake_own: tuple[Tensor, Tensor]
) -> Iterator[Tensor]:
    """The source network finds the labels in fakes of the other side, and in fakes of its own what it found before."""
    pictures, y = fake_other
    if bool((y >= 0).any()):
        yield cross_entropy(source(pictures)[y >= 0], y[y >= 0])
    pictures, before = fake_own
    with torch.no_grad():
        label = source(before).argmax(1)
    yield cross_entropy(source(pictures), label)


@dataclass(frozen=True, kw_only=True)
class ScoreAdversary(Aligner):
    """The network against a domain classifier of its scores, site by site."""

    name: ClassVar[str] = "cycada"
    takes: ClassVar[tuple[str, ...]] = ("rows", "maps")
    trains_features: ClassVar[bool] = False
    is_game: ClassVar[bool] = True

    def build(self, network: nn.Module, sizes: Sizes) -> nn.ModuleDict:
        """The domain classifier."""
        return nn.ModuleDict({"domain": SiteClassifier(sizes.classes)})

    def phases(self, tau: float) -> Sequence[Phase]:
        """The network, then the domain classifier by the same scores."""
        return (Phase("fool", ("network",)), Phase("domain", ("domain",), labelled=False, held=True))

    def loss(self, phase: str, network: nn.Module, extra: nn.ModuleDict, seen: Seen, tau: float) -> Tensor:
        """Unlabelled scores pass for labelled ones in "fool", and are told apart from them in "domain"."""
        unlabelled = extra["domain"](read_scores(seen, UNLABELLED))
        if phase == "fool":
            return self.weight * seen.mean(domain_loss(unlabelled, True), UNLABELLED)
        labelled = extra["domain"](read_scores(seen, LABELLED))
        seen.note("domain_accuracy", domain_accuracy(labelled, unlabelled))
        left = seen.mean(domain_loss(labelled, True), LABELLED)
        return left + seen.mean(domain_loss(unlabelled, False), UNLABELLED)


def read_scores(seen: Seen, side: int) -> Tensor:
    """(B, C, h, w) the scores of a side; a row is a grid of one site."""
    logits = (seen.labelled if side == LABELLED else seen.other).logits.float()
    return logits if logits.ndim == 4 else logits[:, :, None, None]


def cycada(
    classes: int,
    *,
    weight: float = 0.1,
    restyle: float = 1.0,
    steps: int = 400,
    cycle: float = 1.0,
    semantic: float = 1.0,
) -> Method:
    """CyCADA: labelled pictures in the other side's style, and scores that a domain classifier cannot tell apart.

    Parameters
    ----------
    weight : of the game of scores, where the labelled cross-entropy has 1
    restyle : share of the new style, 0 … 1; 0 = pictures as they are
    steps : of the generators
    cycle : weight of the way to and fro; that of pictures which need no change is half of it
    semantic : weight of what pictures show
    """
    require(steps >= 1, f"steps must be at least 1, got {steps}", ConfigError)
    restyler = CycleGAN(weight=restyle, classes=classes, steps=steps, cycle=cycle, semantic=semantic)
    check_not_negative(restyler, "cycle", "semantic")
    return replace(make_method(ScoreAdversary(weight=weight)), restyle=restyler)
