"""What alignment methods are made of: domain classifiers, copies of heads, and the parts of a network.

| module | in the literature |
| --- | --- |
| domain classifier of rows | two hidden layers of 128 (vectors) or 1,024 (features of pictures), dropout 0.5 |
| the same, of small pictures | one hidden layer of 100 without dropout (Ganin et al.'s for MNIST); ADDA: two of 500 |
| domain classifier of sites | two hidden layers of 512 and 256, site by site (CyCADA) |
| discriminator of maps | five 4×4 convolutions of stride 2, 64 to 512 channels, LeakyReLU 0.2 between them |

No extra module uses batch statistics, so that every loss stays a sum over rows.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

from torch import Tensor, nn
from torch.nn.functional import interpolate

from embasis.errors import ConfigError, require
from embasis.functional.sites import to_sites
from embasis.methods.baselines import SoftmaxLabeller
from embasis.methods.losses import PseudoLabelLoss
from embasis.methods.selectors import SelectNone
from embasis.types import Aligner, Method, Output, Sizes, trainable

SMALL_WIDTH = 100
"""Hidden units of a domain classifier of small pictures."""


def make_method(aligner: Aligner) -> Method:
    """A method that does nothing but align: the network's softmax labels, and no label is trained on."""
    return Method(aligner.name, SoftmaxLabeller(), SelectNone(), PseudoLabelLoss(0.0), align=aligner)


def encoder_of(network: nn.Module) -> nn.Module:
    """The part of a network that makes features."""
    encoder, name = getattr(network, "extractor", None), type(getattr(network, "module", network)).__name__
    rule = f"this method needs a network with an extractor and a classifier, got {name}"
    require(
        isinstance(encoder, nn.Module), f"{rule}; embasis.networks.network.Network(extractor, …) is one", ConfigError
    )
    return cast(nn.Module, encoder)


def classifier_of(network: nn.Module) -> nn.Module:
    """The part of a network that makes scores of features: a head that sees grids, or a linear classifier."""
    encoder_of(network)
    head = getattr(network, "head", None)
    return cast(nn.Module, getattr(network, "classifier", None) if head is None else head)


def encoder_weights(network: nn.Module) -> list[nn.Parameter]:
    """What moves when features move: the encoder, and Stage I's basis block, where there is one."""
    block = getattr(network, "basis", None)
    return trainable(encoder_of(network)) + ([] if block is None else trainable(block))


def rows_read_by(network: nn.Module, output: Output, side: int) -> Tensor:
    """(n, d) what the classifier of any network, such as a frozen copy, reads of its features."""
    rows, domains = to_sites(output.features).float(), getattr(network, "domains", None)
    return rows if domains is None else cast(Tensor, domains(rows, side))


def make_head_like(classifier: nn.Module) -> nn.Module:
    """Another head of the same shape, drawn anew: two heads that begin alike would never part."""
    head = copy.deepcopy(classifier)
    own = hasattr(head, "reset_parameters")
    for module in [head] if own else [part for part in head.modules() if isinstance(part, nn.Linear | nn.Conv2d)]:
        cast(nn.Linear, module).reset_parameters()
    return head


def make_teacher(network: nn.Module) -> nn.Module:
    """A copy that follows the network by its averages: without gradients, and without dropout."""
    return copy.deepcopy(network).requires_grad_(False).eval()


def average_weights(teacher: nn.Module, network: nn.Module, share: float) -> None:
    """teacher ← share · teacher + (1 − share) · network, weight by weight; buffers are the network's."""
    for mean, weight in zip(teacher.parameters(), network.parameters(), strict=True):
        mean.lerp_(weight, 1 - share)
    for kept, value in zip(teacher.buffers(), network.buffers(), strict=True):
        kept.copy_(value)


def hidden_width(sizes: Sizes) -> int:
    """Units of a hidden layer that reads features, as the literature has them: ADDA's D, MDD's second head."""
    if len(sizes.inputs) == 1:
        return 128
    return 500 if is_small_picture(sizes) else 1024


def is_small_picture(sizes: Sizes) -> bool:
    """Whether inputs are grids with sides of at most 64."""
    return len(sizes.inputs) > 1 and max(sizes.inputs) <= 64


class DomainClassifier(nn.Sequential):
    """Rows (n, d) → scores (n): positive for the labelled side."""

    def __init__(self, width: int, hidden: Sequence[int], dropout: float = 0.5) -> None:
        layers = list[nn.Module]()
        for before, after in pairwise((width, *hidden)):
            layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(dropout)]
        super().__init__(*layers, nn.Linear(hidden[-1], 1))

    def forward(self, rows: Tensor) -> Tensor:
        """(n)."""
        score: Tensor = super().forward(rows)
        return score.squeeze(1)


def make_domain_classifier(width: int, sizes: Sizes) -> DomainClassifier:
    """What dann, cdan, bsp and simnet play against, for rows of this width: one head for the family.

    Of small pictures Ganin et al.'s for MNIST: two layers of 500 would cost more than the network that they judge."""
    if is_small_picture(sizes):
        return DomainClassifier(width, (SMALL_WIDTH,), dropout=0.0)
    return DomainClassifier(width, (hidden_width(sizes),) * 2)


class SiteClassifier(nn.Sequential):
    """Grids (B, d, h, w) → a score of every site (B·h·w), none of which sees its neighbours: positive for the labelled
    side. One score and a binary cross-entropy are the published two scores and their softmax."""

    def __init__(self, width: int, dropout: float = 0.5) -> None:
        super().__init__(
            nn.Conv2d(width, 512, 1), nn.Dropout2d(dropout), nn.ReLU(),
            nn.Conv2d(512, 256, 1), nn.Dropout2d(dropout), nn.ReLU(),
            nn.Conv2d(256, 1, 1),
        )  # fmt: skip

    def forward(self, grid: Tensor) -> Tensor:
        """(B·h·w)."""
        score: Tensor = super().forward(grid)
        return score.flatten()


class MapDiscriminator(nn.Module):
    """Maps (B, C, h, w) of each class, enlarged to pixels → scores (n) of all patches: positive for the labelled side.

    Five layers of stride 2 shrink maps 32 times; where a side has fewer than 64 pixels the last layers keep the size,
    by 3×3 convolutions."""

    def __init__(self, classes: int, sides: tuple[int, int], width: int = 64) -> None:
        super().__init__()
        self.sides = sides
        strided, layers = count_strided_layers(min(sides)), list[nn.Module]()
        channels = (classes, width, 2 * width, 4 * width, 8 * width, 1)
        for number, (before, after) in enumerate(pairwise(channels)):
            kernel, stride = (4, 2) if number < strided else (3, 1)
            layers += [nn.Conv2d(before, after, kernel, stride, padding=1), nn.LeakyReLU(0.2)]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, maps: Tensor) -> Tensor:
        """(n): as many of each picture."""
        scores: Tensor = self.layers(interpolate(maps, self.sides, mode="bilinear", align_corners=False))
        return scores.flatten()


def count_strided_layers(side: int) -> int:
    """How many of a discriminator's five layers halve maps of this side: all from 64 pixels on, else ⌊log₂ side⌋−1."""
    return min(max(side.bit_length() - 2, 0), 5)
