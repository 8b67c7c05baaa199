"""Uncertainty-aware self-training (Wang et al. 2022): the method section of the paper in code. Read this file first.

| symbol | meaning | here |
| --- | --- | --- |
| X_L, Y_L | labelled rows and their classes | problem.labelled |
| X_U | unlabelled rows | problem.unlabelled |
| φ, f_θ | the network, and the linear head on the basis | network; a part of method.labeller |
| μ_k, z_nk | the basis, and how far each component explains a site | a part of method.labeller |
| E(ŷ_n), VAR(ŷ_n) | label distribution of a site | types.LabelDistribution |

Algorithm (the paper's Algorithm 1 is steps 3 to 5; the other steps are its sections 3 and 4)

    Input   X_L, Y_L, X_U, a network φ with a linear classifier, R rounds
    Output  φ, the basis μ_k and the head θ; a label distribution and a record for each round

     1  train φ on X_L, Y_L: L_nll, and Stage I's ‖X − μZ‖, ‖ZZᵀ − YYᵀ‖, ‖μμᵀ − I‖        train_round, round 0
        for r = 0 … R:
     2      x_n ← φ(X_L), φ(X_U)                                                         extract_both
     3      initialise μ_k(0), θ(0)                                                      fit_labeller
     4      for t = 1 … T:   (EM)
                z_nk ← softmax_k(λ x_n · μ_k)                             E step
              * x̂_n ← Σ_k z_nk N(μ_k, Σ_k);  y_n ← f_θ(x̂_n)              latent and label
              * θ    ← descend Loss_L on X_L, VAR(ŷ_n) on X_U             head
                μ_k  ← Σ_n z_nk x_n / Σ_n z_nk                            M step
     5      label X_U: E(ŷ_n), VAR(ŷ_n); in each class trust the lowest variance         label_and_select
     6      if the labels have collapsed, or harm: go back to a better round, and end    check_round, roll_back
     7      if r < R: retrain φ on X_L, Y_L and the trusted part of X_U                  train_round, round r + 1

* The code computes these two lines once, after the T iterations: μ does not depend on θ, so the minimum is the same.

Steps 2 to 6 are `finish_round` (round.py). Other methods than `em_basis` have another labeller in steps 3 and 4 and
another selector in step 5; docs/method.md says for each equation whether it is on by default. An aligner (DANN, MCD, …)
adds its loss to steps 1 and 7: it draws the features of X_L and X_U together (types/alignment.py).

`self_train` is a generator of records: logging, progress, early stop and checkpoints are code in the caller's loop.
`train_rounds` is the same with a pause after every training step, for callers that save or show progress.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import torch
from torch import nn

from embasis.distributed import require_joined
from embasis.engine.calibration import refuse_unheld
from embasis.engine.domain_norm import init_domain_norm
from embasis.engine.holdout import split_holdout
from embasis.engine.labels import BoundSelector, MapLabels, MapPseudoLabels, MemoryLabelStore, RoundLabels
from embasis.engine.restyling import fit_restyler, keep_restyled, restyle_labelled
from embasis.engine.round import finish_round
from embasis.engine.scores import BasisSummary
from embasis.engine.state import TrainSetup, TrainState
from embasis.engine.train import train_round
from embasis.functional.remembered import forget_calls
from embasis.networks.learner import LearnerNetwork
from embasis.networks.network import Network
from embasis.networks.wrapped_module import PROBED_ROWS, WrappedModule, wrap_module
from embasis.randomness import seeded
from embasis.types import LabelStore, Method, Plan, Problem, RoundRecord


@dataclass(frozen=True)
class TrainingEvent:
    """A pause after a step of training or after a round.

    Parameters
    ----------
    state : the run as it stands
    record, labels, basis : of a round that has just ended; None after a step
    is_kept : of a round that has just ended: whether it would be kept if it were the last one
    """

    state: TrainState
    record: RoundRecord | None = None
    labels: RoundLabels | None = None
    basis: BasisSummary | None = None
    is_kept: bool = True


def self_train(problem: Problem, network: nn.Module, method: Method, plan: Plan) -> Iterator[RoundRecord]:
    """Train a source model, then self-train it round by round.

    Parameters
    ----------
    problem : labelled rows, unlabelled rows and the classes
    network : any torch module that returns logits, alone or with features (networks/wrapped_module.py says how they
        are found); it is trained in place
    method : how rows are labelled, which labels are trusted and how they are trained on; `METHODS[name](classes)`
    plan : rounds, epochs, optimiser, seed and the like

    Yields
    ------
    RoundRecord : one for the source model (round 0) and one for each round of self-training
    """
    for event in train_rounds(problem, network, method, plan):
        if event.record is not None:
            yield event.record


def train_rounds(
    problem: Problem,
    network: nn.Module,
    method: Method,
    plan: Plan,
    state: TrainState | None = None,
    store: LabelStore | None = None,
) -> Iterator[TrainingEvent]:
    """As `self_train`, with a pause after every step and every round.

    Labelled rows that the plan holds out are labelled and scored, and take no part in anything else.

    Parameters
    ----------
    problem, network, method, plan : as for `self_train`
    state : where a run that was stopped goes on; None = from the start
    store : keeps the labels of rows with many sites between rounds; None = in memory

    Yields
    ------
    TrainingEvent : the run as it stands, and the record of a round that has just ended
    """
    require_joined()
    state = state or begin(wrap_for(problem, network), method, plan)
    for _ in chain(fit_restyler(problem, method, plan, state), keep_restyled(problem, method, state)):
        yield TrainingEvent(state)
    training, held_out = split_holdout(restyle_labelled(problem, method, state), plan)
    setup = TrainSetup(training, held_out, method, plan, store or MemoryLabelStore())
    if state.at_start():
        init_domain_norm(state.network, training, plan)
    take_stored_labels(setup, state)
    try:
        while state.status == "running":
            for _ in train_round(training, method, plan, state):
                yield TrainingEvent(state)
            done = finish_round(setup, state)
            yield TrainingEvent(state, done.record, done.labels, done.basis, done.is_kept)
    finally:
        forget_calls()


def wrap_for(problem: Problem, network: nn.Module) -> nn.Module:
    """The network as one that returns features and logits; a module of the user's own is shown a few rows for that."""
    if isinstance(network, Network | LearnerNetwork):
        return network
    count = 1 if problem.labelled.has_mixed_shapes else min(PROBED_ROWS, len(problem.labelled))
    return wrap_module(network, problem.labelled.inputs(torch.arange(count)), len(problem.schema))


def begin(network: nn.Module, method: Method, plan: Plan) -> TrainState:
    """A run that has not done anything yet; the network gets its basis block if the method wants one."""
    refuse_unheld(method, plan)
    if method.basis is not None and isinstance(network, Network | WrappedModule):
        with seeded(plan.seed, "basis block"):
            network.add_basis(method.basis.components)
    return TrainState(network)


def take_stored_labels(setup: TrainSetup, state: TrainState) -> None:
    """A run that goes on within a round takes that round's pseudo-labels from the store, where they were put there."""
    if state.status != "running" or state.pseudo is not None or state.counts is None:
        return
    last = state.round - 1
    choice = BoundSelector(setup.method.selector, state.selector, setup.plan.seed, last)
    labels = MapLabels(setup.store.read(last), setup.problem.unlabelled.ids, choice)
    state.pseudo = MapPseudoLabels(labels, state.counts)
