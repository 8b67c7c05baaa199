"""FCAN (Zhang et al. 2018): labelled pictures are redrawn in the other side's style, then features play a game.

    appearance:      Σ_l ‖M_l(x) − M_l(x_s)‖² / ‖M_l(x_s)‖² + style · Σ_l ‖G_l(x) − Ḡ_l‖² / ‖Ḡ_l‖²
                     x ← x − 10 · (I − i) / I · g / mean |g|,  from x_s, in grey levels of 255
    representation:  CE + weight · ½ [BCE(D(rev f_s), 1) + BCE(D(rev f_t), 0)] at every site

M_l are maps of layers, G_l their Gram matrices, Ḡ_l the mean Gram matrix of the unlabelled side. D sees neighbours at
four distances: 3×3 convolutions of dilation 1 … 4 side by side, then 1×1.

Deviations: the layers are of a small network of our own, trained on the labelled side (published: ResNet-50 of
ImageNet); distances are relative, so that `style` has no unit (published: raw sums and 1e-14); a picture starts from
itself with 40 iterations (published: from noise with 1,000); the gradient is divided by its mean, since divided by its
sum ten grey levels would be shared by a whole picture; the game begins with the source training and its reversal grows
with λ(τ) (published: after it). The paper's λ = 5 weighs the labelled loss: 1 / 5 is our weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from embasis.errors import ConfigError, require
from embasis.functional.alignment import domain_accuracy, domain_loss, reversal_strength, reverse_gradient
from embasis.functional.style import even_step, gram_matrix, relative_distance
from embasis.methods.alignment.parts import make_method
from embasis.methods.restyling.parts import (
    BYTE_SCALE,
    SourceLayers,
    Units,
    pack_module,
    read_whole,
    restore_module,
    train_source_network,
)
from embasis.types import LABELLED, UNLABELLED, Aligner, Method, Phase, Restyler, Samples, Seen, Sizes, State

STEP = 10 / BYTE_SCALE
"""Ten grey levels, in units."""
RATES = (1, 2, 3, 4)
HIDDEN = 128


@dataclass(frozen=True, kw_only=True)
class AppearanceTransfer(Restyler):
    """Each picture is moved, by descent, to the mean style of the other side."""

    classes: int
    style: float = 1.0
    iterations: int = 40

    name: ClassVar[str] = "fcan"
    summary: ClassVar[str] = "each picture is moved, step by step, towards the colours and textures of this side"

    def fit(self, labelled: Samples, unlabelled: Samples, start: State, seed: int) -> State:
        """The layers, and the mean Gram matrices of the unlabelled side."""
        units = Units.measure(labelled, unlabelled, seed)
        layers = train_source_network(labelled, units, self.classes, seed).layers
        own = {"centre": units.centre, "scale": units.scale, "strides": torch.tensor(layers.strides)}
        return {**own, **pack_module("layers", layers), **mean_grams(layers, units, unlabelled, seed)}

    def restyle(self, pictures: Tensor, state: State) -> Tensor:
        """The pictures after all iterations."""
        units, layers = Units(state["centre"], state["scale"]), restore_layers(state, pictures.shape[1])
        grams = [state[f"gram.{number}"] for number in range(len(layers.steps))]
        start = units.apply(pictures)
        with torch.enable_grad():
            wanted, x = [maps.detach() for maps in layers(start)], start
            for number in range(self.iterations):
                x = x.detach().requires_grad_()
                loss = appearance_loss(layers(x), wanted, grams, self.style).sum()
                (gradient,) = torch.autograd.grad(loss, x)
                x = x - even_step(gradient, STEP * (self.iterations - number) / self.iterations)
        return units.undo(x.detach())


def restore_layers(state: State, channels: int) -> SourceLayers:
    """The layers that were fitted, fixed."""
    return restore_module("layers", lambda: SourceLayers(channels, tuple(state["strides"].tolist())), state)


@torch.no_grad()
def mean_grams(layers: SourceLayers, units: Units, samples: Samples, seed: int) -> State:
    """gram.l: the mean Gram matrix of each layer over a side."""
    totals, count = [torch.zeros(())] * len(layers.steps), 0
    for pictures in read_whole(samples, seed):
        parts = [gram_matrix(maps).double().sum(0) for maps in layers(units.apply(pictures))]
        totals = [total + part for total, part in zip(totals, parts, strict=True)]
        count += len(pictures)
    return {f"gram.{number}": (total / count).float() for number, total in enumerate(totals)}


def appearance_loss(maps: Sequence[Tensor], content: Sequence[Tensor], grams: Sequence[Tensor], style: float) -> Tensor:
    """(n) how far pictures are from what they show, and from how they should look."""
    shown = torch.stack([relative_distance(m, kept) for m, kept in zip(maps, content, strict=True)]).sum(0)
    looks = torch.stack([relative_distance(gram_matrix(m), g) for m, g in zip(maps, grams, strict=True)]).sum(0)
    return shown + style * looks


class MultiRateClassifier(nn.Module):
    """Grids (B, d, h, w) → a score of every site (B·h·w) that sees neighbours near and far."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Conv2d(width, HIDDEN, 3, padding=rate, dilation=rate) for rate in RATES)
        self.score = nn.Conv2d(HIDDEN * len(RATES), 1, 1)

    def forward(self, grid: Tensor) -> Tensor:
        """(B·h·w)."""
        seen = torch.cat([torch.relu(branch(grid)) for branch in self.branches], 1)
        score: Tensor = self.score(seen)
        return score.flatten()


