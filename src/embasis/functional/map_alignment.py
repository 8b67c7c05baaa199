"""Alignment of label maps: how unsure predictions are, class by class, and mixtures of labelled and unlabelled ones.

| symbol | shape | meaning |
| --- | --- | --- |
| logits | n c … | scores of sites, or of grids of them |
| y | n s | true classes of the s sites of n labelled pictures, −1 = unknown |
| u | n c | numbers in [0, 1) that decide which classes are drawn |
| chosen | n c | classes of each labelled picture that are pasted |
| pasted | n s | sites of mixtures that come from the labelled picture |
| p | n c s | class probabilities of the sites of n unlabelled pictures |
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor


def self_information(logits: Float[Tensor, "n c *s"]) -> Float[Tensor, "n c *s"]:
    """−p_c log p_c / log C of every class: 0 for a sure prediction, and their sum is 1 for a uniform one."""
    logs = logits.float().log_softmax(1)
    return -logs.exp() * logs / math.log(max(logits.shape[1], 2))


def normalised_entropy(logits: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
    """H(p) / log C, from 0 (sure) to 1 (uniform), whatever the number of classes."""
    return self_information(logits).sum(1)


def draw_half_of_classes(y: Int64[Tensor, "n s"], u: Float[Tensor, "n c"]) -> Bool[Tensor, "n c"]:
    """Of the k classes of each picture the ⌈k/2⌉ with the least numbers; unknown is no class."""
    present = torch.zeros(len(u), u.shape[1] + 1, dtype=torch.bool, device=y.device).scatter_(1, y + 1, True)[:, 1:]
    place = u.masked_fill(~present, torch.inf).argsort(1).argsort(1)
    return present & (place < (present.sum(1, keepdim=True) + 1) // 2)


def find_pasted_sites(y: Int64[Tensor, "n s"], chosen: Bool[Tensor, "n c"]) -> Bool[Tensor, "n s"]:
    """Sites whose class is chosen."""
    return (y >= 0) & chosen.gather(1, y.clamp_min(0))


def weight_mixtures(p: Float[Tensor, "n c s"], pasted: Bool[Tensor, "n s"], threshold: float) -> Float[Tensor, "n s"]:
    """1 for pasted sites; for others the share of the picture's sites whose largest p reaches the threshold."""
    sure = (p.amax(1) >= threshold).float().mean(1, keepdim=True)
    return torch.where(pasted, torch.ones_like(sure), sure)
