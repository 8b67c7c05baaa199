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


def nearest_centroids(x: Tensor, p: Tensor) -> Tensor:
    rows = [[float(v) / math.sqrt(sum(float(u) ** 2 for u in row)) for v in row] for row in x]
    share, centroids = [[float(v) for v in row] for row in p], [[0.0] * x.shape[1] for _ in range(p.shape[1])]
    label = [0] * len(rows)
    for _ in range(2):
        for c in range(p.shape[1]):
            total = [sum(part[c] * row[j] for row, part in zip(rows, share, strict=True)) for j in range(x.shape[1])]
            if any(part[c] > 0 for part in share):
                length = math.sqrt(sum(value**2 for value in total))
                centroids[c] = [value / length for value in total]
        label = [nearest(row, centroids) for row in rows]
        share = [[float(c == own) for c in range(p.shape[1])] for own in label]
    return torch.tensor(label)


def nearest(row: list[float], centroids: list[list[float]]) -> int:
    cosines = [sum(a * b for a, b in zip(row, centroid, strict=True)) for centroid in centroids]
    return cosines.index(max(cosines))


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
