"""JAN and JAN-A: their discrepancy is DAN's with one more kernel, and the maps of JAN-A play against it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from embasis.errors import ConfigError
from embasis.methods.alignment.dan import MeanDiscrepancy
from embasis.methods.alignment.jan import AdversarialDiscrepancy, JointDiscrepancy
from embasis.types import Aligner, Sizes
from seen_rows import HandmadeRows, draw_seen
from training_runs import Saved, built_for, go_on, run_built, same, saved_moments, toy

NONE = nn.Module()
PLAN = {"rounds": 1, "source_epochs": 2, "epochs": 1, "batch_size": 32}


def loss_of(aligner: Aligner, seen: HandmadeRows, extra: nn.ModuleDict | None = None) -> Tensor:
    return aligner.loss("align", NONE, extra or nn.ModuleDict(), seen, 0.5)


def value_of(aligner: Aligner, seen: HandmadeRows, extra: nn.ModuleDict | None = None) -> float:
    return float(loss_of(aligner, seen, extra).detach())


def build_maps() -> nn.ModuleDict:
    return AdversarialDiscrepancy().build(NONE, Sizes((5,), 5, 3))


def adversarial(plan: Any = None) -> Any:
    return built_for(toy(), "mlp", "jan", plan={**PLAN, **(plan or {})}, adversarial=True)


def test_equal_predictions_everywhere_leave_what_dan_has() -> None:
    seen = draw_seen()
    flat = HandmadeRows(seen.both_rows, (torch.zeros(12, 3), torch.zeros(9, 3)))
    assert torch.allclose(loss_of(JointDiscrepancy(), flat), loss_of(MeanDiscrepancy(), flat), atol=1e-6)
    assert not torch.allclose(loss_of(JointDiscrepancy(), seen), loss_of(MeanDiscrepancy(), seen), atol=1e-3)


def test_gradients_reach_features_and_predictions() -> None:
    seen = draw_seen()
    torch.autograd.backward(loss_of(JointDiscrepancy(), seen))
    for leaf in (*seen.both_rows, *seen.both_logits):
        assert leaf.grad is not None
        assert float(leaf.grad.abs().sum()) > 0


def test_maps_that_are_the_identity_change_neither_the_loss_nor_the_network() -> None:
    plain, mapped = draw_seen(), draw_seen()
    without, behind = loss_of(JointDiscrepancy(), plain), loss_of(AdversarialDiscrepancy(), mapped, build_maps())
    assert torch.allclose(without, behind, atol=1e-6)
    torch.autograd.backward([without, behind])
    for left, right in zip(
        (*plain.both_rows, *plain.both_logits), (*mapped.both_rows, *mapped.both_logits), strict=True
    ):
        assert torch.allclose(left.grad, right.grad, atol=1e-6)  # type: ignore[arg-type]


def test_the_maps_climb_where_the_network_descends() -> None:
    """A small step of θ against its gradient makes the discrepancy larger, one of the rows makes it smaller."""
    seen, maps = draw_seen(), build_maps()
    before = value_of(AdversarialDiscrepancy(), seen, maps)
    torch.autograd.backward(loss_of(AdversarialDiscrepancy(), seen, maps))
    with torch.no_grad():
        for weight in maps.parameters():
            assert weight.grad is not None
            weight -= 0.01 * weight.grad / weight.grad.norm().clamp_min(1e-12)
    assert value_of(AdversarialDiscrepancy(), seen, maps) > before
    with torch.no_grad():
        for leaf in seen.both_rows:
            leaf -= 0.01 * leaf.grad / leaf.grad.norm()  # type: ignore[operator, union-attr]
    assert value_of(AdversarialDiscrepancy(), seen, build_maps()) < before


def test_jan_a_stopped_after_any_step_ends_as_if_it_had_not_been() -> None:
    moments = saved_moments(adversarial())
    assert any(name.startswith("extra/theta.") for name in moments[-1].tensors)
    for saved in moments[1:-1:3]:
        assert go_on(saved, adversarial()).same(moments[-1]), saved.cursor


def test_jan_a_in_parts_is_the_same_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.Dropout, "forward", lambda self, x: x)
    plan = {"optimiser": "sgd", "source_lr": 0.01, "lr": 0.01, "source_epochs": 1}
    whole, parted = (
        Saved.of(run_built(adversarial({**plan, "accumulate_steps": parts})).progress).tensors for parts in (1, 4)
    )
    for name, value in whole.items():
        if name.startswith(("network/", "extra/")):
            assert torch.allclose(value, parted[name], atol=1e-5, rtol=1e-4), name


def test_jan_a_of_weight_zero_builds_nothing_and_with_a_line_search_it_is_refused() -> None:
    none = built_for(toy(), "mlp", "jan", plan=PLAN, adversarial=True, weight=0.0)
    source = built_for(toy(), "mlp", "source_only", plan=PLAN)
    assert same(run_built(none).weights, run_built(source).weights)
    with pytest.raises(ConfigError, match=r"jan plays against itself: plan.optimiser must be adam or sgd, got lbfgs"):
        run_built(adversarial({"optimiser": "lbfgs", "batch_size": 0}))


def test_the_discrepancy_is_noted() -> None:
    seen = draw_seen()
    loss = loss_of(JointDiscrepancy(weight=2.0), seen)
    assert abs(2 * seen.noted["discrepancy"] - float(loss.detach())) < 1e-6
