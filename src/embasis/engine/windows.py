"""Pictures that are too large for one pass go through the network window by window.

| symbol | meaning |
| --- | --- |
| window | pixels of a window's side, a multiple of the network's `multiple`; 0 = whole pictures |
| step | windows begin so far apart: three quarters of a window, so that each place lies well inside of one |

Where windows overlap their outputs are averaged, features and logits alike, so that a site has one feature.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from embasis.engine.batch import forward
from embasis.types import Output


def forward_windowed(network: nn.Module, inputs: Tensor, side: int) -> Output:
    """What the network says of inputs of any size."""
    window = int(getattr(network, "window", 0))
    if not window or inputs.ndim != 4 or max(inputs.shape[2:]) <= window:
        return forward(network, inputs, side)
    return stitched(network, inputs, side, window)


def stitched(network: nn.Module, inputs: Tensor, side: int, window: int) -> Output:
    """The mean of all windows, site by site."""
    stride, multiple = int(getattr(network, "stride", 1)), int(getattr(network, "multiple", 1))
    height, width = inputs.shape[2] // stride, inputs.shape[3] // stride
    sums: list[Tensor] = []
    counts = torch.zeros(height, width, device=inputs.device)
    for top in starts(inputs.shape[2], window, multiple):
        for left in starts(inputs.shape[3], window, multiple):
            output = forward(network, inputs[:, :, top : top + window, left : left + window], side)
            maps = (output.features, output.logits)
            if not sums:
                sums = [part.new_zeros(*part.shape[:2], height, width, dtype=torch.float32) for part in maps]
            rows = slice(top // stride, top // stride + maps[0].shape[2])
            columns = slice(left // stride, left // stride + maps[0].shape[3])
            for total, part in zip(sums, maps, strict=True):
                total[:, :, rows, columns] += part
            counts[rows, columns] += 1
    return Output(*(total / counts for total in sums))


def starts(length: int, window: int, multiple: int) -> list[int]:
    """Where windows begin along a side of this length: a step of ¾ window, and the last one ends at its end."""
    if length <= window:
        return [0]
    step = max(window * 3 // 4 // multiple, 1) * multiple
    return [*range(0, length - window, step), length - window]
