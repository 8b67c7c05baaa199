"""Sides in the wrong order are said to look swapped; sides that are wrong in another way are not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from embasis import config
from embasis.errors import InputDataError
from embasis.inputs.load import find_problems, load_problem
from embasis.inputs.swapped import describe_swap
from image_trees import pictures, plant, refusal

CLASSES = ("cat/1.png", "cat/deep/2.png", "dog/1.png", "dog/2.png")
LOOSE = ("1.png", "2.png", "3.png", "more/4.png")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load_as_fit_does(**data: str) -> None:
    load_problem(config.load(data=data))


def test_images_in_no_folder_before_images_in_class_folders_look_swapped() -> None:
    plant(Path("photos"), pictures(CLASSES))
    plant(Path("paintings"), pictures(LOOSE[:3], 100))
    assert refusal(lambda: load_as_fit_does(labelled="paintings", unlabelled="photos")) == (
        "paintings and photos look swapped: photos has its images in 2 folders, paintings has most images in none; "
        "the labelled side comes first (if they are not: paintings: no image lies in a class folder; "
        "expected is <folder>/<class>/<image>, or a list with a column of labels)"
    )


def test_many_images_beside_the_folders_are_not_called_unreadable_first() -> None:
    plant(Path("photos"), pictures(CLASSES))
    plant(Path("paintings"), pictures([*LOOSE, "other/5.png", *(f"{n}.png" for n in range(10, 20))], 100))
    sentence = refusal(lambda: load_as_fit_does(labelled="paintings", unlabelled="photos"))
    assert sentence.startswith(
        "paintings and photos look swapped: photos has its images in 2 folders, paintings has most images in none; "
        "the labelled side comes first (if they are not: 13 of 19 files unreadable (68.4 %), 10 are tolerated; "
    )


def test_the_check_says_it_first_and_lists_the_rest() -> None:
    plant(Path("photos"), pictures(CLASSES))
    plant(Path("paintings"), pictures(["all/1.png", "all/2.png"], 100))
    kind, findings = find_problems({"labelled": "paintings", "unlabelled": "photos"}, 0, False)
    errors = [finding.text for finding in findings if finding.level == "error"]
    assert (kind, errors) == (
        "images",
        [
            "paintings and photos look swapped: photos has its images in 2 folders, "
            "paintings has all its images in one folder; the labelled side comes first",
            "paintings: at least 2 classes are needed, got 1 class: 'all'",
        ],
    )
    assert "paintings: 1 class: 'all' 2" in [finding.text for finding in findings]


def test_tables_look_swapped_where_only_the_second_has_labels() -> None:
    Path("new.csv").write_text("a,b\n1,2\n3,4\n")
    Path("old.csv").write_text("a,b,kind\n1,2,x\n3,4,y\n")
    assert refusal(lambda: load_as_fit_does(labelled="new.csv", unlabelled="old.csv", label="kind")) == (
        "new.csv and old.csv look swapped: old.csv has a column 'kind', new.csv has no column 'kind'; the labelled "
        "side comes first (if they are not: new.csv: no label column 'kind'; columns: 'a', 'b'; --label names another)"
    )
    np.savez("new.npz", x=np.eye(3))
    np.savez("old.npz", x=np.eye(3), y=np.arange(3))
    assert describe_swap("new.npz", "old.npz", "label").startswith("new.npz and old.npz look swapped: ")


@pytest.mark.parametrize(
    ("labelled", "unlabelled"),
    [
        ({"cat/1.png": b""}, dict.fromkeys(LOOSE, b"")),
        (dict.fromkeys(LOOSE, b""), dict.fromkeys(LOOSE, b"")),
        (dict.fromkeys((*CLASSES, "1.png"), b""), dict.fromkeys(CLASSES, b"")),
        (dict.fromkeys(LOOSE, b""), {}),
        ({"a.csv": b"path\n1.png\n"}, dict.fromkeys(LOOSE, b"")),
    ],
)
def test_other_mistakes_do_not_look_swapped(labelled: Mapping[str, bytes], unlabelled: Mapping[str, bytes]) -> None:
    plant(Path("one"), labelled)
    plant(Path("two"), unlabelled)
    assert describe_swap("one", "two", "label") == ""


def test_what_is_not_there_is_refused_as_it_was() -> None:
    plant(Path("photos"), pictures(CLASSES))
    with pytest.raises(InputDataError, match=r"^nothing: no such file$"):
        load_as_fit_does(labelled="nothing", unlabelled="other.csv")
