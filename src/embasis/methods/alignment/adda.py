"""ADDA (Tzeng et al. 2017): after source training, a copy of the encoder learns to be mistaken for the source's.

    map:    weight · BCE(D(M_t(x_t)), 1)                             moves the encoder M_t
    domain: BCE(D(⟦M_s(x_s)⟧), 1) + BCE(D(⟦M_t(x_t)⟧), 0)            moves D

M_s is a frozen copy of the encoder, made when round 1 begins; the classifier stays as source training left it. D reads
what the classifier reads of a row; of a label map it reads the scores, site by site (CyCADA's stage of features).

Deviations: the mean of the mapping loss is over the unlabelled rows alone; the authors' is over both sides, where the
labelled half has no gradient, so that theirs is half as long. Both phases go back to one pass of M_t, as in the
authors' code. Nothing holds the encoder to the labels: accuracy may rise and then fall, so that the rate matters.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from embasis.errors import ConfigError, require
from embasis.functional.alignment import domain_accuracy, domain_loss
from embasis.methods.alignment.parts import (
    DomainClassifier,
    SiteClassifier,
    encoder_of,
    hidden_width,
    make_method,
    rows_read_by,
)
from embasis.types import LABELLED, UNLABELLED, Aligner, Group, Method, Output, Phase, Seen, Sizes, trainable

BETAS = (0.5, 0.999)
"""Of adam, in games of this family."""


@dataclass(frozen=True, kw_only=True)
class EncoderMapping(Aligner):
    """The encoder against a domain classifier that knows the frozen encoder of the source model."""

    begins: int = 1
    rate: float = 0.2

    name: ClassVar[str] = "adda"
    takes: ClassVar[tuple[str, ...]] = ("rows", "maps")
    is_game: ClassVar[bool] = True

    def build(self, network: nn.Module, sizes: Sizes) -> nn.ModuleDict:
        """The source model as it is now, and the domain classifier, of rows of features or of grids of scores."""
        domain = (
            SiteClassifier(sizes.classes)
            if sizes.sites
            else DomainClassifier(sizes.features, (hidden_width(sizes),) * 2, dropout=0.0)
        )
        return nn.ModuleDict({"source": copy.deepcopy(network).requires_grad_(False), "domain": domain})

    def groups(self, network: nn.Module, extra: nn.ModuleDict) -> Mapping[str, Group]:
        """The encoder without the classifier, and the domain classifier."""
        encoder = Group(trainable(encoder_of(network)), rate=self.rate, betas=BETAS)
        return {"encoder": encoder, "domain": Group(trainable(extra["domain"]), rate=self.rate, betas=BETAS)}

    def phases(self, tau: float) -> Sequence[Phase]:
        """The encoder, then the domain classifier by the same pass; no labels."""
        return (Phase("map", ("encoder",), labelled=False), Phase("domain", ("domain",), labelled=False, held=True))

    def loss(self, phase: str, network: nn.Module, extra: nn.ModuleDict, seen: Seen, tau: float) -> Tensor:
        """Unlabelled rows pass for labelled ones in "map", and are told apart from them in "domain"."""
        unlabelled = judge(extra["domain"], network, seen.other, UNLABELLED)
        if phase == "map":
            return self.weight * seen.mean(domain_loss(unlabelled, True), UNLABELLED)
        labelled = judge(extra["domain"], extra["source"], seen.run(extra["source"], seen.inputs, LABELLED), LABELLED)
        seen.note("domain_accuracy", domain_accuracy(labelled, unlabelled))
        left = seen.mean(domain_loss(labelled, True), LABELLED)
        return left + seen.mean(domain_loss(unlabelled, False), UNLABELLED)


def judge(domain: nn.Module, network: nn.Module, output: Output, side: int) -> Tensor:
    """The domain classifier's score of each site."""
    grids = isinstance(domain, SiteClassifier)
    score: Tensor = domain(output.logits.float() if grids else rows_read_by(network, output, side))
    return score


def adda(classes: int, *, weight: float = 1.0, rate: float = 0.2) -> Method:
    """ADDA: after source training the features of the unlabelled side learn to pass for the source's.

    Parameters
    ----------
    weight : of the loss that moves the features; there is no other
    rate : learning rate of features and domain classifier, in units of the plan's
    """
    require(rate > 0, f"rate must be positive, got {rate}", ConfigError)
    return make_method(EncoderMapping(weight=weight, rate=rate))
