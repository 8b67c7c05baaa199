"""Data sets of Hugging Face on disk: the kept miniatures always, freshly saved ones where that library is installed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from embasis.data import saved_dataset
from embasis.data.images.pixels import decode
from embasis.data.images.saved_images import scan_saved_images
from embasis.data.images.sides import scan_labelled, scan_side
from embasis.data.saved_dataset import find_saved_dataset, list_saved_cells
from embasis.data.table_pair import TableColumns, check_pair, load_pair
from embasis.data.table_shards import read_any_table
from embasis.errors import InputDataError
from saved_datasets import (
    AGES,
    CLASSES,
    IMAGE,
    KEPT,
    TOWNS,
    class_label,
    colours,
    encode_png,
    image_rows,
    make_by_library,
    write_saved,
)

NAMES = ["calm", "busy", "busy", "calm", "", "busy"]


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(InputDataError) as caught:
        call()
    return str(caught.value)


def check_table(folder: Path) -> None:
    table, shards = read_any_table(folder / "train")
    assert shards == ()
    assert table.columns == ("age", "town", "open")
    assert table.labels == NAMES
    assert table.cells is not None
    assert table.cells["town"].texts == TOWNS
    assert table.cells["age"].numbers is not None
    np.testing.assert_array_equal(table.cells["age"].numbers, np.array(AGES, float))
    assert table.cells["open"].numbers.tolist()[:2] == [1, 0]
    assert read_any_table(folder / "test")[0].labels == ["busy", "calm"]


def check_images(folder: Path) -> None:
    side = scan_side(folder, "label", follow_links=False)
    assert [file.name for file in side.scan.files] == [f"row-{number:08d}" for number in range(5)]
    assert side.labels == tuple(NAMES[:5])
    assert not side.is_folder
    for number, file in enumerate(side.scan.files):
        assert file.size == (12, 16)
        assert (decode(file.read()).permute(1, 2, 0).numpy() == colours(number)).all()
    assert side.scan.notes == ()
    assert side.scan.seen == 5


def test_the_kept_table_is_read() -> None:
    check_table(KEPT / "table")


def test_the_kept_images_are_read() -> None:
    check_images(KEPT / "images")


def test_what_the_library_saves_today_is_read(tmp_path: Path) -> None:
    pytest.importorskip("datasets", reason="datasets is not installed; the kept folders of another release are tested")
    make_by_library(tmp_path)
    check_table(tmp_path / "table")
    check_images(tmp_path / "images")


def test_of_several_splits_one_has_to_be_named(tmp_path: Path) -> None:
    whole = shutil.copytree(KEPT / "table", tmp_path / "table")
    several = f"{whole}: is a data set in 2 splits: 'test', 'train'; name one of them, such as {whole}/train"
    assert refusal(lambda: find_saved_dataset(whole)) == several
    (whole / "dataset_dict.json").write_text('{"splits": ["test"]}')
    dataset = find_saved_dataset(whole)
    assert dataset is not None
    assert dataset.root == f"{whole}/test"
    for bad in ("[]", '{"splits": []}', '{"splits": ["../table"]}', '{"splits": [".."]}'):
        (whole / "dataset_dict.json").write_text(bad)
        assert refusal(lambda: find_saved_dataset(whole)).endswith("; save the data set again")


def test_other_folders_are_none(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{}")
    assert find_saved_dataset(tmp_path) is None
    assert find_saved_dataset(tmp_path / "state.json") is None
    assert find_saved_dataset(tmp_path / "nothing") is None


def test_classes_are_matched_by_name_whatever_their_numbers(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    columns = {"a": draw.normal(size=30), "b": draw.normal(size=30)}
    one = pa.table({**columns, "label": [row % 2 for row in range(30)]})
    write_saved(tmp_path / "one", one, {"label": class_label("calm", "busy")}, files=3)
    write_saved(tmp_path / "two", one, {"label": class_label("busy", "calm")})
    problem = load_pair(tmp_path / "one", tmp_path / "two")
    assert problem.schema.names == ("busy", "calm")
    assert isinstance(problem.hidden_labels, type(problem.labelled.labels))
    assert (problem.hidden_labels == 1 - problem.labelled.labels).all()


def test_a_column_of_classes_that_is_no_label_is_one_of_categories(tmp_path: Path) -> None:
    rows = pa.table({"kind": [0, 1, -1, None], "a": [0.1, 0.2, 0.3, 0.4], "label": ["x", "y", "x", "y"]})
    write_saved(tmp_path / "one", rows, {"kind": class_label("steel", "wood")})
    table, _ = read_any_table(tmp_path / "one")
    assert table.cells is not None
    assert table.cells["kind"].texts == ["steel", "wood", None, None]
    assert list_saved_cells(find_saved_dataset(tmp_path / "one"))[1][1] == ("wood", 0.2, "y")


def test_columns_that_no_table_has_are_refused_or_dropped(tmp_path: Path) -> None:
    rows = pa.table({"v": [[0.5, 1.5], [2.5, 3.5]], "a": [1.0, 2.0], "label": ["x", "y"]})
    place = write_saved(tmp_path / "one", rows, {})
    text = f"{place}: column 'v' must be numbers, text, true and false, or dates, got list<item: double>"
    assert refusal(lambda: read_any_table(place)).replace("element: ", "item: ") == text
    assert read_any_table(place, dropped=("v",))[0].columns == ("a",)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ('{"_data_files": [{"filename": "../x.arrow"}]}', "names the file '../x.arrow', which does not lie beside it"),
        ('{"_data_files": [{"filename": "/x.arrow"}]}', "names the file '/x.arrow', which does not lie beside it"),
        ('{"_data_files": [{"filename": ".x"}]}', "names the file '.x', which does not lie beside it"),
        ('{"_data_files": [{"filename": ""}]}', None),
        ("{}", "not as save_to_disk writes it: Object missing required field `_data_files`"),
        ("[" * 100_000, None),
        ('{"_data_files": []}', None),
        ('{"_data_files": [{"filename": "none.arrow"}]}', None),
        ('{"_data_files": [{"filename": "state.json"}]}', None),
        ('{"_data_files": [], "_indices_data_files": [{"filename": "i.arrow"}]}', None),
    ],
)
def test_a_state_that_lies_is_refused(tmp_path: Path, state: str, reason: str | None) -> None:
    write_saved(tmp_path, pa.table({"a": [1.0], "label": ["x"]}), {})
    (tmp_path / "state.json").write_text(state)
    text = refusal(lambda: read_any_table(tmp_path))
    assert reason is None or text == f"{tmp_path}/state.json: {reason}; save the data set again"


def test_files_of_different_columns_and_links_are_refused(tmp_path: Path) -> None:
    rows = pa.table({"a": [1.0, 2.0], "label": ["x", "y"]})
    write_saved(tmp_path / "one", rows, {}, files=2)
    second = tmp_path / "one" / "data-00001-of-00002.arrow"
    write_saved(tmp_path / "two", rows.rename_columns(["b", "label"]), {})
    shutil.copy(tmp_path / "two" / "data-00000-of-00001.arrow", second)
    text = f"{second}, {tmp_path}/one/data-00000-of-00002.arrow: have different columns; save the data set again"
    assert refusal(lambda: read_any_table(tmp_path / "one")) == text
    second.unlink()
    second.symlink_to(tmp_path / "two" / "data-00000-of-00001.arrow")
    assert refusal(lambda: read_any_table(tmp_path / "one")).startswith(f"{second}: cannot be read: Too many levels")


def test_classes_that_lie_are_refused(tmp_path: Path) -> None:
    rows = pa.table({"a": [1.0, 2.0], "label": [0, 7]})
    place = write_saved(tmp_path, rows, {"label": class_label("x", "y")})
    text = f"{place}: column 'label' has a class of number 7, and names 2; save the data set again"
    assert refusal(lambda: read_any_table(place)) == text
    write_saved(tmp_path, rows, {"a": class_label("x", "y")})
    text = f"{place}: column 'a' is one of classes, and has double; save the data set again"
    assert refusal(lambda: read_any_table(place)) == text
    write_saved(tmp_path, rows, {"label": class_label("x", "x")})
    text = f"{place}/dataset_info.json: the classes of column 'label' must have a name each, all different"
    assert refusal(lambda: read_any_table(place)) == f"{text}; save the data set again"


def test_rows_that_take_no_bytes_but_much_memory_are_refused(tmp_path: Path, monkeypatch) -> None:
    rows = pa.table({"a": [1.0] * 50, "nothing": pa.nulls(50)})
    place = write_saved(tmp_path, rows, {})
    monkeypatch.setattr(saved_dataset, "LARGEST_TABLE", 799)
    size = max(800, sum(file.stat().st_size for file in tmp_path.glob("*.arrow")))
    text = refusal(lambda: read_any_table(place))
    assert text.startswith(f"{place}: takes ")
    assert int(text.split()[2]) in range(800, size + 1)
    assert text.endswith(" bytes, at most 799 are read")


def test_check_says_all_that_is_wrong_with_two_saved_tables(tmp_path: Path) -> None:
    one = write_saved(tmp_path / "one", pa.table({"a": [1.0, 2.0], "b": ["u", "v"], "label": ["x", "y"]}), {})
    two = write_saved(tmp_path / "two", pa.table({"a": [1.0, 2.0], "c": ["u", "v"]}), {})
    texts = [finding.text for finding in check_pair(one, two, columns=TableColumns())]
    assert any(text == f"feature columns differ; only in {one}: 'b'; only in {two}: 'c'" for text in texts)


# --- images


def test_images_that_are_not_embedded_are_refused_by_name(tmp_path: Path) -> None:
    rows = image_rows([encode_png(colours(1)), None, b"no image"], label=["x", "y", "x"])
    place = write_saved(tmp_path, rows, {"image": IMAGE})
    scan, labels = scan_saved_images(find_saved_dataset(place), "label")
    assert [file.name for file in scan.files] == ["row-00000000"]
    assert labels == ("x",)
    assert [(item.name, item.reason, item.kind) for item in scan.rejected] == [
        ("row-00000001", "has no bytes in the data set, it names 'gone/1.png'", "refused"),
        ("row-00000002", "not an image that is read", "quarantined"),
    ]
    assert scan.seen == 3


def test_labels_stay_with_their_images_over_batches_and_files(tmp_path: Path) -> None:
    pictures = [encode_png(np.full((8, 8, 3), number, np.uint8)) for number in range(47)]
    rows = image_rows(pictures, label=[number % 3 for number in range(47)], more=[0.5] * 47)
    place = write_saved(tmp_path, rows, {"image": IMAGE, "label": class_label("a", "b", "c")}, files=3)
    side = scan_labelled(place, "label", follow_links=False)
    for number, (file, label) in enumerate(zip(side.scan.files, side.labels or (), strict=True)):
        assert file.name == f"row-{number:08d}"
        assert decode(file.read())[0, 0, 0] == number
        assert label == "abc"[number % 3]
    assert side.scan.notes == (f"{place}: columns that are not read: 'more'",)


def test_images_that_cannot_be_a_side_are_refused(tmp_path: Path) -> None:
    rows = image_rows([encode_png(colours(1))], y=["x"])
    place = write_saved(tmp_path, rows, {"image": IMAGE})
    text = f"{place}: no label column 'label'; columns: 'image', 'y'; --label names another"
    assert refusal(lambda: scan_labelled(place, "label", follow_links=False)) == text
    write_saved(tmp_path, rows.append_column("mask", rows["image"]), {"image": IMAGE, "mask": IMAGE})
    text = f"{place}: has 2 columns of images: 'image', 'mask'; save it with one of them (remove_columns)"
    assert refusal(lambda: scan_side(place, "label", follow_links=False)) == text
    write_saved(tmp_path, pa.table({"image": ["a.png"]}), {"image": IMAGE})
    path = f"{place}/data-00000-of-00001.arrow"
    text = f"{path}: not a readable Arrow file: column 'image' must hold bytes and path, got string"
    assert refusal(lambda: scan_side(place, "label", follow_links=False)) == f"{text}; save the data set again"
    write_saved(tmp_path, pa.table({"a": [1]}), {"image": IMAGE})
    assert refusal(lambda: scan_side(place, "y", follow_links=False)) == f"{place}: no column 'image'; columns: 'a'"


def test_a_table_of_the_kept_classes_has_their_names() -> None:
    dataset = find_saved_dataset(KEPT / "images")
    assert dataset is not None
    assert dataset.classes == {"label": tuple(CLASSES)}
    assert json.loads((KEPT / "images" / "dataset_info.json").read_text())["features"]["image"] == IMAGE
