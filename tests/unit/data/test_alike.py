"""Classes whose names look the same are noted by `embasis check`, for tables, folders, lists and label maps."""

from __future__ import annotations

from pathlib import Path

import pytest

from embasis.data.class_labels import describe_alike, group_alike
from embasis.data.images.folders import ImageOptions, check_images
from embasis.data.problem import Finding
from embasis.data.reader import Reader
from embasis.data.segmentation.folders import MapFolders, check_maps
from embasis.data.table_pair import check_pair
from image_trees import pictures, plant
from map_trees import folder, scenes

NFC, NFD = "M\u00f6we", "Mo\u0308we"
WHAT = "classes that differ only in upper and lower case or in the Unicode form of their letters"
CURE = "they count as different classes: write each name in one way"


def written(path: Path, labels: list[str], shift: float = 0.0) -> Path:
    rows = [f"{row + shift},{row * row},{label}" for row, label in enumerate(labels)]
    path.write_text("\n".join(["a,b,label", *rows, ""]), encoding="utf-8")
    return path


def warnings_of(found: list[Finding]) -> list[str]:
    return [one.text for one in found if one.level == "warning"]


def test_names_that_look_the_same_are_grouped() -> None:
    assert group_alike(["cat", "Cat", "dog", "CAT", NFC, NFD]) == [["CAT", "Cat", "cat"], [NFD, NFC]]
    assert group_alike(["cat", "dog"], ["Dog", "cat", "emu"]) == [["Dog", "dog"]]
    assert group_alike(["cat", "Cat"], ["dog"]) == [], "which is said of the names alone"
    assert group_alike(["1", "10", "stra\u00dfe", "STRASSE"]) == [["STRASSE", "stra\u00dfe"]]


def test_a_letter_that_cannot_be_told_by_eye_is_written_out() -> None:
    assert describe_alike("t", [NFC, NFD]) == f"t: {WHAT}: 'Mo\\u0308we' and '{NFC}'; {CURE}"
    assert describe_alike("t", ["a", "b"]) == ""
    many = [name for letter in "abcdefg" for name in (letter, letter.upper())]
    assert describe_alike("t", many) == (
        f"t: {WHAT}: 'A' and 'a', 'B' and 'b', 'C' and 'c', 'D' and 'd', 'E' and 'e' and 2 more; {CURE}"
    )


@pytest.mark.parametrize(("one", "two", "said"), [("cat", "Cat", "'Cat' and 'cat'"),
                                                  (NFC, NFD, f"'Mo\\u0308we' and '{NFC}'")])  # fmt: skip
def test_a_table_is_noted(one: str, two: str, said: str, tmp_path: Path) -> None:
    first = written(tmp_path / "l.csv", [one, two, "dog"] * 4)
    second = written(tmp_path / "u.csv", [""] * 8, 0.5)
    assert f"{first}: {WHAT}: {said}; {CURE}" in warnings_of(check_pair(first, second))
    plain = written(tmp_path / "p.csv", [one, "dog"] * 4)
    assert not any(WHAT in text for text in warnings_of(check_pair(plain, second)))
    other = written(tmp_path / "o.csv", [two, "dog"] * 4, 0.5)
    assert f"{plain} and {other}: {WHAT}: {said}; {CURE}" in warnings_of(check_pair(plain, other))


@pytest.mark.parametrize(("one", "two", "said"), [("cat", "Cat", "'Cat' and 'cat'"),
                                                  (NFC, NFD, f"'Mo\\u0308we' and '{NFC}'")])  # fmt: skip
def test_folders_are_noted(one: str, two: str, said: str, tmp_path: Path) -> None:
    names = [f"{name}/{number}.png" for name in (one, two, "dog") for number in range(3)]
    first = plant(tmp_path / "l", pictures(names, 0))
    if len(list(first.iterdir())) < 3:
        pytest.skip("this file system takes both names for one")
    second = plant(tmp_path / "u", pictures(["1.png", "2.png"], 100))
    found = check_images(first, second, options=ImageOptions(), reader=Reader(0))
    assert f"{first}: {WHAT}: {said}; {CURE}" in warnings_of(found)
    plain = plant(tmp_path / "p", pictures([name for name in names if not name.startswith(two)], 30))
    other = plant(tmp_path / "o", pictures([f"{two}/1.png", "dog/2.png"], 60))
    found = check_images(plain, other, options=ImageOptions(), reader=Reader(0))
    assert f"{plain} and {other}: {WHAT}: {said}; {CURE}" in warnings_of(found)


def test_sub_folders_in_another_form_are_no_labels_and_that_is_a_warning(tmp_path: Path) -> None:
    first = plant(tmp_path / "l", pictures([f"{name}/{number}.png" for name in (NFC, "dog") for number in range(3)], 0))
    other = plant(tmp_path / "o", pictures([f"{NFD}/1.png", "yak/2.png"], 60))
    found = check_images(first, other, options=ImageOptions(), reader=Reader(0))
    text = "sub-folders are named like no class of the labelled side, so are no labels"
    said = f"{other}: {text}: {NFD!r}, 'yak'; the Unicode form of letters matters"
    assert said in warnings_of(found)


def test_label_maps_are_noted(tmp_path: Path) -> None:
    lines = [f'[[class]]\nname = "{name}"\nid = {number}' for number, name in enumerate(("road", "Road", "sky"))]
    first = folder(tmp_path / "l", scenes(3), toml="\n".join(lines))
    second = folder(tmp_path / "u", scenes(2, 50, maps=False), toml=None)
    found = check_maps(MapFolders(first, second), options=ImageOptions(), reader=Reader(0))
    assert f"{first}: {WHAT}: 'Road' and 'road'; {CURE}" in warnings_of(found)
