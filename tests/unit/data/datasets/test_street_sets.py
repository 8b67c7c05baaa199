"""Published street scenes, on miniatures of their official folders and on the real packs where they are."""

from __future__ import annotations

import pytest
import torch

from embasis import config
from embasis.data import DATASETS
from embasis.data.datasets.street_sets import (
    ALL_19,
    CAMVID,
    CARLA,
    CARLA_CAMVID_9,
    CITYSCAPES,
    GTA5,
    LABEL_IDS,
    STARRED,
    STREET_CLASSES,
    SYNTHIA,
    SYNTHIA_13,
    SYNTHIA_16,
    SYNTHIA_IDS,
    carla_camvid,
    gta5_cityscapes,
    read_street_side,
    synthia_cityscapes,
)
from embasis.data.segmentation.labels import decode_classes
from embasis.errors import ConfigError
from embasis.types import MapPlan, Plan, RejectedFile
from image_trees import archive, plant, real_data, refusal
from street_trees import (
    HEIGHT,
    SETS,
    WIDTH,
    camvid_tree,
    carla_tree,
    cityscapes_tree,
    grow,
    gta5_tree,
    ids_map,
    photo,
    synthia_tree,
    train_ids_map,
)

# The tables of classes


def test_a_train_id_is_the_place_of_its_class():
    assert len(STREET_CLASSES) == 19
    assert [STREET_CLASSES[number] for number in (0, 6, 13, 18)] == ["road", "traffic light", "car", "bicycle"]
    table = CITYSCAPES.table()
    assert dict(zip(table.names, table.ids, strict=True))["train"] == (31,)
    assert table.colours[0] == (128, 64, 128)
    assert table.colours[18] == (119, 11, 32)


def test_synthia_numbers_lead_to_the_train_ids_of_the_published_mapping():
    text = "3→0 4→1 2→2 21→3 5→4 7→5 15→6 9→7 6→8 16→9 1→10 10→11 17→12 8→13 18→14 19→15 20→16 12→17 11→18"
    mapping = dict(tuple(map(int, pair.split("→"))) for pair in text.split())
    assert {number: train for train, number in enumerate(SYNTHIA_IDS)} == mapping


def test_synthia_has_16_classes_and_13_with_a_star():
    assert set(STREET_CLASSES) - set(SYNTHIA.table(SYNTHIA_16).names) == {"terrain", "truck", "train"}
    left_out = {"terrain", "truck", "train", "wall", "fence", "pole"}
    assert set(STREET_CLASSES) - set(STARRED["synthia_cityscapes"]) == left_out
    assert len(SYNTHIA_16) == 16
    assert len(SYNTHIA_13) == len(STARRED["synthia_cityscapes"]) == 13


def test_a_number_that_is_no_train_id_is_refused_and_one_that_is_left_out_is_ignored():
    table = CARLA.table(CARLA_CAMVID_9)
    assert not table.others
    assert {3, 6, 9, 11, 12, 18, 255} <= set(table.ignore)
    assert 19 not in table.ignore


# Miniatures


@pytest.mark.parametrize("name", list(SETS))
@pytest.mark.parametrize("place", ["folder", "tar", "tar with a folder"])
def test_a_miniature_is_a_sound_problem_wherever_it_lies(tmp_path, name, place):
    problem = DATASETS[name](grow(tmp_path, name, place))
    _, train_ids, rows = SETS[name]
    assert problem.schema.names == tuple(STREET_CLASSES[number] for number in train_ids)
    sides = problem.labelled, problem.unlabelled, problem.test
    assert tuple(len(side) for side in sides) == rows
    for side in sides:
        assert (side.ids[1:] > side.ids[:-1]).all()
        assert len(set(side.names)) == len(side)
    assert problem.rejected == ()
    for side in (problem.labelled, problem.test):
        assert ((side.labels >= 0) & (side.labels < len(train_ids))).all()
        assert (side.counts(len(train_ids)) > 0).all()


@pytest.mark.parametrize("name", list(SETS))
def test_maps_of_the_unlabelled_side_stay_hidden(tmp_path, name):
    problem = DATASETS[name](grow(tmp_path, name))
    assert (problem.unlabelled.labels == -1).all()
    assert all(file.label is None for file in problem.unlabelled.files)
    assert problem.hidden_labels is None
    assert problem.row_names == tuple(problem.unlabelled.names)


