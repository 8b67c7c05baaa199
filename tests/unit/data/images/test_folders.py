"""Folders and lists of images as problems, and what `embasis check` says of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from embasis.data.images.folders import ImageOptions, check_images, load_images, require_budget
from embasis.data.problem import Finding
from embasis.data.reader import Reader
from embasis.errors import ConfigError, EmbasisWarning
from embasis.types import Preparation, RejectedFile
from image_trees import picture, pictures, plant, refusal

HERE = Reader(0)


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    return plant(tmp_path / "l", pictures(["cat/1.png", "cat/deep/2.png", "dog/1.png", "dog/2.png"]))


@pytest.fixture
def unlabelled(tmp_path: Path) -> Path:
    return plant(tmp_path / "u", pictures(["1.png", "2.png", "x/3.png"], 100))


def by_name(side, values) -> dict[str, int]:
    return dict(zip(side.names, values.tolist(), strict=True))


# Classes


def test_a_class_is_the_first_level_folder_and_images_lie_at_any_depth(labelled, unlabelled):
    problem = load_images(labelled, unlabelled)
    assert problem.schema.names == ("cat", "dog")
    assert by_name(problem.labelled, problem.labelled.labels) == {
        "cat/1.png": 0, "cat/deep/2.png": 0, "dog/1.png": 1, "dog/2.png": 1,
    }  # fmt: skip
    assert (problem.unlabelled.labels == -1).all()
    assert problem.hidden_labels is None
    assert set(problem.row_names) == {"1.png", "2.png", "x/3.png"}
    assert list(problem.row_names) == problem.unlabelled.names
    assert (problem.unlabelled.ids[1:] > problem.unlabelled.ids[:-1]).all()
    assert (problem.rejected, problem.notes) == ((), ())


def test_the_images_of_a_problem_can_be_read(labelled, unlabelled):
    side = load_images(labelled, unlabelled).labelled.prepared(Preparation(16, 1.0), HERE, "light")
    assert side.inputs(torch.arange(4)).shape == (4, 3, 16, 16)


def test_classes_that_are_numbers_are_ordered_by_value(tmp_path, unlabelled):
    plant(tmp_path / "n", pictures(["10/a.png", "9/a.png", "0/a.png"]))
    assert load_images(tmp_path / "n", unlabelled).schema.names == ("0", "9", "10")


def test_other_files_and_folders_change_no_class_number_and_no_id(labelled, unlabelled):
    before = load_images(labelled, unlabelled)
    plant(labelled, pictures(["dog/3.png", ".hidden/a.png", "notes.txt"], 50))
    after = load_images(labelled, unlabelled)
    assert by_name(before.labelled, before.labelled.ids).items() <= by_name(after.labelled, after.labelled.ids).items()
    assert before.schema == after.schema


def test_images_beside_the_class_folders_are_refused(labelled, unlabelled):
    plant(labelled, pictures(["loose.png"], 50))
    problem = load_images(labelled, unlabelled)
    assert problem.rejected == (RejectedFile("loose.png", "lies in no class folder", "scan", "labelled"),)
    assert "loose.png" not in problem.labelled.names


def test_a_labelled_folder_without_class_folders_is_refused(labelled, unlabelled):
    assert refusal(lambda: load_images(unlabelled.parent / "u/x", labelled)) == (
        f"{unlabelled}/x: no image lies in a class folder; "
        "expected is <folder>/<class>/<image>, or a list with a column of labels"
    )


def test_one_class_is_too_few(tmp_path, unlabelled):
    plant(tmp_path / "one", pictures(["cat/1.png", "cat/2.png"]))
    assert refusal(lambda: load_images(tmp_path / "one", unlabelled)) == (
        f"{tmp_path}/one: at least 2 classes are needed, got 1 class: 'cat'"
    )


@pytest.mark.parametrize("content", [{}, {"emu/a.png": b""}, {"emu/read.txt": b"x"}])
def test_an_empty_class_folder_is_refused_unless_it_is_allowed(labelled, unlabelled, content):
    (labelled / "emu").mkdir()
    plant(labelled, content)
    text = f"{labelled}: class folders without a readable image: 'emu'"
    assert refusal(lambda: load_images(labelled, unlabelled)) == (
        f"{text}; remove them, or data.allow_empty_class=true leaves those classes out"
    )
    problem = load_images(labelled, unlabelled, options=ImageOptions(allow_empty_class=True))
    assert problem.schema.names == ("cat", "dog")
    assert f"{text}; these classes do not exist" in problem.notes


# True labels of the unlabelled side


def test_sub_folders_named_like_classes_are_labels_for_scores(labelled, tmp_path):
    root = plant(tmp_path / "u", pictures(["cat/1.png", "emu/2.png", "cat/x/3.png"], 100))
    problem = load_images(labelled, root)
    assert by_name(problem.unlabelled, problem.hidden_labels) == {"cat/1.png": 0, "cat/x/3.png": 0, "emu/2.png": -1}
    assert (problem.unlabelled.labels == -1).all()
    assert problem.notes == (
        f"{root}: sub-folders are named like classes; used for scores only",
        f"{root}: not scored, no class of the labelled side: 'emu'",
        f"{root}: classes without an image: 'dog'",
    )


@pytest.mark.parametrize("names", [["cat/1.png", "2.png"], ["Cat/1.png", "emu/2.png"]])
def test_other_folders_are_no_labels(labelled, tmp_path, names):
    problem = load_images(labelled, plant(tmp_path / "u", pictures(names, 100)))
    assert problem.hidden_labels is None
    assert problem.notes == ()


# Lists


def write_list(path: Path, rows: dict[str, str], header: str = "path,label") -> Path:
    path.write_text("\n".join([header, *(f"{name},{label}" for name, label in rows.items())]) + "\n")
    return path


def test_lists_may_stand_for_folders(labelled, unlabelled):
    first = write_list(labelled / "l.csv", {"cat/1.png": "tom", "dog/1.png": "rex"})
    second = write_list(unlabelled / "u.csv", {"2.png": "rex", "1.png": ""})
    problem = load_images(first, second)
    assert problem.schema.names == ("rex", "tom")
    assert by_name(problem.labelled, problem.labelled.labels) == {"cat/1.png": 1, "dog/1.png": 0}
    assert by_name(problem.unlabelled, problem.hidden_labels) == {"2.png": 0, "1.png": -1}
    assert problem.notes == (
        f"{second}: has labels; used for scores only",
        f"{second}: classes without an image: 'tom'",
    )


def test_a_labelled_list_needs_a_label_in_each_line(labelled, unlabelled):
    path = labelled / "l.csv"
    write_list(path, {"cat/1.png": "1", "dog/1.png": "2"}, "path,kind")
    assert refusal(lambda: load_images(path, unlabelled)) == (
        f"{path}: no label column 'label'; a list of labelled images needs one"
    )
    assert load_images(path, unlabelled, label="kind").schema.names == ("1", "2")
    write_list(path, {"cat/1.png": "1", "dog/1.png": "", "dog/2.png": "2"})
    assert refusal(lambda: load_images(path, unlabelled)) == (f"{path}: 1 of 3 rows have no label (empty, NaN or -1)")


def test_an_unlabelled_list_with_unknown_classes_is_refused_unless_it_is_allowed(labelled, unlabelled):
    path = write_list(unlabelled / "u.csv", {"2.png": "cat", "1.png": "emu"})
    assert refusal(lambda: load_images(labelled, path)) == (
        f"{path}: classes that the labelled side lacks: 'emu'; classes only on the labelled side: 'dog'"
    )
    problem = load_images(labelled, path, options=ImageOptions(allow_missing_class=True))
    assert by_name(problem.unlabelled, problem.hidden_labels) == {"2.png": 0, "1.png": -1}


def test_a_list_that_is_none_and_a_folder_that_is_not_there_are_refused(labelled, unlabelled):
    assert refusal(lambda: load_images(labelled / "no", unlabelled)) == f"{labelled}/no: no such folder"
    path = write_list(unlabelled / "u.csv", {"1": "2"}, "w,h")
    assert refusal(lambda: load_images(labelled, path)) == f"{path}: no column 'path'; columns: 'h', 'w'"


# Test images


def test_test_images_are_matched_by_name(labelled, unlabelled, tmp_path):
    test = plant(tmp_path / "t", pictures(["dog/9.png", "dog/8.png"], 200))
    problem = load_images(labelled, unlabelled, test=test)
    assert problem.test.labels.tolist() == [1, 1]
    assert problem.notes == (f"{test}: classes without a test image, their scores are n/a: 'cat'",)


def test_unknown_classes_of_the_test_images_are_refused_with_both_differences(labelled, unlabelled, tmp_path):
    test = plant(tmp_path / "t", pictures(["dog/9.png", "emu/8.png"], 200))
    assert refusal(lambda: load_images(labelled, unlabelled, test=test)) == (
        f"{test}: classes that the labelled side lacks: 'emu'; classes only on the labelled side: 'cat'"
    )
    problem = load_images(labelled, unlabelled, test=test, options=ImageOptions(allow_missing_class=True))
    assert problem.test.names == ["dog/9.png"]
    assert problem.rejected == (RejectedFile("emu/8.png", "its class is not on the labelled side", "scan", "test"),)
    assert f"{test}: left out, no class of the labelled side: 'emu'" in problem.notes


# The budget of unreadable files


def test_few_unreadable_files_are_listed_and_not_used(labelled, unlabelled):
    plant(labelled, {f"cat/bad{number}.png": b"" for number in range(4)})
    plant(unlabelled, {f"bad{number}.png": b"no" for number in range(6)})
    problem = load_images(labelled, unlabelled)
    assert len(problem.rejected) == 10
    assert {item.reason for item in problem.rejected} == {"the file is empty", "not an image that is read"}
    assert (len(problem.labelled), len(problem.unlabelled)) == (4, 3)


def test_more_than_the_budget_is_refused_with_what_would_do(labelled, unlabelled):
    plant(unlabelled, {f"bad{number:02}.png": b"" for number in range(11)})
    text = refusal(lambda: load_images(labelled, unlabelled))
    assert text == (
        "11 of 18 files unreadable (61.1 %), 10 are tolerated; first: bad00.png (the file is empty), "
        "bad01.png (the file is empty), bad02.png (the file is empty), …; "
        "`embasis check -o FILE` lists all, data.budget=0.6112 (check: --budget) allows more"
    )
    assert len(load_images(labelled, unlabelled, options=ImageOptions(budget=0.6112)).rejected) == 11


@pytest.mark.parametrize(("seen", "budget", "most"), [(100, 0.001, 10), (20_000, 0.001, 20), (50, 1.0, 50), (9, 0, 10)])
def test_the_budget_is_ten_files_or_a_share(seen, budget, most):
    bad = [RejectedFile("a", "b", "read")] * (most + 1)
    require_budget(bad[:most], seen, budget)
    assert refusal(lambda: require_budget(bad, seen, budget)).startswith(f"{most + 1} of {seen:,} files unreadable")


def test_the_budget_is_a_share():
    with pytest.raises(ConfigError) as caught:
        ImageOptions(budget=1.5)
    assert str(caught.value) == "budget must be in [0, 1], got 1.5"


# Leaks


def test_files_on_both_sides_and_twice_on_a_side_are_counted(labelled, unlabelled):
    plant(unlabelled, {"4.png": picture(0), "5.png": picture(1), "6.png": picture(100)})
    assert load_images(labelled, unlabelled).notes == (
        f"{unlabelled}: 1 file repeats the bytes of another; first: 6.png = 1.png",
        f"2 files are byte for byte in {labelled} and in {unlabelled}; first: 4.png = cat/1.png",
    )


def test_labelled_files_among_the_test_images_are_a_warning_or_an_error(labelled, unlabelled, tmp_path):
    test = plant(tmp_path / "t", {"cat/9.png": picture(0), "dog/9.png": picture(100)})
    leak = f"1 file is byte for byte in {labelled} and in {test}; first: cat/9.png = cat/1.png"
    with pytest.warns(EmbasisWarning) as caught:
        problem = load_images(labelled, unlabelled, test=test)
    assert [str(item.message) for item in caught] == [f"{leak}: scores on the test images are too good"]
    assert problem.notes == (
        leak,
        f"1 file is byte for byte in {unlabelled} and in {test}; first: dog/9.png = 1.png",
    )
    strict = ImageOptions(forbid_leakage=True)
    assert refusal(lambda: load_images(labelled, unlabelled, test=test, options=strict)) == (
        f"{leak}; remove them from one side (data.forbid_leakage=true)"
    )


def test_the_labelled_side_given_twice_is_refused(labelled, tmp_path):
    (tmp_path / "again").symlink_to(labelled)
    for path in (labelled, tmp_path / "again"):
        assert refusal(lambda path=path: load_images(labelled, path)) == (
            f"{path}: is the labelled side itself; give the folder or list of the unlabelled images"
        )


def test_a_copy_of_the_labelled_side_is_refused(labelled, tmp_path):
    copy = plant(tmp_path / "copy", {f"{number}.png": picture(number) for number in range(4)})
    sentence = f"{copy}: 4 of 4 files are byte for byte in {labelled} too: this is the labelled side again"
    assert refusal(lambda: load_images(labelled, copy)) == f"{sentence}; give the unlabelled images"
    plant(copy, {"new.png": picture(77)})
    assert len(load_images(labelled, copy).unlabelled) == 5


def test_one_common_file_is_no_copy(labelled, tmp_path):
    one = plant(tmp_path / "one", {"a.png": picture(0)})
    assert len(load_images(labelled, one).unlabelled) == 1


# Checking


def check(labelled: Path, unlabelled: Path, **options: object) -> list[Finding]:
    return check_images(labelled, unlabelled, options=ImageOptions(**options), reader=HERE)


def test_sound_folders_have_notes_only(labelled, unlabelled):
    assert check(labelled, unlabelled) == [
        Finding("note", f"{labelled}: 4 of 4 images can be used"),
        Finding("note", f"{labelled}: 2 classes: 'cat' 2, 'dog' 2"),
        Finding("note", f"{unlabelled}: 3 of 3 images can be used"),
    ]


def test_truncated_images_are_found_by_decoding(labelled, unlabelled):
    whole = picture(300, 200, "JPEG")
    plant(unlabelled, {"cut.jpg": whole[: len(whole) // 2]})
    assert load_images(labelled, unlabelled).rejected == ()
    (finding,) = [finding for finding in check(labelled, unlabelled) if finding.level != "note"]
    assert finding.level == "warning"
    assert finding.text.startswith(f"{unlabelled}: cut.jpg: truncated")


def test_everything_is_found_at_once(labelled, tmp_path):
    plant(
        labelled,
        {"emu/1.png": picture(40, 20), "dog/again.png": picture(0), ".x": b"", "owl/bad.png": b"", "o.png": b"1"},
    )
    plant(labelled, {f"cat/bad{number:02}.png": b"" for number in range(22)})
    root = plant(tmp_path / "u", pictures(["dog/1.png", "yak/2.png"], 100) | {"dog/3.png": picture(1)})
    findings = check(labelled, root)
    texts = {level: [item.text for item in findings if item.level == level] for level in ("error", "warning", "note")}
    assert texts["error"] == [
        f"{labelled}: class folders without a readable image: 'owl'; "
        "remove them, or data.allow_empty_class=true leaves those classes out",
        "24 of 33 files unreadable (72.7 %), 10 are tolerated; first: cat/bad00.png (the file is empty), "
        "cat/bad01.png (the file is empty), cat/bad02.png (the file is empty), …; "
        "`embasis check -o FILE` lists all, data.budget=0.7273 (check: --budget) allows more",
    ]
    assert texts["warning"][:20] == [f"{labelled}: cat/bad{number:02}.png: the file is empty" for number in range(20)]
    assert texts["warning"][20:] == [
        f"{labelled}: and 4 more unreadable files",
        f"{labelled}: classes with under 2 images: 'emu'",
        f"{labelled}: 1 file is in two classes at once; first: dog/again.png = cat/1.png",
        f"{root}: not scored, no class of the labelled side: 'yak'",
        f"1 file is byte for byte in {labelled} and in {root}; first: dog/3.png = cat/deep/2.png",
    ]
    assert texts["note"] == [
        f"{labelled}: 6 of 30 images can be used",
        f"{labelled}: 1 hidden or system entry is ignored: '.x'",
        f"{labelled}: 1 image has a short side under 32 pixels; first: emu/1.png",
        f"{labelled}: 1 file repeats the bytes of another; first: dog/again.png = cat/1.png",
        f"{labelled}: 3 classes: 'cat' 2, 'dog' 3, 'emu' 1",
        f"{root}: 3 of 3 images can be used",
        f"{root}: sub-folders are named like classes; used for scores only",
        f"{root}: classes without an image: 'cat', 'emu'",
        f"{root}: 'cat' 0, 'dog' 2, 'emu' 0",
    ]


def test_class_sets_without_a_common_name_are_noted_and_a_different_case_is_a_warning(labelled, tmp_path):
    other = plant(tmp_path / "u", pictures(["emu/1.png", "yak/2.png"], 100))
    text = "sub-folders are named like no class of the labelled side, so are no labels"
    assert check(labelled, other)[-1] == Finding("note", f"{other}: {text}: 'emu', 'yak'")
    upper = plant(tmp_path / "v", pictures(["Cat/1.png", "Dog/2.png"], 100))
    assert check(labelled, upper)[0] == Finding(
        "warning", f"{upper}: {text}: 'Cat', 'Dog'; upper and lower case matter"
    )


def test_a_file_in_two_classes_is_said_by_loading_too(labelled, unlabelled):
    plant(labelled, {"dog/again.png": picture(0)})
    text = f"{labelled}: 1 file is in two classes at once; first: dog/again.png = cat/1.png"
    assert text in load_images(labelled, unlabelled).notes


def test_a_check_goes_on_when_a_side_is_missing(labelled, tmp_path):
    findings = check(labelled, tmp_path / "no")
    assert findings[0] == Finding("error", f"{tmp_path}/no: no such folder")
    assert Finding("note", f"{labelled}: 4 of 4 images can be used") in findings
    assert [item.level for item in check(tmp_path / "no", tmp_path / "none")] == ["error", "error"]


def test_a_check_finds_the_labelled_side_given_twice(labelled, tmp_path):
    copy = plant(tmp_path / "copy", {f"{number}.png": picture(number) for number in range(4)})
    for path, words in ((labelled, "is the labelled side itself"), (copy, "this is the labelled side again")):
        errors = [item.text for item in check(labelled, path) if item.level == "error"]
        assert len(errors) == 1
        assert words in errors[0]
        assert [item for item in check(labelled, path) if item.level == "warning"] == []


def test_a_check_of_lists_knows_unknown_classes(labelled, unlabelled):
    path = write_list(unlabelled / "u.csv", {"2.png": "cat", "1.png": "emu"})
    errors = [item.text for item in check(labelled, path) if item.level == "error"]
    assert errors == [f"{path}: classes that the labelled side lacks: 'emu'; classes only on the labelled side: 'dog'"]
    assert [item for item in check(labelled, path, allow_missing_class=True) if item.level == "error"] == []
