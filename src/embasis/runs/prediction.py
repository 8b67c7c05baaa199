"""What is wanted of labels, and what was written of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from embasis.data.parts import WHOLE, Part
from embasis.errors import ConfigError, quote, require
from embasis.runs.label_maps import check_scales
from embasis.runs.precision import PrecisionTarget, check_precision

SORT_ORDERS = ("uncertainty",)
MOST_REASONS = 5
"""Files that a sentence names one by one."""


@dataclass(frozen=True)
class PredictOptions:
    """What to do with labels, and at which views pictures are labelled."""

    precision: float | None = None
    """Trust the labels that are right with this probability; None = those that the run's selector trusts."""
    sort: str | None = None
    """`uncertainty`: the least sure rows first; None = as they come."""
    scales: tuple[float, ...] = (1.0,)
    """Label maps: a label is the mixture over these sizes of a picture."""
    flip: bool = False
    """Label maps: each picture is also labelled turned over."""
    part: str | None = None
    """`3/16`: the third of sixteen contiguous parts of the rows; None = all of them."""

    def __post_init__(self) -> None:
        if self.precision is not None:
            check_precision(self.precision)
        rule = f"sort must be one of {', '.join(SORT_ORDERS)}, got {quote(self.sort)}"
        require(self.sort is None or self.sort in SORT_ORDERS, rule, ConfigError)
        check_scales(self.scales)
        if self.part is not None:
            some = f"part {Part.parse(self.part)} has some of them"
            cure = "label the parts without it, and sort the joined table"
            require(self.sort is None, f"sort puts all rows in order, and {some}; {cure}", ConfigError)
            rule = f"precision needs the labels of all rows, and {some}; label all of them in one call"
            require(self.precision is None, rule, ConfigError)

    @property
    def rows(self) -> Part:
        """The part of the rows that is labelled."""
        return WHOLE if self.part is None else Part.parse(self.part)


@dataclass(frozen=True, eq=False)
class RowPrediction:
    """The table of labels: id, label, probability, between, within, uncertainty, trusted; files that could not be read
    have no label and are the last rows, unless the table is sorted."""

    columns: dict[str, list[Any]]
    rejected: dict[str, str]
    """Why files could not be read, by name."""
    target: PrecisionTarget | None = None


@dataclass(frozen=True, eq=False)
class PredictionSummary:
    """What was written, for whoever prints it."""

    rows: int
    """Rows, or pictures, that are written."""
    trusted: float
    """How many of the rows are trusted; of pictures: the mean share of their pixels."""
    rejected: dict[str, str] = field(default_factory=dict)
    target: PrecisionTarget | None = None
    expected: float | None = None
    """How many of the trusted labels are expected to be right; None where probabilities were not recalibrated."""
    stale: int = 0
    """Maps of earlier pictures that are still in the folder."""
    label_words: ClassVar[str] = "label"
    """What a file gets if it can be read."""

    def sentences(self, output: str, precision: float | None) -> list[str]:
        """What was written, and how many rows are trusted."""
        if self.target is not None and precision is not None:
            return [f"wrote {output}: {self.target.sentence(precision)}"]
        rows, trusted = self.rows, int(self.trusted)
        if not rows:
            return [f"wrote {output}: no rows, this part of the input has none"]
        unit = "row" if rows == 1 else "rows"
        wrote = f"wrote {output}: {rows:,} {unit}, {trusted:,} of them trusted ({trusted / rows:.0%})"
        if self.expected is None:
            return [wrote]
        return [wrote, f"about {self.expected:.0%} of the trusted labels are believed to be right"]


@dataclass(frozen=True, eq=False)
class MapPredictionSummary(PredictionSummary):
    """What was written of pictures with label maps."""

    label_words: ClassVar[str] = "labels"

    def sentences(self, output: str, precision: float | None) -> list[str]:
        """What was written, and how much of the pictures is trusted."""
        pictures = "1 picture" if self.rows == 1 else f"{self.rows:,} pictures"
        what = f"labels, confidence, variance and trust of {pictures}, {self.trusted:.0%} trusted"
        if self.target is None or precision is None:
            return [f"wrote {output}: {what}"]
        return [f"wrote {output}: {what}", f"at the sites of the network {self.target.sentence(precision)}"]


def show_nothing(what: str, done: int, total: int) -> None:
    """For those who do not show how far the labelling is."""


def first_reasons(rejected: dict[str, str]) -> str:
    """Why the first files could not be read."""
    return "; ".join(f"{name}: {reason}" for name, reason in list(rejected.items())[:MOST_REASONS])
