"""The linear classifier of functional/linear_model.py where rows are fewer than features: in the span of the rows.

| symbol | shape | meaning |
| --- | --- | --- |
| X | n d | rows of features, all blocks |
| G | n n | X Xᵀ |
| W0, b0 | C d, C | where the search starts |
| V | C d | any weights on the way: V = A X + a W0 |
| A, a | C n, () | coefficients of V |
| S | C n | scores of V without biases: V Xᵀ = A G + a S0, S0 = W0 Xᵀ |
| t | () | W0 · V |
| b | C | biases |

Gradients are combinations of rows and of W0, so nothing that L-BFGS computes leaves their span. A vector here is (A, S,
b, a, t), all of which are linear in V, and the scalar product of two is A · S' + b · b' + a t'. So a step needs one
product with G, n² C numbers, in place of two with the rows, 2 n d C; it leads to the same place but for rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from embasis.functional.linear_model import Float32Array, softmax_of
from embasis.functional.minimise import Objective, Probe, ValueAndGradient, Vector
from embasis.functional.sites import SPANNED_WIDTH, join_products, multiply_own, multiply_rows

STEPS, ROUNDS = 30, 6
"""What is counted on: steps of a search, and rounds."""
SEEN_COLUMNS = 64
"""Entries of the gradient that are looked at first: mostly one of them is above the tolerance already."""


def spans_less(blocks: Sequence[Tensor], classes: int) -> bool:
    """Whether a search takes fewer multiplications in the span of the rows, their products among each other included;
    those of the first block are computed once for all rounds."""
    width, (first, *others) = blocks[0].shape[1], [len(block) for block in blocks]
    rows = first + sum(others)
    once = (rows * sum(others) + first * first / ROUNDS) * width
    return width >= SPANNED_WIDTH and once + STEPS * rows * rows * classes < 2 * STEPS * rows * width * classes


def multiply_blocks(blocks: Sequence[Tensor]) -> Tensor:
    """(n, n) products of all rows with all: of one block, or of labelled rows, which stay, and others."""
    if len(blocks) == 1:
        return multiply_own(blocks[0])
    labelled, others = blocks
    return join_products(multiply_own(labelled), multiply_rows(others, labelled), multiply_rows(others, others))


class SpannedClassifierLoss(Objective):
    """F of rows, in the coordinates of the table above."""

    is_convex: ClassVar[bool] = True

    def __init__(self, blocks: Sequence[Tensor], target: Float32Array, weight: Float32Array, decay: float) -> None:
        self.blocks, self.decay = blocks, decay
        self.mass, self.pull = weight * target.sum(0), weight * target
        self.shape, self.size = target.shape, target.size
        self.gram = multiply_blocks(blocks)
        width = blocks[0].shape[1]
        self.columns = torch.cat([block[:, :: max(width // SEEN_COLUMNS, 1)] for block in blocks])
        self.weight, self.scores = torch.zeros(len(target), width), np.zeros(self.shape)
        self.x = self.direction = np.empty(0)

    def place(self, weight: Tensor, bias: Tensor) -> Vector:
        """The coordinates of W0 and b0, which all others are measured from."""
        self.weight = weight.detach().float()
        self.scores = torch.cat([self.weight @ block.T for block in self.blocks], 1).double().numpy()
        norm = float(self.weight.double().square().sum())
        nothing, start = np.zeros(self.size), bias.detach().double().numpy()
        return np.concatenate([nothing, self.scores.reshape(-1), start, [1.0, norm]])

    def weights(self, x: Vector) -> tuple[Tensor, Tensor]:
        """(C, d) and (C) weights and biases at these coordinates."""
        share = torch.from_numpy(x[: self.size].reshape(self.shape).astype(np.float32))
        parts = zip(share.split([len(block) for block in self.blocks], 1), self.blocks, strict=True)
        matrix = sum((part @ block for part, block in parts), float(x[-2]) * self.weight)
        return matrix, torch.from_numpy(self._bias(x).astype(np.float32))

    def multiply(self, first: Vector, second: Vector) -> float:
        """The scalar product of weights and biases."""
        return self._multiply_weights(first, second) + float(self._bias(first) @ self._bias(second))

    def is_flat(self, gradient: Vector, tolerance: float) -> bool:
        """By all entries of the gradient in the features' own coordinates; some of them first."""
        bias = float(np.abs(self._bias(gradient)).max())
        share = torch.from_numpy(gradient[: self.size].reshape(self.shape).astype(np.float32))
        own = self.weight[:, :: max(self.weight.shape[1] // SEEN_COLUMNS, 1)]
        seen = float(torch.addmm(own, share, self.columns, beta=float(gradient[-2])).abs().max())
        if tolerance < max(bias, seen) < math.inf:
            return False
        return not tolerance < max(bias, float(self.weights(gradient)[0].abs().max())) < math.inf

    def first_length(self, gradient: Vector) -> float:
        """By the sum of all entries of the gradient in the features' own coordinates."""
        matrix, bias = self.weights(gradient)
        return min(1.0, 1 / float(matrix.abs().sum(dtype=torch.float64) + bias.abs().sum()))

    def begin(self, x: Vector) -> ValueAndGradient:
        """Value and gradient at x."""
        self.x = x
        return self._evaluate()

    def aim(self, direction: Vector) -> Probe:
        """The slope along a direction; a convex function needs no value."""
        self.direction = direction
        start, change = self._with_bias(self.x), self._with_bias(direction)
        together, square = self._multiply_weights(self.x, direction), self._multiply_weights(direction, direction)

        def probe(length: float) -> tuple[float, float]:
            chance = softmax_of(start + np.float32(length) * change)[0]
            slope = float(np.vdot(self.mass * chance - self.pull, change))
            return math.nan, slope + self.decay * (together + length * square)

        return probe

    def move(self, length: float) -> ValueAndGradient:
        """Value and gradient farther along the direction."""
        self.x = self.x + length * self.direction
        return self._evaluate()

    def _evaluate(self) -> ValueAndGradient:
        scores = self._with_bias(self.x)
        chance, logs = softmax_of(scores)
        value = float(self.mass @ logs) - float(np.vdot(self.pull, scores))
        residual = self.mass * chance - self.pull
        gradient = self.decay * self.x
        gradient[: self.size] += residual.reshape(-1)
        gradient[self.size : 2 * self.size] += (torch.from_numpy(residual) @ self.gram).numpy().reshape(-1)
        gradient[2 * self.size : -2] = residual.sum(1)
        gradient[-1] += float(np.vdot(residual, self.scores))
        return value + self.decay / 2 * self._multiply_weights(self.x, self.x), gradient

    def _with_bias(self, x: Vector) -> Float32Array:
        """(C, n) scores with biases."""
        scores = x[self.size : 2 * self.size].reshape(self.shape) + self._bias(x)[:, None]
        return scores.astype(np.float32)

    def _bias(self, x: Vector) -> Vector:
        return x[2 * self.size : -2]

    def _multiply_weights(self, first: Vector, second: Vector) -> float:
        return float(first[: self.size] @ second[self.size : 2 * self.size] + first[-2] * second[-1])
