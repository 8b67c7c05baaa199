"""Slow twins of functional/adversaries.py: loops over rows and entries, written from the equations."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def _soft(row: Tensor) -> list[float]:
    top = [math.exp(float(value) - float(row.max())) for value in row]
    return [value / sum(top) for value in top]


def outer_rows(f: Tensor, p: Tensor) -> Tensor:
    return torch.tensor([[float(a) * float(b) for a in x for b in y] for x, y in zip(f, p, strict=True)])


def projected_outer(f: Tensor, p: Tensor, by_f: Tensor, by_p: Tensor) -> Tensor:
    entries = range(by_f.shape[1])
    left = [[sum(float(x[i]) * float(by_f[i, j]) for i in range(len(x))) for j in entries] for x in f]
    right = [[sum(float(y[i]) * float(by_p[i, j]) for i in range(len(y))) for j in entries] for y in p]
    return torch.tensor(
        [[a[j] * b[j] / len(entries) ** 0.5 for j in entries] for a, b in zip(left, right, strict=True)]
    )


def certainty_weights(z: Tensor) -> Tensor:
    raw = [1 + math.exp(sum(value * math.log(value) for value in _soft(row))) for row in z]
    return torch.tensor([len(raw) * value / sum(raw) for value in raw])


def log_of_others(z: Tensor, label: Tensor) -> Tensor:
    values = []
    for row, own in zip(z, label, strict=True):
        values.append(math.log(sum(p for number, p in enumerate(_soft(row)) if number != int(own))))
    return torch.tensor(values)


def similarity(f: Tensor, prototypes: Tensor, u: Tensor, v: Tensor) -> Tensor:
    def times(matrix: Tensor, x: Tensor) -> list[float]:
        return [sum(float(a) * float(b) for a, b in zip(row, x, strict=True)) for row in matrix]

    right = [times(v, mu) for mu in prototypes]
    return torch.tensor([[sum(a * b for a, b in zip(times(u, x), y, strict=True)) for y in right] for x in f])


def prototype_spread(prototypes: Tensor) -> Tensor:
    total = 0.0
    for i, left in enumerate(prototypes):
        for j, right in enumerate(prototypes):
            total += (sum(float(a) * float(b) for a, b in zip(left, right, strict=True)) - (i == j)) ** 2
    return torch.tensor(total)
