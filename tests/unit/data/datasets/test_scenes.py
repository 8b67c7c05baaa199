from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from embasis.data import DATASETS
from embasis.data.datasets.scenes import (
    EDGE,
    FULL,
    GLYPH_SIDE,
    SCENE_CLASSES,
    add_border,
    draw_scenes,
    load_handwriting,
    load_photographs,
    make_colours,
    paint,
    scenes,
)
from embasis.errors import ConfigError
from embasis.types import MapPlan, MapPreparation

KINDS = ("virtual", "real", "test")
BACKGROUND = np.array([200, 100, 50])
TINT = np.array([0, 255, 0])


@pytest.fixture(scope="module")
def drawn():
    return {kind: draw_scenes(kind, 60) for kind in KINDS}


@pytest.fixture(scope="module")
def small():
    return scenes(seed=1, labelled_rows=40, unlabelled_rows=30, test_rows=20)


def blank():
    return np.tile(BACKGROUND, (64, 96, 1)), np.zeros((64, 96), np.uint8)


def bar():
    """A bar of 10×4 whole pixels with a column of quarters on its right."""
    glyph = np.zeros((GLYPH_SIDE, GLYPH_SIDE), np.int64)
    glyph[19:29, 22:26], glyph[19:29, 26] = FULL, FULL // 4
    return glyph


@pytest.mark.parametrize("kind", KINDS)
def test_pictures_and_maps_are_bytes_of_64_by_96(drawn, kind):
    pictures, maps = drawn[kind]
    assert pictures.shape == (60, 3, 64, 96)
    assert maps.shape == (60, 64, 96)
    assert pictures.dtype == maps.dtype == torch.uint8


@pytest.mark.parametrize("kind", KINDS)
def test_every_class_occurs_and_background_is_commonest(drawn, kind):
    pixels = torch.bincount(drawn[kind][1].flatten().long(), minlength=len(SCENE_CLASSES))
    assert len(pixels) == len(SCENE_CLASSES) == 11
    assert (pixels > 0).all()
    assert 0.6 < pixels[0] / pixels.sum() < 0.85


@pytest.mark.parametrize("kind", KINDS)
def test_every_scene_shows_two_to_four_digits_or_one_twice(drawn, kind):
    shown = [len(labels.unique()) - 1 for labels in drawn[kind][1]]
    assert min(shown) >= 1
    assert max(shown) == 4


def test_a_painted_pixel_has_the_class_and_the_colour_of_its_digit():
    canvas, classes = blank()
    paint(canvas, classes, bar(), np.array([0, 0]), TINT, 7)
    assert (canvas[19:29, 22:26] == TINT).all()
    assert (classes[19:29, 22:26] == 7).all()


def test_the_dark_border_of_two_pixels_belongs_to_the_digit_and_nothing_else_does():
    canvas, classes = blank()
    paint(canvas, classes, bar(), np.array([0, 0]), TINT, 7)
    dark = (canvas == EDGE).all(2)
    assert dark[17:19, 22:26].all()
    assert dark[19:29, 20:22].all()
    assert (classes[dark] == 7).all()
    expected = np.zeros((64, 96), bool)
    expected[17:31, 20:28] = True
    expected[[17, 17, 30, 30], [20, 27, 20, 27]] = False
    assert ((classes == 7) == expected).all()


def test_a_pixel_that_is_not_covered_keeps_its_colour_and_its_class():
    canvas, classes = blank()
    classes[:] = 3
    glyph = bar()
    paint(canvas, classes, glyph, np.array([0, 0]), TINT, 7)
    bare = np.ones((64, 96), bool)
    bare[:GLYPH_SIDE, :GLYPH_SIDE] = add_border(glyph) == 0
    assert (canvas[bare] == BACKGROUND).all()
    assert (classes[bare] == 3).all()


def test_a_later_digit_covers_an_earlier_one_in_picture_and_map():
    canvas, classes = blank()
    for label, tint in ((7, TINT), (2, BACKGROUND)):
        paint(canvas, classes, bar(), np.array([0, 0]), tint, label)
    assert set(np.unique(classes)) == {0, 2}
    assert (canvas[19:29, 22:26] == BACKGROUND).all()


