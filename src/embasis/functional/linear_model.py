"""Linear classifiers on fixed rows, with the gradients written out: the network `linear`, and the head on a basis.

| symbol | shape | meaning |
| --- | --- | --- |
| blocks | n_i d | rows of features, in blocks that stay where they are in memory |
| target | C n | what each row is to be labelled as: a distribution over classes |
| weight | n | how much each row counts |
| W, b | C d, C | weights and biases; x is both of them, one after the other |
| scores | C n | W x_n + b, class by class: so sums over classes are sums of whole rows |
| decay | () | strength of the penalty decay / 2 · ‖W‖² |
| z, y | n k, n | responsibilities and classes of labelled rows |
| mu | k d | components |

Of rows:      F(W, b) = Σ_n weight_n · Σ_c target_cn (−log softmax(scores_n)_c) + decay / 2 · ‖W‖²
Of a basis:   F(W, b) = −Σ_n weight_n · log Σ_k z_nk p_k,y(n) + decay / 2 · ‖W‖²,   p_k = softmax(W mu_k + b)

Along a line scores change by t times the scores of the direction, so a trial of a length needs no product with rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from embasis.functional.minimise import Objective, Probe, ValueAndGradient, Vector

Float32Array = NDArray[np.float32]
LEAST_LIKELIHOOD = 1e-12
"""The least likelihood whose logarithm is taken."""


class LinearClassifierLoss(Objective):
    """F of rows, with the scores where the search is and those of its direction."""

    is_convex: ClassVar[bool] = True

    def __init__(self, blocks: Sequence[Tensor], target: Float32Array, weight: Float32Array, decay: float) -> None:
        self.blocks, self.target, self.weight, self.decay = blocks, target, weight, decay
        self.mass = weight * target.sum(0)
        self.shape = (len(target), blocks[0].shape[1] if blocks else 0)
        self.x = self.direction = np.empty(0)
        self.scores = self.change = np.empty_like(target)

    def place(self, weight: Tensor, bias: Tensor) -> Vector:
        """x of these weights and biases."""
        x: Vector = torch.cat([weight.detach().flatten(), bias.detach()]).double().numpy()
        return x

    def weights(self, x: Vector) -> tuple[Tensor, Tensor]:
        """(C, d) and (C) weights and biases at x."""
        flat = torch.from_numpy(x).float()
        return flat[: self.shape[0] * self.shape[1]].view(self.shape), flat[self.shape[0] * self.shape[1] :]

    def begin(self, x: Vector) -> ValueAndGradient:
        """Value and gradient at x."""
        self.x, self.scores = x, self._scores(x)
        return self._evaluate()

    def aim(self, direction: Vector) -> Probe:
        """The slope along a direction, by one product with the rows; a convex function needs no value."""
        self.direction, self.change = direction, self._scores(direction)
        flat, other = self._weights(self.x), self._weights(direction)
        together, square = float(flat @ other), float(other @ other)
        pull = self.weight * self.target

        def probe(length: float) -> tuple[float, float]:
            scores = self.scores + np.float32(length) * self.change
            slope = float(np.vdot(self.mass * softmax_of(scores)[0] - pull, self.change))
            return math.nan, slope + self.decay * (together + length * square)

        return probe

    def move(self, length: float) -> ValueAndGradient:
        """Value and gradient farther along the direction."""
        self.x = self.x + length * self.direction
        self.scores = self.scores + np.float32(length) * self.change
        return self._evaluate()

    def _evaluate(self) -> ValueAndGradient:
        chance, logs = softmax_of(self.scores)
        pull = self.weight * self.target
        value = float(self.mass @ logs) - float(np.vdot(pull, self.scores))
        residual, flat = torch.from_numpy(self.mass * chance - pull), self._weights(self.x)
        parts = zip(residual.split([len(block) for block in self.blocks], 1), self.blocks, strict=True)
        total = sum((part @ block for part, block in parts), torch.zeros(self.shape))
        gradient = np.empty(len(self.x))
        gradient[: len(flat)] = total.numpy().reshape(-1) + self.decay * flat
        gradient[len(flat) :] = residual.numpy().sum(1)
        return value + self.decay / 2 * float(flat @ flat), gradient

    def _weights(self, x: Vector) -> Vector:
        return x[: self.shape[0] * self.shape[1]]

    def _scores(self, x: Vector) -> Float32Array:
        flat = torch.from_numpy(self._weights(x).astype(np.float32).reshape(self.shape))
        products = [flat @ block.T for block in self.blocks]
        scores: Float32Array = (products[0] if len(products) == 1 else torch.cat(products, 1)).numpy()
        scores += x[self.shape[0] * self.shape[1] :, None].astype(np.float32)
        return scores


def softmax_of(scores: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """softmax over the classes, the first axis, and log Σ exp of each column."""
    top = scores.max(0)
    chance = np.exp(scores - top)
    total = chance.sum(0)
    chance /= total
    return chance, np.log(total) + top


class BasisHeadLoss:
    """F of a basis: value and gradient at x. Rows lie class by class, so each class is two thin products."""

    def __init__(
        self, z: Float32Array, y: NDArray[np.int64], weight: Float32Array, mu: Float32Array, decay: float
    ) -> None:
        order = np.argsort(y, kind="stable")
        present, first = np.unique(y[order], return_index=True)
        self.rows, self.weight = np.split(z[order], first[1:]), np.split(weight[order], first[1:])
        self.present, self.mu, self.decay = present.tolist(), mu, decay

    def __call__(self, x: Vector) -> ValueAndGradient:
        """Value and gradient."""
        (components, width), classes = self.mu.shape, len(x) // (self.mu.shape[1] + 1)
        flat, bias = x[: classes * width], x[classes * width :]
        matrix = flat.reshape(classes, width)
        p = softmax_of(matrix @ self.mu.T + bias[:, None])[0]
        value, pull = self.decay / 2 * float(flat @ flat), np.zeros((classes, components))
        for number, z, weight in zip(self.present, self.rows, self.weight, strict=True):
            likelihood = np.maximum(z @ p[number].astype(np.float32), LEAST_LIKELIHOOD)
            value -= float(weight @ np.log(likelihood))
            pull[number] = -(weight / likelihood) @ z
        slope = p * (pull - (pull * p).sum(0))
        return value, np.concatenate([(slope @ self.mu + self.decay * matrix).reshape(-1), slope.sum(1)])
