"""Labels of two, three and five processes are those of one, to the byte: tables, images, label maps, shards.

The ranks are threads of this process (support/thread_world.py); real processes are in tests/reliability. Each test of
equality has its mutants, which must fail it.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch

from cli_tables import copied, fit_without_page, write_tables
from embasis.data import table_shards
from embasis.distributed import World
from embasis.errors import EmbasisWarning, InputDataError
from embasis.inputs import table_inputs
from embasis.runs import predict_maps, row_labels
from embasis.runs.model import load_model
from embasis.runs.predict import predict_into
from embasis.runs.prediction import PredictionSummary, PredictOptions
from embasis.runs.same_everywhere import read_same_run
from image_runs import WORDS, picture
from image_runs import sides as image_sides
from image_trees import plant
from map_folder_runs import fitted, scene
from map_folder_runs import sides as map_sides
from map_trees import saved
from thread_world import run_world

pytestmark = pytest.mark.usefixtures("plain_page")


def predict_by(size: int, source: str, output: str, **options: Any) -> PredictionSummary:
    """What the first of so many processes says; all of them have labelled."""

    def work(world: World) -> PredictionSummary:
        stored = read_same_run("run", None)
        model = load_model(stored.facts, stored.tensors, Path("run"), sealed=stored.sealed)
        model.inputs.set_workers(0)
        return predict_into(model, source, output, PredictOptions(**options))

    return run_world(size, work)[0]


def files_of(folder: str | Path) -> dict[str, bytes]:
    top = Path(folder)
    return {path.relative_to(top).as_posix(): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def require_equal(size: int, source: str, suffix: str = ".csv", **options: Any) -> PredictionSummary:
    """Label by one and by many processes: the same files, the same sentences."""
    one, many = predict_by(1, source, f"one{suffix}", **options), predict_by(size, source, f"many{suffix}", **options)
    found = [
        files_of(name) if Path(name).is_dir() else Path(name).read_bytes() for name in (f"one{suffix}", f"many{suffix}")
    ]
    assert found[0] == found[1]
    precision = options.get("precision")
    assert many.sentences("x", precision) == one.sentences("x", precision)
    assert list(many.rejected.items()) == list(one.rejected.items())
    return many


# --- tables


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on tables, and its unlabelled side as one table and in shards with row groups of seven rows."""
    root = tmp_path_factory.mktemp("tables")
    write_tables(root)
    whole = pyarrow.csv.read_csv(root / "judged.csv")
    for name, (first, last) in {"a": (0, 25), "b": (25, 25), "c": (25, 55), "d": (55, 60)}.items():
        (root / "pool").mkdir(exist_ok=True)
        pq.write_table(whole.slice(first, last - first), root / "pool" / f"{name}.parquet", row_group_size=7)
    return fit_without_page(root, root / "labelled.csv", root / "judged.csv", "rounds=1")


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it as the current folder; pieces of a few rows, so that each process has several."""
    monkeypatch.setattr(table_inputs, "CHUNK_ROWS", 2)
    monkeypatch.setattr(table_shards, "BATCH_ROWS", 4)
    monkeypatch.setattr(table_shards, "PIECE_ROWS", 8)
    return copied(made, tmp_path / "here", monkeypatch)


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("source", ["unlabelled.csv", "pool"])
def test_a_table_is_labelled_as_by_one(here: Path, source: str, size: int) -> None:
    assert require_equal(size, source).rows == 60


@pytest.mark.parametrize("options", [{"sort": "uncertainty"}, {"precision": 0.9}, {"part": "2/3"}, {"part": "1/1000"}])
@pytest.mark.parametrize("source", ["unlabelled.csv", "pool"])
def test_options_mean_what_they_mean_for_one(here: Path, source: str, options: dict[str, Any]) -> None:
    require_equal(3, source, ".parquet", **options)


def test_every_process_labels_some_rows_and_no_row_is_labelled_twice(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, usual = list[tuple[int, list[Any]]](), row_labels.pack_piece

    def count(piece: row_labels.LabelledPiece, names: Any) -> Any:
        seen.append((len(seen), list(piece.columns["id"])))
        return usual(piece, names)

    monkeypatch.setattr(row_labels, "pack_piece", count)
    predict_by(3, "unlabelled.csv", "x.csv")
    assert sorted(id_ for _, ids in seen for id_ in ids) == list(range(10, 70))
    assert len(seen) >= 2 * 3


def test_what_the_model_does_not_know_is_said_once_by_whichever_process_meets_it_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(table_shards, "BATCH_ROWS", 4)
    rows = {"a": [float(row % 7) for row in range(40)], "kind": [("red", "blue")[row % 2] for row in range(40)]}
    pq.write_table(pyarrow.table({**rows, "label": [str(row % 2) for row in range(40)]}), "labelled.parquet")
    pq.write_table(pyarrow.table(rows), "unlabelled.parquet")
    fit_without_page(tmp_path, "labelled.parquet", "unlabelled.parquet", "rounds=0")
    Path("pool").mkdir()
    rows["kind"][9] = rows["kind"][30] = "green"
    pq.write_table(pyarrow.table(rows), "pool/a.parquet")
    said = []
    for size in (1, 2, 3):
        with pytest.warns(EmbasisWarning) as caught:
            predict_by(size, "pool", "x.csv")
        said.append([str(warning.message) for warning in caught])
    assert said[0] == said[1] == said[2]
    assert len(said[0]) == 1
    assert said[0][0].endswith("; later rows are not counted")


def test_other_data_on_one_process_are_refused_before_anything_is_written(here: Path) -> None:
    text = Path("unlabelled.csv").read_text()
    Path("other.csv").write_text(text.replace("0.", "0.5", 1))
    sources = iter(["unlabelled.csv", "other.csv"])

    def work(world: World) -> None:
        stored = read_same_run("run", None)
        model = load_model(stored.facts, stored.tensors, Path("run"), sealed=stored.sealed)
        predict_into(model, next(sources), "x.csv")

    with pytest.raises(InputDataError) as caught:
        run_world(2, work)
    assert str(caught.value) == "rank 1 reads other data than rank 0: the input; all must read the same files"
    assert not Path("x.csv").exists()


# --- images


@pytest.fixture(scope="module")
def made_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on images; a folder and tar shards of new ones, some of which cannot be read."""
    root = image_sides(tmp_path_factory.mktemp("images"))
    fit_without_page(root, root / "photos", root / "paintings", *WORDS, "rounds=1")
    files = {f"{number:02d} ö.png": picture(number % 3, 50 + number, 40) for number in range(70)}
    plant(root / "neu", {f"a b/{name}": data for name, data in files.items()})
    plant(root / "neu", {"a b/03 kaputt.png": picture(0, 0)[:300], "zz.png": b"no image", "a.png": b""})
    (root / "pool").mkdir()
    for shard in range(2):
        plant(
            root / "unpacked" / str(shard), {**dict(list(files.items())[shard::2]), "40 bad.png": picture(0, 0)[:300]}
        )
        with tarfile.open(root / "pool" / f"s-{shard}.tar", "w") as archive:
            for path in sorted((root / "unpacked" / str(shard)).iterdir()):
                archive.add(path, path.name)
    return root


