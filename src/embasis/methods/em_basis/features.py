"""Sites as the labeller sees them: centred and scaled by their side, of unit length (eq. 13 of docs/method.md).

| symbol | shape | meaning |
| --- | --- | --- |
| x | n d | features of a chunk of sites; a chunk is of one side |
| y | n | class of a site, −1 on the unlabelled side |
| centre, scale | 2 d | of the labelled (0) and the unlabelled side (1) |
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from embasis.functional import sites
from embasis.functional.remembered import BYTES, remember_calls, remember_memory
from embasis.types import Features, Stream

ALIGNED = 16
"""Chunks begin at a multiple of so many rows, as memory of their own would: a product may round by where rows lie."""


@dataclass(frozen=True, eq=False)
class PreparedSites:
    """All sites that a round learns from, chunk by chunk."""

    stream: Stream
    rows: list[Tensor]
    """(n, d) features of each chunk, centred, scaled and of unit length"""
    classes: int

    @property
    def labelled(self) -> list[Tensor]:
        """(n) of each chunk: which sites have a label."""
        return [part.y >= 0 for part in self.stream]

    @property
    def count(self) -> int:
        """Sites of all chunks."""
        return sum(len(row) for row in self.rows)


def is_unlabelled(part: Features) -> bool:
    """Whether a chunk, which is of one side, is of the unlabelled one."""
    return len(part) > 0 and int(part.y[0]) < 0


def first_rows(parts: Iterable[Tensor], most: int) -> Tensor:
    """The first `most` rows; hardly more than these are copied."""
    taken, count = list[Tensor](), 0
    for part in parts:
        taken.append(part)
        count += len(part)
        if count >= most:
            break
    return sites.join_rows(*taken)[:most]


def domain_statistics(stream: Stream, centring: str) -> tuple[Tensor, Tensor]:
    """(2, d) centres and scales: of each side ("domain"), of both together ("joint"), or none."""
    width, rows = stream[0].x.shape[1], [(part.x, part.y) for part in stream]
    if centring == "none":
        return torch.zeros(2, width, dtype=torch.float64), torch.ones(2, width, dtype=torch.float64)
    sums = [sites.sum_parts((rows_of_side(x, y, side) for x, y in rows), len(stream), width) for side in (False, True)]
    if centring == "joint" or not float(sums[1][0]):
        (count, total, squares), (other_count, other_total, other_squares) = sums
        both = (count + other_count, total + other_total, squares + other_squares)
        sums = [both, both]
    return stack_scalings(*sums[0], *sums[1])


def rows_of_side(x: Tensor, y: Tensor, unlabelled: bool) -> Tensor:
    """The rows of one side; all of them are not copied."""
    here = (y < 0) == unlabelled
    return x if bool(here.all()) else x[here]


@remember_calls
def stack_scalings(*sums: Tensor) -> tuple[Tensor, Tensor]:
    """(2, d) centres and scales of both sides, by their counts, totals and squares."""
    pairs = [sites.centre_and_scale(*side) for side in (sums[:3], sums[3:])]
    return torch.stack([pair[0] for pair in pairs]), torch.stack([pair[1] for pair in pairs])


def prepare(features: Features, centre: Tensor, scale: Tensor) -> Tensor:
    """Features centred and scaled by their side, of unit length."""
    side = (features.y < 0).long()
    if len(side) and bool((side == side[:1]).all()):
        return prepare_side(features.x, centre[int(side[0])], scale[int(side[0])])
    return sites.unit_rows(((features.x.double() - centre[side]) / scale[side]).float())


@remember_memory
def prepare_side(x: Tensor, centre: Tensor, scale: Tensor) -> Tensor:
    """Rows of one side centred, scaled and of unit length: a linear network's are prepared once for all rounds."""
    return sites.unit_rows(sites.standardise(x, centre, scale))


def prepare_all(stream: Stream, centre: Tensor, scale: Tensor) -> list[Tensor]:
    """Every chunk prepared. Many are in one block of memory: by themselves they lie between gaps of their own size."""
    if 4 * sum(part.x.numel() for part in stream) <= BYTES:
        return [prepare(part, centre, scale) for part in stream]
    sizes = [-(-len(part) // ALIGNED) * ALIGNED for part in stream]
    places = torch.empty(sum(sizes), stream[0].x.shape[1]).split(sizes)
    return [place[: len(part)].copy_(prepare(part, centre, scale)) for place, part in zip(places, stream, strict=True)]


def weights_of(stream: Stream) -> Tensor | None:
    """The weights of all sites; None if each stands for itself."""
    plain = all(part.weight is None for part in stream)
    return None if plain else torch.cat([part.site_weight for part in stream])


def digest_features(stream: Stream, scores: bool = False) -> Tensor:
    """(32) uint8: sha256 over those of features and labels, and of the network's scores where they matter."""
    digest = hashlib.sha256()
    for part in stream:
        digest.update(f"{part.x.dtype} {tuple(part.x.shape)}".encode())
        columns = [part.x, part.y] + ([] if part.weight is None else [part.weight]) + ([part.scores] if scores else [])
        for column in columns:
            digest.update(digest_column(column))
    return torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)


@remember_memory
def digest_column(column: Tensor) -> bytes:
    """sha256 of the bytes of a tensor."""
    return hashlib.sha256(column.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()).digest()
