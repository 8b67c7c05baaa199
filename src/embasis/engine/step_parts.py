"""A step of training in parts: what each process computes of it, and how the parts add up to the whole.

| symbol | meaning |
| --- | --- |
| P | parts of a step: plan.accumulate_steps, at most one for each labelled row |
| n_p, m_p | labelled sites of part p; mass of its pseudo-labels (types/methods.py: `RoundLoss.mass`) |
| share | n_p / Σ n, m_p / Σ m: what a mean over the part counts in the whole |

Which rows a part has follows from the rows of the step alone; `World.owns` says which process computes it. Each part is
read, augmented and drawn for by itself, so that no bit of it depends on the parts beside it. With plan.sum = "exact"
gradients are added up in whole numbers (distributed/exact_sum.py): the same bits for any number of processes. "fast"
adds float32 as it comes, each process its own parts first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from embasis.distributed import current_world, exact_sum
from embasis.engine.batch import BatchPart, TrainingBatch
from embasis.engine.epoch import batches_of
from embasis.engine.state import TrainState
from embasis.errors import ConfigError, require
from embasis.types import Plan, Problem, RoundLoss


@dataclass(frozen=True, eq=False)
class StepParts:
    """The parts of a step that this process computes, with their numbers, and how many there are in all."""

    parts: dict[int, BatchPart]
    count: int
    rows: str
    """What the step has, for messages."""

    def __str__(self) -> str:
        return self.rows


def iter_steps(
    problem: Problem, plan: Plan, state: TrainState, pairs: Sequence[tuple[Tensor, Tensor]], loss: RoundLoss
) -> Iterator[StepParts]:
    """The parts of each step, read ahead where the data are files."""
    world = current_world()
    cuts = [cut_rows(rows, others, plan.accumulate_steps) for rows, others in pairs]
    own = [{number: part for number, part in enumerate(cut) if world.owns(number)} for cut in cuts]
    batches = batches_of(problem, plan, state, [part for step in own for part in step.values()])
    for (rows, others), cut, step in zip(pairs, cuts, own, strict=True):
        read = {number: next(batches) for number in step}
        words = f"a batch of {len(rows):,} labelled and {len(others):,} unlabelled rows in {len(cut)} parts"
        yield StepParts(weigh_parts(read, len(cut), loss), len(cut), words)


def cut_rows(rows: Tensor, others: Tensor, count: int) -> list[tuple[Tensor, Tensor]]:
    """Row numbers of both sides for each part; each has labelled rows."""
    count = min(count, len(rows))
    return list(zip(rows.tensor_split(count), others.tensor_split(count), strict=True))


def weigh_parts(read: dict[int, TrainingBatch], count: int, loss: RoundLoss) -> dict[int, BatchPart]:
    """The parts with their shares of the whole step, which all processes know together."""
    table = torch.zeros(count, 2, dtype=torch.float64)
    for number, batch in read.items():
        table[number, 0] = int((batch.y >= 0).sum())
        table[number, 1] = 0.0 if batch.pseudo is None else loss.mass(batch.pseudo)
    table = current_world().fill(table)
    known, mass = max(sum(table[:, 0].tolist()), 1.0), sum(table[:, 1].tolist())
    parts = {}
    for number, batch in read.items():
        share, other_share = float(table[number, 0]) / known, float(table[number, 1]) / mass if mass else 0.0
        parts[number] = BatchPart(batch.inputs, batch.y.flatten(), batch.others, batch.pseudo, share, other_share)
    return parts


def add_up_gradients(
    gradients: Sequence[Sequence[Tensor]], weights: Sequence[nn.Parameter], count: int, plan: Plan
) -> None:
    """Each weight's gradient summed over all parts of all processes; `gradients` are those of this process's parts."""
    world = current_world()
    if plan.sum == "exact":
        totals = exact_sum(world, gradients, weights, count)
    else:
        own = [sum_tensors([part[place] for part in gradients], weight) for place, weight in enumerate(weights)]
        flat = torch.cat([value.detach().cpu().flatten() for value in own])
        pieces = world.add_up(flat).split([weight.numel() for weight in weights])
        totals = [piece.view(weight.shape).to(weight.device) for piece, weight in zip(pieces, weights, strict=True)]
    for weight, total in zip(weights, totals, strict=True):
        weight.grad = total


def sum_tensors(values: Sequence[Tensor], like: Tensor) -> Tensor:
    """The values added up in their order; zeros where there are none."""
    total = torch.zeros_like(like, requires_grad=False)
    for value in values:
        total = total + value
    return total


def refuse_batch_norm(network: nn.Module, plan: Plan) -> None:
    """A ConfigError for batch norm that learns, in parts that several processes compute: each would learn of its own
    rows."""
    learns = any(isinstance(module, _BatchNorm) and module.training for module in network.modules())
    rule = "a network whose batch norm learns from its batches cannot be trained in parts by several processes"
    require(current_world().size == 1 or not learns, f"{rule}: plan.accumulate_steps=1", ConfigError)
