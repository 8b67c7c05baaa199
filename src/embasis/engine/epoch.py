"""The rows of an epoch: which rows of both sides each step sees, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from embasis.engine.alignment import acting_aligner
from embasis.engine.batch import TrainingBatch, device_of, move_labels
from embasis.engine.state import TrainState
from embasis.functional import augment
from embasis.networks.network import reads_only
from embasis.randomness import permutation, uniforms
from embasis.types import Aligner, AugmentKey, CropTarget, Method, Plan, Problem, TrainingTargets, View, stream_shared


def rows_of_epoch(problem: Problem, method: Method, plan: Plan, state: TrainState) -> list[tuple[Tensor, Tensor]]:
    """Row numbers of both sides for each step; the shorter side is gone through again."""
    labelled, pseudo = len(problem.labelled), state.pseudo
    if acting_aligner(method, problem, state.round) is not None:
        others = torch.arange(len(problem.unlabelled))
    elif state.round == 0 or pseudo is None:
        others = torch.empty(0, dtype=torch.int64)
    elif method.loss.uses_all_rows:
        others = torch.arange(len(problem.unlabelled))
    else:
        others = pseudo.useful
    if plan.batch_size == 0:
        return [(torch.arange(labelled), others)]
    key = (state.round, state.epoch)
    left = permutation(labelled, plan.seed, "labelled rows", *key)
    right = others[permutation(len(others), plan.seed, "unlabelled rows", *key)]
    steps = max(-(-labelled // plan.batch_size), -(-len(others) // plan.batch_size))
    return [(cycle(left, step, plan.batch_size), cycle(right, step, plan.batch_size)) for step in range(steps)]


def cycle(rows: Tensor, step: int, batch: int) -> Tensor:
    """The step-th batch of rows that are gone through again and again; never more than all of them at once."""
    if len(rows) <= batch:
        return rows
    return rows[torch.arange(step * batch, (step + 1) * batch) % len(rows)]


def samples_of(problem: Problem, rows: tuple[Tensor, Tensor]) -> str:
    """The ids of a step's samples, the first five of each side."""
    sides = {"labelled": problem.labelled.ids[rows[0]].tolist(), "unlabelled": problem.unlabelled.ids[rows[1]].tolist()}
    named = [
        f"{name} {', '.join(map(str, ids[:5]))}{f' and {len(ids) - 5:,} more' if len(ids) > 5 else ''}"
        for name, ids in sides.items()
        if ids
    ]
    return f"samples of the step: {'; '.join(named)}"


def batches_of(
    problem: Problem, plan: Plan, state: TrainState, pairs: list[tuple[Tensor, Tensor]], aligner: Aligner | None = None
) -> Iterator[TrainingBatch]:
    """What each step sees, read ahead where the data are files."""
    draw, device, pseudo = (plan.seed, state.round, state.epoch), device_of(state.network), state.pseudo
    rare = class_sampling_weights(problem, state)
    batches = [rows for _, rows in pairs if len(rows)]
    if reads_only(state.network):
        left = stream_shared(problem.labelled, [rows for rows, _ in pairs])
        right = stream_shared(problem.unlabelled, batches)
    else:
        left = problem.labelled.stream([rows for rows, _ in pairs], draw, CropTarget(rare))
        right = problem.unlabelled.stream(batches, draw, aim_at(pseudo, batches, rare, draw))
    for rows, others in pairs:
        view = next(left)
        inputs, y = augment_view(view, problem.labelled.ids[rows], plan, draw, "labelled").to(device), view.y.to(device)
        if not len(others) or (pseudo is None and aligner is None):
            yield TrainingBatch(inputs, y)
            continue
        other, ids = next(right), problem.unlabelled.ids[others]
        seen = augment_view(other, ids, plan, draw, "unlabelled")
        labels = None if pseudo is None else move_labels(pseudo.seen(others, other), device)
        second = None
        if aligner is not None and aligner.second_view:
            second = make_second_view(other, ids, plan, draw, aligner.second_view).to(device)
        yield TrainingBatch(inputs, y, seen.to(device), labels, second, aligner is not None, others.to(device))


def make_second_view(view: View, ids: Tensor, plan: Plan, draw: AugmentKey, strength: float) -> Tensor:
    """The inputs in another view: small pictures warped further, other pictures and vectors with other values."""
    x, most = view.inputs, strength * max(plan.augment, 1.0)
    is_small = x.ndim == 4 and x.is_floating_point() and view.y.ndim == 1
    count = augment.WARP_DRAWS if is_small else augment.JITTER_DRAWS
    u = torch.stack([uniforms(ids, draw[0], f"second view, number {number}", *draw[1:]) for number in range(count)], 1)
    return augment.warp(x, u, min(most, 3.0)) if is_small else augment.jitter(x, u, most)


def augment_view(view: View, ids: Tensor, plan: Plan, draw: AugmentKey, side: str) -> Tensor:
    """The inputs as training sees them: pictures in arrays warped, by a draw of each row's own."""
    x = view.inputs
    if not plan.augment or x.ndim != 4 or not x.is_floating_point() or view.y.ndim != 1:
        return x
    u = [uniforms(ids, draw[0], f"{side} view, number {number}", *draw[1:]) for number in range(augment.WARP_DRAWS)]
    return augment.warp(x, torch.stack(u, 1), plan.augment)


def class_sampling_weights(problem: Problem, state: TrainState) -> Tensor:
    """(C) how much training wants to see each class: 1 / √ of how often the last round labelled it.

    Before the first round that is how often the labelled side has it. A class that is hardly there counts as a
    hundredth of an equal part, so that one site does not outweigh everything."""
    last = state.records[-1].class_counts if state.records else None
    counts = problem.labelled.counts(len(problem.schema)) if last is None else torch.tensor(last)
    share = counts.double() / counts.sum().clamp_min(1)
    return share.clamp_min(0.01 / len(share)).rsqrt().float()


def aim_at(pseudo: TrainingTargets | None, batches: list[Tensor], rare: Tensor, draw: AugmentKey) -> CropTarget | None:
    """Where the unlabelled rows show rare classes, if their labels say where that is."""
    if pseudo is None:
        return None
    targets = [pseudo.crop_targets(rows, rare, draw) for rows in batches]
    places = [place for place in targets if place is not None]
    return CropTarget(rare, places) if places else None
