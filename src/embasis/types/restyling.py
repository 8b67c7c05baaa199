"""Restyling: the labelled side is shown in the style of the unlabelled one before any network is trained on it.

A restyler learns from both sides how they differ to the eye (colours, textures), never from hidden labels. What it has
learned is a state, kept in every checkpoint; each row of the labelled side then goes through `restyle`, and its labels
stay where they are. It composes with every labeller and every aligner.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from embasis.errors import ConfigError, require
from embasis.types.problem import Samples
from embasis.types.values import State

ROWS_AT_ONCE, LARGE = 64, 2**12
"""Rows that are restyled together, up to so many numbers of a row; larger ones go one by one."""
CHANGE_VERSION = 1
"""Raised when the code of a restyler changes what becomes of a row: rows that were kept before are then not used."""


@dataclass(frozen=True, kw_only=True)
class Restyler:
    """Fit on both sides, applied to rows of the labelled one.

    Parameters
    ----------
    weight : share of the new style, 0 … 1, the rest is the old one; 0 = rows as they are, to the bit: nothing is fitted
    """

    weight: float = 1.0

    name: ClassVar[str] = ""
    takes_vectors: ClassVar[bool] = False
    """Whether rows may be vectors, which have no neighbouring pixels."""
    is_cheap: ClassVar[bool] = False
    """Whether restyling a row takes no longer than reading it: such rows are not worth keeping."""
    summary: ClassVar[str] = ""
    """What becomes of a picture, in plain words: a sentence without its first capital and its full stop."""

    def __post_init__(self) -> None:
        rule = f"{self.name}: the share of the new style must be in 0 … 1, got {self.weight}"
        require(0 <= self.weight <= 1, rule, ConfigError)

    def fit(self, labelled: Samples, unlabelled: Samples, start: State, seed: int) -> State:
        """What is learned: all of it, or a part of it after which the run can be stopped.

        `start` is what the last call returned, empty at first; it is called again until `is_fitted`."""
        raise NotImplementedError

    def is_fitted(self, state: State) -> bool:
        """Whether nothing is left to be learned."""
        return bool(state)

    def restyle(self, pictures: Tensor, state: State) -> Tensor:
        """Rows (B, …) in the other side's style: float32 of the same shape, in the units that they came in.

        What becomes of a row depends on the row and the state alone, so that it can be kept."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class RowChange:
    """A restyler with what it has learned, as a function of rows.

    Rows are restyled in batches of one shape, the last of them filled up, so that neither the rows beside a row nor an
    interruption changes a bit of it."""

    restyler: Restyler
    state: State

    def __call__(self, rows: Tensor) -> Tensor:
        """The rows restyled, of the same shape and type."""
        count = ROWS_AT_ONCE if math.prod(rows.shape[1:]) <= LARGE else 1
        return torch.cat([self._restyle(repeat_last(part, count))[: len(part)] for part in rows.split(count)])

    def _restyle(self, rows: Tensor) -> Tensor:
        """weight · restyled + (1 − weight) · rows, in the type of the rows."""
        weight, styled = self.restyler.weight, self.restyler.restyle(rows, self.state)
        if weight < 1:
            styled = weight * styled + (1 - weight) * rows.float()
        return styled.to(rows.dtype) if rows.is_floating_point() else styled.round().clamp(0, 255).to(rows.dtype)

    def key(self) -> str:
        """A hash of all that a restyled row depends on beside the row itself."""
        parts = hashlib.sha256(f"{CHANGE_VERSION} {self.restyler!r} {torch.cuda.is_available()}".encode())
        for name, value in sorted(self.state.items()):
            plain = value.detach().cpu().contiguous()
            parts.update(f"\x1f{name} {plain.dtype} {tuple(plain.shape)} ".encode() + plain.numpy().tobytes())
        return parts.hexdigest()


def repeat_last(rows: Tensor, count: int) -> Tensor:
    """The rows, the last one again and again up to `count`."""
    missing = count - len(rows)
    return rows if missing <= 0 or not len(rows) else torch.cat([rows, rows[-1:].expand(missing, *rows.shape[1:])])


class RestyledStore(Protocol):
    """Where restyled rows are kept, so that each is made once; `notes` are sentences about it for the user."""

    notes: list[str]

    def fill(self, samples: Samples, change: RowChange) -> Iterator[None]:
        """Restyle the rows that are not kept yet, with a pause after each few; what is done is kept."""

    def read(self, samples: Samples, change: RowChange) -> Samples:
        """The samples restyled, once all of their rows are kept."""
