"""The labels of the unlabelled side: the labeller's distributions, and what the selector trusts of them.

| type | rows | where it lies |
| --- | --- | --- |
| LabelBatch | some, with all their sites | in memory |
| RowLabels | all, one site each | in memory |
| MapLabels | all, with grids of sites | in a label store, read row by row |
| PseudoLabels, MapPseudoLabels | what the next round trains on | with RowLabels; with MapLabels |

Rows with one site each are labelled in memory. Those with grids of sites go to the label store row by row, so that a
round over thousands of pictures needs no more memory than one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar

import torch
from torch import Tensor

from embasis.distributed import current_world, work_alone
from embasis.engine.features import FeatureSample, count_chunks, extract, extract_own, grid_of_a_row
from embasis.engine.label_chunks import label_all, label_chunk, label_maps, network_labels
from embasis.engine.pixels import PixelLabels, mix_labels, pack, repeat_to_pixels, unpack
from embasis.engine.state import LabelModel, TrainSetup
from embasis.errors import CorruptError, require
from embasis.functional import interpolation
from embasis.randomness import generator, site_ids
from embasis.types import (
    Features,
    LabelDistribution,
    Method,
    PackedLabels,
    Plan,
    PseudoLabels,
    Samples,
    Selector,
    State,
    TrainingTargets,
    View,
)


@dataclass(frozen=True)
class BoundSelector:
    """A selector with its thresholds, seed and round: how a round selects, wherever it is applied."""

    selector: Selector
    state: State
    seed: int
    round: int

    def __call__(self, distribution: LabelDistribution, ids: Tensor) -> PseudoLabels:
        """The trusted ones among these sites."""
        return self.selector.select(distribution, self.state, ids, self.seed, self.round)


@dataclass(frozen=True, eq=False)
class LabelBatch:
    """Rows with the labels of all their sites, row after row."""

    rows: Tensor
    grid: tuple[int, ...]
    distribution: LabelDistribution
    network: Tensor
    """(n) the network's own labels"""
    ids: Tensor
    """(n) of the sites"""
    choice: BoundSelector

    @cached_property
    def pseudo(self) -> PseudoLabels:
        """What is trusted."""
        return self.choice(self.distribution, self.ids)

    def row(self, number: int) -> LabelBatch:
        """One of the rows."""
        count = len(self.ids) // len(self.rows)
        sites = slice(number * count, (number + 1) * count)
        rows, labels = self.rows[number : number + 1], self.distribution[sites]
        return replace(self, rows=rows, distribution=labels, network=self.network[sites], ids=self.ids[sites])

    def enlarged(self, number: int, size: tuple[int, ...]) -> LabelBatch:
        """One of the rows with a site at each pixel of a map of this size."""
        one = self.row(number)
        (height, width), (rows, columns) = one.grid, size
        network, ids = (repeat_to_pixels(column, (height, width), (rows, columns)) for column in (one.network, one.ids))
        wide = PixelLabels(one.distribution, (height, width), (rows, columns))
        return replace(one, grid=size, distribution=wide, network=network, ids=ids)


@dataclass(frozen=True, eq=False)
class RowLabels:
    """The labels of rows with one site each."""

    distribution: LabelDistribution
    pseudo: PseudoLabels
    scores: Tensor
    ids: Tensor
    choice: BoundSelector
    has_grids: ClassVar[bool] = False

    @classmethod
    def of(cls, distribution: LabelDistribution, scores: Tensor, ids: Tensor, choice: BoundSelector) -> RowLabels:
        """The labels of these sites, selected at once."""
        return cls(distribution, choice(distribution, ids), scores, ids, choice)

    def parts(self) -> Iterator[LabelBatch]:
        """All rows at once."""
        if len(self.pseudo):
            rows, network = torch.arange(len(self.pseudo)), self.scores.argmax(1)
            yield LabelBatch(rows, (), self.distribution, network, self.ids, self.choice)

    def training_targets(self, counts: list[Tensor]) -> tuple[PseudoLabels, Tensor | None]:
        """What the next round trains on, and the labels that it is compared with."""
        return self.pseudo, self.distribution.label

    def changed(self, pseudo: TrainingTargets | None, labels: Tensor | None) -> float:
        """Share of labels that differ from the last round's; all of them in the first one."""
        if labels is None:
            return 1.0
        return float((labels != self.distribution.label).double().mean()) if len(labels) else 0.0

    def rows(self, order: Tensor) -> RowLabels:
        """These rows, in this order."""
        scores, ids = self.scores[order], self.ids[order]
        return RowLabels(self.distribution[order], self.pseudo[order], scores, ids, self.choice)