@pytest.mark.parametrize("name", list(SETS))
def test_maps_of_the_unlabelled_side_are_not_even_needed(tmp_path, name):
    problem = DATASETS[name](grow(tmp_path, name))
    for path in [*tmp_path.glob("*/gtFine/train"), *tmp_path.glob("camvid/train/labels")]:
        path.rename(tmp_path / "away")
    again = DATASETS[name](tmp_path)
    assert problem.unlabelled.names == again.unlabelled.names
    assert torch.equal(problem.unlabelled.ids, again.unlabelled.ids)


def columns_of(side, row: int = 0) -> list[int]:
    """The class of each column of a miniature's map, −1 = ignored."""
    truth = side.truth[row]
    assert (truth == truth[0]).all()
    return truth[0].tolist()


def by_number(numbers, train_ids) -> list[int]:
    """The class that each of the numbers 0 … WIDTH − 1 has by hand."""
    classes = {numbers[train]: place for place, train in enumerate(train_ids)}
    return [classes.get(number, -1) for number in range(WIDTH)]


@pytest.mark.parametrize(
    ("name", "source", "target"),
    [
        ("gta5_cityscapes", LABEL_IDS, LABEL_IDS),
        ("synthia_cityscapes", SYNTHIA_IDS, LABEL_IDS),
        ("carla_camvid", ALL_19, ALL_19),
    ],
)
def test_every_number_in_a_map_becomes_the_class_it_has_by_hand(tmp_path, name, source, target):
    problem = DATASETS[name](grow(tmp_path, name))
    train_ids = SETS[name][1]
    for row in range(3):
        assert columns_of(problem.labelled, row) == by_number(source, train_ids)
    assert columns_of(problem.test) == by_number(target, train_ids)


def test_synthia_with_13_classes_ignores_walls_fences_and_poles(tmp_path):
    problem = synthia_cityscapes(grow(tmp_path, "synthia_cityscapes"), classes=13)
    assert problem.schema.names == STARRED["synthia_cityscapes"]
    assert columns_of(problem.labelled) == by_number(SYNTHIA_IDS, SYNTHIA_13)
    assert columns_of(problem.test) == by_number(LABEL_IDS, SYNTHIA_13)


def test_synthia_has_16_or_13_classes(tmp_path):
    with pytest.raises(ConfigError) as caught:
        synthia_cityscapes(tmp_path, classes=19)
    assert str(caught.value) == "synthia_cityscapes: classes must be 16 or 13, got 19"


def test_pictures_and_maps_of_a_miniature_belong_together(tmp_path):
    plant(tmp_path / "gta5", gta5_tree())
    side = read_street_side(GTA5, tmp_path)
    assert [file.name for file in side.files] == ["00001.png", "00002.png", "00003.png"]
    assert [file.label.name for file in side.files] == ["00001.png", "00002.png", "00003.png"]
    assert [file.size for file in side.files] == [(HEIGHT + 1, WIDTH), (HEIGHT, WIDTH), (HEIGHT + 1, WIDTH)]
    for file in side.files:
        assert decode_classes(file.label.read(), side.table).shape == file.size


def test_maps_of_cityscapes_are_found_by_the_name_in_their_city(tmp_path):
    plant(tmp_path, cityscapes_tree())
    side = read_street_side(CITYSCAPES, tmp_path, "train")
    assert [(file.name, file.label.name) for file in side.files][:2] == [
        (
            f"aachen/aachen_00000{frame}_000019_leftImg8bit.png",
            f"aachen/aachen_00000{frame}_000019_gtFine_labelIds.png",
        )
        for frame in range(2)
    ]
    assert [file.name.split("/")[0] for file in side.files] == ["aachen", "aachen", "zurich", "zurich"]


def test_pictures_and_maps_of_cityscapes_may_lie_in_archives_of_their_own(tmp_path):
    content = cityscapes_tree()
    for top in ("leftImg8bit", "gtFine"):
        part = {path: data for path, data in content.items() if path.startswith(top)}
        archive(tmp_path / f"{top}_trainvaltest.tar", part)
    assert len(read_street_side(CITYSCAPES, tmp_path, "val").files) == 2


def test_what_differs_from_the_published_numbers_is_noted(tmp_path):
    notes = gta5_cityscapes(grow(tmp_path, "gta5_cityscapes")).notes
    assert "gta5: 3 pictures here, 24,966 as published" in notes
    assert "cityscapes train: 4 pictures here, 2,975 as published" in notes
    assert "cityscapes val: 2 pictures here, 500 as published" in notes
    for kind, tree, split, text in (
        (SYNTHIA, synthia_tree, "", "synthia: 3 pictures here, 9,400 as published"),
        (CARLA, carla_tree, "", "carla: 3 pictures here, 603 as published"),
        (CAMVID, camvid_tree, "val", "camvid val: 1 picture here, 101 as published"),
    ):
        assert text in read_street_side(kind, plant(tmp_path / kind.name, tree()), split).notes


