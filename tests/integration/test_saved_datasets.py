"""Data sets of Hugging Face on disk, on the command line: what fit, predict, check, review and export make of them."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pyarrow.csv
import pytest

from cli_tables import copied, embasis, fit_without_page, refused, write_tables
from embasis.errors import InputDataError
from embasis.runs.open_review import ReviewOptions, open_review
from image_runs import CLASSES, WORDS, picture
from map_folder_runs import fitted, scene
from map_folder_runs import sides as map_sides
from saved_datasets import IMAGE, class_label, encode_png, image_rows, write_saved

pytestmark = pytest.mark.usefixtures("plain_page")


def done(*words: object) -> str:
    result = embasis(*words)
    assert result.exit_code == 0, result.output
    return result.stdout + result.stderr


def rows_of(path: str) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables as .csv files and as saved data sets, classes as numbers there, and a run on the latter."""
    root = tmp_path_factory.mktemp("tables")
    write_tables(root)
    for name in ("labelled", "judged"):
        rows = pyarrow.csv.read_csv(root / f"{name}.csv")
        classes = sorted({*rows["label"].to_pylist()}, reverse=True)
        numbers = [classes.index(label) for label in rows["label"].to_pylist()]
        rows = rows.set_column(rows.schema.get_field_index("label"), "label", [numbers])
        write_saved(root / f"{name}.saved", rows, {"label": class_label(*classes)}, files=2)
    return fit_without_page(root, root / "labelled.saved", root / "judged.saved", "rounds=1")


