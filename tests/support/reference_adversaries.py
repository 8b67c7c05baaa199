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
