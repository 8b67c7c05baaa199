"""The network of every method: an extractor, a linear classifier, and the basis block when a method wants one.

Any torch module that maps (B, …) to features (B, d, *S) is an extractor; a module that already returns an `Output` is
used as it is. At the end stand the networks for arrays, which are trained from scratch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from embasis.errors import ConfigError, require
from embasis.functional import basis, sites
from embasis.types import BasisTerms, Output


class DomainNorm(nn.Module):
    """(x − centre) / scale with a pair for each side: the classifier sees both domains alike (decision 0017).

    | buffer | shape | meaning |
    | --- | --- | --- |
    | centre, scale | 2 d | of the labelled (0) and the unlabelled side (1) |
    """

    centre: Tensor
    scale: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(2, features))
        self.register_buffer("scale", torch.ones(2, features))

    def forward(self, rows: Tensor, side: int) -> Tensor:
        """Rows (N, d) of one side."""
        return (rows - self.centre[side]) / self.scale[side]


class BasisBlock(nn.Module):
    """Stage I's attention-like block: Z = X Wᵀ on centred unit features; W (K, d) is the proposed basis."""

    def __init__(self, components: int, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(components, features))
        nn.init.orthogonal_(self.weight)

    def loss(self, features: Tensor, y: Tensor, terms: BasisTerms) -> Tensor:
        """a·‖WWᵀ − I‖² + b·‖X − ZW‖² + c·‖ZZᵀ − YYᵀ‖², each per entry, on the labelled sites of the batch."""
        known, w = y >= 0, self.weight
        orthogonal = terms.orthogonal * basis.orthogonality(w)
        if not bool(known.any()):  # a batch of views that show no class
            return orthogonal
        rows = sites.to_sites(features)[known]
        x = sites.unit_rows(rows - rows.mean(0, keepdim=True))
        reconstruction = terms.reconstruction * basis.reconstruction(x, w)
        return orthogonal + reconstruction + terms.affinity * basis.affinity(x, w, y[known])


@dataclass(frozen=True)
class SiteGrid:
    """A picture (B, 3, H, W) becomes a grid of sites (H / stride, W / stride); H and W are multiples of `multiple`."""

    stride: int = 1
    multiple: int = 1


ONE_SITE = SiteGrid()


class Network(nn.Module):
    """features = extractor(x); logits = classifier(features), site by site; `side`: whose domain the rows are of.

    With a `head`, logits = head(features) in place of the classifier: it sees neighbours, grids (B, d, h, w).
    """

    classifier: nn.Linear
    """Only where there is no head."""

    def __init__(
        self,
        extractor: nn.Module,
        features: int,
        classes: int,
        by_domain: bool = False,
        *,
        head: nn.Module | None = None,
        grid: SiteGrid = ONE_SITE,
    ) -> None:
        super().__init__()
        assert head is None or not by_domain, "a head sees grids, scales by domain are of rows"
        self.extractor = extractor
        if head is None:
            self.classifier = nn.Linear(features, classes)
        self.domains = DomainNorm(features) if by_domain else None
        self.basis: BasisBlock | None = None
        self.head = head
        self.features, self.stride, self.multiple = features, grid.stride, grid.multiple
        self.window = 0

    def forward(self, x: Tensor, side: int = 1) -> Output:
        """Features (B, d, *S) and logits (B, C, *S)."""
        features = self.extractor(x)
        if self.head is not None:
            return Output(features, self.head(features))
        rows = features.movedim(1, -1)
        logits = self.classify_features(rows.flatten(0, -2), side)
        return Output(features, logits.unflatten(0, rows.shape[:-1]).movedim(-1, 1))

    def classify_features(self, rows: Tensor, side: int) -> Tensor:
        """Logits (N, C) of rows of features (N, d); a network with a head classifies grids alone."""
        if self.domains is not None:
            rows = self.domains(rows.float(), side)
        return sites.times(rows, self.classifier.weight.T) + self.classifier.bias

    def add_basis(self, components: int) -> BasisBlock:
        """The attention block of Stage I, orthonormal at the start."""
        self.basis = BasisBlock(components, self.features).to(next(self.parameters()).device)
        return self.basis