def test_a_city_that_is_not_of_the_split_is_noted(tmp_path):
    plant(tmp_path, cityscapes_tree({"train": CITYSCAPES.cities["train"], "val": ("aachen", "gotham", "lindau")}))
    text = "cityscapes val: cities that are not of this split: 'aachen', 'gotham'"
    assert text in read_street_side(CITYSCAPES, tmp_path, "val").notes
    assert not any("not of this split" in note for note in read_street_side(CITYSCAPES, tmp_path, "train").notes)


# What is missing or wrong


def test_an_absent_set_is_refused_with_what_is_expected_where(tmp_path):
    end = "set --root or EMBASIS_DATA"
    assert refusal(lambda: gta5_cityscapes(tmp_path)) == (
        f"gta5: no folder images in {tmp_path}; expected in {tmp_path}: gta5/ or gta5.tar with images/*.png and "
        f"labels/*.png; {end}"
    )
    assert refusal(lambda: read_street_side(SYNTHIA, tmp_path)) == (
        f"synthia: no folder RGB in {tmp_path}; expected in {tmp_path}: synthia/ or synthia.tar with RGB/*.png and "
        f"GT/LABELS/*.png; {end}"
    )
    assert refusal(lambda: read_street_side(CITYSCAPES, tmp_path, "val")) == (
        f"cityscapes: no folder leftImg8bit/val in {tmp_path}; expected in {tmp_path}: cityscapes/ or cityscapes.tar "
        f"with leftImg8bit/val/<city>/*_leftImg8bit.png and gtFine/val/<city>/*_gtFine_labelIds.png; {end}"
    )
    assert refusal(lambda: carla_camvid(tmp_path)) == (
        f"carla: no folder images in {tmp_path}; expected in {tmp_path}: carla_512x256/ or carla_512x256.tar with "
        f"images/*.jpg and labels/*.png; {end}"
    )


def test_a_set_without_its_label_maps_is_refused(tmp_path):
    tree = synthia_tree()
    archive(tmp_path / "synthia.tar", {path: data for path, data in tree.items() if path.startswith("RGB")})
    assert refusal(lambda: read_street_side(SYNTHIA, tmp_path)) == (
        f"synthia: synthia.tar has no GT/LABELS; expected in {tmp_path}: synthia/ or synthia.tar with RGB/*.png and "
        "GT/LABELS/*.png; set --root or EMBASIS_DATA"
    )


def test_cityscapes_with_train_ids_only_is_refused(tmp_path):
    tree = {path.replace("labelIds", "labelTrainIds"): data for path, data in cityscapes_tree().items()}
    plant(tmp_path, tree)
    assert refusal(lambda: read_street_side(CITYSCAPES, tmp_path, "val")) == (
        f"cityscapes: {tmp_path}/gtFine/val has no *_gtFine_labelIds.png, but 6 other images; "
        "first: munster/munster_000000_000019_gtFine_color.png; the official names are needed"
    )


def test_a_picture_without_a_map_and_a_map_without_a_picture_are_refused(tmp_path):
    tree = gta5_tree(6)
    for name in ("labels/00001.png", "labels/00002.png", "labels/00003.png", "labels/00004.png", "images/00006.png"):
        del tree[name]
    plant(tmp_path, tree)
    assert refusal(lambda: read_street_side(GTA5, tmp_path)) == (
        "gta5: 4 pictures without a label map: 00001.png, 00002.png, 00003.png, …; 1 label map without a picture: "
        "00006.png; unpack the set anew"
    )


def test_a_few_unreadable_files_and_maps_of_another_size_are_listed(tmp_path):
    grow(tmp_path, "gta5_cityscapes")
    other = {"00004": b"", "00005": photo(5), "00006": photo(6), "00007": b"no picture"}
    maps = {"00004": ids_map(), "00005": b"", "00006": ids_map(HEIGHT + 2), "00007": ids_map()}
    for folder, content in (("images", other), ("labels", maps)):
        plant(tmp_path / "gta5" / folder, {f"{name}.png": data for name, data in content.items()})
    problem = gta5_cityscapes(tmp_path)
    assert len(problem.labelled) == 3
    assert problem.rejected == (
        RejectedFile("00004.png", "the file is empty", "scan", "labelled"),
        RejectedFile("00007.png", "not an image that is read", "scan", "labelled"),
        RejectedFile("00005.png", "its label map: the file is empty", "scan", "labelled"),
        RejectedFile("00006.png", "its label map: 40×8 pixels, its picture has 40×6", "scan", "labelled"),
    )


