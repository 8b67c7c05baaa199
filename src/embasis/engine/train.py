"""The one training loop: labelled rows beside unlabelled ones, step by step.

A step is a pure function of (weights, optimiser state, seed, round, epoch, step): its rows come from a permutation of
its own, dropout from a seed of its own. So a run can stop after any step and go on.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from embasis.engine.batch import BatchPart, TrainingBatch, autocast, device_of, forward, move_labels
from embasis.engine.state import TrainState
from embasis.errors import NumericalError, require
from embasis.functional import augment
from embasis.methods.losses import labelled_loss
from embasis.networks.network import BasisBlock
from embasis.randomness import permutation, seeded, uniforms
from embasis.resources import explain_memory_errors
from embasis.types import AugmentKey, CropTarget, Method, Output, Plan, Problem, TrainingTargets, View

LBFGS_STEPS = 20
"""Inner iterations of one L-BFGS step."""


def train_round(problem: Problem, method: Method, plan: Plan, state: TrainState) -> Iterator[None]:
    """The rest of the current round, from the cursor on; pauses after every step with the cursor moved."""
    epochs = plan.epochs if state.round else plan.source_epochs
    rate = plan.lr if state.round else plan.source_lr
    optimiser = make_optimiser(state.network, plan, rate)
    rate = optimiser.defaults["lr"]
    if state.restored_optimiser is not None:
        optimiser.load_state_dict({**optimiser.state_dict(), "state": state.restored_optimiser})
        state.restored_optimiser = None
    state.optimiser = optimiser
    state.network.train()
    while state.epoch < epochs:
        pairs = rows_of_epoch(problem, method, plan, state)
        batches = batches_of(problem, plan, state, pairs[state.step :])
        while state.step < len(pairs):
            done = (state.epoch * len(pairs) + state.step) / (epochs * len(pairs))
            for group in optimiser.param_groups if plan.lr_power else ():
                group["lr"] = rate * (1 - done) ** plan.lr_power
            try:
                state.loss_sum += take_step(method, plan, state, optimiser, next(batches))
            except NumericalError as error:
                raise NumericalError(f"{error}; {samples_of(problem, pairs[state.step])}") from error
            state.loss_count += 1
            state.step += 1
            if state.step < len(pairs):
                yield
        state.epoch, state.step = state.epoch + 1, 0
        yield


def make_optimiser(network: nn.Module, plan: Plan, lr: float) -> torch.optim.Optimizer:
    """Fresh for every round. Weight decay is part of the loss, so that it means the same for all of them."""
    weights = [parameter for parameter in network.parameters() if parameter.requires_grad]
    if plan.optimiser == "sgd":
        return torch.optim.SGD(weights, lr, momentum=plan.momentum)
    if plan.optimiser == "adam":
        return torch.optim.Adam(weights, lr)
    return torch.optim.LBFGS(
        weights, 1.0, max_iter=LBFGS_STEPS, history_size=10, tolerance_grad=1e-5, line_search_fn="strong_wolfe"
    )


def rows_of_epoch(problem: Problem, method: Method, plan: Plan, state: TrainState) -> list[tuple[Tensor, Tensor]]:
    """Row numbers of both sides for each step; the shorter side is gone through again."""
    labelled, pseudo = len(problem.labelled), state.pseudo
    if state.round == 0 or pseudo is None:
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
    problem: Problem, plan: Plan, state: TrainState, pairs: list[tuple[Tensor, Tensor]]
) -> Iterator[TrainingBatch]:
    """What each step sees, read ahead where the data are files."""
    draw, device, pseudo = (plan.seed, state.round, state.epoch), device_of(state.network), state.pseudo
    rare = class_sampling_weights(problem, state)
    batches = [rows for _, rows in pairs if len(rows)]
    left = problem.labelled.stream([rows for rows, _ in pairs], draw, CropTarget(rare))
    right = problem.unlabelled.stream(batches, draw, aim_at(pseudo, batches, rare, draw))
    for rows, others in pairs:
        view = next(left)
        inputs, y = augment_view(view, problem.labelled.ids[rows], plan, draw, "labelled").to(device), view.y.to(device)
        if not len(others) or pseudo is None:
            yield TrainingBatch(inputs, y)
        else:
            other = next(right)
            seen = augment_view(other, problem.unlabelled.ids[others], plan, draw, "unlabelled")
            yield TrainingBatch(inputs, y, seen.to(device), move_labels(pseudo.seen(others, other), device))


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


def take_step(
    method: Method, plan: Plan, state: TrainState, optimiser: torch.optim.Optimizer, batch: TrainingBatch
) -> float:
    """One step of the optimiser; the loss before it. A loss or gradient that is not finite ends the run."""
    network, cursor = state.network, (state.round, state.epoch, state.step)

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = torch.zeros(())
        with seeded(plan.seed, "step", *cursor):
            for number, part in enumerate(batch.parts(plan.accumulate_steps, method.loss)):
                value = loss_of(network, method, plan, part, first_stage=state.round == 0)
                if number == 0:
                    value = value + plan.weight_decay / 2 * weight_norm(network)
                torch.autograd.backward(value)
                loss = loss + value.detach().cpu()
        require_finite_step(network, loss, cursor)
        return loss

    # L-BFGS asks for the loss with weights on trial; only those of a finished step may stay.
    trials = list(network.parameters()) if plan.optimiser == "lbfgs" else []
    before = [parameter.detach().clone() for parameter in trials]
    try:
        with explain_memory_errors(f"{batch} in round {cursor[0]} epoch {cursor[1]} step {cursor[2]}", hint_for(plan)):
            return float(optimiser.step(closure))  # type: ignore[arg-type]
    except NumericalError:
        with torch.no_grad():
            for parameter, value in zip(trials, before, strict=True):
                parameter.copy_(value)
        raise


def hint_for(plan: Plan) -> str:
    """What needs less memory, and that nothing is lost."""
    less = f"plan.accumulate_steps={2 * plan.accumulate_steps} takes it in parts"
    smaller = (
        f"plan.batch_size={max(plan.batch_size // 2, 1)} is smaller"
        if plan.batch_size
        else "plan.batch_size=64 takes fewer rows"
    )
    return f"{less}, {smaller}; the last saved state is kept"


def loss_of(network: nn.Module, method: Method, plan: Plan, part: BatchPart, first_stage: bool) -> Tensor:
    """The loss of a part of a batch, as its share of the whole."""
    with autocast(network, plan):
        output = forward(network, part.inputs, 0)
        other = None if part.others is None else forward(network, part.others, 1)
    loss = part.share * labelled_loss(output, part.y)
    if other is not None and part.pseudo is not None:
        loss = loss + part.other_share * method.loss(other, part.pseudo)
    if first_stage:
        loss = loss + part.share * basis_loss(network, method, output, part.y)
    return loss


def require_finite_step(network: nn.Module, loss: Tensor, cursor: tuple[int, int, int]) -> None:
    """A NumericalError for a loss or a gradient that is not finite."""
    where = "in round {} epoch {} step {}; the last saved state is kept; ".format(*cursor)
    advice = "try a smaller plan.lr or check the scale of the features"
    finite = bool(torch.isfinite(loss))
    require(finite, f"the loss is {float(loss)} {where}{advice}", NumericalError)
    require(gradient_is_finite(network), f"a gradient is not finite {where}{advice}", NumericalError)


def gradient_is_finite(network: nn.Module) -> bool:
    """Whether every entry of every gradient is a number: a step is not taken otherwise."""
    parts = [parameter.grad.sum() for parameter in network.parameters() if parameter.grad is not None]
    return not parts or bool(torch.isfinite(torch.stack(parts)).all())


def basis_loss(network: nn.Module, method: Method, output: Output, y: Tensor) -> Tensor:
    """Stage I's three terms, when the method and the network have a basis block."""
    block = getattr(network, "basis", None)
    if method.basis is None or not isinstance(block, BasisBlock):
        return torch.zeros(())
    return block.loss(output.features, y, method.basis)


def weight_norm(network: nn.Module) -> Tensor:
    """Σ w² over weights; biases and the basis (kept orthonormal by its own term) are left out."""
    parts = [
        parameter.square().sum()
        for name, parameter in network.named_parameters()
        if parameter.ndim > 1 and not name.startswith("basis.")
    ]
    return torch.stack(parts).sum() if parts else torch.zeros(())
