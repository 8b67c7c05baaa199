"""What the command line can do, Python can do by one call: the same run, labels, maps and exports, byte for byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cli_tables import embasis, write_tables
from embasis import MapModel, TableModel, fit_maps, fit_tables
from embasis.errors import ConfigError, InputDataError
from embasis.storage import read_newest
from map_folder_runs import IDS, NAMES, fitted, sides

MAP_WORDS = {
    "network": "small_fcn", "network.width": 16, "maps.size": 32, "maps.crop_height": 32, "maps.crop_width": 48,
    "rounds": 2, "source_epochs": 2, "epochs": 2, "batch_size": 6, "maps.workers": 0,
}  # fmt: skip
MAP_KINDS = ("labels", "confidence", "variance", "trusted")


pytestmark = pytest.mark.usefixtures("fast_runs")


@pytest.fixture
def maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Both sides and a finished run of the command line, in the current folder."""
    monkeypatch.chdir(sides(tmp_path, 6))
    fitted(tmp_path, tmp_path / "run")
    return tmp_path


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tables in the current folder."""
    monkeypatch.chdir(tmp_path)
    write_tables(tmp_path)
    return tmp_path


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_fit_maps_is_the_run_of_the_command_line(maps: Path) -> None:
    model = fit_maps("drawn", "streets", output="again", **MAP_WORDS)
    one, two = read_newest("run"), read_newest("again")
    assert one.facts["records"] == two.facts["records"]
    assert {name: tensor.tolist() for name, tensor in one.tensors.items()} == {
        name: tensor.tolist() for name, tensor in two.tensors.items()
    }
    assert model.classes == NAMES
    assert len(model.records) == 3
    in_memory = fit_maps("drawn", "streets", **MAP_WORDS)
    assert [record.trusted for record in in_memory.records] == [record.trusted for record in model.records]


def test_maps_in_python_are_the_pixels_that_predict_writes(maps: Path) -> None:
    words = ("--scales", "1,1.5", "--flip", "--precision", "0.9")
    assert embasis("predict", "run", "streets", "-o", "written", "--workers", 0, *words).exit_code == 0
    found = MapModel.load("run").predict("streets", scales=(1, 1.5), flip=True, precision=0.9)
    assert len(found) == 6
    for picture in found:
        file = Path(picture.name).with_suffix(".png")
        stored = {kind: np.array(Image.open(Path("written") / kind / file)) for kind in MAP_KINDS}
        assert np.array_equal(np.array(IDS, np.uint8)[picture.labels], stored["labels"])
        assert np.array_equal(picture.confidence, stored["confidence"])
        assert np.array_equal(picture.variance, stored["variance"])
        assert np.array_equal(picture.trusted, stored["trusted"] == 255)
    assert 0 < np.mean([picture.trusted.mean() for picture in found]) < 1


def test_pictures_in_memory_have_the_labels_of_their_files(maps: Path) -> None:
    model = MapModel.load("run")
    by_name = {picture.name: picture for picture in model.predict("streets")}
    names = sorted(by_name)
    arrays = [np.array(Image.open(Path("streets") / name)) for name in names]
    for name, picture in zip(names, model.predict(arrays), strict=True):
        assert np.array_equal(picture.labels, by_name[name].labels)
        assert np.array_equal(picture.confidence, by_name[name].confidence)


def test_predict_into_and_export_of_maps_write_the_bytes_of_the_commands(maps: Path) -> None:
    model = MapModel.load("run")
    assert embasis("predict", "run", "streets", "-o", "one", "--precision", "0.9").exit_code == 0
    summary = model.predict_into("streets", "two", precision=0.9)
    assert summary.rows == 6
    assert summary.target is not None
    assert bytes_of(Path("one")) == bytes_of(Path("two"))
    assert embasis("export", "run", "-o", "one.json", "--as", "coco", "--all").exit_code == 0
    assert model.export("two.json", "coco", everything=True).pictures == 6
    assert Path("one.json").read_bytes() == Path("two.json").read_bytes()


def test_a_saved_map_model_labels_as_before(maps: Path) -> None:
    model = MapModel.load("run")
    model.save("saved")
    before, after = model.predict("streets"), MapModel.load("saved").predict("streets")
    assert all(np.array_equal(a.confidence, b.confidence) for a, b in zip(before, after, strict=True))


def test_a_model_is_loaded_by_the_class_of_its_kind(maps: Path) -> None:
    with pytest.raises(InputDataError, match=r"^run: the run was trained on images, not on tables or arrays$"):
        TableModel.load("run")


def test_fit_tables_predicts_sorts_and_exports_as_the_commands_do(tables: Path) -> None:
    assert embasis("fit", "labelled.csv", "unlabelled.csv", "-o", "run", "rounds=2").exit_code == 0
    model = fit_tables("labelled.csv", "unlabelled.csv", output="again", rounds=2)
    assert read_newest("run").facts["records"] == read_newest("again").facts["records"]
    options = ("--precision", "0.9", "--sort", "uncertainty")
    assert embasis("predict", "run", "turned.csv", "-o", "one.csv", *options).exit_code == 0
    model.predict_into("turned.csv", "two.csv", precision=0.9, sort="uncertainty")
    assert Path("one.csv").read_bytes() == Path("two.csv").read_bytes()
    found = model.predict("turned.csv", precision=0.9, sort="uncertainty")
    lines = Path("one.csv").read_text().splitlines()[1:]
    assert [line.split(",")[:2] for line in lines] == [
        [str(name), label] for name, label in zip(found.names, found.label, strict=True)
    ]
    assert list(found.uncertainty) == sorted(found.uncertainty, reverse=True)
    assert found.target is not None
    assert int(found.trusted.sum()) == found.target.labels
    assert embasis("export", "run", "-o", "one.parquet", "--as", "parquet").exit_code == 0
    model.export("two.parquet", "parquet")
    assert Path("one.parquet").read_bytes() == Path("two.parquet").read_bytes()


def test_corrections_are_labelled_rows_of_a_run_from_python(tables: Path) -> None:
    Path("fix.csv").write_text("id,label\n10,c1\n12,c0\n")
    words = ("--corrections", "fix.csv", "rounds=1")
    assert embasis("fit", "labelled.csv", "unlabelled.csv", "-o", "run", *words).exit_code == 0
    model = fit_tables("labelled.csv", "unlabelled.csv", corrections="fix.csv", rounds=1)
    assert model.metadata["corrected"] == 2
    assert model.metadata["records"] == read_newest("run").facts["records"]


def test_a_model_without_a_folder_has_no_labels_to_export(tables: Path) -> None:
    model = fit_tables("labelled.csv", "unlabelled.csv", rounds=1)
    with pytest.raises(InputDataError) as caught:
        model.export("labels.csv", "csv")
    rule = "the model has no run folder, which keeps the labels: give output= to fit, or load the run"
    assert str(caught.value) == rule


def test_an_unknown_order_is_refused(tables: Path) -> None:
    model = fit_tables("labelled.csv", "unlabelled.csv", rounds=1)
    with pytest.raises(ConfigError) as caught:
        model.predict("unlabelled.csv", sort="name")
    assert str(caught.value) == "sort must be one of uncertainty, got 'name'"


def test_a_table_model_says_what_it_is_in_a_line_and_has_probabilities_of_all_classes(tables: Path) -> None:
    model = fit_tables("labelled.csv", "unlabelled.csv", rounds=1)
    names = ", ".join(repr(name) for name in model.classes)
    assert repr(model) == f"TableModel({len(model.classes)} classes: {names}; em_basis, round 1)"
    labels, found = model.predict("unlabelled.csv"), model.predict_proba("unlabelled.csv")
    assert found.shape == (len(labels), len(model.classes))
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-12)
    assert [model.classes[row] for row in found.argmax(1)] == labels.label
    np.testing.assert_allclose(found.max(1), labels.probability, atol=1e-6)


def test_a_map_model_says_what_it_is_in_a_line_and_has_probabilities_at_each_pixel(maps: Path) -> None:
    model = MapModel.load("run")
    assert repr(model) == "MapModel(3 classes: {}; em_basis, round 2, run 'run')".format(
        ", ".join(repr(name) for name in NAMES)
    )
    labelled, found = model.predict("streets"), dict(model.predict_proba("streets"))
    assert [picture.name for picture in labelled] == list(found)
    for picture in labelled:
        probabilities = found[picture.name]
        assert probabilities.shape == (len(NAMES), *picture.labels.shape)
        np.testing.assert_allclose(probabilities.sum(0), 1, atol=1e-5)
        assert np.array_equal(probabilities.argmax(0), picture.labels)
        assert len(repr(picture)) < 120
