"""SimNet (Pinheiro 2018): a row is of the class whose prototype it resembles, and features of both sides are confused.

    h(x, c) = (U f(x)) · (V μ_c),  μ_c = mean of g over labelled rows of class c
    loss    = CE(softmax h, y) + spread · ‖P Pᵀ − I‖² + weight · ½ [BCE(D(rev f_s), 1) + BCE(D(rev f_t), 0)]

The rows of P are the prototypes; g is a second encoder that begins as f. In a step a prototype is g of the first row of
its class in the batch, which is a random row; a class that the batch has not keeps the prototype of the last epoch.
At the end of every epoch prototypes are means over all labelled rows and are folded into the network's linear
classifier, w_c = Uᵀ V μ_c without a bias: that is h, so that the network alone predicts.

Deviations: the penalty compares prototypes, C×C; the d×d form of a summary of the paper cannot vanish for C < d. Rates
are the plan's (the paper's are not known to us). Weight 0 trains the plain classifier; a very small weight is the
similarity head without confusion.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from embasis.errors import ConfigError, require
from embasis.functional.adversaries import prototype_spread, similarity
from embasis.functional.alignment import domain_accuracy, domain_loss, reversal_strength, reverse_gradient
from embasis.methods.alignment.parts import (
    classifier_of,
    encoder_of,
    encoder_weights,
    make_domain_classifier,
    make_method,
)
from embasis.methods.losses import labelled_loss
from embasis.types import LABELLED, UNLABELLED, Aligner, Group, Method, Output, Passes, Phase, Seen, Sizes, trainable


class SimilarityHead(nn.Module):
    """U, V and the prototypes μ of the last epoch (C, d); a class without any is the zero vector."""

    prototypes: Tensor

    def __init__(self, sizes: Sizes, rank: int) -> None:
        super().__init__()
        self.of_rows = nn.Linear(sizes.features, rank, bias=False)
        self.of_prototypes = nn.Linear(sizes.features, rank, bias=False)
        self.register_buffer("prototypes", torch.zeros(sizes.classes, sizes.features))

    def forward(self, rows: Tensor, prototypes: Tensor) -> Tensor:
        """h: (n, d) and (C, d) → (n, C)."""
        return similarity(rows, prototypes, self.of_rows.weight, self.of_prototypes.weight)


@dataclass(frozen=True, kw_only=True)
class PrototypeSimilarity(Aligner):
    """A similarity head in place of the classifier, and DANN's game on the features."""

    weight: float = 0.5
    spread: float = 0.01
    rank: int = 512

    name: ClassVar[str] = "simnet"
    is_game: ClassVar[bool] = True

    def build(self, network: nn.Module, sizes: Sizes) -> nn.ModuleDict:
        """The second encoder, the head, and the domain classifier."""
        rule = f"simnet needs a network with a linear classifier, got {type(classifier_of(network)).__name__}"
        require(isinstance(classifier_of(network), nn.Linear), rule, ConfigError)
        modules = {
            "encoder": copy.deepcopy(encoder_of(network)),
            "head": SimilarityHead(sizes, self.rank),
            "domain": make_domain_classifier(sizes.features, sizes),
        }
        return nn.ModuleDict(modules)

    def groups(self, network: nn.Module, extra: nn.ModuleDict) -> Mapping[str, Group]:
        """The network without its classifier, which is folded, and each extra module."""
        modules = {name: Group(trainable(module)) for name, module in extra.items()}
        return {"network": Group(encoder_weights(network)), **modules}

    def phases(self, tau: float) -> Sequence[Phase]:
        """One, of the whole batch, because its prototypes are rows of it; the cross-entropy is the head's own."""
        moves = ("network", "encoder", "head", "domain")
        return (Phase("align", moves, labelled=False, stage_one=True, whole=True),)

    def loss(self, phase: str, network: nn.Module, extra: nn.ModuleDict, seen: Seen, tau: float) -> Tensor:
        """The head's cross-entropy, the prototypes' penalty, and the domain loss, reversed for the features."""
        prototypes = step_prototypes(extra, seen)
        scores = extra["head"](seen.rows(LABELLED), prototypes)
        own = seen.labelled_share * labelled_loss(Output(scores, scores), seen.y)
        labelled, unlabelled = (
            extra["domain"](reverse_gradient(seen.rows(side), reversal_strength(tau)))
            for side in (LABELLED, UNLABELLED)
        )
        seen.note("domain_accuracy", domain_accuracy(labelled, unlabelled))
        left = seen.mean(domain_loss(labelled, True), LABELLED)
        right = seen.mean(domain_loss(unlabelled, False), UNLABELLED)
        return own + self.spread * prototype_spread(prototypes) + self.weight * (left + right) / 2

    def settle(self, network: nn.Module, extra: nn.ModuleDict, when: str, labelled: Passes, step: int) -> None:
        """After an epoch: prototypes of all labelled rows, and the classifier that is h."""
        if when == "step":
            return
        encoder, head = extra["encoder"].eval(), cast(SimilarityHead, extra["head"])
        head.prototypes.copy_(mean_by_class(labelled(encoder), head.prototypes))
        encoder.train()
        classifier = cast(nn.Linear, classifier_of(network))
        classifier.weight.copy_(head.of_prototypes(head.prototypes) @ head.of_rows.weight)
        classifier.bias.zero_()


def step_prototypes(extra: nn.ModuleDict, seen: Seen) -> Tensor:
    """(C, d) g of the first labelled row of each class in the batch; of a class without one, that of the last epoch."""
    prototypes = cast(SimilarityHead, extra["head"]).prototypes
    first = [int(rows[0]) if len(rows := (seen.y == c).nonzero()) else -1 for c in range(len(prototypes))]
    chosen = torch.tensor(first, device=prototypes.device)
    if not bool((chosen >= 0).any()):
        return prototypes
    made = extra["encoder"](seen.inputs[chosen[chosen >= 0]]).float()
    return prototypes.index_copy(0, (chosen >= 0).nonzero().flatten(), made)


def mean_by_class(chunks: Iterator[tuple[Tensor, Tensor]], like: Tensor) -> Tensor:
    """(C, d) means of rows by class, of sums in float64; of a class without rows, zero."""
    total = torch.zeros(like.shape, dtype=torch.float64, device=like.device)
    count = total.new_zeros(len(like))
    for rows, y in chunks:
        known = y >= 0
        total.index_add_(0, y[known], rows[known].double())
        count += y[known].bincount(minlength=len(like))
    return (total / count.clamp_min(1).unsqueeze(1)).to(like.dtype)


def simnet(classes: int, *, weight: float = 0.5, spread: float = 0.01, rank: int = 512) -> Method:
    """SimNet: rows resemble the prototype of their class, and a domain classifier cannot tell them apart.

    Parameters
    ----------
    weight : of the domain classifier's loss, where the cross-entropy has 1
    spread : weight of the penalty by which prototypes become orthonormal
    rank : width of the space in which rows and prototypes are compared
    """
    require(spread >= 0, f"spread must not be negative, got {spread}", ConfigError)
    require(rank >= 1, f"rank must be at least 1, got {rank}", ConfigError)
    return make_method(PrototypeSimilarity(weight=weight, spread=spread, rank=rank))
