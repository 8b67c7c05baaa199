"""The one training loop: labelled rows beside unlabelled ones, step by step.

A step is a pure function of (weights, optimiser state, seed, round, epoch, step): its rows come from a permutation of
its own, dropout from a seed of its own. So a run can stop after any step and go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from embasis.distributed import current_world
from embasis.engine.alignment import (
    GatheredOutputs,
    PartOutputs,
    SeededPart,
    acting_aligner,
    alignment_progress,
    build_extra,
    epochs_of,
    passes_over,
)
from embasis.engine.batch import TrainingBatch, device_of
from embasis.engine.epoch import batches_of, rows_of_epoch, samples_of
from embasis.engine.learner import fit_learner
from embasis.engine.linear import is_linear_task, take_linear_step
from embasis.engine.optimisers import make_optimisers
from embasis.engine.state import PLAIN, TrainState, find_last_round
from embasis.engine.step_parts import StepParts, add_up_gradients, iter_steps, refuse_batch_norm
from embasis.errors import CorruptError, NumericalError, require
from embasis.methods.losses import labelled_loss
from embasis.networks.learner import LearnerNetwork
from embasis.networks.network import BasisBlock, reads_only
from embasis.randomness import seeded
from embasis.resources import explain_memory_errors
from embasis.types import LABELLED, UNLABELLED, Aligner, Group, Method, Output, Phase, Plan, Problem, trainable

PLAIN_PHASES = (Phase("train", (PLAIN,)),)
"""A step without an aligner."""


@dataclass(eq=False)
class RoundTrainer:
    """What moves in a round: groups of weights with an optimiser each, and the aligner that acts, if any."""

    problem: Problem
    method: Method
    plan: Plan
    state: TrainState
    aligner: Aligner | None
    groups: Mapping[str, Group]
    optimisers: dict[str, torch.optim.Optimizer]
    tau: float = 0.0
    """part of the aligner's training that is done"""
    done: float = 0.0
    """part of the round that is behind"""

    @property
    def cursor(self) -> tuple[int, int, int]:
        """Round, epoch and step."""
        return self.state.round, self.state.epoch, self.state.step

    def phases(self) -> Sequence[Phase]:
        """What a step consists of."""
        return PLAIN_PHASES if self.aligner is None else self.aligner.phases(self.tau)

    def note(self, name: str, value: float) -> None:
        """Add a number of the aligner's to its sum over the round."""
        total, count = self.state.alignment_sums.get(name, [0.0, 0.0])
        self.state.alignment_sums[name] = [total + value, count + 1]

    @property
    def extra(self) -> nn.ModuleDict:
        """The aligner's modules; none without one."""
        return nn.ModuleDict() if self.state.extra is None else self.state.extra

    def require_optimisers(self) -> None:
        """Make the optimisers that were left out for a linear classifier, which is found without them."""
        if not self.optimisers:
            self.optimisers.update(make_optimisers(self.groups, self.plan, self.state.round))
            self.decay_rates(self.done)

    def decay_rates(self, done: float) -> None:
        """Set the learning rates at `done`, the part of the round that is behind."""
        self.done = done
        if self.plan.schedule == "inverse":
            factor = (1 + 10 * (done if self.aligner is None else self.tau)) ** -0.75
        elif self.plan.lr_power:
            factor = (1 - done) ** self.plan.lr_power
        else:
            return
        for optimiser in self.optimisers.values():
            for group in optimiser.param_groups:
                group["lr"] = optimiser.defaults["lr"] * factor

    def batches(self, pairs: list[tuple[Tensor, Tensor]]) -> Iterator[TrainingBatch | StepParts]:
        """What each of these steps sees: with an aligner always the whole batch, in every process."""
        if self.aligner is not None or self.plan.accumulate_steps == 1:
            return batches_of(self.problem, self.plan, self.state, pairs, self.aligner)
        refuse_batch_norm(self.state.network, self.plan)
        return iter_steps(self.problem, self.plan, self.state, pairs, self.method.loss)

    def settle(self, when: str, steps: int) -> None:
        """Let the aligner update what it averages; an epoch has so many `steps`."""
        if self.aligner is None:
            return
        network, done = self.state.network, find_progress(self, steps)[1]
        with torch.no_grad():
            passes = passes_over(self.problem, LABELLED, device_of(network))
            self.aligner.settle(network, self.extra, when, passes, done)

    def survey(self, steps: int) -> None:
        """Let the aligner learn of all rows what an epoch needs; an epoch has so many `steps`."""
        if self.aligner is None:
            return
        network, done = self.state.network, find_progress(self, steps)[1]
        labelled, unlabelled = (passes_over(self.problem, s, device_of(network)) for s in (LABELLED, UNLABELLED))
        with torch.no_grad():
            self.aligner.survey(network, self.extra, labelled, unlabelled, done)


