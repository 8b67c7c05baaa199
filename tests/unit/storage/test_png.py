"""Pictures for people: exact values, safe names, folders that are ours."""

from __future__ import annotations

import errno
import io
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from embasis import storage
from embasis.data.images.files import escape_name
from embasis.data.segmentation.labels import decode_classes
from embasis.errors import ConfigError, InputDataError, ResourceError, RunLockedError, UntrustedError
from embasis.storage import RunFolder, atomic, read_stored_table, write_output
from embasis.storage.label_map_folder import LabelMapFolder, make_map_names
from embasis.storage.picture_formats import (
    choose_written_ids,
    encode_grey_png,
    encode_label_png,
    encode_rgb_png,
    quantise_confidence,
    quantise_variance,
)
from embasis.types import ClassTable
from storage_runs import Faulty, do_not_wait, temps, tree

TABLE = ClassTable(("road", "sky", "car"), ((7, 8), (23,), (26,)), ((128, 64, 128), (70, 130, 180), (0, 0, 142)))


@pytest.fixture(autouse=True)
def fsync_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    do_not_wait(monkeypatch)
    monkeypatch.setattr(os, "sync", lambda: None)


def opened(data: bytes) -> Image.Image:
    picture = Image.open(io.BytesIO(data))
    picture.load()
    return picture


def noise(*shape: int, below: int = 256) -> torch.Tensor:
    return torch.randint(below, shape, generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


# Values


def test_a_label_map_has_the_original_ids_in_the_colours_of_the_classes() -> None:
    picture = opened(encode_label_png(torch.tensor([[0, 1, 2], [255, 0, 0]], dtype=torch.uint8), TABLE))
    assert picture.mode == "P"
    assert np.asarray(picture).tolist() == [[7, 23, 26], [255, 7, 7]]
    colours = np.asarray(picture.convert("RGB"))
    assert colours[0].tolist() == [[128, 64, 128], [70, 130, 180], [0, 0, 142]]
    assert colours[1, 0].tolist() == [0, 0, 0]


def test_ids_above_255_are_written_as_16_bit_grey() -> None:
    table = ClassTable(("a", "b"), ((3,), (40_001,)))
    picture = opened(encode_label_png(torch.tensor([[0, 1, 255]], dtype=torch.uint8), table))
    assert picture.mode in ("I;16", "I;16B", "I")
    assert np.asarray(picture).tolist() == [[3, 40_001, 255]]


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (7, 1), (33, 50), (64, 255)])
def test_pictures_come_back_value_by_value(size: tuple[int, int]) -> None:
    grey, colour, flat = noise(*size), noise(3, *size), noise(*size, below=2) * 255
    assert np.array_equal(np.asarray(opened(encode_grey_png(grey))), grey.numpy())
    assert np.array_equal(np.asarray(opened(encode_grey_png(flat, flat=True))), flat.numpy())
    assert np.array_equal(np.asarray(opened(encode_rgb_png(colour))), colour.permute(1, 2, 0).numpy())
    assert np.array_equal(np.asarray(opened(encode_grey_png(grey.T))), grey.T.numpy())


@pytest.mark.parametrize(
    "table",
    [
        TABLE,
        ClassTable(("a", "b", "c"), ((0,), (1,), (2,)), ignore=(9,)),
        ClassTable(("a", "b", "c"), ((255,), (1,), (2,)), ignore=(0, 17)),
        ClassTable(("a", "b", "c"), ((0,), (1,), (2, 255)), ignore=(), others=True),
        ClassTable(("a", "b", "c"), ((0,), (1,), (300,)), ignore=(65_535,)),
        ClassTable(
            ("a", "b", "c"), ((0,), (1,), (2,)), ((0, 0, 0), (9, 9, 9), (0, 0, 255)), (0xFF0000,), coded="colours"
        ),
        ClassTable(("a", "b", "c"), ((0,), (1,), (900,)), ((0, 0, 0), (9, 9, 9), (0, 0, 1)), (), True, coded="colours"),
    ],
)
def test_what_is_written_is_read_again_with_the_same_table(table: ClassTable) -> None:
    classes = torch.tensor([[0, 1, 2, 255], [255, 2, 1, 0]], dtype=torch.uint8)
    assert torch.equal(decode_classes(encode_label_png(classes, table), table), classes)


