"""Alignment of label maps by what is predicted for their sites: how unsure predictions are, class by class.

| symbol | shape | meaning |
| --- | --- | --- |
| logits | n c … | scores of sites, or of grids of them |
"""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor


def self_information(logits: Float[Tensor, "n c *s"]) -> Float[Tensor, "n c *s"]:
    """−p_c log p_c / log C of every class: 0 for a sure prediction, and their sum is 1 for a uniform one."""
    logs = logits.float().log_softmax(1)
    return -logs.exp() * logs / math.log(max(logits.shape[1], 2))


def normalised_entropy(logits: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
    """H(p) / log C, from 0 (sure) to 1 (uniform), whatever the number of classes."""
    return self_information(logits).sum(1)
