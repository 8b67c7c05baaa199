"""CDAN: with one class it is DANN; predictions have no gradient; wide products are projected by fixed matrices."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from embasis.methods.alignment.cdan import ConditionalAdversary, ConditionalClassifier
from embasis.methods.alignment.dann import DomainAdversary
from embasis.types import Sizes
from seen_rows import HandmadeRows, draw_seen
from training_runs import Saved, built_for, go_on, run_built, same, saved_moments, toy

NONE = nn.Module()


def test_one_class_is_dann() -> None:
    seen = draw_seen()
    one = HandmadeRows(seen.both_rows, (torch.zeros(12, 1), torch.zeros(9, 1)))
    extra = ConditionalAdversary().build(NONE, Sizes((5,), 5, 1)).eval()
    plain = nn.ModuleDict({"domain": extra["domain"].domain})
    for by_entropy in (False, True):
        here = ConditionalAdversary(by_entropy=by_entropy).loss("align", NONE, extra, one, 0.4)
        assert torch.allclose(here, DomainAdversary().loss("align", NONE, plain, one, 0.4))


@pytest.mark.parametrize("by_entropy", [False, True])
def test_gradients_are_reversed_for_the_features_and_none_reaches_the_predictions(by_entropy: bool) -> None:
    extra = ConditionalAdversary().build(NONE, Sizes((5,), 5, 3)).eval()
    weights = list(extra.parameters())
    gradients = []
    for tau in (0.0, 0.3):
        seen = draw_seen()
        loss = ConditionalAdversary(by_entropy=by_entropy).loss("align", NONE, extra, seen, tau)
        gradients.append(torch.autograd.grad(loss, [*seen.both_rows, *weights], retain_graph=True))
        assert torch.autograd.grad(loss, seen.both_logits, allow_unused=True) == (None, None)
    still, moving = gradients
    assert not any(gradient.abs().sum() for gradient in still[:2])
    assert all(gradient.abs().sum() > 0 for gradient in moving[:2])
    assert all(torch.equal(a, b) for a, b in zip(still[2:], moving[2:], strict=True))
    with torch.no_grad():
        seen.both_rows[0].sub_(0.05 * moving[0] / moving[0].norm())
        worse = ConditionalAdversary(by_entropy=by_entropy).loss("align", NONE, extra, seen, 0.3)
    assert worse > loss


@pytest.mark.parametrize(("features", "is_projected"), [(1365, False), (1366, True)])
def test_a_product_of_more_than_4096_entries_is_projected_by_matrices_that_are_saved(
    features: int, is_projected: bool
) -> None:
    domain = ConditionalClassifier(Sizes((9,), features, 3))
    assert domain.is_projected is is_projected
    assert ({"by_features", "by_predictions"} <= domain.state_dict().keys()) is is_projected
    assert "by_features" not in dict(domain.named_parameters())
    assert domain(torch.randn(4, features), torch.rand(4, 3)).shape == (4,)


def test_with_weights_by_entropy_a_stopped_run_and_a_step_in_parts_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = {"rounds": 1, "source_epochs": 2, "epochs": 1, "batch_size": 32}
    moments = saved_moments(built_for(toy(), "mlp", "cdan", plan=plan, by_entropy=True))
    for saved in moments[1:-1:4]:
        assert go_on(saved, built_for(toy(), "mlp", "cdan", plan=plan, by_entropy=True)).same(moments[-1])
    monkeypatch.setattr(nn.Dropout, "forward", lambda self, x: x)
    plan |= {"optimiser": "sgd", "source_lr": 0.01, "lr": 0.01}
    whole, parted, plain = (
        Saved.of(run_built(built_for(toy(), "mlp", "cdan", plan={**plan, **more}, by_entropy=weighted)).progress)
        for more, weighted in (({}, True), ({"accumulate_steps": 3}, True), ({}, False))
    )
    for name, value in whole.tensors.items():
        if name.startswith(("network/", "extra/")):
            assert torch.allclose(value, parted.tensors[name], atol=1e-5, rtol=1e-4), name
    assert not same(whole.tensors, plain.tensors)
