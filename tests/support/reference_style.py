"""Slow twins of functional/style.py: loops over pictures, pixels and features, written from the equations."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor


def move_statistics(x: Tensor, centre: Tensor, scale: Tensor) -> Tensor:
    moved = x.double().clone()
    for row, channel in itertools.product(range(x.shape[0]), range(x.shape[1])):
        unit = (x[row, channel].double() - centre[0, channel]) / scale[0, channel]
        moved[row, channel] = unit * scale[1, channel] + centre[1, channel]
    return moved.float()


def gram_matrix(m: Tensor) -> Tensor:
    count, features, height, width = m.shape
    g = torch.zeros(count, features, features, dtype=torch.float64)
    for n, a, b, i, j in itertools.product(range(count), range(features), range(features), range(height), range(width)):
        g[n, a, b] += float(m[n, a, i, j]) * float(m[n, b, i, j]) / (height * width)
    return g.float()


def relative_distance(x: Tensor, target: Tensor) -> Tensor:
    found = []
    for row in range(len(x)):
        wanted = (target if target.ndim < x.ndim or len(target) == 1 else target[row]).flatten().tolist()
        pairs = list(zip(x[row].flatten().tolist(), wanted, strict=True))
        found.append(sum((a - b) ** 2 for a, b in pairs) / sum(b**2 for _, b in pairs))
    return torch.tensor(found)


def even_step(gradient: Tensor, size: float) -> Tensor:
    rows = []
    for row in gradient.double():
        numbers = row.flatten().tolist()
        rows.append(size * row / (sum(abs(number) for number in numbers) / len(numbers)))
    return torch.stack(rows).float()


def least_squares_loss(score: Tensor, real: bool) -> Tensor:
    numbers = score.flatten().tolist()
    return torch.tensor(sum((number - (1 if real else 0)) ** 2 for number in numbers) / len(numbers))


def absolute_difference(x: Tensor, other: Tensor) -> Tensor:
    pairs = list(zip(x.flatten().tolist(), other.flatten().tolist(), strict=True))
    return torch.tensor(sum(abs(a - b) for a, b in pairs) / len(pairs))
