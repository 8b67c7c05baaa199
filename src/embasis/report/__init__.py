"""The report of a run: RunView, all that its page shows as plain values, without torch.

`collect.py` reads them from a run folder; `summary.py` makes sentences and tables of them, `charts.py` figures, and
`page.py` the page. Values in, strings out; no files written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from embasis.errors import CorruptError, require, reveal

if TYPE_CHECKING:  # embasis.types imports torch, which a page does without
    from embasis.types import RoundRecord

_HOME_FOLDER = re.compile(r"(?:/home/|/Users/|[A-Za-z]:\\Users\\)[^/\\\s]+|/root(?=/|$)")
"""Whose computer it was is nobody's business."""
MOST_RESTYLED = 7
"""Labelled pictures that a page shows before and after a restyler; with an unlabelled one they fill two lines."""
THUMBNAILS_EACH, MOST_COMPONENTS = 8, 60
"""Pictures of a class and kind that a page shows, and components of the basis, those of the largest share."""
MOST_PICTURE_BYTES, MOST_BASIS_BYTES = 6_000_000, 1_500_000
"""Of all small pictures, and of those of the basis: base64 makes 8 MB of them, so a page stays below 10 MB."""


FACT_WORDS = {
    "agreement": "κ with the network", "alive": "components in use", "effective": "effective components",
    "power": "inverse temperature", "sound": "basis accepted", "tempering": "power of the network",
}  # fmt: skip
"""What stored names of facts mean."""


@dataclass(frozen=True)
class MapExample:
    """A picture of the gallery of a run on label maps: PNG bytes, at most 320 pixels wide."""

    name: str
    why: str
    """why it was chosen: "least sure", …"""
    picture: bytes
    labels: bytes
    """in the colours of the palette"""
    variance: bytes
    """grey, the brighter the less sure"""
    trusted: bytes
    """white where the label is trusted, black elsewhere"""
    truth: bytes | None = None


@dataclass(frozen=True)
class RowExample:
    """A row of the gallery of a run on pictures with one label each: JPEG or PNG bytes, at most 96 pixels wide."""

    name: str
    why: str
    """"surest" or "least sure" among those of its label"""
    label: str
    probability: float
    trusted: bool
    truth: str | None
    """the true class, where it is known"""
    picture: bytes


@dataclass(frozen=True)
class RestyledExample:
    """A labelled picture before and after a restyler: JPEG or PNG bytes, at most 160 pixels wide."""

    name: str
    label: str
    """its class; "" where a picture has many"""
    before: bytes
    after: bytes


@dataclass(frozen=True)
class RestyledPictures:
    """What a restyler made of some labelled pictures, and an unlabelled one, which they were to look like."""

    restyler: str
    summary: str
    """what it changes, in plain words"""
    share: float
    """of the new style; the rest is the old one"""
    count: int
    """of all labelled pictures"""
    examples: tuple[RestyledExample, ...]
    other_name: str = ""
    other: bytes | None = None


@dataclass(frozen=True)
class Component:
    """A component of the basis."""

    classes: tuple[tuple[str, float], ...]
    """its likeliest classes with their probabilities"""
    share: float
    """its part of the unlabelled side"""
    nearest: tuple[tuple[str, bytes | None], ...] = ()
    """the rows nearest to it, with a small picture where there is one"""


@dataclass(frozen=True)
class RunView:
    """All that a report page shows of one run, as plain values."""

    config: dict[str, Any]
    environment: dict[str, Any]
    rounds: tuple[RoundRecord, ...]
    timings: list[dict[str, Any]]
    """rows of round, stage, seconds"""
    labels: dict[str, list[Any]] | None
    """the last round's columns: id, label, probability, between, within, trusted, drawn"""
    status: str
    best_round: int
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """what was found in the data before training"""
    gallery: tuple[MapExample, ...] = ()
    palette: tuple[tuple[int, int, int], ...] = ()
    """the colour of each class in pictures of labels; empty for runs without label maps"""
    pictures: int = 0
    """of a run on label maps: how many are unlabelled; 0 = not known"""
    corrected: int = 0
    """labelled rows that a person has corrected on the unlabelled side"""
    items: tuple[RowExample, ...] = ()
    """of a run on pictures with one label each: some of them"""
    basis: tuple[Component, ...] = ()
    """of the round that is kept"""
    restyled: RestyledPictures | None = None
    """of a run whose method shows labelled pictures in the style of the unlabelled side"""
    refused: tuple[dict[str, Any], ...] = ()
    """files that could not be used: rows of name, reason, phase, side"""

    def __post_init__(self) -> None:
        n = len(self.classes)
        for record in self.rounds:
            matrices = [side.confusion for side in (record.evaluation, record.test) if side is not None]
            sizes = {len(record.class_counts), len(record.trusted_counts)}
            sizes |= {len(line) for matrix in matrices for line in (matrix, *matrix)}
            rule = f"round {record.round} must count {n} classes everywhere, got {sorted(sizes)}"
            require(sizes == {n}, rule, CorruptError)
        rule = f"palette must have a colour for each of {n} classes, got {len(self.palette)}"
        require(len(self.palette) in (0, n), rule, CorruptError)

    @property
    def on_maps(self) -> bool:
        """Whether rows are pictures with a label for each pixel."""
        return bool(self.palette)

    @property
    def kept(self) -> RoundRecord | None:
        """The record of `best_round`; None when there is none."""
        return next((record for record in self.rounds if record.round == self.best_round), None)

    @property
    def how_kept(self) -> str:
        """Why the round that is kept is that one, in words."""
        plan = self.config.get("plan")
        score = plan.get("keep_round", "last") if isinstance(plan, Mapping) else "last"
        if score != "last":
            return f"chosen by {score}, without true labels"
        last = not self.rounds or self.best_round == self.rounds[-1].round
        return "the last one" if last else "the best one before the collapse"


def public(text: str) -> str:
    """Text as a page shows it: visible, and without the names of home folders."""
    return reveal(_HOME_FOLDER.sub("~", text))
