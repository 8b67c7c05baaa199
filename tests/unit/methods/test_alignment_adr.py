"""ADR: draws of one head differ, its difference has the signs of a game, and the network itself drops nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import reference_alignment as slow
from embasis.engine.alignment import PartOutputs
from embasis.engine.batch import TrainingBatch
from embasis.errors import ConfigError
from embasis.functional.alignment import released_divergence, symmetric_divergence
from embasis.functional.losses import prediction_entropy
from embasis.methods.alignment.adr import DropoutDiscrepancy, adr, draw_scores
from embasis.methods.losses import labelled_loss
from embasis.networks.network import Network
from embasis.networks.segmentation import DilatedHead
from embasis.types import LABELLED, UNLABELLED, Plan, Sizes


def scores(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))


def seen_by(network: nn.Module, rows: Tensor) -> PartOutputs:
    batch = TrainingBatch(rows, torch.zeros(len(rows), dtype=torch.int64), rows.flip(0), aligned=True)
    return PartOutputs(network, Plan(), batch.as_part(), lambda name, value: None)


def test_the_divergence_equals_its_slow_twin_is_symmetric_and_zero_for_equal_scores() -> None:
    first, second = scores(6), scores(6, 1)
    value = symmetric_divergence(first, second)
    assert torch.allclose(value, slow.symmetric_divergence(first, second), atol=1e-5)
    assert torch.allclose(value, symmetric_divergence(second, first))
    assert float(value.min()) > 0
    assert torch.allclose(symmetric_divergence(first, first + 3), torch.zeros(6), atol=1e-6)


def test_each_score_is_drawn_to_the_other_one() -> None:
    first, second = scores(3).requires_grad_(), scores(3, 1).requires_grad_()
    torch.autograd.backward(symmetric_divergence(first, second).sum())
    apart = first.softmax(1) - second.softmax(1)
    assert torch.allclose(first.grad, apart.detach() / 2, atol=1e-6)
    assert torch.allclose(second.grad, -apart.detach() / 2, atol=1e-6)


@pytest.mark.parametrize("shape", [(6, 8), (6, 8, 3, 2)])
def test_two_draws_differ_and_without_dropout_they_are_the_network(shape: tuple[int, ...]) -> None:
    network = Network(nn.Identity(), 8, 4, by_domain=True)
    assert network.domains is not None
    network.domains.centre[1] = 2.0
    seen = seen_by(network, torch.randn(shape))
    for side in (LABELLED, UNLABELLED):
        assert torch.allclose(draw_scores(network, nn.Dropout(0.0), seen, side), seen.logits(side), atol=1e-5)
        first, second = (draw_scores(network, nn.Dropout(0.5), seen, side) for _ in range(2))
        assert not torch.allclose(first, second)


def test_a_grid_drops_whole_channels_and_a_head_that_sees_neighbours_reads_grids() -> None:
    network = Network(nn.Identity(), 8, 4)
    nn.init.zeros_(network.classifier.bias)
    seen = seen_by(network, torch.randn(5, 8, 1, 1).expand(5, 8, 3, 2))
    drawn = draw_scores(network, nn.Dropout(0.5), seen, LABELLED).unflatten(0, (5, 6))
    assert torch.allclose(drawn, drawn[:, :1].expand_as(drawn), atol=1e-6)
    with_head = Network(nn.Identity(), 8, 4, head=DilatedHead(8, 4, [1, 2]))
    seen = seen_by(with_head, torch.randn(5, 8, 3, 2))
    assert torch.allclose(draw_scores(with_head, nn.Dropout(0.0), seen, LABELLED), seen.logits(LABELLED), atol=1e-6)
    assert not torch.allclose(draw_scores(with_head, nn.Dropout(0.5), seen, LABELLED), seen.logits(LABELLED))


def test_the_head_parts_the_draws_and_the_encoder_brings_them_together() -> None:
    torch.manual_seed(0)
    network = Network(nn.Linear(5, 8), 8, 4)
    rows, gradients = torch.randn(16, 5), {}
    extra = DropoutDiscrepancy().build(network, Sizes((5,), 8, 4))
    for weight in (1.0, 2.0):
        for phase in ("B", "C"):
            torch.manual_seed(1)
            network.zero_grad()
            aligner = DropoutDiscrepancy(weight=weight)
            torch.autograd.backward(aligner.loss(phase, network, extra, seen_by(network, rows), 0.5))
            assert network.classifier.weight.grad is not None
            gradients[phase, weight] = network.classifier.weight.grad.clone()
    assert torch.allclose(gradients["B", 2.0] - gradients["B", 1.0], -gradients["C", 1.0], atol=1e-5)


def test_the_labelled_loss_is_of_a_draw_of_the_head_and_without_dropout_it_is_plain_training() -> None:
    torch.manual_seed(0)
    network, rows = Network(nn.Linear(5, 8), 8, 4), torch.randn(16, 5)
    seen, aligner = seen_by(network, rows), DropoutDiscrepancy()
    plain = labelled_loss(seen.labelled, seen.y)
    still, drawing = (nn.ModuleDict({"dropout": nn.Dropout(share)}) for share in (0.0, 0.5))
    assert torch.allclose(aligner.loss("A", network, still, seen, 0.5), plain, atol=1e-6)
    with torch.no_grad():
        draws = torch.stack([aligner.loss("A", network, drawing, seen, 0.5) for _ in range(400)])
    assert len(draws.unique()) == 400
    assert float(draws.mean()) > float(plain.detach())  # Jensen: log Σ exp of a draw is larger on average


def test_phase_a_keeps_what_the_engine_adds_beside_the_labelled_loss() -> None:
    labelled_by_the_engine = [phase.name for phase in DropoutDiscrepancy().phases(0.0) if phase.labelled]
    with_pseudo_labels = [phase.name for phase in DropoutDiscrepancy().phases(0.0) if phase.uses_pseudo_labels]
    with_stage_one = [phase.name for phase in DropoutDiscrepancy().phases(0.0) if phase.uses_stage_one]
    assert (labelled_by_the_engine, with_pseudo_labels, with_stage_one) == ([], ["A", "B"], ["A"])


def test_the_divergence_of_the_authors_code_equals_its_slow_twin_is_symmetric_and_far_smaller() -> None:
    first, second = scores(64), scores(64, 1)
    value = released_divergence(first, second)
    assert torch.allclose(value, slow.released_divergence(first, second).float(), atol=1e-6)
    assert torch.allclose(value, released_divergence(second, first))
    assert float(value.min()) > 0
    assert float(value.mean()) < float(symmetric_divergence(first, second).mean()) / 5
    paper, code = (DropoutDiscrepancy(divergence=name)._difference(first, second) for name in ("formula", "released"))
    assert torch.equal(paper, symmetric_divergence(first, second))
    assert torch.equal(code, value)


def test_the_divergence_of_the_authors_code_sharpens_draws_that_agree() -> None:
    drawn = scores(8).requires_grad_()
    before = prediction_entropy(drawn.detach())
    torch.autograd.backward(released_divergence(drawn, drawn).sum())
    assert drawn.grad is not None
    after = prediction_entropy((drawn - drawn.grad).detach())
    assert bool((after < before).all())


def test_grids_drop_less_than_rows() -> None:
    network, aligner = Network(nn.Identity(), 8, 4), DropoutDiscrepancy()
    assert aligner.build(network, Sizes((8,), 8, 4))["dropout"].p == 0.5
    assert aligner.build(network, Sizes((3, 16, 16), 8, 4, (4, 4)))["dropout"].p == 0.1


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="repeats must be at least 1, got 0"):
        adr(3, repeats=0)
    with pytest.raises(ConfigError, match="divergence must be one of released, formula, got 'paper'"):
        adr(3, divergence="paper")
