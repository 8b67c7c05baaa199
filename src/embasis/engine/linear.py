"""Training of a linear network on features that never change: its minimum is found at once (decision 0051).

The loss of labelled rows and trusted ones is a sum of cross-entropies of a linear classifier, so value and gradient are
written out (functional/linear_model.py). What is minimised is what every other network minimises step by step; a step
here goes on until the gradient is small, and the steps after it find nothing left to do.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from embasis.engine.batch import BatchPart, TrainingBatch
from embasis.functional import losses
from embasis.functional.linear_model import LinearClassifierLoss
from embasis.functional.minimise import minimise_smooth
from embasis.functional.spanned_model import SpannedClassifierLoss, spans_less
from embasis.methods.losses import PseudoLabelLoss
from embasis.networks.network import Network, reads_only
from embasis.types import Method, Plan

Loss = LinearClassifierLoss | SpannedClassifierLoss
"""What is minimised, in the coordinates of features or of rows, whichever are fewer."""
LINEAR_STEPS = 200
"""The most steps of L-BFGS for one step of training."""
LINEAR_TOLERANCE = 1e-4
"""The weights are found where no entry of the gradient is above this: the tolerance of scikit-learn's too."""


def is_linear_task(network: nn.Module, method: Method, plan: Plan, batch: TrainingBatch) -> bool:
    """Whether a step of training is a linear classifier on rows as they are, found by L-BFGS on the processor.

    A step without unlabelled rows, or in which they weigh nothing, is one whatever the method: so all methods have one
    source model."""
    if not isinstance(network, Network) or not reads_only(network):
        return False
    if network.head is not None or network.basis is not None or method.align is not None:
        return False
    trained = all(weight.requires_grad for weight in network.parameters())
    ours = network.classifier.weight.device.type == "cpu" and network.classifier.weight.dtype == torch.float32
    wanted = plan.optimiser == "lbfgs" and plan.accumulate_steps == 1 and plan.precision != "bfloat16"
    plain = isinstance(method.loss, PseudoLabelLoss) and method.loss.regulariser == "none"
    return trained and ours and wanted and (plain or batch.others is None or not counts_unlabelled(method))


def counts_unlabelled(method: Method) -> bool:
    """Whether unlabelled rows have any weight in the loss."""
    return float(getattr(method.loss, "unlabelled_weight", 1.0)) > 0


def take_linear_step(network: nn.Module, method: Method, plan: Plan, batch: TrainingBatch) -> tuple[float, bool]:
    """Put the minimum into the network; the loss before, and whether its gradient was finite: else nothing moves."""
    assert isinstance(network, Network)
    return solve_linear(network, linear_loss(network, method, plan, batch.as_part()))


def linear_loss(network: Network, method: Method, plan: Plan, part: BatchPart) -> Loss:
    """What a step minimises: labelled rows with equal shares of 1, and trusted ones by their weights."""
    classes = len(network.classifier.bias)
    sides = [(part.inputs, losses.one_hot(part.y, classes), (part.y >= 0).float(), 1.0)]
    if part.others is not None and part.pseudo is not None and counts_unlabelled(method):
        loss, pseudo = method.loss, part.pseudo
        assert isinstance(loss, PseudoLabelLoss)
        target = losses.one_hot(pseudo.label, classes) if pseudo.target is None else pseudo.target
        sides.append((part.others, target, pseudo.weight, loss.unlabelled_weight))
    least = torch.finfo(torch.float32).tiny
    weight = [share * each / each.sum().clamp_min(least) for _, _, each, share in sides]
    target = torch.cat([each for _, each, _, _ in sides]).T.contiguous()
    blocks = [rows_read(network, inputs, side) for side, (inputs, _, _, _) in enumerate(sides)]
    kind = SpannedClassifierLoss if spans_less(blocks, classes) else LinearClassifierLoss
    return kind(blocks, target.numpy(), torch.cat(weight).numpy(), plan.weight_decay)


@torch.no_grad()
def rows_read(network: Network, inputs: Tensor, side: int) -> Tensor:
    """(n, d) what the classifier reads of the rows of a side."""
    rows = inputs.flatten(1).float()
    return rows if network.domains is None else network.domains(rows, side)


@torch.no_grad()
def solve_linear(network: Network, loss: Loss) -> tuple[float, bool]:
    """Put the minimum into the network; the loss before, and whether its gradient was finite: else nothing moves."""
    weight, bias = network.classifier.weight, network.classifier.bias
    start = loss.place(weight, bias)
    minimum, (before, gradient) = minimise_smooth(loss, start, LINEAR_STEPS, LINEAR_TOLERANCE)
    if minimum is not start:
        for value, found in zip((weight, bias), loss.weights(minimum), strict=True):
            value.copy_(found)
    return before, bool(np.isfinite(gradient).all())
