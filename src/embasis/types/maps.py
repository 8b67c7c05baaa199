"""Samples with more than one site: what they show, where each site lies, and how label maps on disk are coded.

| symbol | meaning |
| --- | --- |
| *S, grid | the shape of the sites of one sample: () for a row with one label, (h, w) for a picture with a label map |
| place | (row, column) of a site's centre in its picture, both in [0, 1]; NaN = outside of it |
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from embasis.errors import quote, require


@dataclass(frozen=True, eq=False)
class View:
    """What a batch of samples shows: inputs (B, …), y (B, *S) with −1 = unknown, places (B, *S, 2) of grids."""

    inputs: Tensor
    y: Tensor
    places: Tensor | None = None

    @property
    def grid(self) -> tuple[int, ...]:
        """*S."""
        return tuple(self.y.shape[1:])


@dataclass(frozen=True, eq=False)
class CropTarget:
    """What training views are to show more often: classes (C) by how much they are wanted, and places if known.

    `places` has for each batch (B, 2): the place that a view of the row is to contain, NaN = any. Without it the reader
    looks for a wanted class in the row's own label map, if it has one.
    """

    classes: Tensor
    places: Sequence[Tensor] | None = None


@dataclass(frozen=True, eq=False)
class PackedLabels:
    """The label distribution of all sites of one row, small enough to keep: 3·C + 5 bytes a site."""

    row: int
    grid: tuple[int, ...]
    mean: Tensor
    """(S, C) float16"""
    between: Tensor
    """(S, C) uint8: 255 stands for ¼, the largest there is"""
    uncertainty: Tensor
    """(S) float32"""
    network: Tensor
    """(S) uint8: the network's own label"""


class LabelStore(Protocol):
    """Where the label distributions of a round lie until the next one is done."""

    def write(self, number: int, parts: Iterator[PackedLabels]) -> Sequence[PackedLabels]:
        """Keep the parts of a round, row after row; they are taken as they come and can be read again from here on."""

    def read(self, number: int) -> Sequence[PackedLabels]:
        """The parts of a round."""

    def keep(self, numbers: Collection[int]) -> None:
        """Forget all other rounds."""


class GroundTruth(Protocol):
    """True classes of each row, −1 = unknown, in the shape they were given in: () or a map (H, W)."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int) -> Tensor: ...


@dataclass(frozen=True)
class ClassTable:
    """How label maps on disk say which class a pixel has, and how they are written.

    `ids[c]` are the numbers of class c in a map, the first one is written; `colours[c]` its colour, in colour-coded
    maps and in pictures of labels. Numbers in `ignore` say nothing; any other number is an error, unless `others`.
    """

    names: tuple[str, ...]
    ids: tuple[tuple[int, ...], ...]
    colours: tuple[tuple[int, int, int], ...] = ()
    ignore: tuple[int, ...] = (255,)
    others: bool = False
    """Whether numbers that are not named are ignored, too."""
    coded: str = "ids"
    """"ids": 8- or 16-bit numbers, or a palette's indices; "colours": RGB; "first": first channel of 16-bit RGB."""

    def __post_init__(self) -> None:
        count = len(self.names)
        require(count >= 2, f"classes: at least 2 are needed, got {count}")
        require(count <= 254, f"classes: at most 254 are possible, got {count}")
        require(len(set(self.names)) == count, f"classes: names must be unique, got {list(self.names)}")
        require(len(self.ids) == count, f"classes: {count} names, but ids of {len(self.ids)}")
        require(not self.colours or len(self.colours) == count, f"classes: {count} names, {len(self.colours)} colours")
        known = ("ids", "colours", "first")
        require(self.coded in known, f"classes: coded must be one of {', '.join(known)}, got {quote(self.coded)}")
        require(self.coded != "colours" or bool(self.colours), "classes: colour-coded maps need the colours of classes")

    @property
    def numbers(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of each class in a map: its ids, or its colour as 0xRRGGBB; none where a class has none."""
        if self.coded != "colours":
            return self.ids
        return tuple((red << 16 | green << 8 | blue,) if red >= 0 else () for red, green, blue in self.colours)