@dataclass(frozen=True, kw_only=True)
class MultiRateAdversary(Aligner):
    """The network and a domain classifier of grids in one phase; a row is a grid of one site."""

    name: ClassVar[str] = "fcan"
    takes: ClassVar[tuple[str, ...]] = ("rows", "maps")
    is_game: ClassVar[bool] = True

    def build(self, network: nn.Module, sizes: Sizes) -> nn.ModuleDict:
        """The domain classifier."""
        return nn.ModuleDict({"domain": MultiRateClassifier(sizes.features)})

    def phases(self, tau: float) -> Sequence[Phase]:
        """One that moves both."""
        return (Phase("align", ("network", "domain")),)

    def loss(self, phase: str, network: nn.Module, extra: nn.ModuleDict, seen: Seen, tau: float) -> Tensor:
        """The domain classifier's own loss; what comes back to the features is reversed."""
        strength = reversal_strength(tau)
        labelled, unlabelled = (
            extra["domain"](reverse_gradient(read_grid(seen, side), strength)) for side in (LABELLED, UNLABELLED)
        )
        seen.note("domain_accuracy", domain_accuracy(labelled, unlabelled))
        left = seen.mean(domain_loss(labelled, True), LABELLED)
        right = seen.mean(domain_loss(unlabelled, False), UNLABELLED)
        return self.weight * (left + right) / 2


def read_grid(seen: Seen, side: int) -> Tensor:
    """(B, d, h, w) what the classifier reads of a side; a row is a grid of one site."""
    features = (seen.labelled if side == LABELLED else seen.other).features
    sites = tuple(features.shape[2:]) or (1, 1)
    return seen.rows(side).view(len(features), *sites, -1).movedim(-1, 1)


def fcan(
    classes: int, *, weight: float = 0.2, restyle: float = 1.0, style: float = 1.0, iterations: int = 40
) -> Method:
    """FCAN: labelled pictures in the other's style, and features that a domain classifier cannot tell apart.

    Parameters
    ----------
    weight : of the domain classifier's loss, where the labelled cross-entropy has 1
    restyle : share of the new style, 0 … 1; 0 = pictures as they are
    style : how much the other side's style counts, where what a picture shows has 1
    iterations : steps that each picture is moved by
    """
    require(style > 0, f"style must be positive, got {style}", ConfigError)
    require(iterations >= 1, f"iterations must be at least 1, got {iterations}", ConfigError)
    restyler = AppearanceTransfer(weight=restyle, classes=classes, style=style, iterations=iterations)
    return replace(make_method(MultiRateAdversary(weight=weight)), restyle=restyler)
