"""What every method keeps, whatever it is: a new line in METHODS is tested by being there."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from embasis.data.segmentation.samples import MapArrays
from embasis.engine.labels import labelled_parts
from embasis.methods import METHODS
from embasis.methods.losses import labelled_loss
from embasis.types import Arrays, Output
from map_runs import (
    CLASSES,
    NOTHING,
    SITES,
    MapRun,
    all_sites,
    built_maps,
    little_streets,
    run_maps,
    streets,
    with_hidden,
)
from training_runs import Run, blind, parts, problem_for, run, same, same_round_labels, toy

OWN_LABELS = [
    name for name, recipe in METHODS.items() if recipe(CLASSES).align is None and recipe(CLASSES).restyle is None
]
"""All methods but those of alignment and restyling, which have contracts of their own (test_alignment.py,
test_restyling.py)."""
VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    **{name: (name, {}) for name in OWN_LABELS},
    "stage1": ("em_basis", {"parts": {"labeller.start": "StageOne"}}),
    "drawn labels": ("em_basis", {"parts": {"selector.labels": "draw", "selector.temperature": 2.0}}),
    "soft labels": ("em_basis", {"parts": {"selector.labels": "soft"}}),
    "gaussian kernel": ("em_basis", {"parts": {"labeller.mixture.kernel": "gaussian"}}),
    "inverse variance": ("em_basis", {"parts": {"selector.weights": "inverse_variance"}}),
    "counts": ("em_basis", {"parts": {"labeller.head": "CountHead"}}),
    "variance term": ("em_basis", {"parts": {"labeller.head.variance_weight": 0.5}}),
    "one threshold": ("em_basis", {"parts": {"selector.selects": "all"}}),
    "latent spread by draws": ("em_basis", {"parts": {"labeller.head.sigma": 0.5, "labeller.head.draws": 16}}),
    "latent spread, closed form": ("em_basis", {"parts": {"labeller.head.sigma": 0.5}}),
    "joint centring": ("em_basis", {"parts": {"labeller.mixture.centring": "joint"}}),
    "carried basis": ("em_basis", {"parts": {"labeller.start": "WarmStart"}}),
    "untempered": ("em_basis", {"parts": {"labeller.fusion.soften": False}}),
    "basis alone": ("em_basis", {"parts": {"labeller.fusion": None, "labeller.rank_by": "between"}}),
    "class priors alone": ("em_basis", {"parts": {"labeller.fusion.weight": 0.0}}),
}
STAGE_ONE = ("stage1", "em_basis_paper")
"""Their source training is not that of the others: a block is trained beside the network."""
CASES = [
    *((variant, network) for variant in VARIANTS for network in ("linear", "mlp")),
    *((variant, "small_cnn") for variant in ("em_basis", "em_basis_paper", "stage1", "cbst", "mrkld_lrent", "entropy")),
]


def settings_of(variant: str) -> dict[str, Any]:
    method, own = VARIANTS[variant]
    return {"method": method, **own}


@functools.cache
def undisturbed(variant: str, network: str) -> Run:
    return run(problem_for(network), network, **settings_of(variant))


@functools.cache
def with_shuffled_hidden_labels(variant: str, network: str) -> Run:
    problem = problem_for(network)
    assert problem.hidden_labels is not None
    shuffled = replace(problem, hidden_labels=problem.hidden_labels.roll(7))
    return run(shuffled, network, **settings_of(variant))


@functools.cache
def with_reordered_rows(variant: str, network: str) -> Run:
    """The unlabelled rows in another order; their ids go with them."""
    problem = problem_for(network)
    order = torch.randperm(len(problem.unlabelled), generator=torch.Generator().manual_seed(5))
    reordered = Arrays.of(problem.unlabelled.inputs(order), ids=problem.unlabelled.ids[order])
    return run(replace(problem, unlabelled=reordered), network, **settings_of(variant))


@pytest.mark.parametrize(("variant", "network"), CASES)
def test_the_same_seed_gives_the_same_labels(variant: str, network: str) -> None:
    """Labels and weights are those of a run that differs in its evaluation alone, records those of another order."""
    first, again = undisturbed(variant, network), with_shuffled_hidden_labels(variant, network)
    assert same(first.weights, again.weights)
    assert same(first.progress.tensors(), again.progress.tensors())
    assert same_round_labels(first.round_labels, again.round_labels)
    assert first.records == with_reordered_rows(variant, network).records


@pytest.mark.parametrize("variant", ["em_basis", "cbst", "entropy"])
def test_another_seed_gives_another_network(variant: str) -> None:
    other = run(toy(), "mlp", **settings_of(variant), seed=1)
    assert not same(undisturbed(variant, "mlp").weights, other.weights)


@pytest.mark.parametrize(("variant", "network"), CASES)
def test_a_weight_is_positive_exactly_where_a_label_is_trusted(variant: str, network: str) -> None:
    done = undisturbed(variant, network)
    for row_labels, record in zip(done.round_labels, done.records, strict=True):
        label, weight = row_labels.pseudo.label, row_labels.pseudo.weight
        assert torch.equal(weight > 0, label >= 0)
        assert torch.isfinite(weight).all()
        assert int(label.min()) >= -1
        assert int(label.max()) < len(done.built.problem.schema)
        assert record.trusted == int((label >= 0).sum()) == sum(record.trusted_counts)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name not in ("source_only", "entropy")])
def test_a_method_that_trusts_labels_trusts_some_here(variant: str) -> None:
    assert undisturbed(variant, "mlp").records[0].trusted > 0


@pytest.mark.parametrize(("variant", "network"), [case for case in CASES if case[0] not in STAGE_ONE])
def test_zero_rounds_are_supervised_training(variant: str, network: str) -> None:
    none = run(problem_for(network), network, **settings_of(variant), plan={"rounds": 0})
    assert len(none.records) == 1
    assert same(none.weights, undisturbed("source_only", network).weights)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "source_only"])
def test_a_round_changes_the_network(variant: str) -> None:
    assert not same(undisturbed(variant, "mlp").weights, undisturbed("source_only", "mlp").weights)


@pytest.mark.parametrize(("variant", "network"), CASES)
def test_shuffling_the_hidden_labels_changes_nothing_but_the_evaluation(variant: str, network: str) -> None:
    first, moved = undisturbed(variant, network), with_shuffled_hidden_labels(variant, network)
    assert same(first.progress.tensors(), moved.progress.tensors())
    assert same_round_labels(first.round_labels, moved.round_labels)
    assert blind(first.records) == blind(moved.records)
    assert [r.evaluation for r in first.records] != [r.evaluation for r in moved.records]


@pytest.mark.parametrize("variant", ["em_basis", "cbst"])
def test_hidden_labels_need_not_exist(variant: str) -> None:
    without = run(replace(toy(), hidden_labels=None), "mlp", **settings_of(variant))
    assert same(undisturbed(variant, "mlp").progress.tensors(), without.progress.tensors())
    assert blind(undisturbed(variant, "mlp").records) == without.records


@pytest.mark.parametrize(("variant", "network"), CASES)
def test_the_batch_a_row_comes_in_changes_no_bit_of_its_labels(variant: str, network: str) -> None:
    model, samples = undisturbed(variant, network).model, problem_for(network).unlabelled
    x, ids = samples.inputs(torch.arange(90)), samples.ids[:90]
    whole = parts(model.label(x, ids))
    order = torch.randperm(90, generator=torch.Generator().manual_seed(1))
    pieces = [parts(model.label(x[rows], ids[rows])) for rows in order.split([1, 2, 7, 20, 60])]
    back = torch.argsort(order)
    batched = {name: torch.cat([piece[name] for piece in pieces])[back] for name in whole}
    assert same(whole, batched)


@pytest.mark.parametrize("variant", ["em_basis", "cbst"])
def test_more_rows_than_a_chunk_get_the_labels_of_single_rows(variant: str) -> None:
    model = undisturbed(variant, "mlp").model
    x = toy().unlabelled.inputs(torch.arange(90)).repeat(8, 1)[:700]
    whole = model.label(x)
    for row in (0, 511, 512, 699):
        alone = model.label(x[row : row + 1], torch.tensor([row]))
        assert same(parts(alone), parts(whole.rows(torch.tensor([row]))))


@pytest.mark.parametrize(("variant", "network"), CASES)
def test_the_order_of_unlabelled_rows_changes_nothing_when_their_ids_go_with_them(variant: str, network: str) -> None:
    first, again = undisturbed(variant, network), with_reordered_rows(variant, network)
    assert same(first.progress.tensors(), again.progress.tensors())
    assert first.records == again.records


@pytest.mark.parametrize(("variant", "network"), CASES)
def test_records_are_finite_and_count_every_row(variant: str, network: str) -> None:
    done = undisturbed(variant, network)
    for number, record in enumerate(done.records):
        assert record.round == number
        names = {"information", "entropy", "density", "agreement", "labelled_accuracy"}
        assert record.scores.keys() == names
        values = [record.loss, record.changed, *record.scores.values(), *record.facts.values()]
        assert all(math.isfinite(value) for value in values)
        assert sum(record.class_counts) == record.unlabelled == len(done.built.problem.unlabelled)
        assert record.evaluation is not None
        assert record.evaluation.rows == record.unlabelled


@pytest.mark.parametrize(("variant", "network"), CASES)
def test_a_label_distribution_sums_to_one_and_its_variance_has_two_parts(variant: str, network: str) -> None:
    for row_labels in undisturbed(variant, network).round_labels:
        found = row_labels.distribution
        assert torch.allclose(found.mean.sum(1), torch.ones(len(found)), atol=1e-5)
        assert torch.allclose(found.between + found.within, found.mean * (1 - found.mean), atol=1e-6)
        assert (found.between >= 0).all()
        assert (found.within >= 0).all()
        assert (found.uncertainty >= 0).all()


@functools.cache
def without_unlabelled_rows(variant: str) -> Run:
    nothing = replace(toy(), unlabelled=Arrays.of(torch.zeros(0, 9)), hidden_labels=None)
    return run(nothing, "mlp", **settings_of(variant))


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name not in STAGE_ONE])
def test_without_unlabelled_rows_every_method_is_supervised_training(variant: str) -> None:
    alone = without_unlabelled_rows(variant)
    assert alone.progress.status == "finished"
    assert same(alone.weights, without_unlabelled_rows("source_only").weights)


@functools.cache
def with_unlabelled_rows_of_weight_zero(variant: str) -> Run:
    return run(toy(), "linear", **settings_of(variant), unlabelled_weight=0.0)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name not in ("source_only", *STAGE_ONE)])
def test_methods_differ_in_nothing_when_the_unlabelled_rows_weigh_nothing(variant: str) -> None:
    without = with_unlabelled_rows_of_weight_zero(variant)
    assert same(with_unlabelled_rows_of_weight_zero("cbst").weights, without.weights)
    assert without.records[-1].round == 2


# --- the same on maps: a picture is a row with many sites, and no method knows


MAPS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    **{name: (name, {}) for name in OWN_LABELS},
    "pseudo_label": ("pseudo_label", {"threshold": 0.4}),
    **{name: VARIANTS[name] for name in ("stage1", "drawn labels", "soft labels", "inverse variance", "basis alone")},
}


@functools.cache
def undisturbed_maps(variant: str) -> MapRun:
    method, own = MAPS[variant]
    return run_maps(None, method, **own)


@pytest.mark.parametrize("variant", MAPS)
def test_on_maps_the_same_seed_gives_the_same_labels_whatever_the_hidden_maps_are(variant: str) -> None:
    """Also with maps of one class alone, and with shuffled ones."""
    method, own = MAPS[variant]
    problem, first = little_streets(), undisturbed_maps(variant)
    assert problem.hidden_labels is not None
    changed = torch.stack([problem.hidden_labels[(row + 4) % 9] for row in range(9)]).clamp_min(0).to(torch.uint8)
    moved = run_maps(with_hidden(problem, changed), method, **own)
    assert same(first.progress.tensors(), moved.progress.tensors())
    assert all(same(left, right) for left, right in zip(first.sites, moved.sites, strict=True))
    assert blind(first.records) == blind(moved.records)
    assert [r.evaluation for r in first.records] != [r.evaluation for r in moved.records]


@pytest.mark.parametrize("variant", MAPS)
def test_on_maps_a_weight_is_positive_exactly_where_a_label_is_trusted(variant: str) -> None:
    done = undisturbed_maps(variant)
    assert len(done.records) == (1 if variant == "source_only" else 3)
    assert (done.records[0].trusted > 0) == (variant not in ("source_only", "entropy"))
    for sites, record in zip(done.sites, done.records, strict=True):
        assert torch.equal(sites["weight"] > 0, sites["label"] >= 0)
        assert torch.isfinite(sites["weight"]).all()
        assert int(sites["label"].min()) >= -1
        assert int(sites["label"].max()) < CLASSES
        assert record.trusted == int((sites["label"] >= 0).sum()) == sum(record.trusted_counts)
        assert sum(record.class_counts) == record.unlabelled == 9 * SITES
        values = [record.loss, record.changed, *record.scores.values(), *record.facts.values()]
        assert all(math.isfinite(value) for value in values)
        assert record.evaluation is not None
        assert record.evaluation.rows == sum(int((little_streets().hidden_labels[row] >= 0).sum()) for row in range(9))  # type: ignore[index]


@pytest.mark.parametrize("variant", [name for name in MAPS if name not in STAGE_ONE])
def test_on_maps_zero_rounds_are_supervised_training(variant: str) -> None:
    method, own = MAPS[variant]
    none = run_maps(None, method, **own, plan={"rounds": 0})
    assert len(none.records) == 1
    assert same(none.weights, undisturbed_maps("source_only").weights)
    assert variant == "source_only" or not same(undisturbed_maps(variant).weights, none.weights)


@pytest.mark.parametrize("variant", MAPS)
def test_on_maps_the_batch_a_picture_comes_in_changes_no_bit_of_its_labels(variant: str) -> None:
    done = undisturbed_maps(variant)
    samples, progress = done.built.problem.unlabelled, done.progress
    assert isinstance(samples, MapArrays)
    settings = (done.built.method, done.built.plan, progress, progress.round - 1)
    whole = all_sites(labelled_parts(samples, *settings))
    assert same(whole, done.sites[-1]) or done.records[-1].status == "collapsed"
    for rows in ([8], [0, 1], [2, 5, 6, 7]):
        some = all_sites(labelled_parts(samples.take(torch.tensor(rows)), *settings))
        at = torch.cat([torch.arange(row * SITES, (row + 1) * SITES) for row in rows])
        assert same(some, {name: value[at] for name, value in whole.items()})


@pytest.mark.parametrize("variant", ["em_basis", "cbst"])
def test_on_maps_the_order_of_pictures_changes_nothing_when_their_ids_go_with_them(variant: str) -> None:
    problem, first = little_streets(), undisturbed_maps(variant)
    assert isinstance(problem.unlabelled, MapArrays)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(5))
    moved = MapArrays.of(problem.unlabelled.pictures[order], None, ids=problem.unlabelled.ids[order])
    again = run_maps(replace(problem, unlabelled=moved), *MAPS[variant][:1])
    assert same(first.progress.tensors(), again.progress.tensors())
    assert first.records == again.records


@pytest.mark.parametrize("variant", ["em_basis", "cbst", "entropy"])
def test_on_maps_without_unlabelled_pictures_every_method_is_supervised_training(variant: str) -> None:
    problem = little_streets()
    assert isinstance(problem.unlabelled, MapArrays)
    nothing = replace(problem, unlabelled=problem.unlabelled.take(torch.arange(0)), hidden_labels=None)
    alone, plain = (run_maps(nothing, method) for method in (variant, "source_only"))
    assert alone.progress.status == "finished"
    assert same(alone.weights, plain.weights)


def test_on_maps_sites_without_a_class_are_never_trained_on() -> None:
    labelled = built_maps(streets(labelled=4), "source_only").problem.labelled
    assert isinstance(labelled, MapArrays)
    assert labelled.maps is not None
    assert bool((labelled.maps == NOTHING).any())
    y = next(iter(labelled.stream([torch.arange(4)]))).y
    logits = torch.randn(4, CLASSES, *y.shape[1:], requires_grad=True)
    labelled_loss(Output(logits, logits), y.flatten()).backward()
    assert logits.grad is not None
    assert int((y < 0).sum()) > 0
    assert torch.equal(logits.grad.abs().sum(1) > 0, y >= 0)