@dataclass(frozen=True, eq=False)
class MapLabels:
    """The labels of rows with grids of sites; selected when they are read."""

    packed_rows: Sequence[PackedLabels]
    ids: Tensor
    """(N) of the rows"""
    choice: BoundSelector
    has_grids: ClassVar[bool] = True

    def __len__(self) -> int:
        return len(self.packed_rows)

    def parts(self) -> Iterator[LabelBatch]:
        """Row by row."""
        return (self.part(row) for row in range(len(self)))

    def training_targets(self, counts: list[Tensor]) -> tuple[MapPseudoLabels, None]:
        """What the next round trains on; the labels that it is compared with are there, too."""
        return MapPseudoLabels(self, torch.stack(counts)), None

    def changed(self, pseudo: TrainingTargets | None, labels: Tensor | None) -> float:
        """Share of labels that differ from the last round's; all of them in the first one."""
        before = None if pseudo is None else pseudo.packed_rows
        if before is None:
            return 1.0
        different = sites = 0
        for old, new in zip(before, self.packed_rows, strict=True):
            different += int((old.mean.argmax(1) != new.mean.argmax(1)).sum())
            sites += len(new.network)
        return different / max(sites, 1)

    def part(self, row: int) -> LabelBatch:
        """All sites of one row."""
        kept = self.packed_rows[row]
        ids = site_ids(self.ids[row : row + 1], len(kept.network))
        return LabelBatch(torch.tensor([row]), kept.grid, unpack(kept), kept.network.long(), ids, self.choice)

    def at(self, row: int, places: Tensor) -> PseudoLabels:
        """Pseudo-labels at places (n, 2) of one row; nothing is trusted outside of it."""
        kept = self.packed_rows[row]
        height, width = kept.grid
        inside = ~places.isnan().any(1)
        index, share = interpolation.corners(places[inside], (height, width))
        labels = mix_labels(unpack(kept), index, share)
        closest = index.gather(1, share.argmax(1, keepdim=True)).squeeze(1)
        ids = site_ids(self.ids[row : row + 1], height * width)[closest]
        return fill_outside(self.choice(labels, ids), inside)


def fill_outside(pseudo: PseudoLabels, inside: Tensor) -> PseudoLabels:
    """Pseudo-labels of the places inside, and nothing at the others."""
    label = torch.full((len(inside),), -1, dtype=torch.int64)
    weight, target = torch.zeros(len(inside)), None
    label[inside], weight[inside] = pseudo.label, pseudo.weight
    if pseudo.target is not None:
        target = torch.zeros(len(inside), pseudo.target.shape[1])
        target[inside] = pseudo.target
    return PseudoLabels(label, weight, target)


