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


def draw_half_of_classes(y: Tensor, u: Tensor) -> Tensor:
    chosen = torch.zeros(u.shape, dtype=torch.bool)
    for row, (labels, numbers) in enumerate(zip(y.tolist(), u.tolist(), strict=True)):
        present = sorted({label for label in labels if label >= 0}, key=lambda label: numbers[label])
        for label in present[: math.ceil(len(present) / 2)]:
            chosen[row, label] = True
    return chosen


def find_pasted_sites(y: Tensor, chosen: Tensor) -> Tensor:
    rows = zip(y.tolist(), chosen.tolist(), strict=True)
    return torch.tensor([[label >= 0 and wanted[label] for label in labels] for labels, wanted in rows])


def weight_mixtures(p: Tensor, pasted: Tensor, threshold: float) -> Tensor:
    weight = torch.zeros(pasted.shape)
    for row, picture in enumerate(p):
        sites = picture.T.tolist()
        sure = sum(max(site) >= threshold for site in sites) / len(sites)
        for site in range(len(sites)):
            weight[row, site] = 1.0 if pasted[row, site] else sure
    return weight