def test_pixels_of_which_nothing_is_known_are_255_unless_that_is_a_class_or_an_error() -> None:
    def unknown(*ids: tuple[int, ...], ignore: tuple[int, ...] = (255,), others: bool = False) -> int:
        return choose_written_ids(ClassTable(tuple(map(str, ids)), ids, ignore=ignore, others=others))[1]

    assert unknown((0,), (1,)) == 255
    assert unknown((0,), (1,), ignore=(17, 255)) == 255
    assert unknown((0,), (1,), ignore=(17, 18)) == 17
    assert unknown((0,), (1,), ignore=(17, 18), others=True) == 255
    assert unknown((0,), (255,), ignore=()) == 1
    assert unknown((0,), (1, 255), ignore=()) == 2


def test_a_class_map_with_unknown_classes_or_of_another_form_is_refused() -> None:
    cases: list[tuple[Any, str]] = [
        (lambda: encode_label_png(torch.tensor([[0, 3, 200]], dtype=torch.uint8), TABLE), "label map: class 200 of 3"),
        (lambda: encode_label_png(torch.zeros(2, 2), TABLE), "label map must be uint8 (H, W), got float32 (2, 2)"),
        (
            lambda: encode_grey_png(torch.zeros(0, 4, dtype=torch.uint8)),
            "grey picture must be uint8 (H, W), got uint8 (0, 4)",
        ),
        (
            lambda: encode_rgb_png(torch.zeros(4, 4, 3, dtype=torch.uint8)),
            "picture must be uint8 (3, H, W), got uint8 (4, 4, 3)",
        ),
    ]
    for act, sentence in cases:
        with pytest.raises(InputDataError) as caught:
            act()
        assert str(caught.value) == sentence


def test_scales_reach_from_0_to_255() -> None:
    p = torch.tensor([0.0, 0.001, 0.5, 0.999, 1.0])
    assert quantise_confidence(p).tolist() == [0, 0, 128, 255, 255]
    for classes in (2, 5, 19):
        mean = torch.stack([torch.eye(classes)[0], torch.full((classes,), 1 / classes)])
        variance = (mean * (1 - mean)).sum(1)
        assert quantise_variance(variance, classes).tolist() == [0, 255]
        assert quantise_variance(variance[1:] * 0.6, classes).tolist() == [153]
    assert p.tolist() == pytest.approx([0.0, 0.001, 0.5, 0.999, 1.0])


def test_single_pictures_are_files(tmp_path: Path) -> None:
    classes, grey = noise(5, 6, below=3), noise(5, 6)
    write_output(tmp_path / "a.png", encode_label_png(classes, TABLE))
    write_output(tmp_path / "b.png", encode_grey_png(grey))
    assert tree(tmp_path) == {"a.png": encode_label_png(classes, TABLE), "b.png": encode_grey_png(grey)}


def test_maps_of_a_street_scene_are_encoded_in_milliseconds() -> None:
    small = torch.rand(1, 19, 45, 60, generator=torch.Generator().manual_seed(0)) * 6
    p = torch.nn.functional.interpolate(small.softmax(1), size=(360, 480), mode="bilinear")[0]
    top, label = p.max(0)
    table = ClassTable(tuple(map(str, range(19))), tuple((number,) for number in range(19)))
    maps = label.to(torch.uint8), quantise_confidence(top), quantise_variance((p * (1 - p)).sum(0), 19)
    took = []
    for _ in range(5):
        start = time.process_time()
        encode_label_png(maps[0], table), encode_grey_png(maps[1]), encode_grey_png(maps[2])
        took.append(time.process_time() - start)
    assert min(took) < 0.03  # 6 ms on the machine this was measured on


# Names


def test_endings_are_replaced_and_names_that_would_collide_are_kept_whole() -> None:
    assert make_map_names(["a.jpg", "b.png", "sub/c.d.JPEG", "none"]) == ["a.png", "b.png", "sub/c.d.png", "none.png"]
    assert make_map_names(["a.jpg", "a.png", "b.jpg", "x/a.jpg"]) == ["a.jpg.png", "a.png.png", "b.png", "x/a.png"]
    assert make_map_names(["a.jpg", "A.png"]) == ["a.jpg.png", "A.png.png"]
    assert make_map_names([]) == []


def test_second_collisions_get_a_hash() -> None:
    found = make_map_names(["a.jpg", "a.png", "a.jpg.tif", "b.png/c.jpg", "b.jpg"])
    assert found[1] == "a.png.png"
    assert found[3] == "b.png/c.png"
    for name in (found[0], found[2], found[4]):
        assert name.startswith("map-")
    assert len({*found}) == 5


