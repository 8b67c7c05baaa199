"""The network of every method: an extractor, a linear classifier, and the basis block when a method wants one.

Any torch module that maps (B, …) to features (B, d, *S) is an extractor; a module that already returns an `Output` is
used as it is.
"""

from __future__ import annotations

from torch import Tensor, nn

from embasis.functional.sites import times
from embasis.networks.basis_block import BasisBlock
from embasis.types import Output


class Network(nn.Module):
    """features = extractor(x); logits = classifier(features), site by site."""

    def __init__(self, extractor: nn.Module, features: int, classes: int) -> None:
        super().__init__()
        self.extractor = extractor
        self.classifier = nn.Linear(features, classes)
        self.basis: BasisBlock | None = None

    def forward(self, x: Tensor) -> Output:
        """Features (B, d, *S) and logits (B, C, *S)."""
        features = self.extractor(x)
        rows = features.movedim(1, -1)
        logits = times(rows.flatten(0, -2), self.classifier.weight.T) + self.classifier.bias
        return Output(features, logits.unflatten(0, rows.shape[:-1]).movedim(-1, 1))

    def add_basis(self, components: int) -> BasisBlock:
        """The attention block of Stage I, orthonormal at the start."""
        self.basis = BasisBlock(components, self.classifier.in_features)
        return self.basis
