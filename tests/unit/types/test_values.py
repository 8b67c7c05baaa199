"""Settings and values of label maps: what they refuse, in whole sentences, and the small rules behind them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from embasis import config as settings
from embasis.data.datasets.scenes import scenes
from embasis.data.segmentation.folders import PairedSide, make_map_problem
from embasis.errors import ConfigError, InputDataError
from embasis.methods.em_basis.start import components_for
from embasis.runs.label_maps import label_at_scales
from embasis.runs.parts import build
from embasis.types import ClassTable, LabelDistribution, MapPlan, MapPreparation
from embasis.types.values import first_largest
from map_trees import folder, saved
from map_trees import scenes as pictures_and_maps


@pytest.mark.parametrize(
    ("given_", "sentence"),
    [
        ({"size": 15}, "maps.size must be 0 or at least 16, got 15"),
        ({"window": 63}, "maps.window must be 0 or at least 64, got 63"),
        ({"crop_height": 8}, "maps.crop_height must be at least 16, got 8"),
        ({"crop_width": 0}, "maps.crop_width must be at least 16, got 0"),
        (
            {"least_scale": 2.0},
            "maps.least_scale and most_scale must be in order and in [0.1, 10], got 2.0 and 1.5",
        ),
        ({"colour": 1.5}, "maps.colour must be in [0, 1], got 1.5"),
        ({"blur": -0.1}, "maps.blur must be in [0, 1], got -0.1"),
        ({"rare": 2.0}, "maps.rare must be in [0, 1], got 2.0"),
        ({"workers": 65}, "maps.workers must be in 0..64, got 65"),
    ],
)
def test_a_plan_for_maps_says_which_rule_is_broken(given_: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        MapPlan(**given_)
    assert str(caught.value) == sentence


def test_inputs_are_whole_numbers_of_sites() -> None:
    with pytest.raises(ConfigError) as caught:
        MapPreparation(MapPlan(), 8, 12)
    assert str(caught.value) == "multiple must be a multiple of the stride 8, got 12"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((("a",), ((0,),)), "classes: at least 2 are needed, got 1"),
        ((tuple(map(str, range(255))), ((0,),) * 255), "classes: at most 254 are possible, got 255"),
        ((("a", "a"), ((0,), (1,))), "classes: names must be unique, got ['a', 'a']"),
        ((("a", "b"), ((0,),)), "classes: 2 names, but ids of 1"),
        ((("a", "b"), ((0,), (1,)), ((0, 0, 0),)), "classes: 2 names, 1 colours"),
        (
            (("a", "b"), ((0,), (1,)), (), (255,), False, "words"),
            "classes: coded must be one of ids, colours, first, got 'words'",
        ),
        (
            (("a", "b"), ((0,), (1,)), (), (255,), False, "colours"),
            "classes: colour-coded maps need the colours of classes",
        ),
    ],
)
def test_a_table_of_classes_says_which_rule_is_broken(arguments: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(InputDataError) as caught:
        ClassTable(*arguments)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("rows", "components"), [(1, 3), (1023, 3), (1024, 4), (2047, 4), (2048, 5), (16_384, 8), (10**9, 8)]
)
def test_a_class_gets_a_component_more_with_each_doubling_of_its_rows(rows: int, components: int) -> None:
    assert components_for(rows) == components


@given(st.integers(1, 30), st.integers(1, 254), st.integers(0, 100))
def test_the_label_is_the_first_of_the_most_probable_classes(sites: int, classes: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    rows = torch.randint(0, 4, (classes, sites), generator=draw).float()  # with many ties
    expected = [min(c for c in range(classes) if rows[c, n] == rows[:, n].max()) for n in range(sites)]
    assert first_largest(rows).tolist() == expected
    mean, nothing = rows.T, torch.zeros(sites, classes)
    assert LabelDistribution(mean, nothing, nothing, torch.zeros(sites)).label.tolist() == expected
    assert LabelDistribution(mean.contiguous(), nothing, nothing, torch.zeros(sites)).label.tolist() == expected


def test_pictures_are_not_standardised() -> None:
    problem = scenes(labelled_rows=2, unlabelled_rows=2, test_rows=2)
    with pytest.raises(ConfigError) as caught:
        build(problem, settings.load(None, ["standardise=joint"]))
    assert str(caught.value) == ("standardise = joint is for rows in memory; networks of pictures scale by themselves")


def test_scales_are_numbers_that_a_picture_can_have() -> None:
    nothing: Any = None
    with pytest.raises(ConfigError) as caught:
        next(label_at_scales(nothing, nothing, nothing, (1.0, 20.0), False))
    assert str(caught.value) == "scales must be numbers in [0.1, 10], got [1.0, 20.0]"


def test_more_unknown_colours_than_anybody_names_are_a_sign_of_spoilt_maps(tmp_path: Any) -> None:
    from embasis.data.images.scan import scan_folder
    from embasis.data.segmentation.pairs import MapFile

    home = folder(tmp_path / "l", pictures_and_maps(1), None)
    many = np.arange(40 * 40, dtype=np.uint32).reshape(40, 40) + 1
    colours = np.stack([many >> 16, many >> 8 & 255, many & 255], 2).astype(np.uint8)
    (home / "labels" / "0.png").write_bytes(saved(colours))
    table = ClassTable(("a", "b"), ((0,), (1,)), ((0, 0, 0), (255, 0, 0)), (), coded="colours")
    (image,), (label,) = scan_folder(home / "images").files, scan_folder(home / "labels").files
    with pytest.raises(InputDataError) as caught:
        make_map_problem(PairedSide("l", (MapFile(image, label, image.size),), table), PairedSide("u", (), table))
    text = str(caught.value)
    assert text.startswith("labelled: unknown colours {#000001: 1 file, 1 px, ")
    assert text.endswith(
        " and 1,590 more}; allowed #000000, #ff0000; first: labels/0.png; so many are a sign of maps that were saved "
        "as JPEG, smoothed or resized: save them as drawn"
    )