def find_progress(trainer: RoundTrainer, steps: int) -> tuple[float, int]:
    """τ and the number of steps of the aligner that acts, at the cursor; an epoch has so many `steps`."""
    if trainer.aligner is None:
        return 0.0, 0
    last = find_last_round(trainer.problem, trainer.method, trainer.plan)
    return alignment_progress(trainer.aligner, trainer.plan, last, trainer.state, steps)


def train_round(problem: Problem, method: Method, plan: Plan, state: TrainState) -> Iterator[None]:
    """The rest of the current round, from the cursor on; pauses after every step with the cursor moved."""
    if isinstance(state.network, LearnerNetwork):
        yield from fit_learner(problem, method, plan, state)
        return
    state.network.train()  # before an aligner copies it: a run that goes on and one that was not stopped copy alike
    trainer = make_trainer(problem, method, plan, state)
    epochs = epochs_of(plan, state.round)
    while state.epoch < epochs:
        pairs = rows_of_epoch(problem, method, plan, state)
        if state.step == 0:
            trainer.survey(len(pairs))
        batches = trainer.batches(pairs[state.step :])
        while state.step < len(pairs):
            trainer.tau = find_progress(trainer, len(pairs))[0]
            trainer.decay_rates((state.epoch * len(pairs) + state.step) / (epochs * len(pairs)))
            try:
                state.loss_sum += take_step(trainer, next(batches))
            except NumericalError as error:
                raise NumericalError(f"{error}; {samples_of(problem, pairs[state.step])}") from error
            state.loss_count += 1
            state.step += 1
            trainer.settle("step", len(pairs))
            if state.step < len(pairs):
                yield
        state.epoch, state.step = state.epoch + 1, 0
        trainer.settle("epoch", len(pairs))
        if find_progress(trainer, len(pairs))[0] == 1:
            trainer.settle("end", len(pairs))
        yield


def make_trainer(problem: Problem, method: Method, plan: Plan, state: TrainState) -> RoundTrainer:
    """The groups and optimisers of this round, fresh, or as they were left in a run that goes on."""
    aligner = acting_aligner(method, problem, state.round)
    groups: Mapping[str, Group] = {PLAIN: Group(trainable(state.network))}
    if aligner is not None:
        state.extra = build_extra(aligner, problem, plan, state)
        groups = aligner.groups(state.network, state.extra)
    # A linear classifier needs none, and the first one of a process makes torch load its compiler, for a second.
    spared = aligner is None and reads_only(state.network) and not state.restored_optimisers
    optimisers = {} if spared else make_optimisers(groups, plan, state.round)
    for name, restored in state.restored_optimisers.items():
        require(name in optimisers, f"the saved progress has an optimiser {name!r} that this run has not", CorruptError)
        optimisers[name].load_state_dict({**optimisers[name].state_dict(), "state": restored})
    state.restored_optimisers = {}
    state.optimisers = optimisers
    return RoundTrainer(problem, method, plan, state, aligner, groups, optimisers)


def take_step(trainer: RoundTrainer, batch: TrainingBatch | StepParts) -> float:
    """All phases of one step; the loss of the first. A loss or gradient that is not finite ends the run."""
    plan, cursor = trainer.plan, trainer.cursor
    losses, held = list[float](), list[PartOutputs]()
    with explain_memory_errors(f"{batch} in round {cursor[0]} epoch {cursor[1]} step {cursor[2]}", hint_for(plan)):
        if isinstance(batch, TrainingBatch) and is_linear_task(trainer.state.network, trainer.method, plan, batch):
            loss, is_finite = take_linear_step(trainer.state.network, trainer.method, plan, batch)
            require_finite_step(torch.tensor(loss), is_finite, cursor)
            return loss
        trainer.require_optimisers()
        for number, phase in enumerate(trainer.phases()):
            for repeat in range(phase.times):
                key = cursor if number == repeat == 0 else (*cursor, number, repeat)
                loss, held = take_phase(trainer, phase, batch, key, held)
                losses.append(loss)
    return losses[0]


