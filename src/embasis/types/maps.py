"""Samples with more than one site: what they show, where each site lies, and how pictures become a network's input.

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

from embasis.errors import ConfigError, quoted, require


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
class MapPlan:
    """How pictures with label maps are shown to a network, in training and in prediction."""

    size: int = 256
    """Pixels of the short side that a picture is resized to; 0 = as it is."""
    crop_height: int = 256
    crop_width: int = 256
    """Training views; sides are cut down to what the network can take."""
    least_scale: float = 0.75
    most_scale: float = 1.5
    """Training views are enlarged by a factor between these."""
    flip: bool = True
    colour: float = 0.2
    """Range of brightness, contrast and saturation in training."""
    blur: float = 0.2
    """Share of training views that are blurred."""
    rare: float = 0.5
    """Share of training views that contain a place of a rarely labelled class."""
    window: int = 0
    """Pixels of the side of a sliding window in prediction; 0 = whole pictures."""
    workers: int = 1
    """Processes that read files; changes no result."""

    def __post_init__(self) -> None:
        def check(rule: bool, text: str) -> None:
            require(rule, text, ConfigError)

        check(self.size == 0 or self.size >= 16, f"maps.size must be 0 or at least 16, got {self.size}")
        check(self.window == 0 or self.window >= 64, f"maps.window must be 0 or at least 64, got {self.window}")
        for name in ("crop_height", "crop_width"):
            check(getattr(self, name) >= 16, f"maps.{name} must be at least 16, got {getattr(self, name)}")
        order = f"maps.least_scale and most_scale must be in order and in [0.1, 10], got {self.least_scale}"
        check(0.1 <= self.least_scale <= self.most_scale <= 10, f"{order} and {self.most_scale}")
        for name in ("colour", "blur", "rare"):
            check(0 <= getattr(self, name) <= 1, f"maps.{name} must be in [0, 1], got {getattr(self, name)}")
        check(0 <= self.workers <= 64, f"maps.workers must be in 0..64, got {self.workers}")


@dataclass(frozen=True)
class MapPreparation:
    """A plan for one network: `stride` pixels are the side of a site, sides of inputs are multiples of `multiple`."""

    plan: MapPlan
    stride: int
    multiple: int

    def __post_init__(self) -> None:
        rule = f"multiple must be a multiple of the stride {self.stride}, got {self.multiple}"
        require(self.stride >= 1 and self.multiple % self.stride == 0, rule, ConfigError)


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
        require(self.coded in known, f"classes: coded must be one of {', '.join(known)}, got {quoted(self.coded)}")
        require(self.coded != "colours" or bool(self.colours), "classes: colour-coded maps need the colours of classes")

    @property
    def numbers(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of each class in a map: its ids, or its colour as 0xRRGGBB; none where a class has none."""
        if self.coded != "colours":
            return self.ids
        return tuple((red << 16 | green << 8 | blue,) if red >= 0 else () for red, green, blue in self.colours)
