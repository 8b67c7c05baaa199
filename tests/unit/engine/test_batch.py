"""A step in parts is the same step; lower precision stays within the network; pieces are extracted as the whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from embasis.engine import features as extraction
from embasis.engine.batch import TrainingBatch
from embasis.engine.features import extract
from embasis.engine.self_train import begin
from embasis.engine.state import TrainState
from embasis.engine.train import make_trainer, take_step
from embasis.errors import ConfigError
from embasis.functional.basis import orthogonality
from embasis.methods import SELF_TRAINING
from embasis.methods.losses import PseudoLabelLoss
from embasis.networks.network import Network
from embasis.types import Arrays, Method, Plan, PseudoLabels
from training_runs import built_for, run, same, toy

CLASSES = 4
WEIGHTED: dict[str, Method] = {
    name: recipe(CLASSES) for name, recipe in SELF_TRAINING.items() if recipe(CLASSES).align is None
}
STEP = Plan(optimiser="sgd", lr=1.0, momentum=0.0, weight_decay=0.1)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def network() -> Network:
    body = nn.Sequential(nn.Linear(9, 6), nn.Tanh())
    made = Network(body, 6, CLASSES)
    for number, parameter in enumerate(made.parameters()):
        parameter.data = draw(*parameter.shape, seed=100 + number)
    return made


def batch(labelled: int, others: int, trusted: bool = True, soft: bool = True) -> TrainingBatch:
    """Rows with labels that are sometimes missing and with weights from nothing to ten."""
    y = torch.arange(labelled) % CLASSES
    y[1::7] = -1
    weight = draw(others, seed=2).exp().clamp(0.1, 10.0)
    weight[::3] = 0
    weight = weight if trusted else torch.zeros(others)
    label = torch.where(weight > 0, torch.arange(others) % CLASSES, -1)
    target = draw(others, CLASSES, seed=3).softmax(1) if soft else None
    pseudo = PseudoLabels(label, weight, target)
    return TrainingBatch(draw(labelled, 9), y, draw(others, 9, seed=1) if others else None, pseudo if others else None)


def stepped(method: Method, rows: TrainingBatch, plan: Plan, round_number: int = 1) -> tuple[dict[str, Tensor], float]:
    """The weights after one step, and its loss."""
    progress = TrainState(network())
    progress.round = round_number
    loss = take_step(make_trainer(toy(), method, plan, progress), rows)
    return progress.network.state_dict(), loss


@pytest.mark.parametrize("soft", [True, False])
@pytest.mark.parametrize("parts", [2, 3, 7])
@pytest.mark.parametrize("name", list(WEIGHTED))
def test_a_step_in_parts_is_the_same_step(name: str, parts: int, soft: bool) -> None:
    for labelled, others in ((40, 37), (5, 41), (33, 4), (1, 6), (20, 0)):
        rows = batch(labelled, others, soft=soft)
        whole, loss = stepped(WEIGHTED[name], rows, STEP)
        found, sum_of_parts = stepped(WEIGHTED[name], rows, replace(STEP, accumulate_steps=parts))
        assert sum_of_parts == pytest.approx(loss, abs=1e-6)
        for key, value in whole.items():
            assert (found[key] - value).abs().max() < 1e-6, (labelled, others, key)


def trusting(regulariser: str) -> Method:
    return replace(WEIGHTED["cbst"], loss=PseudoLabelLoss(2.0, regulariser))


@pytest.mark.parametrize("kind", ["none", "kld", "entropy", "l2"])
def test_a_batch_without_trusted_rows_is_the_same_step_in_parts(kind: str) -> None:
    rows, method = batch(10, 11, trusted=False), trusting(kind)
    whole, _ = stepped(method, rows, STEP)
    found, _ = stepped(method, rows, replace(STEP, accumulate_steps=3))
    assert all((found[key] - value).abs().max() < 1e-6 for key, value in whole.items())


def test_shares_that_forget_the_weights_would_be_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = batch(40, 37)
    whole, _ = stepped(WEIGHTED["cbst"], rows, STEP)
    monkeypatch.setattr(PseudoLabelLoss, "mass", lambda self, pseudo: float(len(pseudo)))
    found, _ = stepped(WEIGHTED["cbst"], rows, replace(STEP, accumulate_steps=3))
    assert any((found[key] - value).abs().max() > 1e-4 for key, value in whole.items())


def test_there_are_no_more_parts_than_were_asked_for_and_no_row_is_lost() -> None:
    rows, loss = batch(40, 37), WEIGHTED["cbst"].loss
    for count in (1, 2, 3, 7, 40, 50):
        parts = list(rows.parts(count, loss))
        assert len(parts) == min(count, 40)
        assert torch.equal(torch.cat([part.inputs for part in parts]), rows.inputs)
        others = [part.others for part in parts if part.others is not None]
        assert rows.others is not None
        assert torch.equal(torch.cat(others), rows.others)
        assert sum(part.share for part in parts) == pytest.approx(1)
        assert sum(part.other_share for part in parts) == pytest.approx(1)


@pytest.mark.parametrize("settings", [{}, {"parts": {"labeller.start": "StageOne"}}])
def test_a_whole_run_with_accumulated_gradients_ends_near_the_plain_one(settings: dict[str, Any]) -> None:
    plan = {"optimiser": "sgd", "batch_size": 40, "lr": 0.05, "source_lr": 0.05}
    plain = run(toy(), "linear", "cbst" if not settings else "em_basis", plan=plan, **settings)
    parts = run(
        toy(), "linear", "cbst" if not settings else "em_basis", plan={**plan, "accumulate_steps": 3}, **settings
    )
    assert all(bool(value.isfinite().all()) for value in parts.weights.values())
    left, right = plain.round_labels[-1].distribution.label, parts.round_labels[-1].distribution.label
    assert float((left == right).double().mean()) > (0.99 if not settings else 0.9)


@pytest.mark.parametrize("optimiser", ["adam", "lbfgs"])
def test_every_optimiser_takes_parts(optimiser: str) -> None:
    plan = {"optimiser": optimiser, "batch_size": 0, "accumulate_steps": 4}
    found = run(toy(), "linear", "cbst", plan=plan)
    whole = run(toy(), "linear", "cbst", plan={**plan, "accumulate_steps": 1})
    for key, value in whole.weights.items():
        assert (found.weights[key] - value).abs().max() < 1e-3


# --- precision


@pytest.mark.parametrize("settings", [{}, {"parts": {"labeller.start": "StageOne"}}])
def test_half_precision_stays_within_the_network(settings: dict[str, Any]) -> None:
    plan = {"optimiser": "sgd", "batch_size": 40, "lr": 0.05, "source_lr": 0.05}
    half = run(toy(), "mlp", "em_basis", plan={**plan, "precision": "bfloat16"}, **settings)
    full = run(toy(), "mlp", "em_basis", plan={**plan, "precision": "float32"}, **settings)
    assert not same(half.weights, full.weights)
    assert all(value.dtype == torch.float32 for value in half.weights.values())
    kinds = {name: value.dtype for name, value in half.progress.labeller.items() if value.is_floating_point()}
    assert kinds == {name: value.dtype for name, value in full.progress.labeller.items() if value.is_floating_point()}
    for row_labels in half.round_labels:
        assert row_labels.scores.dtype == row_labels.distribution.mean.dtype == torch.float32
        assert bool(row_labels.distribution.mean.isfinite().all())
    agree = half.round_labels[-1].distribution.label == full.round_labels[-1].distribution.label
    assert float(agree.double().mean()) > 0.8


def test_features_are_single_precision_whatever_the_network_computes_in() -> None:
    built = built_for(toy(), "mlp", plan={"precision": "bfloat16"})
    for chunk in extract(built.network, built.problem.unlabelled, built.plan, labelled=False):
        assert chunk.x.dtype == chunk.scores.dtype == torch.float32


def test_auto_is_single_precision_on_this_processor() -> None:
    plan = {"batch_size": 40, "epochs": 1, "rounds": 1}
    auto = run(toy(), "mlp", "cbst", plan={**plan, "precision": "auto"})
    assert same(auto.weights, run(toy(), "mlp", "cbst", plan={**plan, "precision": "float32"}).weights)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"accumulate_steps": 0}, "plan.accumulate_steps must be at least 1, got 0"),
        ({"precision": "float16"}, "plan.precision must be one of auto, float32, bfloat16, got 'float16'"),
        ({"device": "tpu"}, "plan.device must be one of auto, cpu, cuda, got 'tpu'"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Plan(**settings)
    assert str(caught.value) == sentence


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^plan\.device = cuda, but torch finds no GPU$"):
        built_for(toy(), plan={"device": "cuda"})


def test_the_basis_block_is_where_the_network_is() -> None:
    block = network().to("meta").add_basis(3)
    assert block.weight.device.type == "meta"
    assert orthogonality(block.weight).device.type == "meta"


# --- streams and pieces


def test_arrays_stream_their_rows_in_the_batches_that_are_asked_for() -> None:
    rows = Arrays.of(draw(10, 3))
    batches = [torch.tensor([3, 1]), torch.tensor([1]), torch.tensor([9, 0, 4])]
    for step in (None, (1, 2, 3)):
        found = [view.inputs for view in rows.stream(batches, step)]
        assert all(torch.equal(part, rows.x[batch]) for part, batch in zip(found, batches, strict=True))
    assert list(rows.stream([])) == []


@pytest.mark.parametrize("count", [1, 31, 32, 33, 512, 530])
def test_features_by_pieces_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    built = built_for(toy(), "mlp")
    begin(built.network, built.method, built.plan)
    samples = Arrays.of(draw(count, 9))
    whole = list(extract(built.network, samples, built.plan, labelled=False))
    monkeypatch.setattr(extraction, "LARGE", 1)
    pieces = list(extract(built.network, samples, built.plan, labelled=False))
    assert [len(chunk) for chunk in pieces] == [len(chunk) for chunk in whole]
    for left, right in zip(whole, pieces, strict=True):
        assert torch.equal(left.ids, right.ids)
        assert torch.allclose(left.x, right.x, atol=1e-6)
        assert torch.allclose(left.scores, right.scores, atol=1e-6)


def test_a_rows_features_do_not_depend_on_the_pieces_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "LARGE", 1)
    built, x = built_for(toy(), "mlp"), draw(100, 9)
    whole = next(extract(built.network, Arrays.of(x), built.plan, labelled=False))
    for first, last in ((0, 7), (31, 66), (99, 100)):
        part = next(extract(built.network, Arrays.of(x[first:last]), built.plan, labelled=False))
        assert torch.equal(part.x, whole.x[first:last])
        assert torch.equal(part.scores, whole.scores[first:last])
