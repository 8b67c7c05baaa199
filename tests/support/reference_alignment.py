"""Slow twins of functional/alignment.py: loops over pairs and rows, written from the equations."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def squared_distances(x: Tensor) -> Tensor:
    return torch.stack([torch.stack([((a - b) ** 2).sum() for b in x.double()]) for a in x.double()]).float()


def product_distances(x: Tensor, z: Tensor) -> Tensor:
    return squared_distances(torch.stack([torch.outer(a, b).flatten() for a, b in zip(x, z, strict=True)]))


def gaussian_kernel(distance: Tensor) -> Tensor:
    count = len(distance)
    width = sum(float(distance[i, j]) for i in range(count) for j in range(count) if i != j) / (count * (count - 1))
    kernel = torch.zeros(count, count)
    for i in range(count):
        for j in range(count):
            kernel[i, j] = sum(math.exp(-float(distance[i, j]) / (2**u * width)) for u in range(-2, 3)) / 5
    return kernel


def fixed_kernel(distance: Tensor, width: float) -> Tensor:
    return torch.tensor([[math.exp(-float(value) / width) for value in row] for row in distance])


def squared_mmd(k: Tensor, first: int) -> Tensor:
    left, right = range(first), range(first, len(k))
    own = [float(k[i, j]) for i in left for j in left if i != j]
    other = [float(k[i, j]) for i in right for j in right if i != j]
    across = [float(k[i, j]) for i in left for j in right]
    return torch.tensor(sum(own) / len(own) + sum(other) / len(other) - 2 * sum(across) / len(across))


def squared_top_value(x: Tensor) -> Tensor:
    return torch.linalg.svdvals(x.double())[0].square().float()


def lengthening_loss(x: Tensor, step: float) -> Tensor:
    target = [math.sqrt(sum(float(v) ** 2 for v in row)) + step for row in x]
    return torch.stack([(row.square().sum().sqrt() - aim) ** 2 for row, aim in zip(x, target, strict=True)])


def reverse_gradient(x: Tensor, strength: float) -> Tensor:
    return (1 + strength) * x.detach() - strength * x


def reversal_strength(tau: float) -> float:
    return math.tanh(5 * tau)


def domain_loss(score: Tensor, labelled: bool) -> Tensor:
    p = [1 / (1 + math.exp(-float(value))) for value in score]
    return torch.tensor([-math.log(value if labelled else 1 - value) for value in p])


def domain_accuracy(labelled: Tensor, unlabelled: Tensor) -> Tensor:
    left = sum(float(value) > 0 for value in labelled) / len(labelled)
    right = sum(float(value) <= 0 for value in unlabelled) / len(unlabelled)
    return torch.tensor((left + right) / 2)


def class_confusion(logits: Tensor, temperature: float) -> Tensor:
    p = [[math.exp(float(z) / temperature) for z in row] for row in logits]
    p = [[value / sum(row) for value in row] for row in p]
    raw = [1 + math.exp(sum(value * math.log(value) for value in row)) for row in p]
    weight = [len(p) * value / sum(raw) for value in raw]
    classes = len(p[0])
    pairs = [[sum(w * row[a] * row[b] for w, row in zip(weight, p, strict=True)) for b in range(classes)]
             for a in range(classes)]  # fmt: skip
    return torch.tensor(
        sum(pairs[a][b] / sum(pairs[a]) for a in range(classes) for b in range(classes) if a != b) / classes
    )


def symmetric_divergence(first: Tensor, second: Tensor) -> Tensor:
    values = []
    for a, b in zip(first.double(), second.double(), strict=True):
        p = [math.exp(float(z)) for z in a]
        q = [math.exp(float(z)) for z in b]
        p, q = [value / sum(p) for value in p], [value / sum(q) for value in q]
        values.append(sum((x - y) * (math.log(x) - math.log(y)) for x, y in zip(p, q, strict=True)) / 2)
    return torch.tensor(values)


def released_divergence(first: Tensor, second: Tensor) -> Tensor:
    values = []
    for a, b in zip(first.double(), second.double(), strict=True):
        p, q = ([math.exp(z) / sum(math.exp(x) for x in row.tolist()) for z in row.tolist()] for row in (a, b))
        p_again, q_again = ([math.exp(z) / sum(math.exp(x) for x in row) for z in row] for row in (p, q))
        forth = sum(y * math.log(y / x) for x, y in zip(p_again, q, strict=True))
        back = sum(x * math.log(x / y) for x, y in zip(p, q_again, strict=True))
        values.append((forth + back) / 2 / len(p))
    return torch.tensor(values)


def generator_input(label: Tensor, x: Tensor, noise: Tensor, classes: int) -> Tensor:
    rows = []
    for number, features, drawn in zip(label.tolist(), x.tolist(), noise.tolist(), strict=True):
        rows.append([float(place == number) for place in range(classes + 1)] + features + drawn)
    return torch.tensor(rows)
