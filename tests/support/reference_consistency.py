"""Slow twins of functional/consistency.py: loops over rows and classes, written from the equations."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def probabilities(logits: Tensor) -> list[list[float]]:
    raw = [[math.exp(float(z)) for z in row] for row in logits]
    return [[value / sum(row) for value in row] for row in raw]


def entropy_of(p: list[float]) -> float:
    return -sum(value * math.log(value) for value in p)


def column_means(p: list[list[float]]) -> list[float]:
    return [sum(column) / len(p) for column in zip(*p, strict=True)]


def negative_information(logits: Tensor) -> Tensor:
    p = probabilities(logits)
    return torch.tensor(sum(entropy_of(row) for row in p) / len(p) - entropy_of(column_means(p)))


def class_sums(x: Tensor, p: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    mass, total = torch.zeros(p.shape[1]).double(), torch.zeros(p.shape[1], x.shape[1]).double()
    for row, shares, count in zip(x, p, weight, strict=True):
        for number, share in enumerate(shares):
            mass[number] += float(count * share)
            for feature, value in enumerate(row):
                total[number, feature] += float(count) * float(share) * float(value)
    return mass, total


def confident_cross_entropy(weak: Tensor, strong: Tensor, threshold: float) -> Tensor:
    values = []
    for first, second in zip(probabilities(weak), probabilities(strong), strict=True):
        label = first.index(max(first))
        values.append(-math.log(second[label]) if first[label] >= threshold else 0.0)
    return torch.tensor(values)


def confident_distance(student: Tensor, teacher: Tensor, threshold: float) -> Tensor:
    values = []
    for p, target in zip(probabilities(student), probabilities(teacher), strict=True):
        squares = [(a - b) ** 2 for a, b in zip(p, target, strict=True)]
        values.append(sum(squares) / len(squares) if max(target) > threshold else 0.0)
    return torch.tensor(values)


def class_imbalance(logits: Tensor) -> Tensor:
    mean = column_means(probabilities(logits))
    share = 1 / len(mean)
    return torch.tensor(-sum(share * math.log(p) + (1 - share) * math.log(1 - p) for p in mean))
