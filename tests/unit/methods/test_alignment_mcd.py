"""MCD on label maps: a second head like the first, drawn anew, and how far two heads differ."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from embasis.methods.alignment.mcd import HeadDiscrepancy
from embasis.methods.alignment.parts import make_head_like
from embasis.networks.network import Network
from embasis.networks.segmentation import DilatedHead
from embasis.types import Output, Sizes


class Grids:
    """What a phase sees of unlabelled grids."""

    def __init__(self, network: Network, features: Tensor) -> None:
        self.other: Output = network(features)

    def logits(self, side: int) -> Tensor:
        return self.other.logits.flatten(2).transpose(1, 2).flatten(0, 1).float()

    def mean(self, values: Tensor, side: int) -> Tensor:
        return values.mean()

    def note(self, name: str, value: Any) -> None:
        assert name == "head_discrepancy"


def test_a_head_that_sees_neighbours_is_drawn_anew_by_its_own_rule() -> None:
    torch.manual_seed(0)
    first = DilatedHead(64, 8, [1, 2])
    second = make_head_like(first)
    for one, other in zip(first.branches, second.branches, strict=True):  # type: ignore[arg-type]
        assert not torch.equal(one.weight, other.weight)  # type: ignore[arg-type]
        assert math.isclose(float(other.weight.detach().std()), 0.01, rel_tol=0.1)
        assert not bool(other.bias.any())


def test_a_head_of_several_layers_is_drawn_anew_layer_by_layer() -> None:
    first = nn.Sequential(nn.Conv2d(4, 6, 1), nn.ReLU(), nn.Conv2d(6, 3, 1))
    for name, weight in make_head_like(first).named_parameters():
        assert not torch.equal(weight, first.get_parameter(name)), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_heads_differ_by_the_mean_over_sites_and_classes_and_equal_ones_by_nothing(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    network, aligner = Network(nn.Identity(), 6, 3, head=DilatedHead(6, 3, [1, 2])), HeadDiscrepancy(weight=2.0)
    extra, features = aligner.build(network, Sizes((3, 16, 20), 6, 3, (4, 5))), torch.randn(2, 6, 4, 5).to(dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16):
        seen = Grids(network, features)
    first = seen.other.logits.detach().float().softmax(1)
    second = extra["head"](features.float()).detach().softmax(1)
    expected = 2 * sum(abs(float(a) - float(b)) for a, b in zip(first.flatten(), second.flatten(), strict=True)) / 120
    loss = aligner.loss("C", network, extra, seen, 0.0)  # type: ignore[arg-type]
    assert math.isclose(float(loss.detach()), expected, rel_tol=1e-4)
    extra["head"].load_state_dict(network.head.state_dict())  # type: ignore[union-attr]
    same = aligner.loss("C", network, extra, seen, 0.0)  # type: ignore[arg-type]
    assert float(same.detach()) < (1e-6 if dtype is torch.float32 else 1e-3)
