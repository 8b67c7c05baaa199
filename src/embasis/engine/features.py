"""Features of all sites of a side, in chunks that can be computed again and again; or of a sample that fits in memory.

| symbol | meaning |
| --- | --- |
| window | pixels of a window's side, a multiple of the network's `multiple`; 0 = whole pictures |
| step | windows begin so far apart: three quarters of a window, so that each place lies well inside of one |
| limit | the most sites that are held (plan.max_sites; 0 = no limit) |
| quota | the most sites of one class: limit / C |
| key | a number in [0, 1) for each site, a hash of its id: the sites of the smallest keys are the sample |
| weight | how many of the extracted sites each one of the sample stands for: seen / kept of its class |

Pictures that are too large for one pass go through the network window by window. Where windows overlap their outputs
are averaged, features and logits alike, so that a site has one feature.

In a sample every class has its part. The class of a site is its label on the labelled side and the network's on the
other one. The smallest keys of two parts together are the smallest of all: the sample is the same whatever the parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from embasis.distributed import current_world
from embasis.engine.batch import autocast, device_of, forward
from embasis.errors import NumericalError, require
from embasis.functional.remembered import remember_memory
from embasis.functional.sites import to_sites
from embasis.networks.network import Network, reads_only
from embasis.randomness import permutation, site_ids, uniforms
from embasis.resources import explain_memory_errors
from embasis.types import Features, Output, Plan, Samples, View, share_rows, stream_shared

CHUNK_ROWS = 512
"""Rows of a chunk. Every chunk that is computed has exactly so many (the last one is filled up and cut), because a
matrix product may round a row differently in another shape: so the batch a row comes in changes no bit of its label."""


SMALLER = "a smaller network or image needs less (network.size, maps.size, maps.window); the last saved state is kept"
LARGE, ROWS_OF_LARGE = 2**13, 16
"""Inputs of more than LARGE numbers (images) go through the network FEW at a time."""
LEAST_ROWS = 256
"""Where rows have many sites each, features of at least so many rows are extracted."""
CHUNK_SITES = 4096
"""Sites of a chunk of a sample."""


def fill_up(rows: Tensor, size: int = CHUNK_ROWS) -> Tensor:
    """The rows, with zeros below up to `size`."""
    missing = size - len(rows)
    return rows if missing <= 0 else torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])])


fill_up_once = remember_memory(fill_up)
"""The same rows filled up are the same memory: what is known of it is not computed again."""


def fill_inputs(network: nn.Module, inputs: Tensor, size: int) -> Tensor:
    """The inputs filled up; those of a network that writes nothing into them once for all rounds."""
    return fill_up_once(inputs, size) if reads_only(network) else fill_up(inputs, size)


def rows_at_once(samples: Samples) -> int:
    """How many rows go through the network together: always so many, the last ones are filled up and cut."""
    if samples.has_mixed_shapes:
        return 1
    return CHUNK_ROWS if math.prod(samples.inputs(torch.tensor([0])).shape[1:]) <= LARGE else ROWS_OF_LARGE


def extract(
    network: nn.Module, samples: Samples, plan: Plan, labelled: bool, rows: Tensor | None = None
) -> Iterator[Features]:
    """Features and scores of each site of these rows, or of all; y is the label on the labelled side, −1 on the other.

    On the labelled side sites without a label are left out. Several processes compute a chunk each in turn."""
    chosen = torch.arange(len(samples)) if rows is None else rows
    own = extract_own(network, samples, plan, labelled, chosen)
    return current_world().in_order(own, count_chunks(samples, len(chosen)), pack_features, unpack_features)


def rows_of_chunk(samples: Samples) -> int:
    """Rows of every chunk but the last: as many passes through the network as give CHUNK_ROWS sites."""
    if samples.has_mixed_shapes:
        return 1
    size = rows_at_once(samples)
    return size * math.ceil(CHUNK_ROWS / (size * sites_of_a_row(samples)))


def count_chunks(samples: Samples, rows: int) -> int:
    """Into how many chunks so many rows are cut; a process alone need not know."""
    return 0 if current_world().size == 1 or not rows else math.ceil(rows / rows_of_chunk(samples))


def extract_own(network: nn.Module, samples: Samples, plan: Plan, labelled: bool, chosen: Tensor) -> Iterator[Features]:
    """The chunks of these rows that this process computes: all of them, if it is alone."""
    world = current_world()
    if world.size > 1 and len(chosen):
        pieces = chosen.split(rows_of_chunk(samples))[world.rank :: world.size]
        chosen = torch.cat([chosen[:0], *pieces])
    if not len(chosen):
        return
    network.eval()
    size = rows_at_once(samples)
    outputs = forward_batches(network, samples, plan, chosen.split(size), size, 0 if labelled else 1)
    while len(chosen):
        least = 1 if samples.has_mixed_shapes else CHUNK_ROWS
        chunk = gather_sites(outputs, chosen, share_rows(samples.ids, chosen), least)
        chosen = chosen[len(chunk) // math.prod(chunk.grid) :]
        broken, count = int((~torch.isfinite(chunk.scores)).any(1).sum()), len(chunk.scores)
        require(not broken, f"the network's scores are not finite for {broken} of {count} rows", NumericalError)
        yield keep_labelled(chunk) if labelled else replace(chunk, y=torch.full_like(chunk.y, -1))


@torch.no_grad()
def forward_batches(
    network: nn.Module, samples: Samples, plan: Plan, batches: tuple[Tensor, ...], size: int, side: int
) -> Iterator[tuple[Tensor, Tensor, View]]:
    """Features and scores of the rows in order, as many together as go through the network at once."""
    device = device_of(network)
    for view in stream_shared(samples, batches) if reads_only(network) else samples.stream(batches):
        shape = "×".join(str(length) for length in view.inputs.shape[1:])
        with explain_memory_errors(f"{size:,} rows of shape {shape} at once", SMALLER), autocast(network, plan):
            output = forward_windowed(network, fill_inputs(network, view.inputs, size).to(device), side)
        count = len(view.inputs)
        yield to_sites(output.features[:count]).float().cpu(), to_sites(output.logits[:count]).float().cpu(), view


def gather_sites(outputs: Iterator[tuple[Tensor, Tensor, View]], rows: Tensor, ids: Tensor, least: int) -> Features:
    """The sites of the next of these rows: of as many passes as give `least` sites, or of all that are left."""
    xs, scores, ys = list[Tensor](), list[Tensor](), list[Tensor]()
    taken, sites, grid = 0, 0, tuple[int, ...]()
    while sites < least and taken < len(rows):
        x, score, view = next(outputs)
        xs.append(x)
        scores.append(score)
        ys.append(view.y.flatten())
        taken, sites, grid = taken + len(view.inputs), sites + len(x), view.grid
    return Features(
        join_tensors(xs),
        join_tensors(scores),
        join_tensors(ys),
        site_ids(ids[:taken], math.prod(grid)),
        rows[:taken],
        grid,
    )


def pack_features(chunk: Features) -> list[Tensor]:
    """A chunk as columns that another process can be sent."""
    rows = torch.empty(0, dtype=torch.int64) if chunk.rows is None else chunk.rows
    grid = torch.tensor([int(chunk.rows is not None), *chunk.grid])
    return [chunk.x, chunk.scores, chunk.y, chunk.ids, rows, grid]


def unpack_features(columns: list[Tensor]) -> Features:
    """The chunk that the columns were."""
    x, scores, y, ids, rows, (has_rows, *grid) = *columns[:5], columns[5].tolist()
    return Features(x, scores, y, ids, rows if has_rows else None, tuple(grid))


def join_tensors(parts: list[Tensor]) -> Tensor:
    """Parts as one; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def keep_labelled(chunk: Features) -> Features:
    """The sites with a label."""
    known = chunk.y >= 0
    if bool(known.all()):
        return chunk
    return Features(chunk.x[known], chunk.scores[known], chunk.y[known], chunk.ids[known])


