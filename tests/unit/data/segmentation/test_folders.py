"""Folders of pictures and label maps as problems, and what `embasis check` says of them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from embasis.data.images.folders import ImageOptions
from embasis.data.images.scan import scan_folder
from embasis.data.problem import Finding
from embasis.data.reader import Reader
from embasis.data.segmentation.folders import (
    MapFolders,
    PairedSide,
    check_maps,
    load_maps,
    make_map_problem,
)
from embasis.data.segmentation.pairs import MapFile, are_map_folders, is_map_folder
from embasis.errors import EmbasisWarning
from embasis.types import ClassTable, RejectedFile
from image_trees import picture, pictures, plant, refusal
from map_trees import NAMES, TOML, folder, grid, ids, saved, scenes

HERE = Reader(0)
LENIENT = ImageOptions(allow_missing_class=True)


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    return folder(tmp_path / "l", scenes(4))


@pytest.fixture
def unlabelled(tmp_path: Path) -> Path:
    return plant(tmp_path / "u", pictures(["a.png", "deep/b.png", "c.png"], 100))


def errors(labelled: Path, unlabelled: Path, test: Path | None = None, **options: object) -> list[str]:
    findings = check_maps(MapFolders(labelled, unlabelled, test), options=ImageOptions(**options), reader=HERE)
    return [item.text for item in findings if item.level == "error"]


def signed(number: int) -> torch.Tensor:
    values = torch.from_numpy(grid(number)).long()
    return torch.where(values == 255, -1, values)


# Folders as problems


def test_pictures_and_maps_become_a_problem(labelled, unlabelled):
    problem = load_maps(MapFolders(labelled, unlabelled))
    assert problem.schema.names == NAMES
    assert sorted(problem.labelled.names) == ["0.png", "1.png", "2.png", "3.png"]
    assert sorted(problem.row_names) == ["a.png", "c.png", "deep/b.png"]
    assert list(problem.row_names) == problem.unlabelled.names
    assert (problem.unlabelled.labels == -1).all()
    assert (problem.hidden_labels, problem.test, problem.rejected, problem.notes) == (None, None, (), ())
    assert problem.labelled.sizes.tolist() == [[40, 40]] * 4
    for row, name in enumerate(problem.labelled.names):
        assert torch.equal(problem.labelled.truth[row], signed(int(name[0])))


def test_counts_and_labels_come_from_the_maps(labelled, unlabelled):
    side = load_maps(MapFolders(labelled, unlabelled)).labelled
    every = torch.cat([signed(number).reshape(-1) for number in range(4)])
    assert torch.equal(side.counts(3), torch.bincount(every[every >= 0], minlength=3))
    for name, label in zip(side.names, side.labels.tolist(), strict=True):
        truth = signed(int(name[0]))
        assert (truth == label).sum() == max((truth == number).sum() for number in range(3))


def test_maps_lie_at_the_same_depth_as_their_pictures(tmp_path, unlabelled):
    root = folder(tmp_path / "l", {**scenes(2), **scenes(2, 2, below="city/x/")})
    assert sorted(load_maps(MapFolders(root, unlabelled)).labelled.names) == [
        "0.png",
        "1.png",
        "city/x/2.png",
        "city/x/3.png",
    ]


def test_pictures_may_have_another_format_than_their_maps(labelled, unlabelled):
    plant(labelled, {"images/9.jpg": picture(9, 40, "JPEG"), "labels/9.png": saved(grid(9))})
    assert "9.jpg" in load_maps(MapFolders(labelled, unlabelled)).labelled.names


def test_a_picture_that_is_turned_upright_fits_its_upright_map(labelled, unlabelled):
    exif, stream = Image.Exif(), io.BytesIO()
    exif[0x0112] = 6
    Image.open(io.BytesIO(picture(9))).resize((80, 40)).save(stream, "JPEG", exif=exif)
    plant(labelled, {"images/t.jpg": stream.getvalue(), "labels/t.png": saved(np.ones((80, 40), np.uint8))})
    side = load_maps(MapFolders(labelled, unlabelled)).labelled
    assert side.sizes[side.names.index("t.jpg")].tolist() == [80, 40]


def test_maps_beside_the_unlabelled_images_are_for_scores_only(labelled, tmp_path):
    root = folder(tmp_path / "u", scenes(2, 50), toml=None)
    problem = load_maps(MapFolders(labelled, root))
    assert (problem.unlabelled.labels == -1).all()
    assert len(problem.hidden_labels) == 2
    for row, name in enumerate(problem.row_names):
        assert torch.equal(problem.hidden_labels[row], signed(int(name[:2])))
    assert problem.notes == (f"{root}: has labels/; used for scores only",)


def test_unlabelled_images_may_have_maps_in_part(labelled, tmp_path):
    root = plant(tmp_path / "u", scenes(2, 50) | {"images/x.png": picture(70), "labels/y.png": saved(grid(1))})
    plant(root, {"images/z.png": picture(71), "labels/z.png": b""})
    problem = load_maps(MapFolders(labelled, root))
    assert (problem.hidden_labels[list(problem.row_names).index("x.png")] == -1).all()
    assert problem.notes == (
        f"{root}: has labels/; used for scores only",
        f"{root}: 1 picture without a label map, not scored: images/x.png",
        f"{root}: 1 label map without a picture: labels/y.png",
    )
    assert problem.rejected == (RejectedFile("labels/z.png", "the file is empty", "scan", "unlabelled"),)


def test_what_lies_beside_images_is_said(labelled, tmp_path):
    root = plant(tmp_path / "u", scenes(1, 50, maps=False) | pictures(["depth/1.png", "p.png"], 80))
    problem = load_maps(MapFolders(labelled, root))
    assert list(problem.row_names) == ["50.png"]
    assert problem.notes == (f"{root}: beside images/ and labels/, not read: 'depth/', 'p.png'",)


# Classes


def test_without_a_classes_file_numbers_are_classes(tmp_path, unlabelled):
    root = folder(tmp_path / "l", scenes(2), toml=None)
    problem = load_maps(MapFolders(root, unlabelled))
    assert problem.schema.names == ("0", "1", "2")
    assert problem.notes == (f"{root}: no classes.toml; the 3 classes are called by their numbers 0–2; 255 is ignored",)


def test_a_palette_gives_the_colours_of_numbers(tmp_path, unlabelled):
    palette = [9, 9, 9, 50, 60, 70, 1, 2, 3] + [7] * 759
    root = plant(tmp_path / "l", {"images/a.png": picture(0), "labels/a.png": saved(grid(0), palette=palette)})
    assert load_maps(MapFolders(root, unlabelled)).labelled.table.colours == ((9, 9, 9), (50, 60, 70), (1, 2, 3))


COLOURS = np.array([[128, 64, 128], [0, 128, 0], [0, 0, 255]], np.uint8)


def painted(number: int) -> bytes:
    values = grid(number)
    pixels = np.zeros((40, 40, 4), np.uint8)
    pixels[..., :3], pixels[..., 3] = COLOURS[values % 3], np.where(values == 255, 0, 255)
    return saved(pixels)


def test_colour_coded_maps_need_a_classes_file(tmp_path, unlabelled):
    root = plant(tmp_path / "l", {"images/a.png": picture(0), "labels/a.png": painted(0)})
    assert refusal(lambda: load_maps(MapFolders(root, unlabelled))).startswith(
        f"{root}: label maps are coded by colours, and no classes.toml says which is which; 3 colours: #"
    )
    given = tmp_path / "mine.toml"
    lines = [f'[[class]]\nname = "{name}"\ncolour = {COLOURS[place].tolist()}' for place, name in enumerate(NAMES)]
    given.write_text("\n".join(lines))
    problem = load_maps(MapFolders(root, unlabelled, classes=given))
    assert problem.schema.names == NAMES
    assert torch.equal(problem.labelled.truth[0], signed(0))


def test_one_classes_file_serves_a_side_of_numbers_and_a_side_of_colours(labelled, tmp_path):
    colours = [f"colour = {colour.tolist()}" for colour in COLOURS]
    toml = TOML
    for place, line in enumerate(colours):
        toml = toml.replace(f"id = {place}\n", f"id = {place}\n{line}\n")
    (labelled / "classes.toml").write_text(toml)
    root = plant(tmp_path / "u", {"images/50.png": picture(50), "labels/50.png": painted(50)})
    problem = load_maps(MapFolders(labelled, root))
    assert torch.equal(problem.hidden_labels[0], signed(50))


OTHER = """
[[class]]
name = "sky"
id = 10
[[class]]
name = "road"
id = 11
[[class]]
name = "boat"
id = 12
"""


def test_classes_are_matched_by_name(labelled, tmp_path):
    content = {"images/a.png": picture(50), "labels/a.png": saved(ids("10 11", "12 255").repeat(20, 0).repeat(20, 1))}
    root = folder(tmp_path / "t", content, OTHER)
    problem = load_maps(MapFolders(labelled, root))
    assert problem.hidden_labels[0][::20, ::20].tolist() == [[2, 0], [-1, -1]]
    assert problem.notes == (
        f"{root}: has labels/; used for scores only",
        f"{root}: not scored, no class of the labelled side: 'boat'",
        f"{root}: classes without a pixel: 'tree'",
    )


def test_unknown_classes_of_the_test_side_are_refused_with_both_differences(labelled, unlabelled, tmp_path):
    content = {"images/a.png": picture(50), "labels/a.png": saved(ids("10 11", "12 255").repeat(20, 0).repeat(20, 1))}
    root = folder(tmp_path / "t", content, OTHER)
    text = f"{root}: classes that the labelled side lacks: 'boat'; classes only on the labelled side: 'tree'"
    assert refusal(lambda: load_maps(MapFolders(labelled, unlabelled, test=root))) == (
        f"{text}; data.allow_missing_class=true leaves their pixels out"
    )
    problem = load_maps(MapFolders(labelled, unlabelled, test=root), options=LENIENT)
    assert problem.test.truth[0][::20, ::20].tolist() == [[2, 0], [-1, -1]]
    assert problem.notes == (
        f"{text}; left out",
        f"{root}: classes without a test pixel, their scores are n/a: 'tree'",
    )


def test_numbers_of_the_test_side_alone_are_classes_of_their_own(tmp_path, unlabelled):
    root = folder(tmp_path / "l", scenes(2), toml=None)
    test = plant(tmp_path / "t", {"images/a.png": picture(60), "labels/a.png": saved(grid(5, classes=3) % 9 + 1)})
    assert refusal(lambda: load_maps(MapFolders(root, unlabelled, test=test))) == (
        f"{test}: classes that the labelled side lacks: '3', '4'; data.allow_missing_class=true leaves their pixels out"
    )


def test_a_class_without_a_pixel_is_refused_unless_it_is_allowed(labelled, unlabelled):
    (labelled / "classes.toml").write_text(TOML + '[[class]]\nname = "boat"\nid = 9\n')
    text = f"{labelled}: classes without a labelled pixel: 'boat'"
    assert refusal(lambda: load_maps(MapFolders(labelled, unlabelled))) == (
        f"{text}; remove them from classes.toml, or data.allow_missing_class=true goes on without them"
    )
    problem = load_maps(MapFolders(labelled, unlabelled), options=LENIENT)
    assert problem.notes == (f"{text}; their scores are n/a",)
    assert problem.labelled.counts(4)[3] == 0


def test_pixels_of_one_class_are_too_few(tmp_path, unlabelled):
    content = {"images/a.png": picture(0), "labels/a.png": saved(np.zeros((40, 40), np.uint8))}
    assert refusal(lambda: load_maps(MapFolders(folder(tmp_path / "l", content), unlabelled), options=LENIENT)) == (
        f"{tmp_path}/l: pixels of at least 2 classes are needed, got 1 class: 'road'"
    )
    assert refusal(lambda: load_maps(MapFolders(plant(tmp_path / "m", content), unlabelled))) == (
        f"{tmp_path}/m: at least 2 classes are needed, got 1 class: '0'; 255 is ignored"
    )


# What is wrong with maps


def test_unknown_ids_are_said_before_training_with_files_and_pixels(labelled, unlabelled):
    strange = grid(1)
    strange[:10, :10], strange[0, 0] = 37, 40
    plant(labelled, {"labels/1.png": saved(strange), "labels/3.png": saved(np.where(grid(3) == 0, 37, grid(3)))})
    pixels = 99 + int((grid(3) == 0).sum())
    assert refusal(lambda: load_maps(MapFolders(labelled, unlabelled))) == (
        f"{labelled}: unknown ids {{37: 2 files, {pixels} px, 40: 1 file, 1 px}}; "
        "allowed 0–2, ignore 255; first: labels/1.png; "
        "name them in classes.toml, or ignore them there: in ignore = […], or by others = true"
    )
    (labelled / "classes.toml").write_text("others = true\n" + TOML)
    assert len(load_maps(MapFolders(labelled, unlabelled)).labelled) == 4


def test_missing_and_extra_maps_are_both_listed(labelled, unlabelled):
    plant(labelled, {"images/x.jpg": picture(60), "images/y.png": picture(61), "labels/z.png": saved(grid(0))})
    assert refusal(lambda: load_maps(MapFolders(labelled, unlabelled))) == (
        f"{labelled}: 2 pictures without a label map: images/x.jpg, images/y.png; "
        "1 label map without a picture: labels/z.png; "
        "a map has the name of its picture, as labels/x.png for images/x.jpg"
    )


def test_pictures_that_share_a_map_are_refused(labelled, unlabelled):
    plant(labelled, {"images/1.jpg": picture(60, 40, "JPEG")})
    assert refusal(lambda: load_maps(MapFolders(labelled, unlabelled))) == (
        f"{labelled}: pictures that share a name but for the ending, so one map: images/1.jpg, images/1.png"
    )


def test_a_map_of_another_size_is_refused(labelled, unlabelled):
    plant(labelled, {"labels/2.png": saved(grid(2)[:20])})
    assert refusal(lambda: load_maps(MapFolders(labelled, unlabelled))) == (
        f"{labelled}: 1 label map of another size than the picture: labels/2.png (40×20, its picture 40×40)"
    )


def test_jpeg_and_colour_maps_are_refused(labelled, unlabelled):
    (labelled / "labels/1.png").unlink()
    plant(labelled, {"labels/1.jpg": saved(grid(1), "JPEG"), "labels/2.png": painted(2)})
    assert refusal(lambda: load_maps(MapFolders(labelled, unlabelled))) == (
        f"{labelled}: 2 label maps of the wrong kind: "
        "labels/1.jpg (is a JPEG: its numbers are not exact; save label maps as PNG), "
        "labels/2.png (is 8-bit RGBA: numbers are expected, as 8-bit grey or palette)"
    )


def test_a_broken_map_is_refused_with_its_picture(labelled, unlabelled):
    whole = saved(np.random.default_rng(0).integers(0, 3, (40, 40), dtype=np.uint8))
    plant(labelled, {"labels/1.png": b"", "labels/2.png": whole[:-40], "images/3.png": b"no"})
    problem = load_maps(MapFolders(labelled, unlabelled))
    assert problem.labelled.names == ["0.png"]
    assert problem.rejected == (
        RejectedFile("3.png", "not an image that is read", "scan", "labelled"),
        RejectedFile("1.png", "its label map: the file is empty", "scan", "labelled"),
        RejectedFile("2.png", "its label map: truncated PNG", "read", "labelled"),
    )


def test_broken_maps_have_a_budget(tmp_path, unlabelled):
    root = folder(tmp_path / "l", scenes(15))
    plant(root, {f"labels/{number}.png": b"" for number in range(11)})
    assert refusal(lambda: load_maps(MapFolders(root, unlabelled))).startswith(
        "11 of 18 files unreadable (61.1 %), 10 are tolerated; first: 0.png (its label map: the file is empty), "
    )
    assert len(load_maps(MapFolders(root, unlabelled), options=ImageOptions(budget=0.7)).labelled) == 4


def test_a_map_that_says_nothing_is_left_out(labelled, unlabelled):
    plant(labelled, {"labels/1.png": saved(np.full((40, 40), 255, np.uint8))})
    problem = load_maps(MapFolders(labelled, unlabelled), options=ImageOptions(budget=0))
    assert sorted(problem.labelled.names) == ["0.png", "2.png", "3.png"]
    assert problem.rejected == (RejectedFile("1.png", "its label map has no labelled pixel", "read", "labelled"),)
    assert problem.notes == (f"{labelled}: 1 picture left out, the map has no labelled pixel: images/1.png",)


def test_maps_that_all_say_nothing_are_refused(tmp_path, unlabelled):
    content = {"images/a.png": picture(0), "labels/a.png": saved(np.full((40, 40), 255, np.uint8))}
    assert refusal(lambda: load_maps(MapFolders(folder(tmp_path / "l", content), unlabelled))) == (
        f"{tmp_path}/l: no label map that can be used has a labelled pixel"
    )


def test_wrong_maps_of_the_unlabelled_side_say_how_to_go_without(labelled, tmp_path):
    root = plant(tmp_path / "u", scenes(2, 50) | {"labels/50.png": saved(np.full((40, 40), 9, np.uint8))})
    text = refusal(lambda: load_maps(MapFolders(labelled, root)))
    assert text.startswith(
        f"{root}: unknown ids {{9: 1 file, 1,600 px}}; allowed 0–2, ignore 255; first: labels/50.png; "
    )
    assert text.endswith("; or rename labels/ there, which is used for scores only")


def test_a_second_problem_is_announced(labelled, unlabelled):
    plant(labelled, {"labels/2.png": saved(grid(2)[:20]), "labels/9.png": saved(grid(9))})
    assert refusal(lambda: load_maps(MapFolders(labelled, unlabelled))).endswith(
        " (1 more problem: `embasis check` lists all)"
    )


# Leaks


def test_a_copy_of_the_labelled_side_is_refused(labelled):
    assert refusal(lambda: load_maps(MapFolders(labelled, labelled))).startswith(
        f"{labelled}: is the labelled side itself"
    )
    assert refusal(lambda: load_maps(MapFolders(labelled, labelled / "images"))) == (
        f"{labelled}/images: 4 of 4 files are byte for byte in {labelled}/images too: "
        "this is the labelled side again; give the unlabelled images"
    )


def test_labelled_pictures_among_the_test_pictures_are_a_warning(labelled, unlabelled, tmp_path):
    test = plant(tmp_path / "t", scenes(2, 3))
    with pytest.warns(EmbasisWarning, match="scores on the test images are too good"):
        problem = load_maps(MapFolders(labelled, unlabelled, test=test))
    leak = f"1 file is byte for byte in {labelled}/images and in {test}/images; first: 3.png = 3.png"
    assert problem.notes == (leak,)
    assert len(problem.test) == 2


# Which kind of folder


def test_a_map_folder_is_known_by_its_maps(labelled, unlabelled, tmp_path):
    assert is_map_folder(labelled)
    assert not is_map_folder(unlabelled)
    assert not is_map_folder(tmp_path / "no")
    assert not is_map_folder(plant(tmp_path / "c", pictures(["cat/1.png", "dog/1.png"])))
    assert not is_map_folder(plant(tmp_path / "i", scenes(2, maps=False)))


def test_classes_called_images_and_labels_are_no_map_folder(tmp_path):
    noise = [np.random.default_rng(number).integers(0, 256, (40, 40, 3), dtype=np.uint8) for number in range(2)]
    photos = {f"{name}/{number}.png": saved(noise[number]) for name in ("images", "labels") for number in range(2)}
    assert not is_map_folder(plant(tmp_path / "p", photos))
    jpegs = {"images/1.jpg": picture(0, 40, "JPEG"), "labels/1.jpg": picture(1, 50, "JPEG")}
    assert not is_map_folder(plant(tmp_path / "j", jpegs))


def test_wrong_maps_are_still_maps(tmp_path):
    assert is_map_folder(plant(tmp_path / "a", {"images/1.png": picture(0), "labels/1.png": painted(0)}))
    assert is_map_folder(plant(tmp_path / "b", {"images/1.png": picture(0), "labels/1.jpg": saved(grid(0), "JPEG")}))
    assert is_map_folder(plant(tmp_path / "c", {"images/1.png": picture(0), "labels/1.png": saved(grid(0)[:20])}))


def test_folders_of_two_kinds_are_refused(labelled, unlabelled, tmp_path):
    classes = plant(tmp_path / "c", pictures(["cat/1.png", "dog/1.png"]))
    assert are_map_folders(labelled, unlabelled)
    assert not are_map_folders(classes, unlabelled, classes)
    assert refusal(lambda: are_map_folders(labelled, unlabelled, classes)) == (
        f"{classes}: no label maps of the pictures in images/; {labelled} has label maps in labels/, "
        "so the test side needs images/ and labels/, too"
    )
    mixed = "a folder with label maps cannot be used with one of class folders; swapped?"
    for sides in ((classes, labelled), (classes, unlabelled, labelled)):
        assert refusal(lambda sides=sides: are_map_folders(*sides)) == (
            f"{labelled}: has pictures in images/ and label maps in labels/, but {classes} has none: {mixed}"
        )


def test_maps_of_which_none_has_the_name_of_a_picture_are_no_classes(tmp_path, unlabelled):
    content = {"images/1.jpg": picture(0, 40, "JPEG"), "labels/1_ids.png": saved(grid(0))}
    root = plant(tmp_path / "l", content)
    assert refusal(lambda: are_map_folders(root, unlabelled)) == (
        f"{root}: no label map has the name of a picture; expected is the same name, "
        "as labels/1.png for images/1.jpg; there is labels/1_ids.png"
    )
    assert not are_map_folders(plant(tmp_path / "c", content | pictures(["cat/1.png"])), unlabelled)


def test_a_labelled_folder_without_labels_is_refused(tmp_path, unlabelled):
    assert refusal(lambda: load_maps(MapFolders(plant(tmp_path / "i", scenes(1, maps=False)), unlabelled))) == (
        f"{tmp_path}/i: no folder labels/; expected are images/ and labels/"
    )
    assert refusal(lambda: load_maps(MapFolders(tmp_path / "no", unlabelled))) == f"{tmp_path}/no: no such folder"


# Checking


def test_sound_folders_have_notes_only(labelled, unlabelled):
    counts = load_maps(MapFolders(labelled, unlabelled)).labelled.counts(3).tolist()
    road, tree, sky = (f"{count:,} px" for count in counts)
    assert check_maps(MapFolders(labelled, unlabelled), options=ImageOptions(), reader=HERE) == [
        Finding("note", f"{labelled}/images: 4 of 4 images can be used"),
        Finding("note", f"{unlabelled}: 3 of 3 images can be used"),
        Finding("note", f"{labelled}: 3 classes: 'road' {road}, 'tree' {tree}, 'sky' {sky}"),
    ]


def test_everything_is_found_at_once(labelled, tmp_path):
    whole = picture(60, 40)
    plant(labelled, {
        "images/cut.png": whole[:-60], "labels/cut.png": saved(grid(1)), "labels/0.png": saved(grid(0)[:20]),
        "labels/1.png": saved(np.where(grid(1) == 0, 9, grid(1))), "labels/2.png": painted(2),
        "labels/extra.png": saved(grid(4)), "images/5.png": picture(5), "labels/5.png": b"",
    })  # fmt: skip
    (labelled / "classes.toml").write_text(TOML + '[[class]]\nname = "boat"\nid = 8\n')
    found = check_maps(MapFolders(labelled, tmp_path / "no"), options=ImageOptions(), reader=HERE)
    texts = [item.text for item in found if item.level == "error"]
    starts = (
        f"{tmp_path}/no: no such folder",
        f"{labelled}: 1 label map without a picture: labels/extra.png",
        f"{labelled}: 1 label map of the wrong kind: labels/2.png",
        f"{labelled}: 1 label map of another size than the picture: labels/0.png",
        f"{labelled}: unknown ids {{9: 1 file",
        f"{labelled}: classes without a labelled pixel: 'boat'",
    )
    assert len(texts) == len(starts)
    for text, start in zip(texts, starts, strict=True):
        assert text.startswith(start)
    warnings = [item.text for item in found if item.level == "warning"]
    assert warnings[0] == f"{labelled}/images: 5.png: its label map: the file is empty"
    assert warnings[1].startswith(f"{labelled}/images: cut.png: ")


def test_a_check_knows_the_test_side_and_copies(labelled, tmp_path):
    test = folder(tmp_path / "t", scenes(1, 70), OTHER)
    (found,) = errors(labelled, plant(tmp_path / "u", scenes(1, 80)), test)[1:]
    assert found.startswith(f"{test}: classes that the labelled side lacks: 'boat'")
    copy = plant(tmp_path / "copy", {f"{number}.png": picture(number) for number in range(4)})
    (found,) = errors(labelled, copy)
    assert "this is the labelled side again" in found


def test_a_check_warns_of_unreadable_maps_beyond_the_budget(tmp_path, unlabelled):
    root = folder(tmp_path / "l", scenes(15))
    plant(root, {f"labels/{number}.png": b"" for number in range(11)})
    (found,) = errors(root, unlabelled)
    assert found.startswith("11 of 18 files unreadable (61.1 %), 10 are tolerated")
    assert errors(root, unlabelled, budget=0.7) == []


def test_a_check_lists_maps_that_cannot_be_read(labelled, tmp_path):
    whole = saved(np.random.default_rng(0).integers(0, 3, (40, 40), dtype=np.uint8))
    plant(labelled, {"labels/1.png": whole[:-40]})
    root = plant(tmp_path / "u", scenes(3, 50) | {"labels/50.png": b"", "labels/51.png": whole[:-40]})
    found = check_maps(MapFolders(labelled, root), options=ImageOptions(), reader=HERE)
    assert [item.text for item in found if item.level != "note"] == [
        f"{labelled}/images: 1.png: its label map: truncated PNG",
        f"{root}: labels/50.png: the file is empty",
        f"{root}: labels/51.png: truncated PNG",
    ]
    assert Finding("note", f"{labelled}/images: 3 of 4 images can be used") in found


# Files that are paired already


def files(root: Path) -> list[MapFile]:
    maps = {file.name: file for file in scan_folder(root / "labels").files}
    return [MapFile(file, maps.get(file.name), file.size) for file in scan_folder(root / "images").files]


TABLE = ClassTable(NAMES, ((0,), (1,), (2,)))


def paired(content: list[MapFile], table: ClassTable = TABLE, **more: Any) -> PairedSide:
    return PairedSide("any name", tuple(content), table, **more)


def test_paired_files_are_a_problem(labelled, tmp_path):
    other, ids_of_test = plant(tmp_path / "u", scenes(2, 50)), ClassTable(NAMES, ((10,), (11,), (12,)))
    test = plant(tmp_path / "t", {"images/a.png": picture(90), "labels/a.png": saved((grid(9) % 3) + 10)})
    note, lost = "of the scan", RejectedFile("x", "y", "scan")
    problem = make_map_problem(
        paired(files(labelled), rejected=(lost,), notes=(note,)), paired(files(other)), paired(files(test), ids_of_test)
    )
    named = RejectedFile("x", "y", "scan", "labelled")
    assert (problem.schema.names, problem.rejected, problem.notes) == (NAMES, (named,), (note,))
    assert torch.equal(problem.test.truth[0], torch.from_numpy(grid(9) % 3).long())
    for row, name in enumerate(problem.row_names):
        assert torch.equal(problem.hidden_labels[row], signed(int(name[:2])))


def test_paired_files_are_checked(labelled, unlabelled):
    plain = [MapFile(file, None, file.size) for file in scan_folder(unlabelled).files]
    known = paired(files(labelled))
    assert make_map_problem(known, paired(plain)).hidden_labels is None
    strict = ClassTable(NAMES[:2], ((0,), (1,)))
    assert refusal(lambda: make_map_problem(paired(files(labelled), strict), paired(plain, strict))).startswith(
        "labelled: unknown ids {2: 4 files, "
    )
    wide = ClassTable((*NAMES, "boat"), ((0,), (1,), (2,), (9,)))
    assert make_map_problem(paired(files(labelled), wide), paired(plain, wide)).notes == (
        "labelled: classes without a labelled pixel, their scores are n/a: 'boat'",
    )
    for sides in ((paired(plain), paired([], wide)), (paired(plain, wide), None)):
        assert refusal(lambda sides=sides: make_map_problem(known, *sides)) == (
            "tables must have the same classes, got ['road', 'tree', 'sky'] and ['road', 'tree', 'sky', 'boat']"
        )
    assert refusal(lambda: make_map_problem(paired(plain), paired(plain))).startswith(
        "labelled: 3 pictures without a label map"
    )


def test_label_maps_in_a_folder_of_another_name_are_no_class(labelled, unlabelled):
    (labelled / "labels").rename(labelled / "label")
    assert refusal(lambda: are_map_folders(labelled, unlabelled)) == (
        f"{labelled}: label maps are expected in labels/, there is label/; rename it to labels"
    )


def test_a_classes_file_without_pictures_and_maps_is_no_class_tree(tmp_path, unlabelled):
    tree = folder(tmp_path / "t", pictures(["cat/1.png", "dog/1.png"]))
    assert refusal(lambda: are_map_folders(tree, unlabelled)) == (
        f"{tree}: has a classes.toml, so pictures are expected in images/ and their label maps in labels/; "
        "there is neither"
    )


def test_the_labelled_sides_own_maps_are_not_the_unlabelled_side(labelled):
    inside = labelled / "labels"
    assert refusal(lambda: are_map_folders(labelled, inside)) == (
        f"{inside}: lies in {labelled}; give the folder of the unlabelled pictures"
    )


def test_a_picture_that_cannot_be_decoded_is_left_out_before_training(labelled, unlabelled):
    whole = picture(7, 40, "JPEG")
    (unlabelled / "cut.jpg").write_bytes(whole[:-40])
    kept = load_maps(MapFolders(labelled, unlabelled), reader=HERE)
    assert len(kept.unlabelled) == 3
    assert [(item.name, item.side) for item in kept.rejected] == [("cut.jpg", "unlabelled")]
    assert (
        len(load_maps(MapFolders(labelled, unlabelled)).unlabelled) == 4
    )  # without a reader only headers are looked at
