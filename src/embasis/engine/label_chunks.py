"""Labels of chunks of features: by the labeller, in one shape, each process those of its own chunks.

Every product has one shape, whatever rows are beside each other, so no bit of a label depends on them, nor on the
process that computes it. What a process has labelled is sent to all others, so that each has the labels of all rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from embasis.distributed import current_world
from embasis.engine.features import CHUNK_ROWS, fill_up, fill_up_once
from embasis.engine.pixels import pack
from embasis.engine.state import LabelModel
from embasis.errors import NumericalError, require
from embasis.types import Features, LabelDistribution, Labeller, Method, PackedLabels, State


def label_chunk(labeller: Labeller, chunk: Features, state: State) -> LabelDistribution:
    """The labeller's distributions for a chunk, sample by sample where they have grids.

    So every product has one shape, whatever samples are beside it, and no bit depends on them."""
    return LabelDistribution.joined([label_filled(labeller, part, state) for part in one_by_one(chunk)])


def one_by_one(chunk: Features) -> Iterator[Features]:
    """The samples of a chunk where they have grids, else as many rows as are labelled at once."""
    size = math.prod(chunk.grid) if chunk.grid else CHUNK_ROWS
    columns = zip(*(column.split(size) for column in (chunk.x, chunk.scores, chunk.y, chunk.ids)), strict=True)
    return (Features(*parts) for parts in columns)


def label_filled(labeller: Labeller, chunk: Features, state: State) -> LabelDistribution:
    """Label distributions of sites that are filled up to a chunk and cut again."""
    count = len(chunk)
    if count < CHUNK_ROWS:
        y = torch.nn.functional.pad(chunk.y, (0, CHUNK_ROWS - count), value=-1)
        chunk = Features(fill_up_once(chunk.x, CHUNK_ROWS), fill_up(chunk.scores), y, fill_up(chunk.ids))
    labels = labeller.label(chunk, state)[:count]
    require_finite_labels(labels, chunk.ids[:count])
    return labels


def label_all(
    chunks: Iterable[Features], count: int, method: Method, model: LabelModel
) -> tuple[list[LabelDistribution], Tensor]:
    """Label distributions and scores of rows with one site each, of all `count` chunks; `chunks` are this process's."""
    own = ((site_by_site(label_chunk(method.labeller, chunk, model.labeller)), chunk.scores) for chunk in chunks)
    labels, scores = zip(*current_world().in_order(own, count, pack_labels, unpack_labels), strict=True)
    return list(labels), torch.cat(scores)


def site_by_site(labels: LabelDistribution) -> LabelDistribution:
    """The labels as another process would get them: each site's numbers beside each other, so that sums are alike."""
    columns = (labels.mean, labels.between, labels.within, labels.uncertainty)
    return LabelDistribution(*(column.contiguous() for column in columns))


def pack_labels(part: tuple[LabelDistribution, Tensor]) -> list[Tensor]:
    """Labels and scores of a chunk as columns that another process can be sent."""
    labels, scores = part
    return [labels.mean, labels.between, labels.within, labels.uncertainty, scores]


def unpack_labels(columns: list[Tensor]) -> tuple[LabelDistribution, Tensor]:
    """The labels and scores that the columns were."""
    mean, between, within, uncertainty, scores = columns
    return LabelDistribution(mean, between, within, uncertainty), scores


def label_maps(chunks: Iterable[Features], count: int, method: Method, model: LabelModel) -> Iterator[PackedLabels]:
    """Label distributions of rows with many sites, row by row, as they are kept, of all `count` chunks."""
    own = (list(label_own_maps(chunk, method, model)) for chunk in chunks)
    for rows in current_world().in_order(own, count, pack_maps, unpack_maps):
        yield from rows


def label_own_maps(chunk: Features, method: Method, model: LabelModel) -> Iterator[PackedLabels]:
    """Label distributions of the rows of one chunk."""
    assert chunk.rows is not None
    for row, part in zip(chunk.rows.tolist(), one_by_one(chunk), strict=True):
        labels = label_filled(method.labeller, part, model.labeller)
        yield pack(row, chunk.grid, labels, network_labels(part.scores))


def pack_maps(rows: list[PackedLabels]) -> list[Tensor]:
    """The labels of rows with one grid as columns that another process can be sent."""
    names = ("mean", "between", "uncertainty", "network")
    columns = [torch.stack([getattr(row, name) for row in rows]) for name in names]
    return [torch.tensor([row.row for row in rows]), torch.tensor(rows[0].grid), *columns]


def unpack_maps(columns: list[Tensor]) -> list[PackedLabels]:
    """The labels that the columns were."""
    rows, grid, *each = columns
    return [PackedLabels(row, tuple(grid.tolist()), *parts) for row, *parts in zip(rows.tolist(), *each, strict=True)]


def network_labels(scores: Tensor) -> Tensor:
    """The network's own labels; argmax over scores that lie class by class takes four times as long."""
    return scores.contiguous().argmax(1)


def require_finite_labels(labels: LabelDistribution, ids: Tensor) -> None:
    """A NumericalError for labels, or uncertainties, that are not finite: they are never selected or kept."""
    total = labels.mean.sum(dtype=torch.float64) + labels.uncertainty.sum(dtype=torch.float64)
    if math.isfinite(float(total)):
        return  # many times quicker than a test of each value
    broken = ~(torch.isfinite(labels.mean).all(1) & torch.isfinite(labels.uncertainty))
    named = ", ".join(str(number) for number in ids[broken][:5].tolist())
    counted = f"{int(broken.sum())} of {len(broken)} sites"
    require(not bool(broken.any()), f"the labels are not finite for {counted}: ids {named}", NumericalError)
