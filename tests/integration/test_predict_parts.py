"""`predict --part I/N`: what N calls write is, row for row and bit for bit, what one call writes."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_tables import copied, embasis, fit_tables, refused
from embasis.data.parts import Part
from embasis.inputs import table_inputs
from embasis.inputs.map_inputs import MapInputs
from embasis.storage import read_stored_table
from image_runs import WORDS, picture
from image_runs import sides as image_sides
from image_trees import plant
from map_folder_runs import fitted, scene
from map_folder_runs import sides as map_sides
from map_trees import saved

pytestmark = pytest.mark.usefixtures("plain_page")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on tables."""
    root = tmp_path_factory.mktemp("tables")
    fit_tables(root, "rounds=1")
    return root


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it as the current folder."""
    return copied(made, tmp_path / "here", monkeypatch)


def predict_parts(source: str, count: int, suffix: str = ".csv", *words: object) -> list[Path]:
    """The outputs of all parts."""
    outputs = [Path(f"part-{number}{suffix}") for number in range(1, count + 1)]
    for number, output in enumerate(outputs, 1):
        result = embasis("predict", "run", source, "-o", output, "--part", f"{number}/{count}", *words)
        assert result.exit_code == 0, result.output
    return outputs


def joined(outputs: list[Path]) -> bytes:
    """Tables one after the other, with the header of the first."""
    lines = [output.read_bytes().split(b"\n", 1) for output in outputs]
    assert len({header for header, _ in lines}) == 1
    return b"\n".join([lines[0][0], b"".join(body for _, body in lines)])


@pytest.mark.parametrize("count", [1, 2, 7, 200])
def test_the_parts_of_a_table_are_the_table(here: Path, count: int) -> None:
    assert embasis("predict", "run", "unlabelled.csv", "-o", "all.csv").exit_code == 0
    assert joined(predict_parts("unlabelled.csv", count)) == Path("all.csv").read_bytes()


def test_rows_without_ids_keep_their_numbers_in_every_part(here: Path) -> None:
    rows = np.array([[float(row[f"f{number}"]) for number in range(8)] for row in table("unlabelled.csv")])
    np.save("rows.npy", rows)
    assert embasis("predict", "run", "rows.npy", "-o", "all.parquet").exit_code == 0
    parts = [read_stored_table(part) for part in predict_parts("rows.npy", 3, ".parquet")]
    whole = read_stored_table("all.parquet")
    assert whole["id"] == list(range(len(rows)))
    assert {name: [cell for part in parts for cell in part[name]] for name in whole} == whole


def test_a_part_without_rows_is_a_table_of_none_with_the_same_columns(here: Path) -> None:
    import pyarrow.parquet

    assert embasis("predict", "run", "unlabelled.csv", "-o", "all.parquet").exit_code == 0
    result = embasis("predict", "run", "unlabelled.csv", "-o", "none.parquet", "--part", "1/1000")
    assert result.exit_code == 0, result.output
    assert result.stdout == "wrote none.parquet: no rows, this part of the input has none\n"
    none, whole = pyarrow.parquet.read_schema("none.parquet"), pyarrow.parquet.read_schema("all.parquet")
    assert none.equals(whole)
    assert pyarrow.parquet.read_table("none.parquet").num_rows == 0


def test_words_that_are_no_part_and_options_that_need_all_rows_are_refused(here: Path) -> None:
    command = ("predict", "run", "unlabelled.csv", "-o", "part.csv", "--part")
    for text in ("0/4", "5/4", "x"):
        rule = f"part must be I/N with 1 ≤ I ≤ N ≤ 1,000,000,000, such as 3/16, got {text!r}"
        refused(2, rule, *command, text)
    refused(
        2,
        "sort puts all rows in order, and part 1/4 has some of them; "
        "label the parts without it, and sort the joined table",
        *(*command, "1/4", "--sort", "uncertainty"),
    )
    refused(
        2,
        "precision needs the labels of all rows, and part 1/4 has some of them; label all of them in one call",
        *(*command, "1/4", "--precision", 0.9),
    )
    assert not Path("part.csv").exists()


# --- images


def table(path: str | Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture(scope="module")
def made_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on images, and a folder and a list of new ones, some of which cannot be read."""
    root = image_sides(tmp_path_factory.mktemp("images"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMBASIS_CACHE", str(root / "cache"))
        patch.setattr("embasis.runs.run.run_page", lambda view: "page")
        result = embasis("fit", root / "photos", root / "paintings", "-o", root / "run", *WORDS, "rounds=1")
    assert result.exit_code == 0, result.output
    plant(root / "neu", {f"a b/{number} ö.png": picture(number % 3, 50 + number, 40) for number in range(9)})
    plant(root / "neu", {"a b/3 kaputt.png": picture(0, 0)[:300], "zz.png": b"no image", "a.png": b""})
    names = ["a b/4 ö.png", "a b/0 ö.png", "zz.png", "a b/4 ö.png", "gone.png", "a b/8 ö.png"]
    (root / "list.csv").write_text("path\n" + "".join(f"neu/{name}\n" for name in names))
    return root


@pytest.fixture
def images(made_images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it as the current folder."""
    monkeypatch.setenv("EMBASIS_CACHE", str(tmp_path / "here" / "cache"))
    return copied(made_images, tmp_path / "here", monkeypatch)


@pytest.mark.parametrize("source", ["neu", "list.csv", "neu/a b/4 ö.png"])
@pytest.mark.parametrize("count", [2, 5, 14])
def test_the_parts_of_images_are_all_images_with_those_that_cannot_be_read(
    images: Path, source: str, count: int
) -> None:
    assert embasis("predict", "run", source, "-o", "all.csv", "--workers", 0).exit_code == 0
    assert joined(predict_parts(source, count, ".csv", "--workers", 0)) == Path("all.csv").read_bytes()


def test_what_one_part_cannot_read_is_counted_there_alone(images: Path) -> None:
    found = Counter[str]()
    for number in range(1, 5):
        result = embasis("predict", "run", "neu", "-o", "x.csv", "--part", f"{number}/4", "--workers", 0)
        found.update(row["id"] for row in table("x.csv") if not row["label"])
        expected = sum(not row["label"] for row in table("x.csv"))
        assert ("could not be read" in result.stderr) == (expected > 0)
    assert found == {"a b/3 kaputt.png": 1, "zz.png": 1, "a.png": 1}


# --- label maps


@pytest.fixture(scope="module")
def made_maps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on label maps, and new pictures of several sizes; two have one name but for its ending."""
    root = map_sides(tmp_path_factory.mktemp("maps"), 6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("embasis.runs.run.run_page", lambda view: "page")
        fitted(root, root / "run", "rounds=1", "maps.size=0")
    sizes = [(32, 48), (40, 60), (24, 32), (32, 32), (48, 48)]
    plant(root / "neu", {f"{number}.png": saved(scene(number, 25, sizes[number % 5])[0]) for number in range(7)})
    plant(root / "neu", {"3.bmp": saved(scene(9, 25)[0], "BMP"), "kaputt.png": saved(scene(1)[0])[:200]})
    return root


@pytest.mark.parametrize("words", [(), ("--scales", "0.75,1", "--flip")])
def test_the_parts_of_pictures_are_all_pictures(
    made_maps: Path, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(made_maps, tmp_path / "here", monkeypatch)
    assert embasis("predict", "run", "neu", "-o", "all", "--workers", 0, *words).exit_code == 0
    parts = predict_parts("neu", 4, "", "--workers", 0, *words)
    assert joined([part / "maps.csv" for part in parts]) == Path("all/maps.csv").read_bytes()
    expected = {path.relative_to("all").as_posix(): path.read_bytes() for path in Path("all").rglob("*.png")}
    found = [(path.relative_to(part).as_posix(), path.read_bytes()) for part in parts for path in part.rglob("*.png")]
    assert len(found) == len(expected) == 8 * 4
    assert dict(found) == expected


def test_a_part_without_pictures_is_a_folder_of_none(
    made_maps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(made_maps, tmp_path / "here", monkeypatch)
    result = embasis("predict", "run", "neu", "-o", "none", "--part", "1/100", "--workers", 0)
    assert result.exit_code == 0, result.output
    assert table("none/maps.csv") == []
    header = "id,file,width,height,mean_confidence,mean_variance,trusted,sky,sky trusted,"
    assert Path("none/maps.csv").read_text().startswith(header)


# --- what these tests would notice (mutation checks)


def overlap(self: Part, total: int) -> range:
    """Parts that begin a row too early."""
    return range(max(total * (self.number - 1) // self.count - 1, 0), total * self.number // self.count)


def test_parts_that_overlap_are_noticed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert embasis("predict", "run", "unlabelled.csv", "-o", "all.csv").exit_code == 0
    monkeypatch.setattr(Part, "rows", overlap)
    assert joined(predict_parts("unlabelled.csv", 3)) != Path("all.csv").read_bytes()


def test_rows_that_are_numbered_within_their_part_are_noticed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save("rows.npy", np.random.default_rng(0).normal(size=(20, 8)))
    assert embasis("predict", "run", "rows.npy", "-o", "all.csv").exit_code == 0
    whole = table_inputs.iter_batches
    monkeypatch.setattr(table_inputs, "iter_batches", lambda x, ids, rows: whole(x, ids - rows.start, rows))
    assert joined(predict_parts("rows.npy", 3)) != Path("all.csv").read_bytes()


@pytest.mark.parametrize(
    "forgotten", [{"names": ()}, {"short_side": 0}], ids=["names of other pictures", "sizes of other pictures"]
)
def test_a_part_of_pictures_that_knows_nothing_of_the_others_is_noticed(
    made_maps: Path, forgotten: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(made_maps, tmp_path / "here", monkeypatch)
    words = ("--workers", 0, "--scales", "0.75,1")
    assert embasis("predict", "run", "neu", "-o", "all", *words).exit_code == 0
    whole = MapInputs.open_pictures
    monkeypatch.setattr(MapInputs, "open_pictures", lambda *given: replace(whole(*given), **forgotten))
    parts = predict_parts("neu", 4, "", *words)
    expected = {path.relative_to("all").as_posix(): path.read_bytes() for path in Path("all").rglob("*.png")}
    found = {path.relative_to(part).as_posix(): path.read_bytes() for part in parts for path in part.rglob("*.png")}
    assert found != expected
