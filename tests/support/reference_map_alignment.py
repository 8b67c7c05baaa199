"""Slow twins of functional/map_alignment.py: loops over sites, written from the equations."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def self_information(logits: Tensor) -> Tensor:
    made = torch.zeros(logits.shape, dtype=torch.float64)
    classes = logits.shape[1]
    rows = logits.double().movedim(1, -1).reshape(-1, classes)
    flat = made.movedim(1, -1).reshape(-1, classes)
    for number, row in enumerate(rows.tolist()):
        total = sum(math.exp(value) for value in row)
        for column, value in enumerate(row):
            p = math.exp(value) / total
            flat[number, column] = -p * math.log(p, classes)
    return flat.reshape(made.movedim(1, -1).shape).movedim(-1, 1).float()


def normalised_entropy(logits: Tensor) -> Tensor:
    parts = self_information(logits)
    return torch.stack([parts[:, number] for number in range(parts.shape[1])]).sum(0)
