"""A round of training where a learner stands in the place of a network: one fit to weighted rows.

The loss of a round is Σ_labelled CE / n + u · Σ_trusted w CE / Σ w (methods/losses.py), so times n:

| rows | weight in the fit |
| --- | --- |
| labelled | 1 |
| trusted, with weight w | u · n · w / Σ w |

u is `unlabelled_weight`. A soft label is a row for each of its classes, with its share of the weight.

A learner may find in the features what no distance between them shows, and then a basis of them harms its labels. Held
out rows tell: where the learner alone gives their classes a larger likelihood, each at its best temperature, it labels
alone (decision 0047).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from embasis.engine.epoch import batches_of, rows_of_epoch
from embasis.engine.holdout import HeldOut
from embasis.engine.label_chunks import label_chunk
from embasis.engine.state import TrainSetup, TrainState
from embasis.errors import ConfigError, require
from embasis.functional.calibration import apply_inverse_temperature, fit_inverse_temperature, probability_of
from embasis.functional.losses import one_hot, weighted_cross_entropy
from embasis.functional.validation import effective_weights
from embasis.methods.losses import PseudoLabelLoss
from embasis.networks.learner import LEAST_PROBABILITY, FitKey, LearnerNetwork, WeightedRows
from embasis.randomness import derive
from embasis.types import Labeller, Method, Plan, Problem, PseudoLabels, State

LEAST_SHARE = 1e-3
"""Classes with less of a soft label than this are left out of it."""
LARGEST_SEED = 2**31 - 1
MEASURED_ROWS = 4096
"""The most rows that the loss of a round is measured on."""
LEAST_HELD_OUT = 20
"""With fewer held-out rows nothing is judged by them."""


def fit_learner(problem: Problem, method: Method, plan: Plan, state: TrainState) -> Iterator[None]:
    """The fit of the current round, unless it has been made; one pause after it, with the cursor moved."""
    network = state.network
    assert isinstance(network, LearnerNetwork)
    refuse_for_learner(method, plan, network)
    if state.epoch > 0:
        return
    rows = gather_rows(problem, method, plan, state)
    seed = derive(plan.seed, "learner", state.round) % LARGEST_SEED
    network.fit_rows(rows, FitKey(state.round, seed, state.best_round))
    state.loss_sum, state.loss_count = measure_loss(network, rows), 1
    state.epoch, state.step = 1, 0
    yield


def refuse_for_learner(method: Method, plan: Plan, network: nn.Module) -> None:
    """A ConfigError for a method that needs gradients, where a learner stands in the place of a network."""
    if not isinstance(network, LearnerNetwork):
        return
    beside = method.align or method.restyle
    plain = isinstance(method.loss, PseudoLabelLoss) and method.loss.regulariser == "none"
    needs = (
        "changes what a network is trained by" if beside is not None
        else "has a loss of the network's own predictions" if not plain
        else "trains a block of weights for its first basis" if method.basis is not None
        else ""
    )  # fmt: skip
    cure = "take em_basis, cbst, pseudo_label or source_only, or a network: network.name=mlp"
    name = method.name if beside is None else beside.name
    require(not needs, f"{name} {needs}, and a learner is fitted without gradients: {cure}", ConfigError)
    require(plan.device != "cuda", "plan.device = cuda is for networks: a learner runs on the processor", ConfigError)


def gather_rows(problem: Problem, method: Method, plan: Plan, state: TrainState) -> WeightedRows:
    """All labelled rows, and the trusted ones with their weights."""
    assert isinstance(method.loss, PseudoLabelLoss)
    pairs = rows_of_epoch(problem, method, replace(plan, batch_size=0), state)
    batch = next(batches_of(problem, plan, state, pairs))
    x, y = batch.inputs.flatten(1), batch.y.flatten()
    parts = [WeightedRows(x[y >= 0], y[y >= 0], torch.ones(int((y >= 0).sum()), dtype=torch.float64))]
    if batch.others is not None and batch.pseudo is not None and method.loss.unlabelled_weight > 0:
        trusted = spread_labels(batch.others.flatten(1), batch.pseudo)
        scale = method.loss.unlabelled_weight * len(parts[0].x) / max(float(trusted.weight.sum()), 1e-12)
        parts.append(WeightedRows(trusted.x, trusted.y, scale * trusted.weight))
    return WeightedRows(*(torch.cat([getattr(part, name) for part in parts]) for name in ("x", "y", "weight")))


def spread_labels(x: Tensor, pseudo: PseudoLabels) -> WeightedRows:
    """The trusted rows; with soft labels each once for every class that it may have."""
    weight = pseudo.weight.double()
    if pseudo.target is None:
        here = (pseudo.label >= 0) & (weight > 0)
        return WeightedRows(x[here], pseudo.label[here], weight[here])
    share = weight.unsqueeze(1) * pseudo.target.double()
    row, label = torch.nonzero((weight > 0).unsqueeze(1) & (pseudo.target >= LEAST_SHARE), as_tuple=True)
    return WeightedRows(x[row], label, share[row, label])


@torch.no_grad()
def measure_loss(network: LearnerNetwork, rows: WeightedRows) -> float:
    """The mean cross-entropy of rows that were learned from: of all, or of every n-th where there are many."""
    some = slice(None, None, -(-len(rows.y) // MEASURED_ROWS))
    logits = network(rows.x[some]).logits
    return float(weighted_cross_entropy(logits, one_hot(rows.y[some], network.classes), rows.weight[some].float()))


def judge_basis(setup: TrainSetup, network: nn.Module, fitted: State, held: HeldOut | None) -> State:
    """`fitted`, a labeller's state; without its basis where a learner labels held-out rows better alone."""
    if not isinstance(network, LearnerNetwork) or held is None or len(held.sites) < LEAST_HELD_OUT:
        return fitted
    labeller = setup.method.labeller
    alone = labeller.without_basis(fitted)
    if alone is None or held_out_risk(labeller, alone, held) > held_out_risk(labeller, fitted, held):
        return fitted
    return alone


def held_out_risk(labeller: Labeller, state: State, held: HeldOut) -> float:
    """The mean negative log likelihood of held-out rows, weighted towards the unlabelled side, at the temperature that
    makes it smallest."""
    truth, weight = held.sites.y, effective_weights(held.weight)
    mean = label_chunk(labeller, held.sites, state).mean
    mean = apply_inverse_temperature(mean, mean, mean, fit_inverse_temperature(mean, truth, weight))[0]
    likelihood = probability_of(mean, truth).double().clamp_min(LEAST_PROBABILITY)
    return float(-(weight * likelihood.log()).sum() / weight.sum())
