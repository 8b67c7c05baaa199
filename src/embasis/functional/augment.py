"""Views of small pictures: turned, scaled, sheared and shifted a little, so that a class is more than its examples.

| symbol | shape | meaning |
| --- | --- | --- |
| x | n c h w | pictures |
| u | n 6 | numbers in [0, 1): turn, two scales, shear, two shifts |
| strength | () | how far: 1 = ± 15°, ± 20 %, a shear of ± 0.3, ± 5 % of a side; 0 = as they are |
| place | n h w | where a pixel of the view is taken from, −1 … 1 over the picture |
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import grid_sample

TURN, SCALE, SHEAR, SHIFT = math.radians(15), 0.2, 0.3, 0.1
"""Ranges at strength 1; a shift is in units of half a side, a scale is the log of a factor."""
WARP_DRAWS = 6


@torch.no_grad()
def warp(x: Float[Tensor, "n c h w"], u: Float[Tensor, "n 6"], strength: float) -> Float[Tensor, "n c h w"]:
    """Each picture through an affine map of its own; what comes in from outside is as the border.

    Only operations on each element alone, so what stands beside a picture changes no bit of it."""
    turn, wide, high, shear, right, down = (strength * (2 * u.float() - 1)).T[:, :, None, None]
    turn, shear = turn * TURN, shear * SHEAR
    wide, high = (wide * SCALE).exp(), (high * SCALE).exp()
    down_side, wide_side = ((2 * torch.arange(count) + 1) / count - 1 for count in x.shape[2:])
    rows, columns = down_side.unsqueeze(1), wide_side  # centres of the pixels
    across = wide * (turn.cos() * columns + (shear - turn.sin()) * rows) + right * SHIFT
    along = high * (turn.sin() * columns + (turn.cos() + shear * turn.sin()) * rows) + down * SHIFT
    return grid_sample(x, torch.stack([across, along], 3), padding_mode="border", align_corners=False)
