"""What moves the weights of a round: an optimiser for each group."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from embasis.types import Group, Plan

LBFGS_STEPS = 20
"""Inner iterations of one L-BFGS step."""


def make_optimisers(groups: Mapping[str, Group], plan: Plan, round_number: int) -> dict[str, torch.optim.Optimizer]:
    """One for each group that has weights."""
    rate = plan.lr if round_number else plan.source_lr
    return {name: make_optimiser(group, plan, rate) for name, group in groups.items() if group.weights}


def make_optimiser(group: Group, plan: Plan, lr: float) -> torch.optim.Optimizer:
    """Fresh for every round. Weight decay is part of the loss, so that it means the same for all of them."""
    kind, rate = plan.optimiser if group.optimiser == "plan" else group.optimiser, lr * group.rate
    if kind == "sgd":
        return torch.optim.SGD(group.weights, rate, momentum=plan.momentum)
    if kind == "adam":
        return torch.optim.Adam(group.weights, rate, betas=group.betas)
    return torch.optim.LBFGS(
        group.weights, 1.0, max_iter=LBFGS_STEPS, history_size=10, tolerance_grad=1e-5, line_search_fn="strong_wolfe"
    )
