"""Views of rows: small pictures turned, scaled, sheared and shifted a little; others with other light or noise.

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
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn.functional import grid_sample

TURN, SCALE, SHEAR, SHIFT = math.radians(15), 0.2, 0.3, 0.1
"""Ranges at strength 1; a shift is in units of half a side, a scale is the log of a factor."""
WARP_DRAWS = 6
JITTER_DRAWS = 2
NOISE, LIGHT = 0.1, 0.2
"""At strength 1: deviation of the noise of a vector whose features have deviation 1, range of a picture's light."""


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


@torch.no_grad()
def jitter(x: Shaped[Tensor, "n ..."], u: Float[Tensor, "n 2"], strength: float) -> Tensor:
    """Other values of the same rows: pictures (n c h w) in another light and contrast, vectors with noise."""
    if x.ndim < 4:
        drawn = [torch.Generator().manual_seed(int(seed)) for seed in (u[:, 0] * 2**53).tolist()]
        noise = torch.stack([torch.randn(x.shape[1:], generator=each) for each in drawn])
        noisy: Tensor = x + NOISE * strength * noise
        return noisy
    light, contrast = (LIGHT * strength * (2 * u.float() - 1)).T[:, :, None, None, None]
    values: Tensor = x.float()
    centre, span = values.mean((1, 2, 3), keepdim=True), 255.0 if not x.is_floating_point() else 1.0
    values = centre + (values - centre) * contrast.exp() + span * light
    return values if x.is_floating_point() else values.clamp(0, 255).to(x.dtype)