@torch.no_grad()
def score_again(network: Network, chunk: Features, samples: Samples, plan: Plan) -> Features:
    """The chunk's features with the unlabelled side's scores as they are now, computed in the shape of a pass."""
    size = CHUNK_ROWS if chunk.rows is None else rows_at_once(samples) * math.prod(chunk.grid)
    device = device_of(network)
    parts = []
    for rows in chunk.x.split(size):
        with autocast(network, plan):
            scores = network.classify_features(fill_up(rows, size).to(device), 1)
        parts.append(scores[: len(rows)].float().cpu())
    return replace(chunk, scores=join_tensors(parts))


def forward_windowed(network: nn.Module, inputs: Tensor, side: int) -> Output:
    """What the network says of inputs of any size."""
    window = int(getattr(network, "window", 0))
    if not window or inputs.ndim != 4 or max(inputs.shape[2:]) <= window:
        return forward(network, inputs, side)
    return forward_by_window(network, inputs, side, window)


def forward_by_window(network: nn.Module, inputs: Tensor, side: int, window: int) -> Output:
    """The mean of all windows, site by site."""
    stride, multiple = int(getattr(network, "stride", 1)), int(getattr(network, "multiple", 1))
    height, width = inputs.shape[2] // stride, inputs.shape[3] // stride
    sums: list[Tensor] = []
    counts = torch.zeros(height, width, device=inputs.device)
    for top in window_starts(inputs.shape[2], window, multiple):
        for left in window_starts(inputs.shape[3], window, multiple):
            output = forward(network, inputs[:, :, top : top + window, left : left + window], side)
            maps = (output.features, output.logits)
            if not sums:
                sums = [part.new_zeros(*part.shape[:2], height, width, dtype=torch.float32) for part in maps]
            rows = slice(top // stride, top // stride + maps[0].shape[2])
            columns = slice(left // stride, left // stride + maps[0].shape[3])
            for total, part in zip(sums, maps, strict=True):
                total[:, :, rows, columns] += part
            counts[rows, columns] += 1
    return Output(*(total / counts for total in sums))


def window_starts(length: int, window: int, multiple: int) -> list[int]:
    """Where windows begin along a side of this length: a step of ¾ window, and the last one ends at its end."""
    if length <= window:
        return [0]
    step = max(window * 3 // 4 // multiple, 1) * multiple
    return [*range(0, length - window, step), length - window]


@dataclass(frozen=True, eq=False)
class FeatureSample:
    """Chunks of features; `whole`: all sites of the side are there, in order."""

    chunks: list[Features]
    whole: bool


def sample_features(
    network: nn.Module, samples: Samples, plan: Plan, labelled: bool, round_number: int, balanced: bool = True
) -> FeatureSample:
    """All sites of a side if they are few, else a sample; `balanced`: with equal parts for all classes."""
    rows = draw_rows(samples, plan, round_number)
    held, count, whole, seen = list[Features](), 0, rows is None, list[Tensor]()
    for chunk in extract(network, samples, plan, labelled, rows):
        held.append(chunk)
        count += len(chunk)
        seen.append(torch.bincount(classes_of_sites(chunk, balanced), minlength=chunk.scores.shape[1]))
        whole = whole and (not plan.max_sites or count <= plan.max_sites)  # rows may have more sites than the first
        if not whole and count > 2 * plan.max_sites:
            held = [draw_sample(join_features(held), plan, round_number, balanced)]
            count = len(held[0])
    if whole:
        return FeatureSample(held, whole)
    sample = draw_sample(join_features(held), plan, round_number, balanced)
    return FeatureSample(split_features(weigh_sample(sample, torch.stack(seen).sum(0)) if balanced else sample), whole)


def draw_rows(samples: Samples, plan: Plan, round_number: int) -> Tensor | None:
    """Numbers of the rows whose features are extracted; None = all, if their sites are few."""
    sites = sites_of_a_row(samples)
    if not plan.max_sites or len(samples) * sites <= plan.max_sites:
        return None
    count = max(LEAST_ROWS, math.ceil(plan.max_sites / sites)) if sites > 1 else plan.max_sites
    return permutation(len(samples), plan.seed, "survey", round_number)[:count].sort().values


def sites_of_a_row(samples: Samples) -> int:
    """Sites of the first row: what is typical for the side."""
    return math.prod(grid_of_a_row(samples))


def grid_of_a_row(samples: Samples) -> tuple[int, ...]:
    """The grid of the first row's sites; () where it has one."""
    return next(iter(samples.stream([torch.tensor([0])]))).grid if len(samples) else ()


def draw_sample(chunk: Features, plan: Plan, round_number: int, balanced: bool) -> Features:
    """At most plan.max_sites sites, those of the smallest keys in each class."""
    classes, label = chunk.scores.shape[1] if balanced else 1, classes_of_sites(chunk, balanced)
    key = uniforms(chunk.ids, plan.seed, "reservoir", round_number)
    kept = [
        smallest(torch.nonzero(label == number).squeeze(1), key, plan.max_sites // classes) for number in range(classes)
    ]
    return take_features(chunk, torch.cat(kept).sort().values)


def classes_of_sites(chunk: Features, balanced: bool) -> Tensor:
    """The class of each site; one for all if none is to have a part of its own."""
    return torch.where(chunk.y >= 0, chunk.y, chunk.scores.argmax(1)) if balanced else torch.zeros_like(chunk.y)


def weigh_sample(sample: Features, seen: Tensor) -> Features:
    """The sample with its weights; `seen`: (C) sites of each class that were extracted."""
    label = classes_of_sites(sample, True)
    kept = torch.bincount(label, minlength=len(seen)).clamp_min(1)
    return replace(sample, weight=(seen / kept)[label])


def draw_in_shares(sample: Features, count: int, seed: int, purpose: str) -> Features:
    """At most so many sites in the shares of their side, each for itself: those of the smallest −log u / weight."""
    key = -uniforms(sample.ids, seed, purpose).clamp_min(1e-12).log() / sample.site_weight
    return replace(take_features(sample, torch.argsort(key, stable=True)[:count].sort().values), weight=None)


def smallest(sites: Tensor, key: Tensor, count: int) -> Tensor:
    """Those of the smallest keys."""
    return sites if len(sites) <= count else sites[torch.argsort(key[sites], stable=True)[:count]]


def take_features(chunk: Features, sites: Tensor) -> Features:
    """Some sites of a chunk."""
    weight = None if chunk.weight is None else chunk.weight[sites]
    return Features(chunk.x[sites], chunk.scores[sites], chunk.y[sites], chunk.ids[sites], weight=weight)


def split_features(chunk: Features) -> list[Features]:
    """The chunk cut up, so that what is computed of it needs little memory at a time."""
    columns = (column.split(CHUNK_SITES) for column in (chunk.x, chunk.scores, chunk.y, chunk.ids))
    parts = [Features(*part) for part in zip(*columns, strict=True)]
    if chunk.weight is None:
        return parts
    return [replace(part, weight=weight) for part, weight in zip(parts, chunk.weight.split(CHUNK_SITES), strict=True)]


def join_features(parts: list[Features]) -> Features:
    """The sites of all parts."""
    x, scores, y, ids = (join_tensors([getattr(part, name) for part in parts]) for name in ("x", "scores", "y", "ids"))
    plain = all(part.weight is None for part in parts)
    return Features(x, scores, y, ids, weight=None if plain else join_tensors([part.site_weight for part in parts]))
