"""From the sites of a picture to its pixels, and to the places between its sites; and how the sites are stored.

| symbol | shape | meaning |
| --- | --- | --- |
| sites | s c | the label distributions of a grid of sites |
| n | () | the pixels of a map of the picture, row by row |
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from embasis.functional import interpolation
from embasis.types import LabelDistribution, PackedLabels


class PixelLabels(LabelDistribution):
    """Labels at every pixel. What every map shows is at hand; the rest, C numbers a pixel, is computed at first use.

    All of the variance stands as `within`: its two parts are known at the sites only."""

    confidence: Tensor
    """(n) the label's probability"""
    total: Tensor
    """(n) the variance, summed over classes"""

    def __init__(self, sites: LabelDistribution, grid: tuple[int, int], size: tuple[int, int]) -> None:
        label, confidence, total, score = interpolation.surest_classes(sites.mean, sites.uncertainty, grid, size)
        columns = {"label": label, "confidence": confidence, "total": total, "uncertainty": score}
        # set like this, because the class is frozen
        self.__dict__.update(columns, _enlarge=lambda: interpolation.enlarge_means(sites.mean, grid, size))

    @cached_property
    def mean(self) -> Tensor:
        """(n, C)."""
        mean: Tensor = self.__dict__["_enlarge"]()
        return mean

    @property
    def between(self) -> Tensor:
        """(n, C) zeros."""
        return torch.zeros(1, 1).expand_as(self.mean)

    @cached_property
    def within(self) -> Tensor:
        """(n, C)."""
        return (self.mean - self.mean.square()).clamp_min(0)

    def __len__(self) -> int:
        return len(self.uncertainty)


def repeat_to_pixels(column: Tensor, grid: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """(n) at each pixel the value of the site in which its centre lies."""
    down, right = nearest_sites(size[0], grid[0]), nearest_sites(size[1], grid[1])
    return column.view(grid).index_select(1, right).index_select(0, down).flatten()


def nearest_sites(pixels: int, sites: int) -> Tensor:
    """The site that the centre of each pixel lies in, along one side."""
    return (2 * torch.arange(pixels) + 1) * sites // (2 * pixels)


def pack(row: int, grid: tuple[int, ...], distribution: LabelDistribution, network: Tensor) -> PackedLabels:
    """A row's label distribution as it is kept."""
    mean, between = interpolation.pack_moments(distribution.mean, distribution.between)
    return PackedLabels(row, grid, mean, between, distribution.uncertainty.float(), network.to(torch.uint8))


def unpack(part: PackedLabels) -> LabelDistribution:
    """A row's label distribution as it was kept."""
    mean, between = interpolation.unpack_moments(part.mean, part.between)
    return LabelDistribution(mean, between, mean - mean.square() - between, part.uncertainty)


def mix_labels(distribution: LabelDistribution, index: Tensor, share: Tensor) -> LabelDistribution:
    """The label distributions of places between sites."""
    mean, between, score = interpolation.mixtures(
        distribution.mean, distribution.between, distribution.uncertainty, index, share
    )
    return LabelDistribution(mean, between, (mean - mean.square()).clamp_min(0) - between, score)