HOSTILE = [
    "../a.png", "a/../../b.png", "/etc/passwd", "a//b.png", "./a.png", "a/./b.jpg", "nul\0.png", "line\n.png",
    "\x1b[31m.png", "\x85.png", "x" * 256 + ".png", "x/" * 600 + "a.png", "\ud800.png",
    ".embasis-tmp-0123456789abcdef/a.png",
    "é" * 126 + ".jpg", "..", "", "/", "a/", escape_name(b"\xff\\x.png"), escape_name(b"caf\xe9.jpg"),
    "~/.ssh/key", "CON.png",
]  # fmt: skip


def write_one(maps: LabelMapFolder, name: str, value: int = 0) -> None:
    grey = torch.full((2, 3), value, dtype=torch.uint8)
    maps.write(name, grey, grey, grey, grey)


def test_nothing_is_ever_written_outside_the_folder(tmp_path: Path) -> None:
    names = make_map_names(HOSTILE)
    assert len({*names}) == len(HOSTILE)
    with LabelMapFolder(tmp_path / "in" / "out", TABLE) as maps:
        for name in names:
            write_one(maps, name)
    assert len([*(tmp_path / "in" / "out").rglob("*.png")]) == 4 * len(HOSTILE)
    assert os.listdir(tmp_path) == ["in"]
    assert os.listdir(tmp_path / "in") == ["out"]
    assert make_map_names(HOSTILE) == names
    assert all(name.startswith("map-") and len(name) == 24 for name in names[:15])
    assert names[-4:] == [r"\xff\x5cx.png", r"caf\xe9.png", "~/.ssh/key.png", "CON.png"]


def test_a_name_that_is_no_map_name_is_refused(tmp_path: Path) -> None:
    with LabelMapFolder(tmp_path / "out", TABLE) as maps:
        for name in ("../a.png", "/tmp/a.png", "a/../../b.png", "nul\0.png", "a//b.png"):
            with pytest.raises(UntrustedError) as caught:
                write_one(maps, name)
            assert str(caught.value) == f"path escapes the folder of maps: {name!r}"
    assert [*tree(tmp_path)] == ["out/maps.json", "out/maps.sha256"]


part = st.text(st.sampled_from("aAé.\\\0\n \ud800") | st.characters(), max_size=5)


@given(st.lists(st.lists(part | st.sampled_from(["..", ".", "", "a.png", "a"]), min_size=1, max_size=3), max_size=8))
def test_any_names_become_different_paths_below_the_folder(given_parts: list[list[str]]) -> None:
    names = make_map_names(["/".join(parts) for parts in given_parts])
    assert len({*names}) == len(names) == len(given_parts)
    for name in names:
        where = os.path.normpath(os.path.join("/base/labels", name))
        assert where == f"/base/labels/{name}"
        assert not any(other.startswith(f"{name}/") for other in names)
        assert name.isprintable() or all(char >= " " for char in name)
        assert max(len(piece.encode()) for piece in name.split("/")) <= 255


# Folders


