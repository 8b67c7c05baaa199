"""Small pictures of rows: chosen by their uncertainty, encoded anew, within a budget; and pages of ten thousand."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from embasis.config import load
from embasis.errors import CorruptError
from embasis.inputs.image_rows import pixel_reader
from embasis.report import THUMBNAILS_EACH, Component, RowExample, collect
from embasis.report.collect import choose_examples, encode_thumbnail, make_row_gallery, read_row_gallery
from embasis.report.page import basis_section, run_page, thumbnail_rows
from embasis.runs.checkpoint import read_run_view
from embasis.storage import SealedFiles, read_newest, read_stored_table
from folder_runs import go
from image_runs import settings, sides, whole_run
from map_page_views import on_maps, png
from page_reader import Page
from page_views import BENIGN, record, view
from storage_runs import sealed
from training_runs import little_digits, toy


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


# which rows


def labels(doubts: list[float], names: list[str]) -> dict[str, list[object]]:
    rows = range(len(doubts))
    return {
        "id": [*rows],
        "label": [*names],
        "probability": [1 - d for d in doubts],
        "uncertainty": [*doubts],
        "trusted": [d < 0.5 for d in doubts],
    }


def test_the_surest_and_the_least_sure_of_each_label_come_first_and_no_row_twice() -> None:
    found = list(
        choose_examples(labels([0.3, 0.1, 0.9, 0.2, 0.6], ["cat", "cat", "cat", "dog", "cat"]), ("cat", "dog", "owl"))
    )
    assert found == [(1, "surest"), (2, "least sure"), (3, "surest"), (0, "surest"), (4, "least sure")]


def test_at_most_eight_of_each_label_and_kind() -> None:
    found = list(choose_examples(labels([i / 100 for i in range(100)], ["cat"] * 100), ("cat",)))
    assert [row for row, kind in found if kind == "surest"] == [*range(8)]
    assert [row for row, kind in found if kind == "least sure"] == [*range(99, 91, -1)]


def test_labels_of_older_runs_are_ranked_by_their_probability() -> None:
    old = labels([0.3, 0.1, 0.9], ["cat"] * 3)
    del old["uncertainty"]
    assert next(choose_examples(old, ("cat",))) == (1, "surest")


# the pictures


def test_tiny_pictures_stay_as_they_are() -> None:
    pixels = torch.randint(0, 256, (3, 8, 9), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    again = opened(encode_thumbnail(pixels))
    assert again.format == "PNG"
    assert np.array_equal(np.asarray(again), pixels.permute(1, 2, 0).numpy())


@pytest.mark.parametrize(("size", "found"), [((300, 150), (96, 48)), ((40, 4000), (1, 96)), ((96, 96), (96, 96))])
def test_large_pictures_are_small_jpegs_without_other_data(size: tuple[int, int], found: tuple[int, int]) -> None:
    data = encode_thumbnail(torch.full((3, *size), 130, dtype=torch.uint8))
    again = opened(data)
    assert (again.format, again.size) == ("JPEG", found[::-1])
    assert not again.getexif()
    assert abs(int(np.asarray(again).mean()) - 130) <= 1
    assert len(data) < 10_000


def test_arrays_are_shown_from_their_darkest_to_their_brightest_value() -> None:
    problem = little_digits()
    read = pixel_reader(problem, None)
    assert read is not None
    x = problem.unlabelled.inputs(torch.arange(300))
    brightest = int(x.flatten(1).amax(1).argmax())
    pixels = read(brightest)
    assert pixels is not None
    assert (pixels.shape, int(pixels.max())) == ((3, 8, 8), 255)


def test_vectors_and_label_maps_have_no_such_pictures() -> None:
    assert pixel_reader(toy(), None) is None


# in the run folder


@pytest.fixture(scope="module")
def digit_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("digits") / "run"
    config = load(
        None, (), top={"seed": 1}, network={"name": "small_cnn", "width": 4, "features": 16},
        plan={"rounds": 1, "source_epochs": 1, "epochs": 1, "batch_size": 64},
    )  # fmt: skip
    go(path, config, problem=little_digits())
    return path


def test_a_run_on_arrays_of_pictures_shows_them_with_their_true_classes(digit_run: Path) -> None:
    found, problem = read_run_view(digit_run), little_digits()
    table = read_stored_table(digit_run / "labels" / "round-001.parquet")
    assert problem.hidden_labels is not None
    for item in found.items:
        row = int(item.name)
        assert (item.label, item.probability) == (table["label"][row], table["probability"][row])
        assert item.trusted == table["trusted"][row]
        assert item.truth == problem.schema.names[int(problem.hidden_labels[row])]
        assert opened(item.picture).size == (8, 8)
    doubt = dict(zip(map(str, table["id"]), table["uncertainty"], strict=True))
    for shelf in thumbnail_rows(found):
        rows = [number for number, name in enumerate(table["label"]) if name == shelf.label]
        ranked = sorted(table["uncertainty"][row] for row in rows)
        mine = [item for item in found.items if item.label == shelf.label]
        assert [doubt[item.name] for item in mine if item.why == "surest"] == ranked[: min(8, (len(rows) + 1) // 2)]
    assert all(picture is not None for component in found.basis for _, picture in component.nearest)


def test_its_page_shows_every_picture_at_once_and_tells_what_is_wrong(digit_run: Path) -> None:
    html = (digit_run / "report.html").read_text()
    found = read_run_view(digit_run)
    near = sum(len(component.nearest) for component in found.basis)
    assert html.count('width="72" height="72">') == len(found.items) + near
    assert 'loading="lazy"' not in html  # they are in the page already, and a print would have gaps
    item = next(item for item in found.items if item.truth != item.label)
    words = f"{item.name}: labelled {item.label} with probability {item.probability:.3f}, but it is {item.truth}; "
    assert words in html
    assert f"<bdi>{item.probability:.0%}</bdi><b><bdi>{item.truth}</bdi></b>" in html
    assert Page(html).table("The numbers of: The basis")


def test_image_files_are_decoded_and_encoded_anew(tmp_path: Path) -> None:
    home = sides(tmp_path)
    run = whole_run(tmp_path / "run", home, settings(tmp_path / "cache"))
    newest = read_newest(tmp_path / "run")
    files = SealedFiles(tmp_path / "run", newest.sealed)
    found, pictures = read_row_gallery(files, 1, files.seal("labels/round-001.parquet"))
    assert {item.name for item in found} <= {*(run.problem.row_names or ())}
    assert len(found) == 18  # all of them: each label has at most sixteen
    assert all(item.truth is None for item in found)
    files = {path.read_bytes() for path in (home / "paintings").rglob("*.png")}
    assert not files & {*pictures.values()}
    assert {opened(data).format for data in pictures.values()} == {"PNG"}  # 24×30 pixels are tiny
    assert "The surest and the least sure of each class" in (tmp_path / "run" / "report.html").read_text()


def test_a_file_that_has_gone_is_left_out(tmp_path: Path) -> None:
    home = sides(tmp_path)
    run = whole_run(tmp_path / "run", home, settings(tmp_path / "cache"))
    gone = home / "paintings" / "0ä 0.png"
    gone.unlink()
    table = read_stored_table(tmp_path / "run" / "labels" / "round-001.parquet")
    again = make_row_gallery(run.problem, pixel_reader(run.problem, run.prepare().inputs.files), table, ())
    assert again is not None
    assert gone.name not in again["pictures"]
    assert len(again["items"]) == 17


def test_pictures_stay_within_the_budget_and_leave_room_for_the_basis(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = little_digits()
    names = [problem.schema.names[i % 10] for i in range(300)]
    table = labels([i / 300 for i in range(300)], names)
    near = Component((("0", 1.0),), 1.0, (("299", None), ("298", None)))
    monkeypatch.setattr(collect, "MOST_PICTURE_BYTES", 3000)
    monkeypatch.setattr(collect, "MOST_BASIS_BYTES", 1000)
    found = make_row_gallery(problem, pixel_reader(problem, None), table, [near])
    assert found is not None
    sizes = {name: len(base64.b64decode(data)) for name, data in found["pictures"].items()}
    shown = sum(sizes[item["name"]] for item in found["items"])
    assert 1500 < shown <= 2000
    assert {"299", "298"} <= {*sizes}
    assert sum(sizes.values()) <= 3000


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"items": [{}], "pictures": {}}', '{"items": [], "pictures": {"a": "?"}}']
)
def test_a_damaged_gallery_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "gallery").mkdir()
    (tmp_path / "gallery" / "rows.json").write_text(text)
    with pytest.raises(CorruptError, match=r"rows\.json is not a gallery"):
        read_row_gallery(SealedFiles(tmp_path, None), 0, None)
    (tmp_path / "gallery" / "rows-000.json").write_bytes(sealed(json.loads(text) or {}))
    with pytest.raises(CorruptError, match=r"rows-000\.json is not a gallery"):
        read_row_gallery(SealedFiles(tmp_path, {}), 0, None)


def test_a_gallery_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "gallery").mkdir()
    with (tmp_path / "gallery" / "rows-000.json").open("wb") as file:
        file.truncate(collect.LARGEST_GALLERY_FILE + 1)
    with pytest.raises(CorruptError, match=r"rows-000\.json: 12,000,001 of 12,000,000 bytes$"):
        read_row_gallery(SealedFiles(tmp_path, {}), 0, None)


def test_a_gallery_of_other_labels_is_refused(tmp_path: Path) -> None:
    (tmp_path / "gallery").mkdir()
    path = tmp_path / "gallery" / "rows-000.json"
    path.write_bytes(sealed({"items": [], "pictures": {}, "labels": "of another run"}))
    rule = f"{path} shows other labels than those of the run; the fit command that made the run makes it again"
    with pytest.raises(CorruptError, match=f"^{re.escape(rule)}$"):
        read_row_gallery(SealedFiles(tmp_path, {}), 0, "of this run")


# the page


def thumb(number: int) -> bytes:
    """A JPEG of grain: as large as thumbnails get."""
    pixels = np.random.default_rng(number).integers(0, 256, (96, 96, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=80)
    return stream.getvalue()


def test_a_page_of_ten_thousand_pictures_is_smaller_than_ten_megabytes() -> None:
    names = tuple(f"class {i}" for i in range(60))
    grain = [thumb(number) for number in range(10)]
    items = tuple(
        RowExample(f"{i}.jpg", ("surest", "least sure")[i % 2], names[i // 2 % 60], 0.9, True, None, grain[i % 10])
        for i in range(10_000)
    )
    near = tuple((f"{i}.jpg", grain[i]) for i in range(5))
    parts = tuple(Component(((name, 0.9),), 1 / 180, near) for name in names for _ in range(3))
    counts = tuple([167] * 60)
    rounds = tuple(
        dataclasses.replace(record(i, truth=False), class_counts=counts, trusted_counts=counts) for i in range(20)
    )
    table = {
        "id": [item.name for item in items],
        "label": [item.label for item in items],
        "probability": [0.9 + 1e-6 * i for i in range(10_000)],
        "between": [0.01] * 10_000,
        "within": [1e-6 * i for i in range(10_000)],
        "trusted": [True] * 10_000,
    }
    found = dataclasses.replace(view(), classes=names, rounds=rounds, labels=table, items=items, basis=parts)
    page = run_page(found).encode()
    assert len(page) < 10_000_000
    shown = [thumb for shelf in thumbnail_rows(found) for _, thumbs in shelf.kinds for thumb in thumbs]
    assert 400 < len(shown) <= 60 * 2 * THUMBNAILS_EACH
    assert all(len(thumbs) <= THUMBNAILS_EACH for shelf in thumbnail_rows(found) for _, thumbs in shelf.kinds)


def test_what_is_no_picture_is_not_shown() -> None:
    bad = [
        RowExample(str(i), "surest", "cat", 0.9, True, None, data)
        for i, data in enumerate((b"", b"<svg onload=x>", b"GIF89a"))
    ]
    assert thumbnail_rows(dataclasses.replace(view(), items=tuple(bad))) == []
    component = Component((("cat", 1.0),), 1.0, (("a", b"<svg>"), ("b", png())))
    found = basis_section(dataclasses.replace(view(), basis=(component,)))
    assert found is not None
    assert len(found.cards[0].thumbs) == 1


def test_the_basis_of_label_maps_is_shown_without_rows() -> None:
    parts = tuple(
        Component(((name, 0.9), ("dog", 0.1)), share) for name, share in zip(BENIGN, (0.5, 0.2, 0.3), strict=True)
    )
    found = basis_section(dataclasses.replace(on_maps(), basis=parts))
    assert found is not None
    assert found.cards == ()
    assert found.table.header == ["component", "class", "probability", "next classes", "share"]
    assert "nearest" not in found.caption
    page = Page(run_page(dataclasses.replace(on_maps(), basis=parts)))
    assert page.picture("3 components by their likeliest class. Largest: cat, 50.0%.") == [
        "component 0: cat 0.900, dog 0.100; 50.0% of the unlabelled side",
        "component 1: dog 0.900, dog 0.100; 20.0% of the unlabelled side",
        "component 2: owl 0.900, dog 0.100; 30.0% of the unlabelled side",
    ]


def test_many_components_are_shown_by_the_largest() -> None:
    parts = tuple(Component((("cat", 0.9),), (i + 1) / 3321, (("row", None),)) for i in range(81))
    found = basis_section(dataclasses.replace(view(), basis=parts))
    assert found is not None
    assert len(found.cards) == 60
    assert found.cards[0].share == "2.4%"
    assert "the 60 largest" in found.caption
    assert len(found.table.rows) == 81


def test_names_of_rows_stand_where_there_are_no_pictures() -> None:
    found = basis_section(
        dataclasses.replace(view(), basis=(Component((("cat", 0.9),), 1.0, (("row 7", None), ("row 9", None))),))
    )
    assert found is not None
    assert found.cards[0].names == ("row 7", "row 9")


# cards and warnings


def test_an_expected_accuracy_and_a_temperature_are_shown_where_there_are_some() -> None:
    facts = {"expected_accuracy": 0.8412, "temperature": 1.37}
    rounds = tuple(dataclasses.replace(record(i, truth=False), facts=facts) for i in range(3))
    page = Page(run_page(dataclasses.replace(view(truth=False), rounds=rounds)))
    assert page.cards["Expected accuracy"] == ("0.841", "estimated without true labels")
    assert page.cards["Temperature"] == ("1.37", "probabilities are softened")
    assert page.picture("Expected accuracy from round 0")[0] == "Expected accuracy, round 0: 0.8412"
    assert not [label for label in page.marks if label.startswith("Accuracy")]
    assert ">without true labels</text>" in page.html  # the key of the figure
    assert "Expected accuracy is an estimate, made without true labels" in page.text
    assert "Expected accuracy" not in Page(run_page(view())).cards


def test_files_that_were_not_used_are_named_with_their_reasons() -> None:
    refused = tuple(
        {"name": f"{i}.jpg", "reason": "truncated JPEG", "phase": "read", "side": "labelled"} for i in range(70)
    )
    page = Page(run_page(dataclasses.replace(view(), refused=refused)))
    rows = page.table("Files that were not used")
    assert rows[0] == {"file": "0.jpg", "side": "labelled", "found at": "read", "reason": "truncated JPEG"}
    assert len(rows) == 50
    assert "The first 50 of 70; quarantine.jsonl has all." in page.text


def test_a_record_of_an_older_release_has_no_table_of_newer_measures() -> None:
    assert "Calibration and ranking" not in Page(run_page(view())).tables