@pytest.fixture
def here(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return copied(tables, tmp_path / "here", monkeypatch)


def test_a_run_on_saved_tables_is_that_on_the_same_rows_in_files(here: Path) -> None:
    done("fit", "labelled.csv", "judged.csv", "-o", "other", "rounds=1")
    names = [f"labels/round-{number:03d}.parquet" for number in (0, 1)]
    assert [Path("run", name).read_bytes() == Path("other", name).read_bytes() for name in names] == [True, True]
    assert "run had ended (finished)" in done("fit", "labelled.saved", "judged.saved", "-o", "run", "rounds=1")


@pytest.mark.parametrize("words", [(), ("--part", "2/3"), ("--sort", "uncertainty")])
def test_a_saved_table_is_labelled_as_a_file(here: Path, words: tuple[str, ...]) -> None:
    done("predict", "run", "judged.csv", "-o", "one.csv", *words)
    done("predict", "run", "judged.saved", "-o", "two.csv", *words)
    assert Path("two.csv").read_bytes() == Path("one.csv").read_bytes()


def test_review_shows_the_values_of_a_saved_table(here: Path) -> None:
    review = open_review("run", ReviewOptions("judged.saved"))
    other = open_review("run", ReviewOptions("judged.csv"))
    assert [item.id for item in review.items] == [item.id for item in other.items]
    shown, wanted = review.describe(0), other.describe(0)
    assert [name for name, _ in shown["values"]] == [name for name, _ in wanted["values"]]
    assert shown["values"][0][1] == wanted["values"][0][1]
    assert "label" not in dict(shown["values"])


def test_check_and_fit_refuse_what_cannot_be_a_side(here: Path) -> None:
    assert "note: labelled.saved: 60 rows of 8 features" in done("check", "labelled.saved", "judged.saved")
    path = here / "judged.saved" / "data-00001-of-00002.arrow"
    path.write_bytes(path.read_bytes()[:-9])
    reason = "judged.saved/data-00001-of-00002.arrow: not a readable Arrow file: is cut off or damaged at byte"
    cure = ": a batch of 800 bytes; save the data set again\n"
    for words in (
        ("fit", "labelled.saved", "judged.saved", "-o", "new"),
        ("predict", "run", "judged.saved", "-o", "x.csv"),
    ):
        result = embasis(*words)
        assert result.exit_code == 3
        assert result.stderr.startswith(f"embasis: {reason}")
        assert result.stderr.endswith(cure)
    assert embasis("check", "labelled.saved", "judged.saved").stdout.startswith(f"error: {reason}")
    Path("both").mkdir()
    Path("both/dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    rule = "both: is a data set in 2 splits: 'test', 'train'; name one of them, such as both/train"
    refused(3, rule, "fit", "both", "judged.csv", "-o", "new")
    refused(3, rule, "check", "labelled.csv", "both")
    refused(3, rule, "predict", "run", "both", "-o", "x.csv")


# --- images


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two saved data sets of images, and a run on them."""
    root = tmp_path_factory.mktemp("images")
    labels = [number % 3 for number in range(18)]
    given = image_rows([picture(label, number) for number, label in enumerate(labels)], label=labels)
    write_saved(root / "photos", given, {"image": IMAGE, "label": class_label(*CLASSES)}, files=2)
    other = [picture(label, number, 40) for number, label in enumerate(labels)]
    write_saved(root / "paintings", image_rows([*other, None]), {"image": IMAGE})
    return fit_without_page(root, root / "photos", root / "paintings", "rounds=1", *WORDS)


@pytest.fixture
def gallery(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EMBASIS_CACHE", str(tmp_path / "here" / "cache"))
    return copied(pictures, tmp_path / "here", monkeypatch)


def test_images_of_a_saved_data_set_are_learned_from_and_labelled(gallery: Path) -> None:
    assert "note: photos: 18 of 18 images can be used" in done("check", "photos", "paintings")
    said = done("predict", "run", "paintings", "-o", "labels.csv")
    reason = "row-00000018: has no bytes in the data set, it names 'gone/18.png'"
    assert f"warning: 1 file could not be read and got no label: {reason}\n" in said
    rows = rows_of("labels.csv")
    assert [row["id"] for row in rows] == [f"row-{number:08d}" for number in range(19)]
    assert rows[18]["label"] == ""
    assert {row["label"] for row in rows[:18]} <= {*CLASSES}
    done("predict", "run", "photos", "-o", "known.csv")
    right = [row["label"] == CLASSES[number % 3] for number, row in enumerate(rows_of("known.csv"))]
    assert sum(right) >= 15
    line = next(iter(Path("run/quarantine.jsonl").read_text().splitlines()))
    assert "has no bytes in the data set, it names 'gone/18.png'" in line


def test_review_shows_the_images_and_export_says_why_it_cannot_link_them(gallery: Path) -> None:
    review = open_review("run", ReviewOptions("paintings"))
    assert len(review.items) == 18
    assert review.picture("picture", 0).kind in ("png", "jpeg")
    rule = (
        "paintings: images in a saved data set are no files of their own; export --as csv names the row of each label"
    )
    words = ("export", "run", "-o", "by-class", "--as", "folder", "--images", "paintings")
    refused(3, f"{rule} (row-00000017 is dataset[17])", *words)
    write_saved(gallery / "few", image_rows([picture(0, 0)]), {"image": IMAGE})
    with pytest.raises(InputDataError) as caught:
        open_review("run", ReviewOptions("few"))
    count = "17 of 18 images of the run are not there: 'row-00000001', 'row-00000002', 'row-00000003' and 14 more"
    assert str(caught.value) == f"few: {count}; name the run's UNLABELLED"


def test_a_table_and_images_are_not_mistaken_for_each_other(gallery: Path) -> None:
    write_tables(gallery)
    rows = pyarrow.csv.read_csv("labelled.csv")
    write_saved(gallery / "rows", rows, {})
    rule = "rows: is a table without a column of images, the run labels images"
    refused(3, rule, "predict", "run", "rows", "-o", "x.csv")
    rule = "images and tables cannot be mixed; no folder or list of images: rows"
    refused(3, rule, "fit", "photos", "rows", "-o", "new")
    done("fit", "rows", "unlabelled.csv", "-o", "table-run", "rounds=0")
    rule = "paintings: has images ('image'), where a table is expected"
    refused(3, rule, "predict", "table-run", "paintings", "-o", "x.csv")


def test_pictures_of_a_saved_data_set_get_label_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = map_sides(tmp_path / "maps", 6)
    monkeypatch.chdir(home)
    shutil.rmtree("streets")
    write_saved(
        home / "streets", image_rows([encode_png(scene(number, 25)[0]) for number in range(6)]), {"image": IMAGE}
    )
    fitted(home, home / "run", "rounds=1")
    done("predict", "run", "streets", "-o", "maps")
    assert [row["id"] for row in rows_of("maps/maps.csv")] == [f"row-{number:08d}" for number in range(6)]
    assert len([*Path("maps/labels").iterdir()]) == 6