@dataclass(frozen=True, eq=False)
class MapPseudoLabels:
    """What a round trains on where rows have grids: the counterpart of `PseudoLabels`."""

    labels: MapLabels
    counts: Tensor
    """(N, C) trusted sites of each class in each row"""

    @cached_property
    def useful(self) -> Tensor:
        """Numbers of the rows with at least one trusted site."""
        return torch.nonzero(self.counts.any(1)).squeeze(1)

    @property
    def packed_rows(self) -> Sequence[PackedLabels]:
        """The labels of all sites, as they are stored."""
        return self.labels.packed_rows

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps: the labels themselves are in the label store."""
        return {"counts": self.counts}

    def seen(self, rows: Tensor, view: View) -> PseudoLabels:
        """Pseudo-labels of all sites of a view of these rows."""
        require(view.places is not None, "a view of rows with grids must say where its sites lie", CorruptError)
        assert view.places is not None
        parts = [self.labels.at(row, view.places[i].flatten(0, -2)) for i, row in enumerate(rows.tolist())]
        targets = [part.target for part in parts if part.target is not None]
        label, weight = torch.cat([part.label for part in parts]), torch.cat([part.weight for part in parts])
        return PseudoLabels(label, weight, torch.cat(targets) if targets else None)

    def crop_targets(self, rows: Tensor, classes: Tensor, key: tuple[int, int, int]) -> Tensor:
        """(B, 2) for each row the place of a trusted site of a class drawn by its weight; NaN without any."""
        return torch.stack([self._draw_target(row, classes, key) for row in rows.tolist()])

    def _draw_target(self, row: int, classes: Tensor, key: tuple[int, int, int]) -> Tensor:
        weights = classes.double() * (self.counts[row] > 0)
        if not float(weights.sum()) > 0:
            return torch.full((2,), torch.nan)
        draw = generator(key[0], "wanted place", *key[1:], int(self.labels.ids[row]))
        chosen = int(torch.multinomial(weights, 1, generator=draw))
        part = self.labels.part(row)
        sites = torch.nonzero(part.pseudo.label == chosen).squeeze(1)
        require(len(sites) > 0, f"the labels of row {row} are not those that were counted", CorruptError)
        site = int(sites[int(torch.randint(len(sites), (1,), generator=draw))])
        height, width = part.grid
        return torch.tensor([(site // width + 0.5) / height, (site % width + 0.5) / width])


RoundLabels = RowLabels | MapLabels
"""The labels of the unlabelled side after a round."""


class MemoryLabelStore:
    """A label store in memory, for runs that leave no folder."""

    def __init__(self) -> None:
        self._rounds: dict[int, list[PackedLabels]] = {}

    def write(self, number: int, parts: Iterator[PackedLabels]) -> Sequence[PackedLabels]:
        """Keep the parts of a round."""
        self._rounds[number] = list(parts)
        return self._rounds[number]

    def read(self, number: int) -> Sequence[PackedLabels]:
        """The parts of a round."""
        require(number in self._rounds, f"the labels of round {number} are not there any more", CorruptError)
        return self._rounds[number]

    def keep(self, numbers: Collection[int]) -> None:
        """Forget all other rounds."""
        self._rounds = {number: parts for number, parts in self._rounds.items() if number in numbers}


def label_and_select(
    setup: TrainSetup, model: LabelModel, round_number: int, sample: FeatureSample | None
) -> RoundLabels:
    """Label all unlabelled sites, set the thresholds, select; `sample` are their features, used if they are all there.

    The thresholds are in `choice.state` of what is returned."""
    samples, selector = setup.problem.unlabelled, setup.method.selector
    if not len(samples):
        return no_labels(setup, round_number)
    chunks, count = own_chunks(setup, model, sample)
    first = next(chunks, None)
    chunks = chunks if first is None else chain([first], chunks)
    if first.grid if first is not None else grid_of_a_row(samples):
        parts = setup.store.write(round_number, label_maps(chunks, count, setup.method, model))
        thresholds = selector.fit(UnpackedLabels(parts), round_number)
        return MapLabels(parts, samples.ids, BoundSelector(selector, thresholds, setup.plan.seed, round_number))
    labels, scores = label_all(chunks, count, setup.method, model)
    choice = BoundSelector(selector, selector.fit(labels, round_number), setup.plan.seed, round_number)
    return RowLabels.of(LabelDistribution.joined(labels), scores, samples.ids, choice)


def own_chunks(setup: TrainSetup, model: LabelModel, sample: FeatureSample | None) -> tuple[Iterator[Features], int]:
    """The chunks of the unlabelled side that this process labels, and how many chunks all have together."""
    if sample is not None and sample.whole:
        world = current_world()
        return iter(sample.chunks[world.rank :: world.size]), len(sample.chunks)
    samples = setup.problem.unlabelled
    rows = torch.arange(len(samples))
    return extract_own(model.network, samples, setup.plan, False, rows), count_chunks(samples, len(rows))


def no_labels(setup: TrainSetup, round_number: int) -> RowLabels:
    """The labels of no rows."""
    empty, selector = torch.empty(0, setup.classes), setup.method.selector
    distribution = LabelDistribution(empty, empty, empty, torch.empty(0))
    choice = BoundSelector(selector, selector.fit([distribution], round_number), setup.plan.seed, round_number)
    return RowLabels.of(distribution, empty, torch.empty(0, dtype=torch.int64), choice)


@dataclass(frozen=True, eq=False)
class UnpackedLabels(Sequence[LabelDistribution]):
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
        labels, network = label_chunk(method.labeller, chunk, model.labeller), network_labels(chunk.scores)
        if chunk.grid:  # as precise as what a round keeps
            labels = unpack(pack(0, chunk.grid, labels, network))
        yield LabelBatch(chunk.rows, chunk.grid, labels, network, chunk.ids, choice)


def label_rows(samples: Samples, method: Method, plan: Plan, model: LabelModel, round_number: int) -> RowLabels:
    """The same for rows with one site each, all at once."""
    with work_alone():
        labels, scores = label_all(extract(model.network, samples, plan, labelled=False), 0, method, model)
    choice = BoundSelector(method.selector, model.selector, plan.seed, round_number)
    return RowLabels.of(LabelDistribution.joined(labels), scores, samples.ids, choice)