@pytest.mark.parametrize("spot", [(-20, 0), (0, -23), (40, 3), (3, 70), (-5, 75)])
def test_a_digit_is_cut_off_at_the_frame_in_picture_and_map(spot):
    top, left = spot
    wide, mark = np.zeros((2, 64 + 2 * GLYPH_SIDE, 96 + 2 * GLYPH_SIDE), np.int64)
    wide[GLYPH_SIDE + top : 2 * GLYPH_SIDE + top, GLYPH_SIDE + left : 2 * GLYPH_SIDE + left] = add_border(bar())
    mark[GLYPH_SIDE + top : 2 * GLYPH_SIDE + top, GLYPH_SIDE + left : 2 * GLYPH_SIDE + left] = bar()
    canvas, classes = blank()
    paint(canvas, classes, bar(), np.array(spot), TINT, 7)
    inner = (slice(GLYPH_SIDE, -GLYPH_SIDE), slice(GLYPH_SIDE, -GLYPH_SIDE))
    assert ((classes == 7) == (wide[inner] >= FULL // 2)).all()
    assert (canvas[mark[inner] == FULL] == TINT).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_border_of_digits_is_dark_beside_the_background_in_whole_scenes(drawn, kind):
    pictures, maps = drawn[kind]
    digit = maps > 0
    edge = digit[:, :, 1:-1] & digit[:, :, 2:] & ~digit[:, :, :-2]
    brightest = (255 + max(EDGE)) // 2 + 6  # a pixel is at least half border; the rest may be white; grain
    assert (pictures[:, :, :, 1:-1].amax(1)[edge] <= brightest).float().mean() > 0.95


def test_colours_are_those_of_the_colour_wheel():
    hues = np.array([[0, 1, 1], [1 / 3, 1, 1], [2 / 3, 1, 1], [1 / 6, 1, 1], [0.4, 0, 1], [0.4, 1, 0]])
    wheel = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0], [255, 255, 255], [0, 0, 0]]
    assert make_colours(hues, (0.0, 1.0), (0.0, 1.0)).tolist() == wheel


def test_unlabelled_and_test_scenes_share_no_handwritten_digit():
    (images, labels), (others, more) = load_handwriting("real"), load_handwriting("test")
    assert len(labels) + len(more) == 1797
    assert len(others) == 599
    assert not {image.tobytes() for image in images} & {image.tobytes() for image in others}
    assert set(labels) == set(more) == set(range(10))


def test_unlabelled_and_test_scenes_are_cut_from_the_two_halves_of_the_photographs():
    from sklearn.datasets import load_sample_images

    for left, right, whole in zip(
        load_photographs("real"), load_photographs("test"), load_sample_images().images, strict=True
    ):
        assert left.shape == right.shape == (427, 320, 3)
        assert (np.concatenate([left, right], 1) == whole).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_scene_depends_on_seed_kind_and_number_alone(drawn, kind):
    first = draw_scenes(kind, 7)
    assert all(torch.equal(few, many[:7]) for few, many in zip(first, drawn[kind], strict=True))
    for few, other in zip(first, draw_scenes(kind, 7, seed=1), strict=True):
        assert all(not torch.equal(one, two) for one, two in zip(few, other, strict=True))


def test_scenes_do_not_read_or_move_the_global_generators():
    torch.manual_seed(1)
    before, numpy_before = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    first = draw_scenes("virtual", 2)[0]
    assert torch.equal(before, torch.random.get_rng_state())
    assert (numpy_before == np.random.get_state()[1]).all()
    torch.manual_seed(2)
    assert torch.equal(first, draw_scenes("virtual", 2)[0])


def test_the_problem_has_three_sides_whose_unlabelled_maps_are_hidden(small):
    assert [len(side) for side in (small.labelled, small.unlabelled, small.test)] == [40, 30, 20]
    assert small.schema.names == ("background", *"0123456789")
    assert (small.unlabelled.labels == -1).all()
    assert small.unlabelled.counts(11).sum() == 0
    assert small.labelled.counts(11).sum() == 40 * 64 * 96
    assert small.test.counts(11).sum() == 20 * 64 * 96


def test_the_hidden_truth_is_that_of_the_unlabelled_pictures(small):
    pictures, maps = draw_scenes("real", 30, seed=1)
    assert torch.equal(small.unlabelled.pictures, pictures)
    assert len(small.hidden_labels) == 30
    assert all(torch.equal(small.hidden_labels[row], maps[row].long()) for row in range(30))


def test_unlabelled_views_show_no_class_and_labelled_views_do(small):
    preparation = MapPreparation(MapPlan(size=0), stride=4, multiple=8)
    views = [next(side.prepared(preparation).stream([torch.arange(5)])) for side in (small.unlabelled, small.labelled)]
    assert [view.grid for view in views] == [(16, 24), (16, 24)]
    assert (views[0].y == -1).all()
    assert torch.equal(views[1].y, small.labelled.maps[:5, 2::4, 2::4].long())


def test_unlabelled_scenes_have_names_for_tables(small):
    assert small.row_names[:2] == ("scene 0", "scene 1")
    assert len(small.row_names) == 30


def test_scenes_are_registered():
    assert DATASETS["scenes"] is scenes


def test_two_hundred_scenes_take_under_two_seconds():
    start = time.process_time()
    draw_scenes("virtual", 100)
    draw_scenes("real", 100)
    assert time.process_time() - start < 2


@pytest.mark.parametrize("setting", ["labelled_rows", "unlabelled_rows", "test_rows"])
def test_a_side_without_scenes_is_refused(setting):
    with pytest.raises(ConfigError) as caught:
        scenes(**{setting: 0})
    assert str(caught.value) == f"scenes: {setting} must be at least 1, got 0"


def test_an_unknown_kind_of_scene_is_refused():
    with pytest.raises(
        ConfigError, match=r"^unknown kind of scene 'rael'; did you mean real\? known: real, test, virtual$"
    ):
        draw_scenes("rael", 1)
