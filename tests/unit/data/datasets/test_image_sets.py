"""Published sets of images, on miniatures of their official layout and on the real packs where they are."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from embasis.data import DATASETS
from embasis.data.datasets.domain_sets import OFFICE31, PAIRS, TABLE_METRIC, office31, office_caltech10, pacs, visda17
from embasis.data.reader import Reader
from embasis.errors import ConfigError
from embasis.functional.metrics import LABEL_METRICS
from embasis.types import Preparation, RejectedFile
from image_trees import SETS, archive, domain, picture, plant, real_data, refusal, whole


def labels_of(side, labels, names) -> dict[str, str]:
    return {name: names[number] for name, number in zip(side.names, labels.tolist(), strict=True)}


@pytest.mark.parametrize("name", list(SETS))
@pytest.mark.parametrize("place", ["", "pack", "tar", "tar with a folder"])
def test_a_miniature_is_a_sound_problem_wherever_it_lies(tmp_path, name, place):
    kind = SETS[name]
    content, pack = whole(kind), kind.packs[0]
    if place.startswith("tar"):
        top = f"{pack}/" if place != "tar" else ""
        archive(tmp_path / f"{pack}.tar", {f"{top}{path}": data for path, data in content.items()})
    else:
        plant(tmp_path / pack if place else tmp_path, content)
    source, target = PAIRS.get(name, [("train", "validation")])[0]
    problem = DATASETS[name](tmp_path, source, target) if name in PAIRS else DATASETS[name](tmp_path)
    assert problem.schema.names == kind.classes
    for side, labels, origin in (
        (problem.labelled, problem.labelled.labels, source),
        (problem.unlabelled, problem.hidden_labels, target),
    ):
        assert len(side) == 2 * len(kind.classes)
        assert all(path.startswith(label) for path, label in labels_of(side, labels, kind.classes).items())
        stored = {file.name: file.read() for file in side.files}
        assert all(content[f"{kind.below(origin)}/{path}"] == data for path, data in stored.items())
    assert (problem.unlabelled.labels == -1).all()
    assert problem.rejected == ()
    if kind.counts[source]:
        text = f"{name}: {source} has {2 * len(kind.classes)} images here, {kind.counts[source]:,} as published"
        assert problem.notes[0] == text


def test_every_pair_has_its_own_sides(tmp_path):
    plant(tmp_path, whole(OFFICE31))
    for source, target in PAIRS["office31"]:
        problem = office31(tmp_path, source, target)
        assert {file.path.split("/")[-4] for file in problem.labelled.files} == {source}
        assert {file.path.split("/")[-4] for file in problem.unlabelled.files} == {target}


def test_the_pairs_are_those_of_the_tables():
    letters = [(source[0] + target[0]).upper() for source, target in PAIRS["office31"]]
    assert letters == ["AW", "DW", "WD", "AD", "DA", "WA"]
    assert len(set(PAIRS["office_caltech10"])) == 12
    assert PAIRS["pacs"] == (("photo", "art_painting"), ("art_painting", "photo"))


def test_visda_is_scored_by_the_mean_of_the_classes():
    assert TABLE_METRIC == {"visda17": "mean_class_accuracy", "heart_disease": "mean_class_accuracy"}
    assert set(TABLE_METRIC.values()) <= LABEL_METRICS.keys()


def test_an_absent_set_is_refused_with_what_is_expected_where(tmp_path):
    assert refusal(lambda: office31(tmp_path)) == (
        f"office31: no folder amazon/images/<class> in {tmp_path}; expected in {tmp_path}: "
        "amazon/images/<class>/<image> in office31/ or office31.tar; set --root or EMBASIS_DATA"
    )
    assert refusal(lambda: visda17(tmp_path)) == (
        f"visda17: no folder train/<class> in {tmp_path}; expected in {tmp_path}: "
        "train/<class>/<image> in visda17/ or visda17.tar; set --root or EMBASIS_DATA"
    )


def test_a_domain_that_is_not_there_is_refused(tmp_path):
    archive(tmp_path / "pacs_photo_art_128.tar", domain(SETS["pacs"], "photo"))
    assert refusal(lambda: pacs(tmp_path, "photo", "sketch")) == (
        f"pacs: pacs_photo_art_128.tar has no sketch; expected in {tmp_path}: "
        "sketch/<class>/<image> in pacs_photo_art_128/ or pacs_photo_art_128.tar; set --root or EMBASIS_DATA"
    )


@pytest.mark.parametrize("make", [office31, office_caltech10, pacs])
def test_domains_are_known_and_differ(tmp_path, make):
    with pytest.raises(ConfigError) as caught:
        make(tmp_path, "moon")
    assert str(caught.value).startswith(f"unknown domain of {make.__name__} 'moon'; known: ")
    first = PAIRS[make.__name__][0][0]
    with pytest.raises(ConfigError) as caught:
        make(tmp_path, first, first)
    assert str(caught.value) == f"{make.__name__}: source and target must differ, got {first!r} twice"


def test_classes_that_are_not_those_of_the_set_are_refused(tmp_path):
    plant(tmp_path, whole(OFFICE31))
    (tmp_path / "webcam/images/bike").rename(tmp_path / "webcam/images/tandem")
    assert refusal(lambda: office31(tmp_path)) == (
        f"office31: webcam in {tmp_path} must have the 31 classes of the set; missing: bike; not of the set: tandem"
    )


def test_sets_that_share_names_of_domains_may_share_a_root(tmp_path):
    plant(tmp_path, whole(OFFICE31))
    archive(tmp_path / "office_caltech10.tar", whole(SETS["office_caltech10"]))
    assert len(office31(tmp_path).schema) == 31
    assert len(office_caltech10(tmp_path).schema) == 10


def test_unreadable_images_are_listed_and_many_are_refused(tmp_path):
    plant(tmp_path, whole(OFFICE31) | {"amazon/images/bike/bad.jpg": b"", "amazon/images/loose.jpg": picture()})
    assert office31(tmp_path).rejected == (
        RejectedFile("bike/bad.jpg", "the file is empty", "scan", "labelled"),
        RejectedFile("loose.jpg", "lies in no class folder", "scan", "labelled"),
    )
    plant(tmp_path, {f"amazon/images/bike/bad{number}.jpg": b"" for number in range(20)})
    assert refusal(lambda: office31(tmp_path)).startswith("22 of 146 files unreadable (15.1 %), 10 are tolerated; ")


# VisDA


def test_visda_list_decides_which_images_belong(tmp_path):
    content = whole(SETS["visda17"])
    del content["train/bus/frame_0001.png"]
    plant(tmp_path, content | {"train/bus/other.png": picture()})
    problem = visda17(tmp_path)
    assert "bus/other.png" not in problem.labelled.names
    assert problem.rejected == (
        RejectedFile("bus/frame_0001.png", "in image_list.txt, but not there", "scan", "labelled"),
    )
    assert f"{tmp_path}: 1 image is not in train/image_list.txt and not used" in problem.notes


def test_visda_is_read_from_the_official_archives(tmp_path):
    for name in ("train", "validation"):
        archive(tmp_path / f"{name}.tar", domain(SETS["visda17"], name))
    assert len(visda17(tmp_path).unlabelled) == 24


@pytest.mark.parametrize("line", ["bus/frame_0001.png 3", "bus/frame_0001.png", "moon/a.png 2", "a.png 12", "²"])
def test_a_line_of_the_list_that_is_wrong_is_refused(tmp_path, line):
    content = whole(SETS["visda17"])
    content["validation/image_list.txt"] = b"aeroplane/frame_0001.png 0\n" + line.encode()
    plant(tmp_path, content)
    assert refusal(lambda: visda17(tmp_path)) == (
        f"{tmp_path}: validation/image_list.txt: line 2 must be <class>/<file> and the number of the class, "
        f"got {line!r}"
    )


def test_visda_without_its_list_is_refused(tmp_path):
    content = whole(SETS["visda17"])
    del content["train/image_list.txt"]
    archive(tmp_path / "visda17.tar", content)
    assert refusal(lambda: visda17(tmp_path)) == (
        f"visda17: no file train/image_list.txt in {tmp_path}/visda17.tar; it says which images belong to the set"
    )
    folder = plant(tmp_path / "visda17", content)
    assert refusal(lambda: visda17(tmp_path)) == (
        f"visda17: train/image_list.txt in {folder} cannot be read: No such file or directory"
    )


# The real packs


def test_the_real_office_caltech_10_has_the_published_sizes():
    root = real_data("office_caltech10.tar")
    sizes = {"amazon": 958, "caltech10": 1123, "dslr": 157, "webcam": 295}
    for source, target in (("amazon", "webcam"), ("dslr", "caltech10")):
        problem = office_caltech10(root, source, target)
        assert (len(problem.labelled), len(problem.unlabelled)) == (sizes[source], sizes[target])
        assert problem.rejected == ()
    counts = Counter(problem.labelled.labels.tolist())
    assert [counts[number] for number in range(10)] == [12, 21, 12, 13, 10, 24, 22, 12, 8, 23]
    side = problem.labelled.prepared(Preparation(32, 1.0), Reader(0), "light")
    assert side.inputs(torch.arange(8)).shape == (8, 3, 32, 32)


def test_the_real_pacs_has_the_published_sizes():
    problem = pacs(real_data("pacs_photo_art_128.tar"))
    assert (len(problem.labelled), len(problem.unlabelled)) == (1670, 2048)
    assert torch.bincount(problem.labelled.labels).tolist() == [189, 202, 182, 186, 199, 280, 432]
    assert torch.bincount(problem.hidden_labels).tolist() == [379, 255, 285, 184, 201, 295, 449]
    assert problem.rejected == ()
