"""BSP: DANN's game and a penalty that does not depend on the size of a batch. AFN: rows that always grow longer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from embasis.errors import ConfigError
from embasis.functional.alignment import lengthening_loss, squared_top_value
from embasis.functional.losses import prediction_entropy
from embasis.methods import METHODS
from embasis.methods.alignment.afn import FeatureNorms
from embasis.methods.alignment.bsp import SpectralAdversary
from embasis.methods.alignment.dann import DomainAdversary
from embasis.types import Aligner, Sizes
from seen_rows import HandmadeRows, draw_seen

NONE = nn.Module()


def build_domain() -> nn.ModuleDict:
    return DomainAdversary().build(NONE, Sizes((5,), 5, 3)).eval()  # without draws


def value_of(aligner: Aligner, seen: HandmadeRows, extra: nn.ModuleDict | None = None) -> Tensor:
    return aligner.loss("align", NONE, extra or nn.ModuleDict(), seen, 0.5)


def test_bsp_is_dann_and_the_penalty() -> None:
    seen, domain = draw_seen(), build_domain()
    game, spectral = value_of(DomainAdversary(weight=0.7), seen, domain), SpectralAdversary(weight=0.7, penalty=0.01)
    assert torch.equal(value_of(SpectralAdversary(weight=0.7, penalty=0.0), seen, domain), game)
    penalty = sum(0.01 * 36 / len(rows) * torch.linalg.svdvals(rows)[0] ** 2 for rows in seen.both_rows)
    assert torch.allclose(value_of(spectral, seen, domain), game + penalty, atol=1e-5)


def test_rows_that_come_twice_leave_the_penalty_as_it_is() -> None:
    seen, domain = draw_seen(), build_domain()
    left, right = seen.both_rows
    twice = HandmadeRows((torch.cat([left, left]), torch.cat([right, right])), seen.both_logits)
    aligner = SpectralAdversary(penalty=1.0)
    assert torch.allclose(value_of(aligner, seen, domain), value_of(aligner, twice, domain), rtol=1e-5)


def test_the_penalty_shrinks_the_first_direction_alone() -> None:
    x = (
        torch.randn(12, 5, generator=torch.Generator().manual_seed(1)) * torch.tensor([9.0, 1, 1, 1, 1])
    ).requires_grad_()
    before = torch.linalg.svdvals(x.detach())
    torch.autograd.backward(squared_top_value(x))
    assert x.grad is not None
    after = torch.linalg.svdvals(x.detach() - 0.1 * x.grad)
    assert torch.allclose(after[0], 0.8 * before[0], rtol=1e-4)
    assert torch.allclose(after[1:], before[1:], rtol=1e-4)


def test_lengths_grow_alike_on_both_sides_and_directions_stay() -> None:
    seen = draw_seen()
    loss = value_of(FeatureNorms(weight=0.5, step=2.0), seen)
    assert torch.allclose(loss, torch.tensor(0.5 * 4 * 2))
    torch.autograd.backward(loss)
    for rows in seen.both_rows:
        unit = rows.detach() / rows.detach().norm(dim=1, keepdim=True)
        assert rows.grad is not None
        assert torch.allclose(rows.grad, -2 * 2 * 0.5 * unit / len(rows), atol=1e-6)
    assert abs(seen.noted["length"] - float(seen.both_rows[1].detach().norm(dim=1).mean())) < 1e-5


def test_a_row_of_zeros_stays_where_it_is() -> None:
    x = torch.zeros(2, 5, requires_grad=True)
    torch.autograd.backward(lengthening_loss(x, 1.0).sum())
    assert x.grad is not None
    assert torch.equal(x.grad, torch.zeros(2, 5))


def test_entropy_of_the_unlabelled_side_is_added_where_it_is_asked_for() -> None:
    seen = draw_seen()
    without, with_entropy = (value_of(FeatureNorms(entropy_weight=weight), seen) for weight in (0.0, 0.1))
    assert torch.allclose(with_entropy - without, 0.1 * prediction_entropy(seen.logits(1)).mean(), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("bsp", {"penalty": -1}, "penalty must be at least 0, got -1"),
        ("afn", {"step": 0}, "step must be positive, got 0"),
        ("afn", {"entropy_weight": -1}, "entropy_weight must be at least 0, got -1"),
    ],
)
def test_bad_settings_are_refused(name: str, settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}$"):
        METHODS[name](3, **settings)


def test_rows_as_long_as_the_radius_are_not_lengthened_further() -> None:
    seen = draw_seen()
    left, right = (rows.detach().clone().requires_grad_() for rows in seen.both_rows)
    radius = float(left.detach().norm(dim=1).median())
    torch.autograd.backward(value_of(FeatureNorms(radius=radius), HandmadeRows((left, right), seen.both_logits)))
    assert left.grad is not None
    is_short = left.detach().norm(dim=1) < radius
    assert torch.equal(left.grad.abs().sum(1) > 0, is_short)
    assert 0 < int(is_short.sum()) < len(is_short)