def test_many_unreadable_files_are_refused(tmp_path):
    grow(tmp_path, "carla_camvid")
    plant(tmp_path / "carla", {f"images/bad{number}.png": b"" for number in range(11)})
    assert refusal(lambda: carla_camvid(tmp_path)).startswith("11 of 18 files unreadable (61.1 %), 10 are tolerated; ")


def test_maps_that_break_off_are_on_the_same_budget(tmp_path):
    grow(tmp_path, "carla_camvid")
    pairs = {f"images/bad{number}.png": photo(number) for number in range(11)}
    plant(tmp_path / "carla", pairs | {f"labels/bad{number}.png": train_ids_map()[:-20] for number in range(11)})
    assert refusal(lambda: carla_camvid(tmp_path)).startswith("11 of 18 files unreadable (61.1 %), 10 are tolerated; ")


def test_a_map_of_the_wrong_kind_is_refused(tmp_path):
    grow(tmp_path, "synthia_cityscapes")
    plant(tmp_path / "synthia/GT/LABELS", {"0000001.png": ids_map()})
    assert refusal(lambda: synthia_cityscapes(tmp_path)).startswith(
        "labelled: 1 label map of the wrong kind: labels/0000001.png (is 8-bit grey: 16-bit RGB is expected, "
        "with the class in its first channel)"
    )


def test_a_number_that_is_no_class_is_refused(tmp_path):
    grow(tmp_path, "carla_camvid")
    plant(tmp_path / "camvid/val/labels", {"0001TP_000003.png": ids_map()})
    assert refusal(lambda: carla_camvid(tmp_path)).startswith("test: unknown ids {19: 1 file, 6 px, 20: 1 file, 6 px, ")


def test_a_split_is_known(tmp_path):
    for kind in (CITYSCAPES, CAMVID):
        with pytest.raises(ConfigError) as caught:
            read_street_side(kind, tmp_path, "test")
        assert str(caught.value) == f"unknown split of {kind.name} 'test'; known: train, val"


# The presets


@pytest.mark.parametrize("name", ["gta5-cityscapes", "synthia-cityscapes"])
def test_the_presets_of_street_scenes_are_the_papers_numbers(name):
    found = config.read_preset(f"paper-{name}")
    plan = {"optimiser": "sgd", "source_lr": 5e-4, "lr": 5e-4, "weight_decay": 1e-5, "momentum": 0.9, "batch_size": 8}
    assert found["plan"] == plan | {"rounds": 3, "epochs": 4, "source_epochs": 4}
    assert found["network"] == {"name": "deeplab_v2", "backbone": "timm:resnet101"}
    assert found["maps"] == {"size": 1024, "crop_height": 512, "crop_width": 1024}
    assert found["data"] == {"dataset": name.replace("-", "_")}


@pytest.mark.parametrize("name", ["paper-gta5-cityscapes", "paper-synthia-cityscapes", "street-cpu"])
def test_the_settings_of_a_preset_exist(name):
    found = config.read_preset(name)
    MapPlan(**found["maps"])
    Plan(**found["plan"])
    assert found.get("data", {}).get("dataset", "carla_camvid") in DATASETS


# The real packs


def test_the_real_carla_and_camvid_have_the_published_sizes():
    real_data("camvid_trainval_480x360.tar")
    problem = carla_camvid(real_data("carla_512x256.tar"))
    assert (len(problem.labelled), len(problem.unlabelled), len(problem.test)) == (603, 367, 101)
    assert problem.rejected == ()
    assert problem.schema.names == (
        *("road", "sidewalk", "building", "fence", "pole", "traffic sign", "vegetation", "sky", "car"),
    )
    carla = [22536070, 4016135, 12124985, 75464, 2173398, 84757, 3105988, 28595355, 467145]
    camvid = [5053176, 1521751, 4531180, 537197, 98499, 155724, 2851125, 1601620, 304716]
    assert problem.labelled.counts(9).tolist() == carla
    assert problem.test.counts(9).tolist() == camvid
    assert set(map(tuple, problem.labelled.sizes.tolist())) == {(256, 512)}
    assert set(map(tuple, problem.test.sizes.tolist())) == {(360, 480)}
    assert all(file.label is None for file in problem.unlabelled.files)


def test_the_real_val_of_camvid_ignores_people_and_void():
    side = read_street_side(CAMVID, real_data("camvid_trainval_480x360.tar"), "val", CARLA_CAMVID_9)
    assert len(side.files) == 101
    ignored = sum(int((decode_classes(file.label.read(), side.table) == 255).sum()) for file in side.files)
    assert ignored == 113531 + 684281