@pytest.fixture
def images(made_images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EMBASIS_CACHE", str(tmp_path / "here" / "cache"))
    return copied(made_images, tmp_path / "here", monkeypatch)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("source", ["neu", "pool"])
def test_images_are_labelled_as_by_one_with_those_that_cannot_be_read(images: Path, source: str, size: int) -> None:
    require_equal(size, source)


@pytest.mark.parametrize("options", [{"sort": "uncertainty"}, {"precision": 0.9}, {"part": "2/3"}])
def test_images_with_options(images: Path, options: dict[str, Any]) -> None:
    require_equal(2, "neu", **options)


# --- label maps


@pytest.fixture(scope="module")
def made_maps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on label maps, and new pictures of several sizes, two of which cannot be read."""
    root = map_sides(tmp_path_factory.mktemp("maps"), 6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("embasis.runs.run.run_page", lambda view: "page")
        fitted(root, root / "run", "rounds=1", "maps.size=0")
    sizes = [(32, 48), (40, 60), (24, 32), (32, 32), (48, 48)]
    plant(root / "neu", {f"{number}.png": saved(scene(number, 25, sizes[number % 5])[0]) for number in range(7)})
    plant(root / "neu", {"3.bmp": saved(scene(9, 25)[0], "BMP"), "kaputt.png": saved(scene(1)[0])[:200]})
    plant(root / "neu", {"auch kaputt.png": saved(scene(2)[0])[:200]})
    return root


@pytest.fixture
def maps(made_maps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return copied(made_maps, tmp_path / "here", monkeypatch)


@pytest.mark.parametrize(
    ("size", "options"),
    [(2, {}), (3, {}), (2, {"scales": (0.75, 1.0), "flip": True}), (3, {"precision": 0.8}), (2, {"part": "1/2"})],
)
def test_label_maps_are_those_of_one(maps: Path, size: int, options: dict[str, Any]) -> None:
    require_equal(size, "neu", "", **options)


def test_more_processes_than_pictures_and_pictures_that_nobody_can_read(maps: Path) -> None:
    plant(Path("few"), {"a.png": saved(scene(1, 25)[0]), "kaputt.png": saved(scene(1)[0])[:200]})
    require_equal(4, "few", "")
    plant(Path("none"), {"a.png": saved(scene(2)[0])[:200], "b.png": saved(scene(1)[0])[:200]})
    sentences = []
    for size in (1, 3):
        with pytest.raises(InputDataError) as caught:
            predict_by(size, "none", "nothing")
        sentences.append(str(caught.value))
    assert sentences[0] == sentences[1]
    assert sentences[0].startswith("none: no picture can be read: ")
    assert not Path("nothing").exists()


# --- what these tests would notice (mutation checks)


def hand_in_by_rank(self: World, own: Iterator[Any], pack: Any, unpack: Any) -> Iterator[Any]:
    """All that the first process has, then all of the second, and so on."""
    packed = [pack(item) for item in own]
    for turn in range(int(self.largest(torch.tensor([len(packed)])))):
        self.collect(packed[turn] if turn < len(packed) else None)
    counts = [int(columns[0]) for columns in self.collect([torch.tensor([len(packed)])]) if columns is not None]
    for rank, count in enumerate(counts):
        for turn in range(count):
            columns = self.collect(packed[turn] if self.rank == rank else None)[rank]
            if self.rank == 0 and columns is not None:
                yield unpack(columns)


def test_pieces_that_come_out_of_order_are_noticed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "hand_in", hand_in_by_rank)
    with pytest.raises(AssertionError):
        require_equal(2, "unlabelled.csv")


@pytest.mark.parametrize("source", ["unlabelled.csv", "pool"])
def test_rows_that_every_process_labels_are_noticed(here: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "owns", lambda self, part: True)
    monkeypatch.setattr(table_inputs, "own_pieces", lambda rows, size: [rows])
    with pytest.raises(AssertionError):
        require_equal(2, source)


def test_probabilities_that_are_sent_in_single_precision_are_noticed(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = row_labels.pack_piece
    monkeypatch.setattr(
        row_labels, "pack_piece", lambda piece, names: [
            column.half() if column.dtype == torch.float64 else column for column in usual(piece, names)
        ],
    )  # fmt: skip
    with pytest.raises(AssertionError):
        require_equal(2, "unlabelled.csv")


def test_sites_of_the_own_pictures_alone_do_not_make_a_threshold(maps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "add_up", lambda self, value: value)
    with pytest.raises(AssertionError):
        require_equal(2, "neu", "", precision=0.8)


def test_files_that_only_another_process_met_are_missed_if_nobody_says_so(
    maps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predict_maps, "share_unread", lambda pictures: None)
    with pytest.raises(AssertionError):
        require_equal(2, "neu", "")
