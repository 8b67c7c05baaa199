"""Labels of all sites: the labeller's distributions, then what the selector trusts of them.

Rows with one site each are labelled in memory. Those with grids of sites go to the label store row by row, so that a
round over thousands of pictures needs no more memory than one of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from embasis.engine.features import CHUNK, extract, fill
from embasis.engine.round_labels import BoundSelector, LabelBatch, MapLabels, RoundLabels, RowLabels, pack, unpack
from embasis.engine.sampling import FeatureSample
from embasis.engine.state import LabelModel, TrainSetup
from embasis.engine.warnings import refuse_broken
from embasis.types import (
    Features,
    LabelDistribution,
    Labeller,
    Method,
    PackedLabels,
    Plan,
    Samples,
    State,
)


def label_and_select(
    setup: TrainSetup, model: LabelModel, round_number: int, sample: FeatureSample | None
) -> RoundLabels:
    """Label all unlabelled sites, set the thresholds, select; `sample` are their features, used if they are all there.

    The thresholds are in `choice.state` of what is returned."""
    samples, selector = setup.problem.unlabelled, setup.method.selector
    known = sample.chunks if sample is not None and sample.whole else None
    chunks = iter(known) if known is not None else extract(model.network, samples, setup.plan, labelled=False)
    first = next(chunks, None)
    if first is None:
        return no_labels(setup, round_number)
    chunks = chain([first], chunks)
    if first.grid:
        parts = setup.store.write(round_number, packed(chunks, setup.method, model))
        thresholds = selector.fit(Unpacked(parts), round_number)
        return MapLabels(parts, samples.ids, BoundSelector(selector, thresholds, setup.plan.seed, round_number))
    labels, scores = labels_of(chunks, setup.method, model)
    thresholds = selector.fit(labels, round_number)
    choice = BoundSelector(selector, thresholds, setup.plan.seed, round_number)
    return RowLabels.of(join(labels), scores, samples.ids, choice)


def no_labels(setup: TrainSetup, round_number: int) -> RowLabels:
    """The labels of no rows."""
    empty, selector = torch.empty(0, setup.classes), setup.method.selector
    distribution = LabelDistribution(empty, empty, empty, torch.empty(0))
    choice = BoundSelector(selector, selector.fit([distribution], round_number), setup.plan.seed, round_number)
    return RowLabels.of(distribution, empty, torch.empty(0, dtype=torch.int64), choice)


def label_chunk(labeller: Labeller, chunk: Features, state: State) -> LabelDistribution:
    """The labeller's distributions for a chunk, sample by sample where they have grids.

    So every product has one shape, whatever samples are beside it, and no bit depends on them."""
    return join([label_filled(labeller, part, state) for part in one_by_one(chunk)])


def one_by_one(chunk: Features) -> Iterator[Features]:
    """The samples of a chunk where they have grids, else as many rows as are labelled at once."""
    size = math.prod(chunk.grid) if chunk.grid else CHUNK
    columns = zip(*(column.split(size) for column in (chunk.x, chunk.scores, chunk.y, chunk.ids)), strict=True)
    return (Features(*parts) for parts in columns)


def label_filled(labeller: Labeller, chunk: Features, state: State) -> LabelDistribution:
    """Label distributions of sites that are filled up to a chunk and cut again."""
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


def labels_of(chunks: Iterable[Features], method: Method, model: LabelModel) -> tuple[list[LabelDistribution], Tensor]:
    """Label distributions and scores of rows with one site each."""
    labels, scores = list[LabelDistribution](), list[Tensor]()
    for chunk in chunks:
        labels.append(label_chunk(method.labeller, chunk, model.labeller))
        scores.append(chunk.scores)
    return labels, torch.cat(scores)


def packed(chunks: Iterable[Features], method: Method, model: LabelModel) -> Iterator[PackedLabels]:
    """Label distributions of rows with many sites, row by row, as they are kept."""
    for chunk in chunks:
        assert chunk.rows is not None
        for row, part in zip(chunk.rows.tolist(), one_by_one(chunk), strict=True):
            found = label_filled(method.labeller, part, model.labeller)
            yield pack(row, chunk.grid, found, named(part.scores))


def named(scores: Tensor) -> Tensor:
    """The network's own labels; to look through scores that lie class by class takes four times as long."""
    return scores.contiguous().argmax(1)


@dataclass(frozen=True, eq=False)
class Unpacked(Sequence[LabelDistribution]):
    """What a selector learns from, read from the label store."""

    parts: Sequence[PackedLabels]

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, row: Any) -> Any:
        return unpack(self.parts[row])


def labelled_parts(
    samples: Samples, method: Method, plan: Plan, model: LabelModel, round_number: int
) -> Iterator[LabelBatch]:
    """Labels of any samples of the unlabelled side's kind, by what that round has learned; nothing is fitted."""
    choice = BoundSelector(method.selector, model.selector, plan.seed, round_number)
    for chunk in extract(model.network, samples, plan, labelled=False):
        assert chunk.rows is not None
        found, network = label_chunk(method.labeller, chunk, model.labeller), named(chunk.scores)
        if chunk.grid:  # as precise as what a round keeps
            found = unpack(pack(0, chunk.grid, found, network))
        yield LabelBatch(chunk.rows, chunk.grid, found, network, chunk.ids, choice)


def label_rows(samples: Samples, method: Method, plan: Plan, model: LabelModel, round_number: int) -> RowLabels:
    """The same for rows with one site each, all at once."""
    labels, scores = labels_of(extract(model.network, samples, plan, labelled=False), method, model)
    choice = BoundSelector(method.selector, model.selector, plan.seed, round_number)
    return RowLabels.of(join(labels), scores, samples.ids, choice)


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
