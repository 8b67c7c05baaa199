"""Views of pictures with class maps: what is under a site is what the picture shows at its place."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from embasis.data.segmentation import views
from embasis.types import MapPlan, MapPreparation

PLAIN = MapPlan(
    size=0, crop_height=32, crop_width=64, least_scale=1, most_scale=1, flip=False, colour=0, blur=0, rare=0
)


def preparation(stride: int = 4, multiple: int = 16, **settings: Any) -> MapPreparation:
    return MapPreparation(replace(PLAIN, **settings), stride, multiple)


def numbers(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(height: int, width: int) -> Tensor:
    return torch.randint(0, 256, (3, height, width), dtype=torch.uint8, generator=numbers(height * width))


def painted(height: int, width: int) -> tuple[Tensor, Tensor]:
    """A map of large blocks of classes 0..3, and a picture whose colour 60·class says which."""
    rows, columns = torch.arange(height) * 2 // height, torch.arange(width) * 3 // width
    classes = ((3 * rows[:, None] + columns[None]) % 4).byte()
    return (60 * classes).expand(3, -1, -1).contiguous(), classes


# --- whole views


@pytest.mark.parametrize(
    ("size", "planned", "shape"),
    [
        ((256, 512), 256, (256, 512)),
        ((1024, 2048), 256, (256, 512)),
        ((360, 480), 256, (256, 352)),  # 341.3 → 352, the nearest multiple of 32
        ((480, 360), 256, (352, 256)),
        ((360, 480), 0, (352, 480)),
        ((1052, 1914), 512, (512, 928)),
        ((5, 9), 0, (32, 32)),
        ((48, 48), 0, (64, 64)),  # halves go up
    ],
)
def test_a_whole_view_has_the_planned_short_side_in_whole_multiples(
    size: tuple[int, int], planned: int, shape: tuple[int, int]
) -> None:
    ready = preparation(8, 32, size=planned)
    assert views.whole_shape(size, ready) == shape
    assert views.resize_whole(noise(*size), ready).shape == (3, *shape)


def test_a_picture_of_the_right_size_is_its_own_whole_view() -> None:
    picture = noise(32, 48)
    assert torch.equal(views.resize_whole(picture, preparation()), picture)


def test_sites_of_a_whole_view_lie_in_the_middle_of_their_cells() -> None:
    places = views.place_sites((2, 4))
    assert places[:, 0, 0].tolist() == [0.25, 0.75]
    assert places[0, :, 1].tolist() == [0.125, 0.375, 0.625, 0.875]
    assert (places.dtype, places.shape) == (torch.float32, (2, 4, 2))


@pytest.mark.parametrize(("height", "width"), [(1, 1), (7, 3), (640, 360), (1052, 1914)])
def test_the_class_at_the_first_corner_and_the_middle_of_every_pixel_is_its_own(height: int, width: int) -> None:
    classes = torch.randint(0, 255, (height, width), dtype=torch.uint8, generator=numbers(0))
    for shift in (0, 0.5):
        rows, columns = (torch.arange(height) + shift) / height, (torch.arange(width) + shift) / width
        places = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), -1).float()
        assert torch.equal(views.sample_classes(classes, places), classes)
    assert int(views.sample_classes(classes, torch.ones(2))) == int(classes[-1, -1])


def test_there_is_no_class_where_there_is_no_place_or_no_map() -> None:
    places = torch.tensor([[0.1, 0.1], [math.nan, math.nan]])
    assert views.sample_classes(torch.zeros(4, 4, dtype=torch.uint8), places).tolist() == [0, 255]
    assert views.sample_classes(None, places).tolist() == [255, 255]
    assert views.to_signed(torch.tensor([0, 254, 255], dtype=torch.uint8)).tolist() == [0, 254, -1]


# --- views of training


def test_a_crop_as_large_as_the_picture_is_the_picture() -> None:
    picture, classes = noise(32, 64), torch.randint(0, 9, (32, 64), dtype=torch.uint8, generator=numbers(1))
    view, y, places = views.draw_view(picture, classes, preparation(), numbers(0))
    assert torch.equal(view, picture)
    assert torch.equal(places, views.place_sites((8, 16)))
    assert torch.equal(y, classes[2::4, 2::4])


def test_a_crop_of_the_same_scale_is_cut_out_and_a_mirrored_one_is_mirrored() -> None:
    picture = noise(48, 80)
    found = []
    for seed in range(20):
        view, _, places = views.draw_view(picture, None, preparation(flip=True), numbers(seed))
        mirrored = bool(places[0, 0, 1] > places[0, -1, 1])
        first = places[0, -1 if mirrored else 0]
        top, left = round(float(first[0]) * 48 - 2), round(float(first[1]) * 80 - 2)
        part = picture[:, top : top + 32, left : left + 64]
        assert torch.equal(view, part.flip(2) if mirrored else part)
        found.append((mirrored, top, left))
    assert {mirrored for mirrored, _, _ in found} == {True, False}
    assert len(set(found)) > 15


SIZES = [(120, 200), (64, 128), (200, 90), (40, 72)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("planned", [0, 40])
def test_the_colour_under_a_site_is_that_of_its_class(size: tuple[int, int], planned: int) -> None:
    picture, classes = painted(*size)
    ready = preparation(size=planned, least_scale=0.5, most_scale=2, flip=True)
    certain = total = 0
    for seed in range(30):
        view, y, places = views.draw_view(picture, classes, ready, numbers(seed))
        assert (view.shape, y.shape, places.shape) == ((3, 32, 64), (8, 16), (8, 16, 2))
        assert torch.equal(y, views.sample_classes(classes, places))
        # Near the edge of a block colours are mixed: there a site with the pixels about it has several classes.
        reach = torch.tensor([1.5 / side for side in size]) + 0.5 * sites_apart(places)
        about = [(places + torch.tensor(step) * reach).clamp(0, 1) for step in STEPS]
        sure = torch.stack([views.sample_classes(classes, place) == y for place in about]).all(0) & (y != 255)
        mirrored = bool((places[..., 1].diff(dim=1) < 0).any())
        assert bool((view[0, 2::4, 1 if mirrored else 2 :: 4] == 60 * y)[sure].all())
        certain, total = certain + int(sure.sum()), total + int((y != 255).sum())
    assert certain > 0.2 * total


STEPS = [(a, b) for a in (-1.0, 0.0, 1.0) for b in (-1.0, 0.0, 1.0)]


def sites_apart(places: Tensor) -> Tensor:
    """(2): how far apart two neighbours are."""
    return torch.tensor([places[..., 0].diff(dim=0).nanmean().abs(), places[..., 1].diff(dim=1).nanmean().abs()])


def test_sites_beyond_the_picture_are_grey_without_place_and_class() -> None:
    picture = torch.full((3, 20, 30), 7, dtype=torch.uint8)
    classes = torch.zeros(20, 30, dtype=torch.uint8)
    ready = preparation(1, 1, size=0, colour=1.0, blur=1.0, flip=True)
    corners = set()
    for seed in range(40):
        view, y, places = views.draw_view(picture, classes, ready, numbers(seed))
        outside = places.isnan().all(-1)
        assert torch.equal(outside, places.isnan().any(-1))
        assert int((~outside).sum()) == 20 * 30
        assert torch.equal(y == 255, outside)
        assert bool((view[:, outside] == 128).all())
        assert all(len(set(channel[~outside].tolist())) == 1 for channel in view)
        inside = (~outside).nonzero()
        corners.add((int(inside[0, 0]), int(inside[0, 1])))
    assert min(row for row, _ in corners) < 3
    assert max(row for row, _ in corners) > 9
    assert max(column for _, column in corners) > 27


def test_places_are_where_the_pixels_came_from() -> None:
    """A picture of two ramps shows the place of each of its pixels."""
    rows, columns = torch.meshgrid(torch.arange(200), torch.arange(250), indexing="ij")
    picture = torch.stack((rows, columns, rows)).byte()
    ready = preparation(1, 1, least_scale=0.5, most_scale=2, flip=True)
    for seed in range(20):
        view, _, places = views.draw_view(picture, None, ready, numbers(seed))
        middle = (slice(2, -2), slice(2, -2))  # at its rim a resized part sees less than a whole pixel's neighbourhood
        assert float((view[0] - (places[..., 0] * 200 - 0.5))[middle].abs().max()) < 0.6
        assert float((view[1] - (places[..., 1] * 250 - 0.5))[middle].abs().max()) < 0.6


def test_scales_are_drawn_evenly_between_their_logarithms() -> None:
    ready = preparation(least_scale=0.5, most_scale=2)
    factors = []
    for seed in range(300):
        _, _, places = views.draw_view(torch.zeros(3, 400, 400, dtype=torch.uint8), None, ready, numbers(seed))
        seen = float(places[-1, 0, 0] - places[0, 0, 0]) * 400 * 8 / 7  # rows of the picture in the crop
        factors.append(math.log2(32 / seen))
    assert -1.05 < min(factors) < -0.9
    assert 0.9 < max(factors) < 1.05
    assert abs(sum(factors) / 300) < 0.1


def test_the_crop_is_cut_down_to_what_the_network_takes() -> None:
    assert views.crop_shape(preparation(8, 32, crop_height=100, crop_width=20)) == (96, 32)


# --- aims


def test_a_wanted_place_is_in_the_view_and_anywhere_in_it() -> None:
    picture, ready = noise(128, 256), preparation(rare=1.0)
    for place in ((0.5, 0.5), (0.0, 0.0), (1.0, 1.0), (0.999, 0.3)):
        tops = set()
        for seed in range(60):
            _, _, places = views.draw_view(picture, None, ready, numbers(seed), place)
            low, high = places.flatten(0, 1).amin(0), places.flatten(0, 1).amax(0)
            half = torch.tensor([2 / 128, 2 / 256])
            at = torch.tensor(place)
            assert bool(((at >= low - half - 1e-6) & (at <= high + half + 1e-6)).all())
            tops.add(round(float(low[0]) * 128 - 2))
        if place == (0.5, 0.5):
            assert (min(tops), max(tops)) == (33, 64)  # all crops that contain row 64, and no others
            assert len(tops) > 20


def test_only_the_planned_share_of_views_is_aimed() -> None:
    picture, ready = noise(16 * 40, 64), preparation(1, 16, crop_height=16, rare=0.3)
    hits = 0
    for seed in range(400):
        _, _, places = views.draw_view(picture, None, ready, numbers(seed), (0.5, 0.5))
        hits += bool((places[:, 0, 0] * 640).floor().eq(320).any())
    assert abs(hits / 400 - 0.3 - 0.7 * 16 / 625) < 0.08


def test_a_wanted_class_is_drawn_by_its_weight_among_those_that_are_there() -> None:
    classes = torch.zeros(100, 200, dtype=torch.uint8)
    classes[10, 20], classes[80:, 150:], classes[50] = 1, 2, 255
    weights = torch.tensor([0.0, 3.0, 1.0, 96.0])
    found = [
        views.draw_place(classes, weights, *torch.rand(2, generator=numbers(seed)).tolist()) for seed in range(400)
    ]
    drawn = [int(views.sample_classes(classes, torch.tensor(place))) for place in found]
    assert set(drawn) == {1, 2}
    assert abs(drawn.count(1) / 400 - 0.75) < 0.07
    assert len(set(found)) > 80  # one pixel of class 1, any pixel of class 2
    assert views.draw_place(classes, torch.tensor([0.0, 0, 0, 1]), 0.5, 0.5) is None
    assert views.draw_place(None, weights, 0.5, 0.5) is None
    assert views.draw_place(classes, None, 0.5, 0.5) is None


def test_a_view_shows_the_wanted_class_of_its_own_map() -> None:
    picture, classes = noise(256, 512), torch.zeros(256, 512, dtype=torch.uint8)
    classes[200:204, 300:304] = 5
    weights, ready = torch.zeros(6).index_fill_(0, torch.tensor(5), 1.0), preparation(1, 1, rare=1.0)
    for seed in range(20):
        assert 5 in views.draw_view(picture, classes, ready, numbers(seed), None, weights)[1]
        anywhere = views.draw_view(picture, classes, preparation(1, 1), numbers(seed), None, weights)
        assert torch.equal(anywhere[0], views.draw_view(picture, None, preparation(1, 1), numbers(seed))[0])


def test_a_map_of_another_size_than_its_picture_lies_over_it() -> None:
    picture, classes = painted(64, 128)
    small = classes[::2, ::2]
    view, y, _ = views.draw_view(picture, small, preparation(1, 1, crop_height=64, crop_width=128), numbers(0))
    assert torch.equal(y, small.repeat_interleave(2, 0).repeat_interleave(2, 1))
    assert view.shape == (3, 64, 128)


# --- colours, blur, sameness


def test_one_setting_changes_nothing_that_others_draw() -> None:
    picture, classes = noise(200, 300), painted(200, 300)[1]
    most: dict[str, Any] = {"least_scale": 0.5, "most_scale": 2.0, "flip": True}
    first = views.draw_view(picture, classes, preparation(**most), numbers(3))
    others: list[dict[str, Any]] = [{"colour": 0.5}, {"blur": 1.0}, {"rare": 1.0}]
    for other in others:
        second = views.draw_view(picture, classes, preparation(**most, **other), numbers(3))
        assert torch.equal(first[1], second[1])
        assert torch.equal(first[2], second[2])
        assert torch.equal(first[0], second[0]) is ("rare" in other)


def test_recolouring_keeps_grey_grey_and_without_range_changes_nothing() -> None:
    picture = noise(20, 30)
    assert torch.equal(views.jitter_colours(picture, 0.0, [0.1, 0.9, 0.3]), picture)
    grey = picture[:1].expand(3, -1, -1)
    changed = views.jitter_colours(grey, 0.5, [0.1, 0.9, 0.3])
    assert torch.equal(changed[0], changed[2])
    bright = views.jitter_colours(torch.full((3, 4, 4), 100, dtype=torch.uint8), 0.2, [1.0, 0.5, 0.5])
    assert set(bright.flatten().tolist()) == {120}


def test_a_blur_is_the_weighted_mean_of_three_by_three_pixels() -> None:
    picture = noise(9, 11)
    wide = torch.nn.functional.pad(picture.double()[None], (1, 1, 1, 1), mode="replicate")
    weights = torch.tensor([1.0, 2, 1], dtype=torch.float64)
    kernel = (weights[:, None] * weights / 16).expand(3, 1, 3, 3)
    expected = (torch.nn.functional.conv2d(wide, kernel, groups=3)[0] + 0.5).floor()
    assert torch.equal(views.blur(picture, 1), expected.byte())
    assert torch.equal(views.blur(views.blur(picture, 1), 1), views.blur(picture, 2))
    assert torch.equal(views.blur(picture[:, :1, :1], 3), picture[:, :1, :1])


def test_the_number_of_threads_and_the_layout_in_memory_change_no_bit() -> None:
    picture, classes = noise(300, 500), painted(300, 500)[1]
    ready = preparation(least_scale=0.5, most_scale=2, flip=True, colour=0.4, blur=1.0, rare=0.5)
    before, found = torch.get_num_threads(), []
    layouts = (picture, picture.permute(1, 2, 0).contiguous().permute(2, 0, 1), picture.transpose(1, 2).contiguous().mT)
    try:
        for count, layout in zip((1, 2, 3), layouts, strict=True):
            torch.set_num_threads(count)
            views_of = [
                views.draw_view(layout, classes, ready, numbers(seed), None, torch.ones(4)) for seed in range(5)
            ]
            found.append(
                (views.resize_whole(layout, preparation(size=64)), *(part for view in views_of for part in view))
            )
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(
            torch.equal(one.nan_to_num(-1), two.nan_to_num(-1)) for one, two in zip(found[0], other, strict=True)
        )


@pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 1), (2, 7)])
def test_pictures_of_any_shape_have_views(size: tuple[int, int]) -> None:
    ready = preparation(flip=True, colour=0.3, blur=1.0, least_scale=0.1, most_scale=10)
    for seed in range(10):
        view, y, places = views.draw_view(noise(*size), torch.zeros(size, dtype=torch.uint8), ready, numbers(seed))
        assert view.shape == (3, 32, 64)
        assert torch.equal(y == 255, places.isnan().any(-1))
