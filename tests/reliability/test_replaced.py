"""Files that are replaced between the scan and the moment they are read: refused with the reason, never followed,
waited for or mistaken for what they were."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.array_file import ArrayFile

from cli_tables import embasis
from embasis.data.images.files import read_part
from embasis.data.images.folders import ImageOptions
from embasis.data.reader import Reader
from embasis.data.segmentation import folders as map_folders
from embasis.data.segmentation.folders import MapFolders, load_maps
from embasis.data.segmentation.samples import MapTruth
from embasis.errors import InputDataError
from embasis.inputs.image_rows import pixel_reader
from embasis.storage.class_folder import ExportedImage, write_class_folder
from embasis.types import MapPlan, MapPreparation, RejectedFile
from image_runs import DEPTHS, WORDS, begun, picture, read, settings, sides
from image_trees import plant
from map_trees import folder, grid, saved, scenes

SECONDS = 60


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    """Whoever waits for a pipe is found out."""

    def late(*_: object) -> None:
        raise TimeoutError("somebody waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def another(path: Path) -> None:
    path.unlink()
    path.write_bytes(picture(1, 99))


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def link(path: Path) -> None:
    """To a file elsewhere with the very same bytes."""
    outside = Path(os.environ["PYTEST_OUTSIDE"]) / f"{len(os.listdir(os.environ['PYTEST_OUTSIDE']))}.png"
    path.rename(outside)
    path.symlink_to(outside)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def huge(path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(300 * 2**20)


def cut(path: Path) -> None:
    os.truncate(path, 60)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def listening(path: Path) -> None:
    path.unlink()
    here = os.getcwd()
    os.chdir(path.parent)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)
    os.chdir(here)


REPLACED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "another picture": (another, "changed since the scan"),
    "a pipe": (pipe, "cannot be read: not a regular file (EINVAL)"),
    "a link": (link, "cannot be read: Too many levels of symbolic links (ELOOP)"),
    "a folder": (directory, "cannot be read: not a regular file (EINVAL)"),
    "a huge file": (huge, "cannot be read: 314,572,800 bytes exceed 256 MiB (EFBIG)"),
    "cut": (cut, "changed since the scan"),
    "empty": (empty, "changed since the scan"),
    "gone": (Path.unlink, "cannot be read: No such file or directory (ENOENT)"),
    "a socket": (listening, "cannot be read: No such device or address (ENXIO)"),
}


@pytest.fixture(autouse=True)
def _outside(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_OUTSIDE", str(tmp_path_factory.mktemp("outside")))


@pytest.fixture(scope="module")
def worker() -> Iterator[Reader]:
    with Reader(1) as reader:
        yield reader


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("kind", REPLACED)
def test_an_image_that_is_replaced_before_it_is_read_is_left_out(
    kind: str, depth: str, tmp_path: Path, worker: Reader
) -> None:
    problem, front = begun(sides(tmp_path), settings(tmp_path / "cache", depth))
    front.reader = worker
    replace, reason = REPLACED[kind]
    replace(tmp_path / "photos/amsel/bild 1.png")
    replace(tmp_path / "paintings/0ä 0.png")
    ready = read(problem, front)
    assert list(ready.rejected) == [
        RejectedFile("amsel/bild 1.png", reason, "read", "labelled"),
        RejectedFile("0ä 0.png", reason, "read", "unlabelled"),
    ]
    assert len(ready.labelled) == 17
    if kind == "a pipe":
        assert (tmp_path / "photos/amsel/bild 1.png").is_fifo()


@pytest.mark.parametrize("kind", REPLACED)
def test_an_image_that_is_replaced_while_training_has_no_class(kind: str, tmp_path: Path, worker: Reader) -> None:
    problem, front = begun(sides(tmp_path), settings(tmp_path / "cache", "full"))
    front.reader = worker
    ready = read(problem, front)
    replace, reason = REPLACED[kind]
    replace(tmp_path / "photos/amsel/bild 1.png")
    row = ready.labelled.names.index("amsel/bild 1.png")
    view = next(ready.labelled.stream([torch.tensor([row, (row + 1) % 18])], (0, 1, 2)))
    assert view.y[0] == -1
    assert view.y[1] >= 0
    assert (view.inputs[0] == 128).all()
    assert ready.labelled.rejected == [RejectedFile("amsel/bild 1.png", reason, "train")]


def test_a_file_that_shrinks_while_it_is_read_is_not_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, front = begun(sides(tmp_path), settings(tmp_path / "cache"))
    victim = tmp_path / "photos/amsel/bild 1.png"
    whole, size = os.pread, victim.stat().st_size

    def pread(handle: int, count: int, offset: int) -> bytes:
        if count == size and os.fstat(handle).st_ino == victim.stat().st_ino:
            data = whole(handle, 100, offset)
            os.truncate(victim, 100)
            return data
        return whole(handle, count, offset)

    monkeypatch.setattr(os, "pread", pread)
    assert list(read(problem, front).rejected) == [
        RejectedFile("amsel/bild 1.png", "changed since the scan", "read", "labelled")
    ]


def test_the_end_of_an_archive_that_was_cut_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(bytes(1000))
    with pytest.raises(OSError, match=r"^\[Errno 5\] its archive ends after 488 of 600 bytes$"):
        read_part(str(tmp_path / "a.tar"), 512, 600)


@pytest.mark.parametrize("kind", ["another picture", "a pipe", "gone"])
def test_a_run_goes_on_without_it_and_writes_it_down(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides(tmp_path)
    monkeypatch.setattr("embasis.runs.run.run_page", lambda view: "page")
    monkeypatch.setenv("EMBASIS_CACHE", str(tmp_path / "cache"))
    from embasis.cli import fit

    whole = fit.read_images

    def read_images(*arguments: Any) -> Any:
        REPLACED[kind][0](tmp_path / "paintings/0ä 0.png")
        return whole(*arguments)

    monkeypatch.setattr(fit, "read_images", read_images)
    words = ["fit", tmp_path / "photos", tmp_path / "paintings", "-o", tmp_path / "run", *WORDS, "rounds=1"]
    result = embasis(*words)
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in (tmp_path / "run/quarantine.jsonl").read_text().splitlines()]
    assert [(line["name"], line["reason"], line["phase"]) for line in lines] == [
        ("0ä 0.png", REPLACED[kind][1], "read")
    ]
    account = json.loads((tmp_path / "run/ledger.json").read_text())["unlabelled"]
    assert (account["seen"], account["quarantined"]) == (18, 1)


@pytest.mark.parametrize("kind", REPLACED)
def test_the_report_shows_no_picture_that_was_put_in_its_place(kind: str, tmp_path: Path) -> None:
    problem, front = begun(sides(tmp_path), settings(tmp_path / "cache"))
    ready = read(problem, front)
    row = list(ready.row_names or ()).index("0ä 0.png")
    pixels = pixel_reader(ready, front.files)
    assert pixels is not None
    assert pixels(row) is not None
    REPLACED[kind][0](tmp_path / "paintings/0ä 0.png")
    assert pixels(row) is None


# --- label maps and their pictures


@pytest.fixture
def maps(tmp_path: Path) -> Path:
    folder(tmp_path / "l", scenes(4))
    folder(tmp_path / "u", scenes(3, 50), toml=None)
    return tmp_path


PREPARED = MapPreparation(MapPlan(size=0, workers=0), 4, 8)


@pytest.mark.parametrize("what", ["images", "labels"])
@pytest.mark.parametrize("kind", REPLACED)
def test_a_picture_or_map_that_is_replaced_while_training_says_nothing(
    kind: str, what: str, maps: Path, worker: Reader
) -> None:
    side = load_maps(MapFolders(maps / "l", maps / "u")).labelled
    replace, reason = REPLACED[kind]
    replace(maps / "l" / what / "1.png")
    reason = reason if what == "images" else f"its label map {reason}"
    row = torch.tensor([side.names.index("1.png")])
    for reader in (Reader(0), worker):
        view = next(side.prepared(PREPARED, reader).stream([row]))
        assert (view.y == -1).all()
        assert (view.inputs == 128).all()
    assert side.rejected == [RejectedFile("1.png", reason, "train")]


READ = {
    "another picture": "changed since the scan",
    "a pipe": "not a regular file",
    "a link": "is a link; links are not followed",
    "a folder": "not a regular file",
    "a huge file": "314,572,800 bytes exceed 256 MiB",
    "cut": "changed since the scan",
    "empty": "changed since the scan",
    "gone": "vanished during the scan",
    "a socket": "no such device or address",
}


def replacing(monkeypatch: pytest.MonkeyPatch, kind: str, path: Path) -> None:
    """Between the scan and the first reading of the maps."""
    whole = map_folders.audit_sides

    def audit_sides(*arguments: Any) -> Any:
        REPLACED[kind][0](path)
        return whole(*arguments)

    monkeypatch.setattr("embasis.data.segmentation.folders.audit_sides", audit_sides)


@pytest.mark.parametrize("kind", READ)
def test_a_map_that_is_replaced_before_it_is_counted_is_refused(
    kind: str, maps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replacing(monkeypatch, kind, maps / "l/labels/1.png")
    problem = load_maps(MapFolders(maps / "l", maps / "u"))
    assert problem.rejected == (RejectedFile("1.png", f"its label map: {READ[kind]}", "read", "labelled"),)
    assert sorted(problem.labelled.names) == ["0.png", "2.png", "3.png"]


@pytest.mark.parametrize("kind", READ)
def test_a_map_for_scores_that_is_replaced_is_not_scored(
    kind: str, maps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replacing(monkeypatch, kind, maps / "u/labels/51.png")
    problem = load_maps(MapFolders(maps / "l", maps / "u"))
    assert problem.rejected == (RejectedFile("labels/51.png", READ[kind], "read", "unlabelled", kind="unscored"),)
    assert isinstance(problem.hidden_labels, MapTruth)
    assert (problem.hidden_labels[list(problem.row_names or ()).index("51.png")] == -1).all()


@pytest.mark.parametrize("kind", READ)
def test_a_corrected_map_that_is_replaced_is_an_error(kind: str, maps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = plant(maps / "c", {"50.png": saved(grid(50))})
    replacing(monkeypatch, kind, made / "50.png")
    with pytest.raises(InputDataError) as caught:
        load_maps(MapFolders(maps / "l", maps / "u", corrections=made), options=ImageOptions())
    assert str(caught.value) == f"{made}: a label map cannot be read: 50.png (its label map: {READ[kind]})"


# --- tables that are read again and again, and copies


@pytest.mark.parametrize("put", [pipe, directory])
def test_an_array_file_that_becomes_a_pipe_is_never_waited_for(put: Callable[[Path], None], tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((10, 3), np.float32))
    rows = ArrayFile(tmp_path / "x.npy")
    put(tmp_path / "x.npy")
    with pytest.raises(InputDataError) as caught:
        rows.rows(0, 5)
    words = "not a regular file" if put is pipe else "Is a directory"
    assert str(caught.value) == f"{tmp_path / 'x.npy'}: cannot be read: {words}"


@pytest.mark.parametrize("source", ["/dev/zero", "pipe"])
def test_what_is_no_file_any_more_is_not_copied(source: str, tmp_path: Path) -> None:
    if source == "pipe":
        os.mkfifo(tmp_path / "pipe")
    path = str(tmp_path / source)
    with pytest.raises(InputDataError) as caught:
        write_class_folder(tmp_path / "out", [ExportedImage("a", "cat", path)], ["cat"], copy=True)
    assert str(caught.value) == f"{path}: not a regular file; it cannot be copied"
    assert sorted(os.listdir(tmp_path)) == (["pipe"] if source == "pipe" else [])