def test_a_folder_holds_four_maps_for_each_picture_a_table_and_how_to_read_them(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    classes, p, v, t = noise(4, 6, below=3), noise(4, 6), noise(4, 6), noise(4, 6, below=2) * 255
    with LabelMapFolder(out, TABLE) as maps:
        assert json.loads((out / "maps.json").read_text())["complete"] is False
        maps.write("city/a.png", classes, p, v, t)
        maps.write_table({"id": ["city/a.jpg"], "trusted": [0.5], "road": [1.0]})
        maps.write_table({"id": ["city/a.jpg"], "trusted": [0.5], "road": [1.0]}, ".parquet")
    assert sorted(tree(out)) == [
        "confidence/city/a.png", "labels/city/a.png", "maps.csv", "maps.json", "maps.parquet", "maps.sha256",
        "trusted/city/a.png", "variance/city/a.png",
    ]  # fmt: skip
    for kind, values in (("confidence", p), ("variance", v), ("trusted", t)):
        assert np.array_equal(np.asarray(Image.open(out / kind / "city" / "a.png")), values.numpy())
    assert torch.equal(decode_classes((out / "labels/city/a.png").read_bytes(), TABLE), classes)
    assert read_stored_table(out / "maps.parquet")["id"] == ["city/a.jpg"]
    facts = json.loads((out / "maps.json").read_text())
    assert facts["complete"] is True
    assert facts["unknown"] == 255
    assert facts["classes"] == [
        {"name": "road", "value": 7},
        {"name": "sky", "value": 23},
        {"name": "car", "value": 26},
    ]
    assert maps.stale == 0


def test_a_folder_of_ours_is_written_again_and_old_maps_are_counted(tmp_path: Path) -> None:
    for value, names in ((1, ["a.png", "b.png", "c/d.png"]), (2, ["b.png"])):
        with LabelMapFolder(tmp_path, TABLE) as maps:
            for name in names:
                write_one(maps, name, value)
    assert maps.stale == 2
    assert np.asarray(Image.open(tmp_path / "variance" / "b.png")).max() == 2
    assert np.asarray(Image.open(tmp_path / "variance" / "a.png")).max() == 1


def test_folders_of_others_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    def refusal(path: Path) -> str:
        before = tree(tmp_path)
        with pytest.raises(ConfigError) as caught:
            LabelMapFolder(path, TABLE)
        assert caught.value.exit_code == 2
        assert tree(tmp_path) == before
        return str(caught.value)

    (tmp_path / "file.csv").write_text("precious")
    assert refusal(tmp_path / "file.csv") == f"output {tmp_path / 'file.csv'} is a file; name a folder"
    end = "name a new or an empty folder"
    holds = f"output {tmp_path} holds files that are no maps of embasis: 'file.csv'"
    assert refusal(tmp_path) == f"{holds}; {end}"
    (tmp_path / "labels").mkdir()
    assert refusal(tmp_path) == f"{holds} and 1 more; {end}"
    (tmp_path / "maps.json").write_text('{"what": "embasis maps"}')
    assert refusal(tmp_path) == f"{holds} and 2 more; {end}"
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    lost = f"{tmp_path / 'link'} is a link that leads nowhere; remove it or name another place"
    assert refusal(tmp_path / "link") == f"output {tmp_path / 'link'}: {lost}"


def test_links_below_the_folder_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    out = tmp_path / "out"
    with LabelMapFolder(out, TABLE) as maps:
        write_one(maps, "a.png")
    (out / "variance" / "a.png").unlink()
    (out / "variance" / "a.png").symlink_to(outside / "a.png")
    (out / "labels" / "city").symlink_to(outside)
    with LabelMapFolder(out, TABLE) as maps:
        write_one(maps, "a.png")
        with pytest.raises(UntrustedError) as caught:
            write_one(maps, "city/b.png")
    assert str(caught.value) == f"{out / 'labels' / 'city'} is a symbolic link; links are not followed"
    assert os.listdir(outside) == []
    with RunFolder(tmp_path / "run") as run:
        (tmp_path / "run" / "labels").symlink_to(outside)
        with pytest.raises(UntrustedError):
            run.maps(1, TABLE).__enter__()
    assert os.listdir(outside) == []


def test_the_maps_of_a_round_lie_in_the_run_folder_and_need_its_lock(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as run, run.maps(3, TABLE) as maps:
        write_one(maps, "a.png")
    assert (tmp_path / "labels" / "round-003" / "trusted" / "a.png").is_file()
    with pytest.raises(RunLockedError):
        write_one(maps, "b.png")


def test_a_failure_leaves_a_folder_that_is_not_complete_and_can_be_written_again(tmp_path: Path) -> None:
    def interrupted() -> None:
        with LabelMapFolder(tmp_path, TABLE) as maps:
            write_one(maps, "a.png")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert json.loads((tmp_path / "maps.json").read_text())["complete"] is False
    (tmp_path / "labels" / ".embasis-tmp-0123456789abcdef").write_text("half")
    with LabelMapFolder(tmp_path, TABLE):
        assert not temps(tmp_path)
    assert json.loads((tmp_path / "maps.json").read_text())["complete"] is True


def test_any_failing_call_leaves_whole_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in range(1, 200):
        path = tmp_path / f"{at}"
        monkeypatch.setattr(atomic, "disk", faulty := Faulty(at, errno.ENOSPC))
        try:
            with LabelMapFolder(path, TABLE) as maps:
                write_one(maps, "city/a.png")
                maps.write_table({"id": ["city/a.jpg"]})
        except ResourceError as error:
            assert str(error).startswith(f"cannot write {path}")  # noqa: PT017
            assert str(error).endswith(": No space left on device")  # noqa: PT017
        monkeypatch.setattr(atomic, "disk", storage.Disk())
        assert not temps(path)
        for picture in path.rglob("*.png"):
            opened(picture.read_bytes())
        if not faulty.fired:
            break
        LabelMapFolder(path, TABLE)
    assert at > 40
    assert not faulty.fired


def test_maps_of_one_picture_have_one_size(tmp_path: Path) -> None:
    with LabelMapFolder(tmp_path, TABLE) as maps, pytest.raises(InputDataError) as caught:
        maps.write("a.png", noise(2, 2, below=3), noise(2, 2), noise(2, 2), noise(2, 3))
    assert str(caught.value) == "maps of a.png: sizes differ: [(2, 2), (2, 2), (2, 2), (2, 3)]"
