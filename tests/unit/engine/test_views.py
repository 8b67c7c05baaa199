"""Training sees pictures in arrays warped: by a draw of each row's own, and nobody else sees them so."""

from __future__ import annotations

import pytest
import torch

from embasis.config import load
from embasis.engine.epoch import augment_view
from embasis.errors import ConfigError
from embasis.runs.parts import build
from embasis.types import Plan, View
from map_runs import little_streets
from training_runs import built_for, little_digits, run, same, toy

PLAN = Plan(augment=1.0)


def view(rows: torch.Tensor) -> View:
    samples = little_digits().labelled
    return View(samples.inputs(rows), samples.labels[rows])


def test_a_picture_is_warped_by_its_id_and_the_draw_alone() -> None:
    rows = torch.arange(40)
    whole = augment_view(view(rows), rows, PLAN, (0, 1, 2), "labelled")
    some = torch.tensor([30, 3, 11])
    assert torch.equal(augment_view(view(some), some, PLAN, (0, 1, 2), "labelled"), whole[some])
    others = [((1, 1, 2), "labelled"), ((0, 2, 2), "labelled"), ((0, 1, 3), "labelled"), ((0, 1, 2), "unlabelled")]
    for draw, side in others:
        assert not torch.allclose(augment_view(view(rows), rows, PLAN, draw, side), whole, atol=1e-2)


def test_rows_pixels_in_bytes_and_label_maps_stay_as_they_are() -> None:
    rows, pictures = torch.arange(4), torch.rand(4, 1, 6, 6)
    y = torch.zeros(4, dtype=torch.int64)
    for seen in (
        View(pictures.flatten(1), y),
        View((255 * pictures).byte(), y),
        View(pictures, torch.zeros(4, 3, 3, dtype=torch.int64)),
    ):
        assert augment_view(seen, rows, PLAN, (0, 0, 0), "labelled") is seen.inputs
    assert augment_view(View(pictures, y), rows, Plan(), (0, 0, 0), "labelled") is pictures


def test_a_warp_changes_what_is_trained_on_and_the_same_seed_gives_the_same_run() -> None:
    one, two = (run(little_digits(), "small_cnn", plan={"rounds": 1, "augment": 1.0}) for _ in range(2))
    still = run(little_digits(), "small_cnn", plan={"rounds": 1, "augment": 0.0})
    assert same(one.weights, two.weights)
    assert not same(one.weights, still.weights)


def test_a_warp_is_refused_where_there_are_no_pictures_in_arrays() -> None:
    sentence = "plan.augment = 0.5 is for pictures in arrays, (channels, height, width); the rows here have shape (9,)"
    with pytest.raises(ConfigError) as caught:
        built_for(toy(), plan={"augment": 0.5})
    assert str(caught.value) == sentence


def test_a_warp_is_refused_for_label_maps() -> None:
    sentence = "plan.augment = 0.5 is for pictures in arrays; pictures with label maps have views of their own"
    with pytest.raises(ConfigError) as caught:
        build(little_streets(), load(plan={"augment": 0.5}))
    assert str(caught.value) == sentence


def test_small_pictures_are_warped_by_default() -> None:
    assert build(little_digits(), load()).plan.augment == 1.0
    assert build(toy(), load()).plan.augment == 0.0
