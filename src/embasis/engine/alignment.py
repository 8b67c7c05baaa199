"""An aligner inside the training loop: what its phases see, its extra modules, and when it acts.

`PartOutputs` is what a phase sees of the rows that go through the network together. A loss that compares rows with each
other needs them all: where a batch is taken in parts, `GatheredOutputs` computes every part without gradients, the loss
is taken of all of them at once, and its gradient G is handed back to each part, which is computed again:
∂loss/∂weights = Σ over parts of ∂(output · G)/∂weights. That is exact, because no layer of ours uses batch statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from embasis.engine.batch import BatchPart, TrainingBatch, autocast, device_of, forward
from embasis.engine.features import rows_at_once
from embasis.engine.state import TrainState
from embasis.errors import ConfigError, CorruptError, require
from embasis.functional.sites import to_sites
from embasis.methods.alignment.parts import rows_read_by
from embasis.networks.network import has_fixed_features
from embasis.randomness import seeded
from embasis.types import LABELLED, UNLABELLED, Aligner, Method, Output, Passes, Plan, Problem, Samples, Sizes

Notes = Callable[[str, float], None]


class PartOutputs:
    """What a phase sees of one part of a batch (types/alignment.py: `Seen`); a pass is made when it is first read."""

    def __init__(
        self, network: nn.Module, plan: Plan, part: BatchPart, notes: Notes, held: PartOutputs | None = None
    ) -> None:
        self.network, self.plan, self.part, self.notes, self.held = network, plan, part, notes, held
        self.inputs, self.y = part.inputs, part.y
        self.others = part.inputs[:0] if part.others is None else part.others
        self.view = self.others if part.view is None else part.view
        self.kept: dict[str, Tensor] = {} if held is None else held.kept
        self.other_rows = torch.empty(0, dtype=torch.int64) if part.other_rows is None else part.other_rows

    @cached_property
    def labelled(self) -> Output:
        """Features and logits of the labelled rows."""
        return self.run(self.network, self.inputs, LABELLED) if self.held is None else detach(self.held.labelled)

    @cached_property
    def other(self) -> Output:
        """Features and logits of the unlabelled rows."""
        return self.run(self.network, self.others, UNLABELLED) if self.held is None else detach(self.held.other)

    @property
    def labelled_share(self) -> float:
        """What a mean over these sites with a label counts in the batch's."""
        return self.part.share

    def rows(self, side: int) -> Tensor:
        """(n, d) what the classifier reads of each site of a side."""
        return rows_read_by(self.network, self.output(side), side)

    def logits(self, side: int) -> Tensor:
        """(n, C) the scores of each site of a side."""
        return to_sites(self.output(side).logits).float()

    def output(self, side: int) -> Output:
        """The pass of a side."""
        return self.labelled if side == LABELLED else self.other

    def run(self, module: nn.Module, inputs: Tensor, side: int) -> Output:
        """A pass of any network, in the plan's precision."""
        with autocast(self.network, self.plan):
            return forward(module, inputs, side)

    def mean(self, values: Tensor, side: int) -> Tensor:
        """The mean of the values, times this part's share of the batch's rows."""
        return (self.part.row_share if side == LABELLED else self.part.other_row_share) * values.mean()

    def note(self, name: str, value: Tensor | float) -> None:
        """Keep a number for the round's record."""
        self.notes(name, float(value))


class GatheredOutputs(PartOutputs):
    """What a phase sees of all parts of a batch together; a side is computed part by part, without gradients."""

    def __init__(
        self, network: nn.Module, plan: Plan, batch: TrainingBatch, notes: Notes, parts: Sequence[SeededPart]
    ) -> None:
        super().__init__(network, plan, batch.as_part(), notes)
        self.parts, self.leaves = parts, dict[int, Output]()

    @cached_property
    def labelled(self) -> Output:
        """Of all labelled rows: leaves, which collect gradients."""
        return self._gather(LABELLED)

    @cached_property
    def other(self) -> Output:
        """Of all unlabelled rows: leaves, which collect gradients."""
        return self._gather(UNLABELLED)

    def _gather(self, side: int) -> Output:
        with torch.no_grad():
            outputs = [part.compute(side) for part in self.parts]
        features, logits = (
            torch.cat(column) for column in zip(*((o.features, o.logits) for o in outputs), strict=True)
        )
        self.leaves[side] = Output(features.float().requires_grad_(), logits.float().requires_grad_())
        return self.leaves[side]

    def replay(self, number: int, part: SeededPart) -> Iterator[Tensor]:
        """output · G of a part, for each side that the loss has read: its gradient is the part's of the loss."""
        for side, leaf in self.leaves.items():
            rows = [len(other.inputs_of(side)) for other in self.parts[: number + 1]]
            here, output = slice(sum(rows[:-1]), sum(rows)), part.output(side)
            for value, whole in ((output.features, leaf.features), (output.logits, leaf.logits)):
                if whole.grad is not None:
                    yield (value.float() * whole.grad[here]).sum()


