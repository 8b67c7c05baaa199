"""Labelled rows that are held out: chosen by their ids, seen by no training, and judged like others."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from embasis.data.segmentation.samples import MapArrays
from embasis.engine.holdout import Subset, held_rows, split_holdout, training_part
from embasis.errors import ConfigError, InputDataError
from embasis.types import Arrays, CropTarget, LabelSchema, Plan, Problem
from folder_runs import digests
from image_runs import DEPTHS, begun, folder_run, read, settings, sides
from map_runs import CLASSES, built_maps, little_streets, run_maps
from storage_runs import do_not_wait
from training_runs import Run, blind, built_for, run, same, same_round_labels, toy

HALF = {"holdout": 0.4}


def labelled(problem: Problem) -> Arrays:
    assert isinstance(problem.labelled, Arrays)
    return problem.labelled


def with_labels(problem: Problem, labels: Tensor) -> Problem:
    side = labelled(problem)
    return replace(problem, labelled=Arrays(side.x, labels, side.ids))


def shuffled(problem: Problem, plan: Plan) -> Problem:
    """The labels of held-out rows in another order."""
    rows = torch.nonzero(held_rows(problem.labelled, plan)).squeeze(1)
    labels = labelled(problem).labels.clone()
    labels[rows] = labels[rows].roll(1)
    assert not torch.equal(labels, labelled(problem).labels)
    return with_labels(problem, labels)


# --- which rows


@given(
    seed=st.integers(0, 999), share=st.sampled_from([0.05, 0.2, 0.5]), labels=st.lists(st.integers(0, 3), min_size=1)
)
def test_every_class_keeps_a_row_in_training(seed: int, share: float, labels: list[int]) -> None:
    side = Arrays.of(torch.zeros(len(labels), 2), torch.tensor(labels))
    held = held_rows(side, Plan(holdout=share, seed=seed))
    assert {*side.labels[~held].tolist()} == {*labels}
    assert int(held.sum()) <= max(1, round(share * len(labels)))


def test_the_share_is_kept_and_another_seed_holds_out_other_rows() -> None:
    first, again, other = (held_rows(toy().labelled, Plan(holdout=0.3, seed=seed)) for seed in (0, 0, 1))
    assert int(first.sum()) == 27
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_order_of_rows_does_not_matter() -> None:
    ids, draw = 7 * torch.arange(40) + 3, torch.Generator().manual_seed(0)
    order = torch.randperm(40, generator=draw)
    y = torch.arange(40) % 3
    one, two = Arrays.of(torch.zeros(40, 1), y, ids), Arrays.of(torch.zeros(40, 1), y[order], ids[order])
    assert torch.equal(held_rows(one, Plan(holdout=0.25)), held_rows(two, Plan(holdout=0.25)))


def test_without_holdout_the_problem_is_the_same_object() -> None:
    assert split_holdout(toy(), Plan()) == (toy(), None)
    assert training_part(toy(), Plan()) is toy()


def test_where_every_class_has_one_row_none_can_be_held_out() -> None:
    side = Arrays.of(torch.zeros(2, 1), torch.tensor([0, 1]))
    problem = Problem(side, Arrays.of(torch.zeros(0, 1)), LabelSchema(("a", "b")))
    with pytest.raises(InputDataError) as caught:
        split_holdout(problem, Plan(holdout=0.5))
    assert str(caught.value) == (
        "plan.holdout = 0.5 can hold out no row: each class must keep one, got 2 labelled rows in all"
    )


@pytest.mark.parametrize("share", [-0.1, 0.6, float("nan")])
def test_a_share_out_of_bounds_is_refused(share: float) -> None:
    with pytest.raises(ConfigError) as caught:
        Plan(holdout=share)
    assert str(caught.value) == f"plan.holdout must be in [0, 0.5], got {share}"


# --- a part of samples is samples


def test_some_rows_of_arrays_are_like_arrays_of_these_rows() -> None:
    side, rows = labelled(toy()), torch.tensor([2, 5, 40, 41])
    part, alone = Subset(side, rows), Arrays(side.x[rows], side.labels[rows], side.ids[rows])
    assert len(part) == 4
    assert not part.has_mixed_shapes
    for name in ("ids", "labels"):
        assert torch.equal(getattr(part, name), getattr(alone, name))
    assert [int(part.truth[row]) for row in range(len(part.truth))] == alone.labels.tolist()
    assert torch.equal(part.counts(5), alone.counts(5))
    assert torch.equal(part.inputs(torch.tensor([3, 0])), alone.inputs(torch.tensor([3, 0])))


@pytest.mark.parametrize("draw", [None, (0, 1, 2)])
def test_some_rows_of_maps_show_what_they_showed_in_the_whole(draw: Any) -> None:
    side, rows = built_maps().problem.labelled, torch.tensor([1, 4, 7])
    assert isinstance(side, MapArrays)
    part, alone = Subset(side, rows), side.take(rows)
    aim, batches = CropTarget(torch.ones(CLASSES)), [torch.tensor([2, 0]), torch.tensor([1])]
    for left, right in zip(part.stream(batches, draw, aim), alone.stream(batches, draw, aim), strict=True):
        assert torch.equal(left.inputs, right.inputs)
        assert torch.equal(left.y, right.y)
    assert torch.equal(part.counts(CLASSES), alone.counts(CLASSES))
    assert torch.equal(part.labels, alone.labels)
    assert all(torch.equal(part.truth[row], alone.truth[row]) for row in range(3))


# --- held-out rows take part in nothing


@functools.cache
def with_rows_held_out(network: str = "linear", method: str = "em_basis") -> Run:
    return run(toy(), network, method, plan=HALF)


@pytest.mark.parametrize("method", ["em_basis", "cbst"])
@pytest.mark.parametrize("network", ["linear", "mlp"])
def test_held_out_labels_change_nothing_but_the_scores_of_held_out_rows(method: str, network: str) -> None:
    one = with_rows_held_out(network, method)
    two = run(shuffled(toy(), one.built.plan), network, method, plan=HALF)
    assert same(one.weights, two.weights)
    assert same(one.progress.labeller, two.progress.labeller)
    assert same_round_labels(one.round_labels, two.round_labels)
    for left, right in zip(blind(one.records), blind(two.records), strict=True):
        assert left.scores["validation"] > right.scores["validation"] + 0.2
        assert left.scores["embedded_validation"] != right.scores["embedded_validation"]
        names = ("information", "entropy", "density", "agreement", "labelled_accuracy")
        assert all(left.scores[name] == right.scores[name] for name in names)
        assert replace(left, scores={}) == replace(right, scores={})


def test_held_out_rows_may_be_anything() -> None:
    """Not even the statistics by which inputs are standardised see them."""
    one = with_rows_held_out()
    side, held = labelled(toy()), held_rows(toy().labelled, one.built.plan)
    x = side.x.clone()
    x[held] = 1000.0
    two = run(replace(toy(), labelled=Arrays(x, side.labels, side.ids)), plan=HALF)
    assert same(one.weights, two.weights)
    assert same_round_labels(one.round_labels, two.round_labels)
    assert one.built.standardiser is not None
    assert two.built.standardiser is not None
    assert torch.equal(one.built.standardiser.centre, two.built.standardiser.centre)


def test_training_with_rows_held_out_is_training_without_them() -> None:
    one = with_rows_held_out("mlp")
    side, kept = labelled(toy()), ~held_rows(toy().labelled, one.built.plan)
    few = replace(toy(), labelled=Arrays(side.x[kept], side.labels[kept], side.ids[kept]))
    two = run(few, "mlp")
    assert same(one.weights, two.weights)
    assert same_round_labels(one.round_labels, two.round_labels)


def test_maps_that_are_held_out_are_not_trained_on_either() -> None:
    problem, plan = little_streets(), {"holdout": 0.3}
    one = run_maps(problem, plan=plan)
    held = held_rows(problem.labelled, one.built.plan)
    assert isinstance(problem.labelled, MapArrays)
    few = replace(problem, labelled=problem.labelled.take(torch.nonzero(~held).squeeze(1)))
    two = run_maps(few)
    assert int(held.sum()) == 3
    assert same(one.weights, two.weights)
    assert all(same(left, right) for left, right in zip(one.sites, two.sites, strict=True))
    assert all({"validation", "embedded_validation"} <= record.scores.keys() for record in one.records)
    assert all("validation" not in record.scores for record in two.records)


def test_a_comparison_shares_a_source_model_that_has_not_seen_them_either() -> None:
    from embasis.benchmark.compare import RunKey, run_one

    alone = with_rows_held_out(method="cbst")
    outcome = run_one(RunKey("toy", "", "cbst", 0), built_for(toy(), method="cbst", plan=HALF), {})
    assert outcome.records == tuple(alone.records)


# --- images


@pytest.mark.parametrize("depth", DEPTHS)
def test_images_of_every_depth_hold_rows_out_and_go_on(
    depth: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    do_not_wait(monkeypatch)
    monkeypatch.setattr("embasis.runs.run.run_page", lambda view: "page")
    root = sides(tmp_path)
    config = settings(tmp_path / "cache", depth, plan={"holdout": 0.3, "keep_round": "validation"})
    problem, front = begun(root, config)
    ready = read(problem, front)
    whole = folder_run(tmp_path / "whole", config, ready, front)
    folder_run(tmp_path / "cut", config, ready, front, stop_after=2)
    folder_run(tmp_path / "cut", config, ready, front)
    assert digests(tmp_path / "cut") == digests(tmp_path / "whole")
    records = whole.open().records
    assert all(0 <= record.scores["validation"] <= 1 for record in records)
    found = [record.scores["validation"] for record in records]
    assert whole.open().model_round == max(range(len(found)), key=lambda number: (found[number], number))