def take_phase(
    trainer: RoundTrainer,
    phase: Phase,
    batch: TrainingBatch | StepParts,
    key: tuple[int, ...],
    held: list[PartOutputs],
) -> tuple[float, list[PartOutputs]]:
    """One step of the optimisers of what moves: its loss, and the outputs that the next phase may hold."""
    weights = [weight for name in phase.moves for weight in trainer.groups[name].weights]
    optimisers = [trainer.optimisers[name] for name in phase.moves if name in trainer.optimisers]
    outputs = list[PartOutputs]()

    def closure() -> Tensor:
        for optimiser in optimisers:
            optimiser.zero_grad()
        if isinstance(batch, StepParts):
            loss = backward_shared(trainer, phase, batch, key, weights)
        else:
            compute = backward_whole if phase.whole and plan.accumulate_steps > 1 else backward_parts
            loss, outputs[:] = compute(trainer, phase, batch, key, held)
        require_finite_step(loss, gradient_is_finite(weights), trainer.cursor)
        return loss

    # L-BFGS asks for the loss with weights on trial; only those of a finished step may stay.
    plan = trainer.plan
    trials = weights if plan.optimiser == "lbfgs" else []
    before = [parameter.detach().clone() for parameter in trials]
    try:
        with freeze_others(trainer, weights):
            loss = float(optimisers[0].step(closure))  # type: ignore[arg-type]
            for optimiser in optimisers[1:]:
                optimiser.step()
    except NumericalError:
        with torch.no_grad():
            for parameter, old in zip(trials, before, strict=True):
                parameter.copy_(old)
        raise
    return loss, outputs


@contextmanager
def freeze_others(trainer: RoundTrainer, weights: Sequence[nn.Parameter]) -> Iterator[None]:
    """Only these weights, of the network and the aligner's modules, collect gradients meanwhile."""
    if trainer.aligner is None:
        yield
        return
    moved = {id(weight) for weight in weights}
    every = [*trainer.state.network.parameters(), *trainer.extra.parameters()]
    before = [weight.requires_grad for weight in every]
    try:
        for weight in every:
            weight.requires_grad_(id(weight) in moved)
        yield
    finally:
        for weight, flag in zip(every, before, strict=True):
            weight.requires_grad_(flag)


def backward_parts(
    trainer: RoundTrainer, phase: Phase, batch: TrainingBatch, key: tuple[int, ...], held: list[PartOutputs]
) -> tuple[Tensor, list[PartOutputs]]:
    """The gradients of a phase, part after part; its loss, and the outputs of the parts."""
    network, plan, loss, outputs = trainer.state.network, trainer.plan, torch.zeros(()), list[PartOutputs]()
    with seeded(plan.seed, "step", *key):
        for number, part in enumerate(batch.parts(plan.accumulate_steps, trainer.method.loss)):
            seen = PartOutputs(network, plan, part, trainer.note, held[number] if phase.held else None)
            value = loss_of(trainer, phase, seen)
            if number == 0:
                value = value + plan.weight_decay / 2 * weight_norm(trainer, phase)
            torch.autograd.backward(value)
            loss = loss + value.detach().cpu()
            outputs.append(seen)
    return loss, outputs


def backward_whole(
    trainer: RoundTrainer, phase: Phase, batch: TrainingBatch, key: tuple[int, ...], held: list[PartOutputs]
) -> tuple[Tensor, list[PartOutputs]]:
    """As `backward_parts`, with the aligner's loss of all parts at once (engine/alignment.py)."""
    network, plan = trainer.state.network, trainer.plan
    whole = key if len(key) > len(trainer.cursor) else (*key, 0, 0)
    parts = [
        SeededPart(network, plan, part, trainer.note, (*whole, number))
        for number, part in enumerate(batch.parts(plan.accumulate_steps, trainer.method.loss))
    ]
    gathered = GatheredOutputs(network, plan, batch, trainer.note, parts)
    with seeded(plan.seed, "step", *whole):
        value = sum_terms(alignment_loss(trainer, phase, gathered))
    value = value + plan.weight_decay / 2 * weight_norm(trainer, phase)
    torch.autograd.backward(value)
    loss = value.detach().cpu()
    for number, part in enumerate(parts):
        own = common_terms(trainer, phase, part)
        terms = [*own, *gathered.replay(number, part)]
        if terms:
            torch.autograd.backward(sum_terms(terms))
        loss = loss + sum((term.detach().cpu() for term in own), torch.zeros(()))
    return loss, list(parts)


