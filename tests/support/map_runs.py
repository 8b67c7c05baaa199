"""Whole runs on tiny pictures with label maps, and what it means that two of them are the same."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from embasis.config import load
from embasis.data.segmentation.samples import MapArrays
from embasis.engine.labels import LabelBatch, MapLabels, MemoryLabelStore
from embasis.engine.self_train import begin, train_rounds
from embasis.engine.state import TrainState
from embasis.runs.parts import RunParts, build
from embasis.types import LabelDistribution, LabelSchema, LabelStore, PackedLabels, Problem, RoundRecord
from training_runs import Saved

CLASSES, HEIGHT, WIDTH = 3, 16, 24
SITES = (HEIGHT // 4) * (WIDTH // 4)
NOTHING = 255
SMALL = {"rounds": 2, "source_epochs": 3, "epochs": 1, "batch_size": 4, "source_lr": 1e-2, "lr": 5e-3}


def draw_streets(count: int, seed: int, bright: int = 0, size: tuple[int, int] = (HEIGHT, WIDTH)) -> list[Tensor]:
    """Pictures with a red and a green block before grey grain, and their maps; some pixels have no class."""
    draw = torch.Generator().manual_seed(seed)
    height, width = size
    pictures = torch.randint(40, 90, (count, 3, *size), dtype=torch.uint8, generator=draw)
    maps = torch.zeros(count, *size, dtype=torch.uint8)
    for row in range(count):
        for number in (1, 2):
            top, left = (int(torch.randint(0, side // 2, (1,), generator=draw)) for side in size)
            block = (row, slice(top, top + height // 2), slice(left, left + width // 3))
            pictures[block[0], number - 1, block[1], block[2]] += 110
            maps[block] = number
    maps[torch.rand(count, *size, generator=draw) < 0.05] = NOTHING
    return [pictures + bright, maps]


def streets(labelled: int = 10, unlabelled: int = 9, test: int = 3, size: tuple[int, int] = (HEIGHT, WIDTH)) -> Problem:
    """Bright streets beside dark ones; the maps of the unlabelled side are hidden."""
    pictures, maps = draw_streets(unlabelled, 2, 45, size)
    return Problem(
        labelled=MapArrays.of(*draw_streets(labelled, 1, 0, size)),
        unlabelled=MapArrays.of(pictures, None, ids=3 * torch.arange(unlabelled) + 5),
        schema=LabelSchema(("road", "car", "tree")),
        test=MapArrays.of(*draw_streets(test, 3, 45, size)) if test else None,
        hidden_labels=MapArrays.of(pictures, maps).truth,
    )


@functools.cache
def little_streets() -> Problem:
    return streets()


def built_maps(
    problem: Problem | None = None,
    method: str = "em_basis",
    *,
    seed: int = 0,
    plan: Any = None,
    maps: Any = None,
    parts: Any = None,
    **own: Any,
) -> RunParts:
    """`own` are settings of the method, `parts` changes of its parts."""
    return build(
        problem or little_streets(),
        load(
            top={"seed": seed, "parts": parts or {}},
            method={"name": method, **own},
            network={"name": "small_fcn", "width": 16},
            plan={**SMALL, **(plan or {})},
            maps=maps or {},
        ),
    )


@dataclass(frozen=True, eq=False)
class MapRun:
    built: RunParts
    progress: TrainState
    sites: list[dict[str, Tensor]]
    """All sites of the unlabelled side after each round."""
    shelf: LabelStore

    @property
    def records(self) -> list[RoundRecord]:
        return self.progress.records

    @property
    def weights(self) -> dict[str, Tensor]:
        return dict(self.progress.network.state_dict())


def run_maps(problem: Problem | None = None, method: str = "em_basis", **settings: Any) -> MapRun:
    return run_built_maps(built_maps(problem, method, **settings))


def run_built_maps(built: RunParts, progress: TrainState | None = None, shelf: LabelStore | None = None) -> MapRun:
    progress, shelf = progress or begin(built.network, built.method, built.plan), shelf or MemoryLabelStore()
    sites = []
    for event in train_rounds(built.problem, built.network, built.method, built.plan, progress, shelf):
        if isinstance(event.labels, MapLabels):
            sites.append(all_sites(event.labels.parts()))
    return MapRun(built, progress, sites, shelf)


def all_sites(parts: Iterator[LabelBatch]) -> dict[str, Tensor]:
    """The tensors of all parts, one after the other."""
    found = [site_tensors(part) for part in parts]
    return {name: torch.cat([part[name] for part in found]) for name in found[0]}


def site_tensors(part: LabelBatch) -> dict[str, Tensor]:
    spread, pseudo = part.distribution, part.pseudo
    named = {"mean": spread.mean, "between": spread.between, "within": spread.within}
    named |= {"uncertainty": spread.uncertainty, "network": part.network, "ids": part.ids}
    named |= {"label": pseudo.label, "weight": pseudo.weight}
    return named if pseudo.target is None else {**named, "target": pseudo.target}


def copied(shelf: MemoryLabelStore) -> MemoryLabelStore:
    """A shelf with the same rounds, as a folder would have kept them."""
    made = MemoryLabelStore()
    made._rounds = {number: list(parts) for number, parts in shelf._rounds.items()}
    return made


@dataclass(frozen=True)
class Kept:
    """A run on maps as a folder would keep it at one moment."""

    saved: Saved
    shelf: MemoryLabelStore

    def end(self, built: RunParts, spoil: Callable[[TrainState, MemoryLabelStore], None] | None = None) -> Saved:
        """The end of the run that goes on from here, after `spoil` has damaged what was kept."""
        progress, shelf = self.saved.restore(built), copied(self.shelf)
        if spoil is not None:
            spoil(progress, shelf)
        return Saved.of(run_built_maps(built, progress, shelf).progress)


def kept_moments(built: RunParts) -> list[Kept]:
    """The run after every one of its moments."""
    shelf = MemoryLabelStore()
    steps = train_rounds(built.problem, built.network, built.method, built.plan, None, shelf)
    return [Kept(Saved.of(event.state), copied(shelf)) for event in steps]


def spread_of(count: int, classes: int, seed: int = 0, sharp: float = 2.0) -> LabelDistribution:
    """A made-up label distribution of so many sites."""
    draw = torch.Generator().manual_seed(seed)
    mean = (sharp * torch.randn(count, classes, generator=draw)).softmax(1)
    between = torch.rand(count, classes, generator=draw) * (mean - mean.square())
    return LabelDistribution(mean, between, mean - mean.square() - between, (mean - mean.square()).sum(1))


def shelf_of(parts: list[PackedLabels]) -> MemoryLabelStore:
    shelf = MemoryLabelStore()
    shelf.write(0, iter(parts))
    return shelf


def with_hidden(problem: Problem, maps: Tensor) -> Problem:
    """The problem with other true maps of the unlabelled side."""
    assert isinstance(problem.unlabelled, MapArrays)
    return replace(problem, hidden_labels=MapArrays.of(problem.unlabelled.pictures, maps).truth)
