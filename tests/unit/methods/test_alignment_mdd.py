"""MDD: who minimises what, and where no gradient goes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from embasis.errors import ConfigError
from embasis.methods import METHODS
from embasis.methods.alignment.mdd import MarginDisparity
from embasis.types import Sizes
from seen_rows import HandmadeRows, draw_seen

NONE = nn.Module()


def built(classes: int = 3) -> nn.ModuleDict:
    torch.manual_seed(0)
    return MarginDisparity().build(NONE, Sizes((5,), 5, classes)).eval()


def loss_of(extra: nn.ModuleDict, seen: HandmadeRows, tau: float = 0.5) -> Tensor:
    return MarginDisparity(strength=1.0).loss("align", NONE, extra, seen, tau)


def test_features_get_the_second_heads_gradient_reversed_and_the_first_heads_scores_none() -> None:
    extra, seen = built(), draw_seen()
    loss = loss_of(extra, seen)
    features = torch.autograd.grad(loss, seen.both_rows, retain_graph=True)
    assert torch.autograd.grad(loss, seen.both_logits, allow_unused=True, retain_graph=True) == (None, None)
    head = torch.autograd.grad(loss, list(extra.parameters()))
    with torch.no_grad():
        for rows, gradient in zip(seen.both_rows, features, strict=True):
            moved = draw_seen()
            side = 0 if rows is seen.both_rows[0] else 1
            moved.both_rows[side].sub_(0.05 * gradient / gradient.norm())
            assert loss_of(extra, moved) > loss
        for weight, gradient in zip(extra.parameters(), head, strict=True):
            weight.sub_(1e-2 * gradient)
        assert loss_of(extra, seen) < loss


def test_without_reversal_the_features_stay_and_the_second_head_learns_the_same() -> None:
    extra, seen = built(), draw_seen()
    still, moving = (
        torch.autograd.grad(loss_of(extra, seen, tau), [*seen.both_rows, *extra.parameters()]) for tau in (0.0, 0.5)
    )
    assert not any(gradient.abs().sum() for gradient in still[:2])
    assert all(torch.equal(a, b) for a, b in zip(still[2:], moving[2:], strict=True))


def test_the_second_head_learns_to_agree_on_one_side_and_to_differ_on_the_other() -> None:
    left, right = torch.randn(40, 2) - 3, torch.randn(40, 2) + 3
    seen = HandmadeRows((left, right), (torch.tensor([[4.0, 0.0]]).expand(40, 2),) * 2)
    torch.manual_seed(0)
    extra = MarginDisparity().build(NONE, Sizes((2,), 2, 2)).eval()
    optimiser = torch.optim.Adam(extra.parameters(), 1e-2)
    for _ in range(100):
        optimiser.zero_grad()
        torch.autograd.backward(loss_of(extra, seen))
        optimiser.step()
    assert (extra["head"](left).argmax(1) == 0).all()
    assert (extra["head"](right).argmax(1) == 1).all()
    loss_of(extra, seen)
    assert seen.noted["head_disagreement"] == 1


@pytest.mark.parametrize(
    ("classes", "settings", "message"),
    [
        (1, {}, "at least 2 classes"),
        (3, {"margin": 0.0}, "margin must be positive"),
        (3, {"strength": -1.0}, "strength must be positive"),
    ],
)
def test_what_it_cannot_use_is_refused(classes: int, settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        METHODS["mdd"](classes, **settings)