def backward_shared(
    trainer: RoundTrainer, phase: Phase, step: StepParts, key: tuple[int, ...], weights: Sequence[nn.Parameter]
) -> Tensor:
    """The gradients of a step whose parts several processes may compute, added up over all of them; its loss."""
    plan, gradients, losses = trainer.plan, list[list[Tensor]](), torch.zeros(step.count, dtype=torch.float64)
    for number, part in step.parts.items():
        for weight in weights:
            weight.grad = None
        with seeded(plan.seed, "step", *key, number):
            value = loss_of(trainer, phase, PartOutputs(trainer.state.network, plan, part, trainer.note))
        if number == 0:
            value = value + plan.weight_decay / 2 * weight_norm(trainer, phase)
        torch.autograd.backward(value)
        losses[number] = float(value.detach())
        gradients.append([torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights])
    add_up_gradients(gradients, weights, step.count, plan)
    return torch.tensor(sum(current_world().fill(losses).tolist()), dtype=torch.float32)


def hint_for(plan: Plan) -> str:
    """What needs less memory, and that nothing is lost."""
    less = f"plan.accumulate_steps={2 * plan.accumulate_steps} takes it in parts"
    smaller = (
        f"plan.batch_size={max(plan.batch_size // 2, 1)} is smaller"
        if plan.batch_size
        else "plan.batch_size=64 takes fewer rows"
    )
    return f"{less}, {smaller}; the last saved state is kept"


def loss_of(trainer: RoundTrainer, phase: Phase, seen: PartOutputs) -> Tensor:
    """The loss of a part of a batch, as its share of the whole."""
    return sum_terms([*common_terms(trainer, phase, seen), *alignment_loss(trainer, phase, seen)])


def common_terms(trainer: RoundTrainer, phase: Phase, seen: PartOutputs) -> list[Tensor]:
    """The terms of a part that every method has, each as its share of the whole: labelled rows, then pseudo-labels."""
    terms, part, method = list[Tensor](), seen.part, trainer.method
    if phase.labelled:
        terms.append(part.share * labelled_loss(seen.labelled, part.y))
    if phase.uses_pseudo_labels and part.others is not None and part.pseudo is not None:
        terms.append(part.other_share * method.loss(seen.other, part.pseudo))
    if phase.uses_stage_one and trainer.state.round == 0:
        terms.append(part.share * basis_loss(seen.network, method, seen.labelled, part.y))
    return terms


def alignment_loss(trainer: RoundTrainer, phase: Phase, seen: PartOutputs) -> list[Tensor]:
    """The aligner's term, if one acts."""
    if trainer.aligner is None:
        return []
    return [trainer.aligner.loss(phase.name, trainer.state.network, trainer.extra, seen, trainer.tau)]


def sum_terms(terms: Sequence[Tensor]) -> Tensor:
    """The terms added up, from the first one on."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def require_finite_step(loss: Tensor, finite_gradient: bool, cursor: tuple[int, int, int]) -> None:
    """A NumericalError for a loss, or a gradient, that is not finite."""
    where = "in round {} epoch {} step {}; the last saved state is kept; ".format(*cursor)
    advice = "try a smaller plan.lr or check the scale of the features"
    finite = bool(torch.isfinite(loss))
    require(finite, f"the loss is {float(loss)} {where}{advice}", NumericalError)
    require(finite_gradient, f"a gradient is not finite {where}{advice}", NumericalError)


def gradient_is_finite(weights: Sequence[nn.Parameter]) -> bool:
    """Whether every entry of every gradient is a number: a step is not taken otherwise."""
    parts = [parameter.grad.sum() for parameter in weights if parameter.grad is not None]
    return not parts or bool(torch.isfinite(torch.stack(parts)).all())


def basis_loss(network: nn.Module, method: Method, output: Output, y: Tensor) -> Tensor:
    """Stage I's three terms, when the method and the network have a basis block."""
    block = getattr(network, "basis", None)
    if method.basis is None or not isinstance(block, BasisBlock):
        return torch.zeros(())
    return block.loss(output.features, y, method.basis)


def weight_norm(trainer: RoundTrainer, phase: Phase) -> Tensor:
    """Σ w² over what moves; biases and the basis (kept orthonormal by its own term) are left out."""
    network = trainer.state.network
    basis = {id(weight) for name, weight in network.named_parameters() if name.startswith("basis.")}
    groups = [trainer.groups[name].weights for name in phase.moves]
    moved = network.parameters() if trainer.aligner is None else (weight for group in groups for weight in group)
    parts = [weight.square().sum() for weight in moved if weight.ndim > 1 and id(weight) not in basis]
    return torch.stack(parts).sum() if parts else torch.zeros(())
