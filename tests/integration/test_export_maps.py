"""Label maps for the next tool, and corrected ones back: COCO files, and folders of PNG as labelled pictures."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import cli_tables
from cli_tables import copied, embasis
from coco_cases import slow_box, slow_mask
from embasis.data.reader import Reader
from embasis.data.segmentation.folders import MapFolders, load_maps
from embasis.report.summary import input_summary
from embasis.runs.checkpoint import read_run_view
from embasis.runs.export import read_labelled_pictures
from embasis.runs.finished_run import Finished
from embasis.storage import SealedFiles, encode_table, read_newest, read_stored_table
from embasis.storage.label_map_folder import LabelMapFolder
from embasis.types import ClassTable
from image_trees import plant, refusal
from map_folder_runs import IDS, NAMES, WORDS, pair, scene, sides
from map_trees import saved
from resealed import reseal
from storage_runs import make_runs_fast, tree

FIT = ("fit", "drawn", "streets", "-o", "new", *WORDS, "--corrections", "fix")


pytestmark = pytest.mark.usefixtures("fast_runs")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = sides(tmp_path_factory.mktemp("maps"), 6)
    plant(root / "streets", {"zeile\nzwei.png": saved(scene(7, 25)[0]), "=cmd().jpg": saved(scene(8, 25)[0], "JPEG")})
    plant(root / "streets", {"twin.jpg": saved(scene(9, 25)[0], "JPEG"), "twin.png": saved(scene(10, 25)[0])})
    with pytest.MonkeyPatch.context() as patch:
        make_runs_fast(patch)
        result = embasis("fit", root / "drawn", root / "streets", "-o", root / "run", *WORDS)
    assert result.exit_code == 0, result.output
    return root


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return copied(made, tmp_path / "here", monkeypatch)


def refused(code: int, sentence: str, *words: object) -> None:
    cli_tables.refused(code, sentence, *words)
    assert not Path("new").exists()
    assert not Path("x.json").exists()


def plane(kind: str, file: str) -> np.ndarray:
    return np.asarray(Image.open(Path("run/labels/round-002", kind, file)))


# --- export


@pytest.mark.parametrize("every", [False, True])
def test_regions_are_those_of_the_runs_maps(here: Path, every: bool) -> None:
    result = embasis("export", "run", "-o", "x.json", "--as", "coco", *(["--all"] if every else []))
    assert result.exit_code == 0, result.output
    found = json.loads(Path("x.json").read_text())
    table = read_stored_table("run/labels/round-002/maps.parquet")
    assert [image["file_name"] for image in found["images"]] == table["id"]
    assert {"zeile\nzwei.png", "=cmd().jpg", "twin.jpg", "twin.png", "unten/0 ü.png"} <= {*table["id"]}
    assert [(entry["id"], entry["name"]) for entry in found["categories"]] == [*enumerate(NAMES, 1)]
    assert [entry["id"] for entry in found["annotations"]] == [*range(1, len(found["annotations"]) + 1)]
    regions = {(entry["image_id"], entry["category_id"]): entry for entry in found["annotations"]}
    assert len(regions) == len(found["annotations"]) > len(table["id"])
    for image, file in zip(found["images"], table["file"], strict=True):
        labels, trusted = plane("labels", file), plane("trusted", file)
        assert labels.shape == (image["height"], image["width"])
        for category, number in enumerate(IDS, 1):
            mask = (labels == number) & ((trusted == 255) | every)
            entry = regions.pop((image["id"], category), None)
            assert (entry is None) == (not mask.any())
            if entry is not None:
                assert entry["segmentation"]["size"] == [image["height"], image["width"]]
                assert (slow_mask(entry["segmentation"]["counts"], *labels.shape) == mask).all()
                assert entry["area"] == int(mask.sum())
                assert tuple(entry["bbox"]) == slow_box(mask)
                assert entry["iscrowd"] == 1
    assert regions == {}
    count, which = len(found["annotations"]), "trusted or not" if every else "trusted"
    assert result.stdout == f"wrote x.json: {count} regions in 10 pictures, {which}\n"


def test_the_same_export_again_gives_the_same_bytes(here: Path) -> None:
    for name in ("a.json", "b.json", "b.json"):
        assert embasis("export", "run", "-o", name, "--as", "coco").exit_code == 0
    assert Path("a.json").read_bytes() == Path("b.json").read_bytes()
    assert str(here).encode() not in Path("a.json").read_bytes()


@pytest.mark.parametrize(
    "table",
    [
        ClassTable(("a", "b", "c"), ((5,), (300,), (65535,))),
        ClassTable(("a", "b", "c"), ((0,), (255,), (2,)), ignore=()),
        ClassTable(("a", "b", "c"), ((0,), (1,), (2,)), ((9, 9, 9), (0, 0, 0), (255, 0, 0)), coded="colours"),
    ],
    ids=["16 bits", "a class has 255", "colours"],
)
def test_maps_are_read_however_their_classes_are_written(tmp_path: Path, table: ClassTable) -> None:
    labels = torch.tensor([[0, 0, 1], [2, 255, 1]], dtype=torch.uint8)
    trusted = torch.tensor([[255, 255, 0], [255, 255, 255]], dtype=torch.uint8)
    with LabelMapFolder(tmp_path / "labels" / "round-000", table) as folder:
        folder.write("x/y.png", labels, trusted, trusted, trusted)
        folder.write_table({"id": ["x/y.jpg"], "file": ["x/y.png"], "width": [3], "height": [2]}, ".parquet")
    run = Finished(SealedFiles(tmp_path, None), "maps", 0, table.names)
    for every in (False, True):
        (picture,) = read_labelled_pictures(run, every)
        assert (picture.name, picture.height, picture.width) == ("x/y.jpg", 2, 3)
        known = (labels < 3) & ((trusted == 255) | every)
        assert [region.label for region in picture.regions] == [0, 1, 2]
        for region in picture.regions:
            assert (slow_mask(region.counts, 2, 3) == (known & (labels == region.label)).numpy()).all()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of pycocotools itself
def test_pycocotools_reads_the_file(here: Path) -> None:
    coco = pytest.importorskip("pycocotools.coco", reason="pycocotools is no dependency; the loops above say the same")
    assert embasis("export", "run", "-o", "x.json", "--as", "coco").exit_code == 0
    tool = coco.COCO("x.json")
    files = dict(
        zip(*(read_stored_table("run/labels/round-002/maps.parquet")[name] for name in ("id", "file")), strict=True)
    )
    for image in tool.loadImgs(tool.getImgIds()):
        file = files[image["file_name"]]
        for entry in tool.loadAnns(tool.getAnnIds(imgIds=[image["id"]], iscrowd=True)):
            mask = (plane("labels", file) == IDS[entry["category_id"] - 1]) & (plane("trusted", file) == 255)
            assert (tool.annToMask(entry) == mask).all()


@pytest.mark.parametrize("form", ["csv", "parquet", "folder"])
def test_other_forms_are_refused(here: Path, form: str) -> None:
    wanted = "images" if form == "folder" else "a table or images"
    which = "the run labelled pictures with label maps: --as coco or cvat or onnx"
    refused(2, f"--as {form} is for runs on {wanted}, {which}", "export", "run", "-o", f"x.{form}", "--as", form)
    rule = "output must end in .json for --as coco, got 'x.coco'"
    refused(2, rule, "export", "run", "-o", "x.coco", "--as", "coco")


def spoilt_table(**changes: Any) -> None:
    path = Path("run/labels/round-002/maps.parquet")
    columns = read_stored_table(path)
    columns |= {name: change(columns[name]) for name, change in changes.items()}
    path.write_bytes(encode_table(columns, ".parquet"))
    reseal(Path("run"))


@pytest.mark.parametrize("name", ["../../../secret.png", "/etc/passwd", "a\0.png"])
def test_a_file_name_in_the_run_that_leads_elsewhere_is_refused(here: Path, name: str) -> None:
    Path("run/secret.png").write_bytes(Path("run/labels/round-002/labels/1 ü.png").read_bytes())
    spoilt_table(file=lambda names: [name, *names[1:]])
    sentence = f"path escapes the folder of maps: {name!r}"
    refused(4, sentence, "export", "run", "-o", "x.json", "--as", "coco")


def test_a_link_among_the_runs_maps_is_not_followed(here: Path) -> None:
    shutil.move("run/labels/round-002/labels", "elsewhere")
    os.symlink(here / "elsewhere", "run/labels/round-002/labels")
    sentence = "run/labels/round-002/labels is a symbolic link; links are not followed"
    refused(4, sentence, "export", "run", "-o", "x.json", "--as", "coco")


def test_damaged_maps_are_refused(here: Path) -> None:
    command = ("export", "run", "-o", "x.json", "--as", "coco")
    home, path = Path("run/labels/round-002"), Path("run/labels/round-002/labels/1 ü.png")
    whole = path.read_bytes()
    path.write_bytes(whole[:60])
    differs = "sha256 differs; the fit command that made the run makes it again if it can"
    refused(4, f"{path}: {differs}", *command)
    reseal(Path("run"))
    result = embasis(*command)
    assert (result.exit_code, result.stderr.startswith(f"embasis: {path}: ")) == (4, True)
    path.write_bytes(saved(np.full((32, 48), 9, np.uint8)))
    reseal(Path("run"))
    refused(4, f"{path}: a number that is no class", *command)
    path.write_bytes(saved(np.full((31, 48), 7, np.uint8)))
    reseal(Path("run"))
    refused(4, f"{path}: has another size than maps.parquet says", *command)
    path.write_bytes(whole)
    reseal(Path("run"))
    marker = home / "maps.json"
    marker.write_bytes(marker.read_bytes().replace(b"true", b"truE"))
    refused(4, f"{marker}: {differs}", *command)


def test_nothing_trusted_says_how_to_get_the_others(here: Path) -> None:
    for path in Path("run/labels/round-002/trusted").rglob("*.png"):
        path.write_bytes(saved(np.zeros(np.asarray(Image.open(path)).shape, np.uint8)))
    reseal(Path("run"))
    sentence = "no label of the run is trusted; --all exports every label"
    refused(3, sentence, "export", "run", "-o", "x.json", "--as", "coco")
    assert embasis("export", "run", "-o", "y.json", "--as", "coco", "--all").exit_code == 0


# --- corrections


def truth(number: int) -> bytes:
    """The right map of a street."""
    return saved(np.array(IDS, np.uint8)[scene(number, 25)[1]])


def fix(**names: int) -> None:
    plant(Path("fix"), {name: truth(number) for name, number in names.items()})


def test_pictures_with_a_corrected_map_are_labelled_ones_of_the_run(here: Path) -> None:
    inputs = tree(here)
    fix(**{"unten/0 ü.png": 0, "1 ü.png": 1, "=cmd().png": 8})
    result = embasis(*FIT)
    assert result.exit_code == 0, result.output
    assert "note: fix: 3 pictures of streets are labelled ones now\n" in result.stdout
    assert "9 labelled and 7 unlabelled pictures, 3 classes\n" in result.stdout
    gone = {*read_stored_table("run/labels/round-002/maps.parquet")["id"]}
    gone -= {*read_stored_table("new/labels/round-002/maps.parquet")["id"]}
    assert gone == {"unten/0 ü.png", "1 ü.png", "=cmd().jpg"}
    assert read_newest("new").facts["corrected"] == 3
    assert ("corrected by hand, now labelled", "3") in input_summary(read_run_view(Path("new")))
    after = {name: data for name, data in tree(here).items() if not name.startswith(("new/", "fix/"))}
    assert after == inputs  # neither side is written to


def test_the_moved_pictures_have_their_maps_and_their_ids(here: Path) -> None:
    plant(Path("streets"), {"3.png": saved(scene(20, 25)[0])})  # as drawn/images/3.png
    plant(Path("fix"), {"1 ü.png": truth(1), "3.png": truth(20)})
    before, found = (
        load_maps(MapFolders("drawn", "streets")),
        load_maps(MapFolders("drawn", "streets", corrections="fix")),
    )
    labelled, unlabelled = found.labelled, before.unlabelled
    names = {name: row for row, name in enumerate(labelled.names)}  # type: ignore[attr-defined]
    assert len(names) == 8
    for name, number in (("1 ü.png", 1), ("corrections/3.png", 20)):
        assert (labelled.truth[names[name]].numpy() == scene(number, 25)[1]).all()
    old = dict(zip(unlabelled.names, unlabelled.ids.tolist(), strict=True))  # type: ignore[attr-defined]
    assert int(labelled.ids[names["1 ü.png"]]) == old["1 ü.png"]
    assert {"1 ü.png", "3.png"}.isdisjoint(found.row_names or ())
    counts = labelled.counts(3) - before.labelled.counts(3)
    assert counts.tolist() == sum(np.bincount(scene(n, 25)[1].reshape(-1), minlength=3) for n in (1, 20)).tolist()


def test_hidden_maps_of_moved_pictures_are_not_scored(here: Path) -> None:
    for number in range(6):
        plant(Path("judged"), pair(number, 25))
    fix(**{"2.png": 2})
    problem = load_maps(MapFolders("drawn", "judged", corrections="fix"))
    assert problem.hidden_labels is not None
    assert len(problem.hidden_labels) == 5
    for row, name in enumerate(problem.row_names or ()):
        assert (problem.hidden_labels[row].numpy() == scene(int(name[0]), 25)[1]).all()


def test_a_map_that_the_run_wrote_can_be_edited_and_given_back(here: Path) -> None:
    source = Path("run/labels/round-002/labels")
    for name in ("unten/3 ü.png", "twin.jpg.png"):
        image = Image.open(source / name)
        image.paste(IDS[2], (0, 0, 10, 10))
        Path("fix/labels", name).parent.mkdir(parents=True, exist_ok=True)
        image.save(Path("fix/labels", name))
    problem = load_maps(MapFolders("drawn", "streets", corrections="fix"))
    names = problem.labelled.names  # type: ignore[attr-defined]
    assert "twin.jpg" in names
    assert (problem.labelled.truth[names.index("twin.jpg")][:10, :10] == 2).all()
    assert "twin.png" in (problem.row_names or ())


def test_going_on_needs_the_same_maps(here: Path) -> None:
    fix(**{"1 ü.png": 1})
    assert embasis(*FIT).exit_code == 0
    assert "nothing is left to train" in embasis(*FIT).stdout
    plant(Path("fix"), {"1 ü.png": truth(2)})
    result = embasis(*FIT)
    rule = (
        "the data have changed since the run began: labelled (0 added, 0 removed, 1 edited: '1 ü.png'); "
        "use another folder, the old data, or --accept-data-change"
    )
    assert (result.exit_code, result.stderr) == (3, f"embasis: {rule}\n")


def other_toml() -> None:
    fix(**{"1 ü.png": 1})
    text = Path("drawn/classes.toml").read_text()
    Path("fix/classes.toml").write_text(text.replace("id = 7", "id = 8"))


WHERE = "labels/1 ü.png"
BAD: dict[str, tuple[Any, str]] = {
    "no folder": (
        lambda: None,
        "fix: a folder of label maps is expected, a PNG with the name of each corrected picture",
    ),
    "no such picture": (
        lambda: fix(**{"1 ü.png": 1, "77.png": 1, "a/../b.png": 2}),
        "fix: 2 ids are not in streets: '77.png', 'b.png'",
    ),
    "whose map": (
        lambda: fix(**{"twin.png": 9}),
        "fix: twin.png may belong to 'twin.jpg', 'twin.png'; give it the whole name, as twin.jpg.png",
    ),
    "two maps": (
        lambda: fix(**{"=cmd().png": 8, "=cmd().jpg.png": 8}),
        "fix: two label maps of one picture: '=cmd().jpg.png' and '=cmd().png'",
    ),
    "unknown number": (
        lambda: plant(Path("fix"), {"1 ü.png": saved(np.full((32, 48), 9, np.uint8))}),
        f"fix: unknown ids {{9: 1 file, 1,536 px}}; allowed 7, 11, 26, ignore 255; first: {WHERE}; "
        "name them in classes.toml, or ignore them there: in ignore = […], or by others = true",
    ),
    "another size": (
        lambda: plant(Path("fix"), {"1 ü.png": saved(np.full((30, 48), 7, np.uint8))}),
        f"fix: 1 label map of another size than the picture: {WHERE} (48×30, its picture 48×32)",
    ),
    "colours": (
        lambda: plant(Path("fix"), {"1 ü.png": saved(np.zeros((32, 48, 3), np.uint8))}),
        f"fix: 1 label map of the wrong kind: {WHERE} (is 8-bit RGB: numbers are expected, as 8-bit grey or palette)",
    ),
    "says nothing": (
        lambda: plant(Path("fix"), {"1 ü.png": saved(np.full((32, 48), 255, np.uint8))}),
        "fix: label maps without a labelled pixel: '1 ü.png'",
    ),
    "other classes": (
        other_toml,
        "fix: its classes.toml differs from that of the labelled side; corrections are coded as that says",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_maps_that_cannot_be_meant_are_refused_with_a_sentence(here: Path, kind: str) -> None:
    spoil, sentence = BAD[kind]
    spoil()
    assert refusal(lambda: load_maps(MapFolders("drawn", "streets", corrections="fix"))) == sentence


def test_unreadable_maps_and_pictures_are_refused(here: Path) -> None:
    for damaged in (truth(1)[:60], b"no picture"):
        plant(Path("fix"), {"1 ü.png": damaged, "2 ü.png": truth(2)})
        said = refusal(lambda: load_maps(MapFolders("drawn", "streets", corrections="fix")))
        assert said.startswith("fix: a label map cannot be read: 1 ü.png (")
    plant(Path("fix"), {"1 ü.png": truth(1)})
    picture = Path("streets/1 ü.png").read_bytes()
    Path("streets/1 ü.png").write_bytes(picture[:-600])  # its header can be read
    with Reader(0) as reader:
        said = refusal(lambda: load_maps(MapFolders("drawn", "streets", corrections="fix"), reader=reader))
    assert said.startswith("fix: a corrected picture cannot be read: 1 ü.png (")


def test_the_command_refuses_maps_and_tables_before_any_picture_is_read(here: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(
        "embasis.data.segmentation.folders.drop_undecodable_maps", lambda *_: pytest.fail("a picture was read")
    )
    fix(**{"77.png": 1})
    refused(3, "fix: 1 id is not in streets: '77.png'", *FIT)
    Path("fix.csv").write_text("id,label\n1 ü.png,sky\n")
    rule = "a folder of label maps is expected, a PNG with the name of each corrected picture"
    refused(3, f"fix.csv: {rule}", *FIT[:-1], "fix.csv")


def test_maps_of_all_pictures_are_refused(here: Path) -> None:
    shutil.copytree("run/labels/round-002/labels", "fix")
    hidden = next(path for path in Path("fix").iterdir() if path.name.startswith("map-"))
    hidden.unlink()  # its picture has a name that no file can have
    Path("streets/zeile\nzwei.png").unlink()
    rest = "so that nothing is left to adapt to; keep the ones that were corrected"
    assert (
        refusal(lambda: load_maps(MapFolders("drawn", "streets", corrections="fix")))
        == f"fix: names all 9 of streets, {rest}"
    )


def test_the_same_classes_toml_beside_the_maps_is_welcome(here: Path) -> None:
    fix(**{"1 ü.png": 1})
    shutil.copy("drawn/classes.toml", "fix/classes.toml")
    assert load_maps(MapFolders("drawn", "streets", corrections="fix")).corrected == 1
