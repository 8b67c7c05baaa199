"""Labels of all sites: the labeller's distributions, then what the selector trusts of them.

Rows with one site each are labelled in memory. Those with grids of sites go to the shelf row by row, so that a round
over thousands of pictures needs no more memory than one of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from embasis.engine.doubts import refuse_broken
from embasis.engine.extract import CHUNK, extract, fill
from embasis.engine.progress import Progress
from embasis.engine.survey import Survey
from embasis.engine.verdict import Choice, Labelled, Shelved, Verdict, pack, unpack
from embasis.types import (
    Features,
    LabelDistribution,
    Labeller,
    Method,
    Packed,
    Plan,
    Problem,
    Samples,
    Shelf,
    State,
)


def decide(
    problem: Problem, known: Survey | None, method: Method, plan: Plan, progress: Progress, shelf: Shelf
) -> Verdict | Shelved:
    """Label all unlabelled sites, set the thresholds, select; `known` are their features, if they are all there."""
    samples = problem.unlabelled
    held = known.chunks if known is not None and known.whole else None
    chunks = iter(held) if held is not None else extract(progress.network, samples, plan, labelled=False)
    first = next(chunks, None)
    if first is None:
        return nothing(method, plan, progress, len(problem.schema))
    chunks = chain([first], chunks)
    if first.grid:
        parts = shelf.write(progress.round, packed(chunks, method, progress))
        progress.selector = method.selector.fit(Unpacked(parts), progress.round)
        return Shelved(parts, samples.ids, Choice(method.selector, progress.selector, plan.seed, progress.round))
    labels, scores = labels_of(chunks, method, progress)
    progress.selector = method.selector.fit(labels, progress.round)
    choice = Choice(method.selector, progress.selector, plan.seed, progress.round)
    return Verdict.of(join(labels), scores, samples.ids, choice)


def nothing(method: Method, plan: Plan, progress: Progress, classes: int) -> Verdict:
    """The verdict on no rows."""
    empty = torch.empty(0, classes)
    distribution = LabelDistribution(empty, empty, empty, torch.empty(0))
    progress.selector = method.selector.fit([distribution], progress.round)
    choice = Choice(method.selector, progress.selector, plan.seed, progress.round)
    return Verdict.of(distribution, empty, torch.empty(0, dtype=torch.int64), choice)


def label_chunk(labeller: Labeller, chunk: Features, state: State) -> LabelDistribution:
    """The labeller's verdict on a chunk, sample by sample where they have grids.

    So every product has one shape, whatever samples are beside it, and no bit depends on them."""
    return join([label_filled(labeller, part, state) for part in one_by_one(chunk)])


def one_by_one(chunk: Features) -> Iterator[Features]:
    """The samples of a chunk where they have grids, else as many rows as are labelled at once."""
    size = math.prod(chunk.grid) if chunk.grid else CHUNK
    columns = zip(*(column.split(size) for column in (chunk.x, chunk.scores, chunk.y, chunk.ids)), strict=True)
    return (Features(*parts) for parts in columns)


def label_filled(labeller: Labeller, chunk: Features, state: State) -> LabelDistribution:
    """The verdict on sites that are filled up to a chunk and cut again."""
    count = len(chunk)
    if count < CHUNK:
        y = torch.nn.functional.pad(chunk.y, (0, CHUNK - count), value=-1)
        chunk = Features(fill(chunk.x), fill(chunk.scores), y, fill(chunk.ids))
    whole = labeller.label(chunk, state)
    found = LabelDistribution(
        whole.mean[:count], whole.between[:count], whole.within[:count], whole.uncertainty[:count]
    )
    refuse_broken(found, chunk.ids[:count])
    return found


def labels_of(chunks: Iterable[Features], method: Method, progress: Progress) -> tuple[list[LabelDistribution], Tensor]:
    """Label distributions and scores of rows with one site each."""
    labels, scores = list[LabelDistribution](), list[Tensor]()
    for chunk in chunks:
        labels.append(label_chunk(method.labeller, chunk, progress.labeller))
        scores.append(chunk.scores)
    return labels, torch.cat(scores)


def packed(chunks: Iterable[Features], method: Method, progress: Progress) -> Iterator[Packed]:
    """Label distributions of rows with many sites, row by row, as they are kept."""
    for chunk in chunks:
        assert chunk.rows is not None
        for row, part in zip(chunk.rows.tolist(), one_by_one(chunk), strict=True):
            found = label_filled(method.labeller, part, progress.labeller)
            yield pack(row, chunk.grid, found, named(part.scores))


def named(scores: Tensor) -> Tensor:
    """The network's own labels; to look through scores that lie class by class takes four times as long."""
    return scores.contiguous().argmax(1)


@dataclass(frozen=True, eq=False)
class Unpacked(Sequence[LabelDistribution]):
    """What a selector learns from, read from the shelf."""

    parts: Sequence[Packed]

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, row: Any) -> Any:
        return unpack(self.parts[row])


def labelled_parts(
    samples: Samples, method: Method, plan: Plan, progress: Progress, round_number: int
) -> Iterator[Labelled]:
    """Labels of any samples of the unlabelled side's kind, by what that round has learned; nothing is fitted."""
    choice = Choice(method.selector, progress.selector, plan.seed, round_number)
    for chunk in extract(progress.network, samples, plan, labelled=False):
        assert chunk.rows is not None
        found, network = label_chunk(method.labeller, chunk, progress.labeller), named(chunk.scores)
        if chunk.grid:  # as precise as what a round keeps
            found = unpack(pack(0, chunk.grid, found, network))
        yield Labelled(chunk.rows, chunk.grid, found, network, chunk.ids, choice)


def verdict_on(samples: Samples, method: Method, plan: Plan, progress: Progress, round_number: int) -> Verdict:
    """The same for rows with one site each, all at once."""
    labels, scores = labels_of(extract(progress.network, samples, plan, labelled=False), method, progress)
    choice = Choice(method.selector, progress.selector, plan.seed, round_number)
    return Verdict.of(join(labels), scores, samples.ids, choice)


def join(parts: list[LabelDistribution]) -> LabelDistribution:
    """Chunks as one; a single one is not copied."""
    if len(parts) == 1:
        return parts[0]
    return LabelDistribution(
        torch.cat([part.mean for part in parts]),
        torch.cat([part.between for part in parts]),
        torch.cat([part.within for part in parts]),
        torch.cat([part.uncertainty for part in parts]),
    )