class SeededPart(PartOutputs):
    """A part whose passes draw from a seed of each side's own, so that they can be made again."""

    def __init__(self, network: nn.Module, plan: Plan, part: BatchPart, notes: Notes, key: tuple[int, ...]) -> None:
        super().__init__(network, plan, part, notes)
        self.key = key

    def compute(self, side: int) -> Output:
        """The pass of a side; the same one whenever it is made."""
        with seeded(self.plan.seed, "step", *self.key, side):
            return self.run(self.network, self.inputs_of(side), side)

    def inputs_of(self, side: int) -> Tensor:
        """The rows of a side."""
        return self.inputs if side == LABELLED else self.others

    @cached_property
    def labelled(self) -> Output:
        """Features and logits of the labelled rows."""
        return self.compute(LABELLED)

    @cached_property
    def other(self) -> Output:
        """Features and logits of the unlabelled rows."""
        return self.compute(UNLABELLED)


def detach(output: Output) -> Output:
    """The same values, without a way back."""
    return Output(output.features.detach(), output.logits.detach())


def acting_aligner(method: Method, problem: Problem, round_number: int) -> Aligner | None:
    """The aligner, in a round that it acts in; there must be rows to align with."""
    aligner = method.align
    return aligner if aligner is not None and len(problem.unlabelled) and aligner.acts(round_number) else None


def build_extra(aligner: Aligner, problem: Problem, plan: Plan, state: TrainState) -> nn.ModuleDict:
    """The aligner's modules: built when it begins, as they were left in a run that goes on."""
    if state.extra is not None:
        return state.extra
    sizes = measure_sizes(state.network, problem, plan)
    refuse_unalignable(aligner, state.network, sizes, plan)
    with seeded(plan.seed, "alignment"):
        extra = aligner.build(state.network, sizes).to(device_of(state.network))
    if state.restored_extra:
        try:
            extra.load_state_dict(state.restored_extra)
        except RuntimeError as error:
            raise CorruptError(f"the saved modules of {aligner.name} do not fit this run: {error}") from error
        state.restored_extra = {}
    return extra


@torch.no_grad()
def measure_sizes(network: nn.Module, problem: Problem, plan: Plan) -> Sizes:
    """The sizes of one training view and of what the network makes of it."""
    view = next(iter(problem.labelled.stream([torch.tensor([0])], (plan.seed, 0, 0))))
    was_training = network.training
    output = forward(network.eval(), view.inputs.to(device_of(network)), LABELLED)
    network.train(was_training)
    features, sites = output.features.shape[1], tuple(output.features.shape[2:])
    return Sizes(tuple(view.inputs.shape[1:]), features, len(problem.schema), sites, len(problem.unlabelled))


def refuse_unalignable(aligner: Aligner, network: nn.Module, sizes: Sizes, plan: Plan) -> None:
    """A ConfigError where the aligner could do nothing, or would do something else than it should."""
    name, kind = aligner.name, "maps" if sizes.sites else "rows"
    words = {"rows": "rows with one label each", "maps": "label maps"}
    rule = f"{name} aligns {' and '.join(words[each] for each in aligner.takes)}, and these data have {words[kind]}"
    require(kind in aligner.takes, f"{rule}; `embasis list methods` says what takes them", ConfigError)
    rule = f"{name} needs features that can be trained, and no layer before this network's classifier can be"
    require(not (has_fixed_features(network) and aligner.trains_features), rule, ConfigError)
    rule = f"{name} plays against itself: plan.optimiser must be adam or sgd, got lbfgs"
    require(plan.optimiser != "lbfgs" or not aligner.is_game, rule, ConfigError)
    in_parts = plan.accumulate_steps > 1 and any(phase.whole for phase in aligner.phases(0.0))
    normed = any(isinstance(module, _BatchNorm) for module in network.modules())
    rule = f"{name} compares the rows of a batch, which batch norm does not allow in parts: plan.accumulate_steps=1"
    require(not (in_parts and normed), rule, ConfigError)


def passes_over(problem: Problem, side: int, device: torch.device) -> Passes:
    """Passes of any module over one side, in chunks, without gradients."""
    samples: Samples = problem.labelled if side == LABELLED else problem.unlabelled

    def passes(module: nn.Module) -> Iterator[tuple[Any, Tensor]]:
        with torch.no_grad():
            for view in samples.stream(torch.arange(len(samples)).split(rows_at_once(samples))):
                yield forward(module, view.inputs.to(device), side), view.y.flatten().to(device)

    return passes


def epochs_of(plan: Plan, round_number: int) -> int:
    """How many a round has."""
    return plan.epochs if round_number else plan.source_epochs


def alignment_progress(
    aligner: Aligner, plan: Plan, last_round: int, state: TrainState, steps: int
) -> tuple[float, int]:
    """Of the rounds in which the aligner acts: the part of their training that is done, and the steps taken.

    Both follow from the cursor alone; an epoch has so many `steps`."""
    last = last_round if aligner.ends is None else min(aligner.ends, last_round)
    before = sum(epochs_of(plan, number) for number in range(aligner.begins, state.round))
    total = sum(epochs_of(plan, number) for number in range(aligner.begins, last + 1))
    done = (before + state.epoch) * steps + state.step
    return done / max(total * steps, 1), done