def has_fixed_features(network: nn.Module) -> bool:
    """Whether training changes the classifier alone: no layer before it can be trained."""
    return isinstance(network, Network) and not any(weight.requires_grad for weight in network.extractor.parameters())


def reads_only(network: nn.Module) -> bool:
    """Whether a network is sure to write nothing into its inputs: it classifies them as they are."""
    return isinstance(network, Network) and type(network.extractor) is nn.Flatten


def linear(shape: tuple[int, ...], classes: int) -> Network:
    """A linear classifier on the features as they are; starts at zero, so no draw decides anything."""
    network = Network(nn.Flatten(), prod(shape), classes)
    nn.init.zeros_(network.classifier.weight)
    nn.init.zeros_(network.classifier.bias)
    return network


def mlp(shape: tuple[int, ...], classes: int, *, hidden: int = 128, layers: int = 1, dropout: float = 0.2) -> Network:
    """A multi-layer perceptron with ReLU and dropout."""
    require(hidden >= 1, f"hidden must be at least 1, got {hidden}", ConfigError)
    require(layers >= 1, f"layers must be at least 1, got {layers}", ConfigError)
    require(0 <= dropout < 1, f"dropout must be in [0, 1), got {dropout}", ConfigError)
    width, parts = prod(shape), list[nn.Module]([nn.Flatten()])
    for _ in range(layers):
        parts += [nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout)]
        width = hidden
    return Network(nn.Sequential(*parts), hidden, classes)


def adapter(shape: tuple[int, ...], classes: int, *, width: int = 256, dropout: float = 0.5) -> Network:
    """One trained layer before a linear classifier: what alignment methods need on features that are fixed."""
    require(width >= 1, f"width must be at least 1, got {width}", ConfigError)
    require(0 <= dropout < 1, f"dropout must be in [0, 1), got {dropout}", ConfigError)
    layer = nn.Linear(prod(shape), width)
    network = Network(nn.Sequential(nn.Flatten(), layer, nn.ReLU(), nn.Dropout(dropout)), width, classes)
    for linear_layer, deviation, bias in ((layer, 0.005, 0.1), (network.classifier, 0.01, 0.0)):
        nn.init.normal_(linear_layer.weight, std=deviation)
        nn.init.constant_(linear_layer.bias, bias)
    return network


def small_cnn(
    shape: tuple[int, ...],
    classes: int,
    *,
    width: int = 16,
    features: int = 64,
    dropout: float = 0.2,
    norm: bool = True,
) -> Network:
    """Two 3×3 convolutions, pooling and a dense layer; for images of 8×8 and a little more.

    With `norm` each channel of a picture has mean 0 and deviation 1 after a convolution, whatever its contrast
    (decision 0034)."""
    require(len(shape) == 3, f"small_cnn needs images (channels, height, width), got shape {shape}", ConfigError)
    require(min(shape[1:]) >= 4, f"small_cnn needs images of at least 4×4, got {shape[1]}×{shape[2]}", ConfigError)
    require(width >= 1, f"width must be at least 1, got {width}", ConfigError)
    require(features >= 1, f"features must be at least 1, got {features}", ConfigError)
    require(0 <= dropout < 1, f"dropout must be in [0, 1), got {dropout}", ConfigError)
    first, second = nn.Conv2d(shape[0], width, 3, padding=1), nn.Conv2d(width, 2 * width, 3, padding=1)
    if norm:
        layers = [first, nn.GroupNorm(width, width), nn.ReLU()]
        layers += [second, nn.MaxPool2d(2), nn.GroupNorm(2 * width, 2 * width), nn.ReLU()]
    else:
        layers = [first, nn.ReLU(), second, nn.ReLU(), nn.MaxPool2d(2)]
    pooled = 2 * width * (shape[1] // 2) * (shape[2] // 2)
    dense = [nn.Flatten(), nn.Linear(pooled, features), nn.ReLU(), nn.Dropout(dropout)]
    return Network(nn.Sequential(*layers, *dense), features, classes)
