"""The commands on scenes with label maps: what `check` says, which settings are known, what `compare` prints."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cli_tables
from cli_tables import embasis, write_tables
from embasis.config import load, presets
from embasis.storage import read_newest
from image_runs import sides as image_sides
from image_trees import plant
from map_folder_runs import IDS, TOML, command, pair, scene, sides
from map_trees import saved
from street_trees import grow

pytestmark = pytest.mark.usefixtures("fast_runs")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Both sides in the current folder."""
    monkeypatch.chdir(sides(tmp_path, 6))
    return tmp_path


def refused(code: int, sentence: str, *words: object) -> None:
    """One sentence, the code, and no run folder."""
    cli_tables.refused(code, sentence, *words)
    assert not Path("new").exists()


# --- check


def numbers(number: int) -> np.ndarray:
    return np.array(IDS, np.uint8)[scene(number)[1]]


def write(name: str, values: np.ndarray, kind: str = "PNG") -> None:
    Path("drawn/labels", name).write_bytes(saved(values, kind))


def unknown() -> None:
    values = numbers(3)
    values[:4, :5] = 37
    write("3.png", values)


def unpaired() -> None:
    Path("drawn/labels/3.png").rename("drawn/labels/zzz.png")


def jpegs() -> None:
    for path in Path("drawn/labels").iterdir():
        write(f"{path.stem}.jpg", numbers(int(path.stem)), "JPEG")
        path.unlink()


def every(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[], None]:
    def spoil() -> None:
        for path in Path("drawn/labels").iterdir():
            write(path.name, change(numbers(int(path.stem))))

    return spoil


def no_maps() -> None:
    for path in Path("drawn/labels").iterdir():
        path.unlink()


HINT = "name them in classes.toml, or ignore them there: in ignore = […], or by others = true"
SPOILT: dict[str, tuple[Callable[[], object], str]] = {
    "unknown id": (
        unknown,
        f"drawn: unknown ids {{37: 1 file, 20 px}}; allowed 7, 11, 26, ignore 255; first: labels/3.png; {HINT}",
    ),
    "another size": (
        lambda: write("3.png", numbers(3)[:20]),
        "drawn: 1 label map of another size than the picture: labels/3.png (48×20, its picture 48×32)",
    ),
    "missing and extra": (
        unpaired,
        "drawn: 1 picture without a label map: images/3.png; 1 label map without a picture: labels/zzz.png; "
        "a map has the name of its picture, as labels/3.png for images/3.png",
    ),
    "JPEG": (
        jpegs,
        "drawn: 6 label maps of the wrong kind: labels/0.jpg, labels/1.jpg, labels/2.jpg, … "
        "(is a JPEG: its numbers are not exact; save label maps as PNG)",
    ),
    "RGB": (
        lambda: write("3.png", np.stack([numbers(3)] * 3, -1)),
        "drawn: 1 label map of the wrong kind: labels/3.png "
        "(is 8-bit RGB: numbers are expected, as 8-bit grey or palette)",
    ),
    "class missing": (
        every(lambda values: np.where(values == IDS[2], IDS[1], values).astype(np.uint8)),
        "drawn: classes without a labelled pixel: 'car'; remove them from classes.toml, or "
        "data.allow_missing_class=true goes on without them",
    ),
    "one class": (
        every(lambda values: np.full_like(values, IDS[0])),
        "drawn: pixels of at least 2 classes are needed, got 1 class: 'sky'",
    ),
    "only ignored": (
        every(lambda values: np.full_like(values, 255)),
        "drawn: no label map that can be used has a labelled pixel",
    ),
}


@pytest.mark.parametrize("kind", SPOILT)
def test_check_and_fit_say_what_is_wrong_with_label_maps_in_one_sentence(here: Path, kind: str) -> None:
    spoil, sentence = SPOILT[kind]
    spoil()
    result = embasis("check", "drawn", "streets", "--workers", 0)
    assert result.exit_code == 3, result.output
    assert [line for line in result.stdout.splitlines() if line.startswith("error")] == [f"error: {sentence}"]
    assert result.stdout.splitlines()[-1].endswith("embasis fit would refuse these pictures and label maps")
    refused(3, sentence, *command(Path(), Path("new")))


@pytest.mark.parametrize("folder", ["empty", "gone"])
def test_pictures_without_any_label_map_are_recognised(here: Path, folder: str) -> None:
    no_maps()
    if folder == "gone":
        Path("drawn/labels").rmdir()
    sentence = (
        "drawn: pictures in images/, but no label map in labels/; for each picture a PNG of class numbers or colours "
        "is expected, as labels/0.png"
    )
    refused(3, sentence, "check", "drawn", "streets")
    refused(3, sentence, *command(Path(), Path("new")))


def test_check_is_content_with_what_fit_can_use(here: Path) -> None:
    result = embasis("check", "drawn", "streets", "--workers", 0)
    assert result.exit_code == 0, result.output
    last = "no errors, no warnings: embasis fit can use these pictures and label maps"
    assert result.stdout.splitlines()[-1] == last
    Path("drawn/labels/3.png").write_bytes(saved(np.full((32, 48), 255, np.uint8)))
    result = embasis("check", "drawn", "streets", "--workers", 0)
    assert "warning: drawn: 1 picture left out, the map has no labelled pixel: images/3.png" in result.stdout
    assert result.exit_code == 0


def test_folders_of_the_other_kind_are_recognised(here: Path) -> None:
    image_sides(here)
    has = "has pictures in images/ and label maps in labels/, but photos has none"
    sentence = f"drawn: {has}: a folder with label maps cannot be used with one of class folders; swapped?"
    refused(3, sentence, "check", "photos", "drawn")
    refused(3, sentence, "fit", "photos", "drawn", "-o", "new")
    refused(3, sentence, "fit", "photos", "paintings", "--test", "drawn", "-o", "new")
    sentence = (
        "photos: no label maps of the pictures in images/; drawn has label maps in labels/, so the test side needs "
        "images/ and labels/, too"
    )
    refused(3, sentence, "fit", "drawn", "streets", "--test", "photos", "-o", "new")
    write_tables(here)
    sentence = "images and tables cannot be mixed; no folder or list of images: unlabelled.csv"
    refused(3, sentence, "fit", "drawn", "unlabelled.csv", "-o", "new")


def test_class_folders_as_unlabelled_side_of_label_maps_are_pictures_at_any_depth(here: Path) -> None:
    """Streets often lie in folders of their cities: names of folders say nothing here."""
    image_sides(here)
    assert embasis("check", "drawn", "photos", "--workers", 0).exit_code == 0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[[klass]]", "Object contains unknown field `klass`; known keys: class, coded, ignore, others; of a class: "
         "colour, id, ids, name"),
        (TOML.replace("id = 11", "id = 7"), "ids must be unique, twice or more: 7"),
        (TOML.replace("road", "sky"), "names of classes must be unique, twice or more: sky"),
        (TOML.replace("id = 7", 'colour = "red"'),
         "colours are written \"#rrggbb\" or [r, g, b] with numbers in 0..255, got 'red'"),
        (TOML.replace("id = 7", "id = 70000"), "class 'sky': ids must be in 0..65535, got 70000"),
        ("", "at least 2 classes are needed, got 0; write a [[class]] for each"),
    ],
    ids=["unknown key", "ids twice", "names twice", "bad colour", "large id", "empty"],
)  # fmt: skip
def test_a_wrong_classes_file_is_said_with_its_name(here: Path, text: str, sentence: str) -> None:
    Path("drawn/classes.toml").write_text(text)
    result = embasis("check", "drawn", "streets", "--workers", 0)
    assert result.exit_code == 3
    assert f"error: drawn/classes.toml: {sentence}\n" in result.stdout
    refused(3, f"drawn/classes.toml: {sentence}", *command(Path(), Path("new")))


def test_a_classes_file_that_is_not_there_or_not_needed_is_said(here: Path) -> None:
    image_sides(here)
    write_tables(here)
    refused(3, "gone.toml: no such file", *command(Path(), Path("new"), "--classes", "gone.toml"))
    for sides_, kind in ((("photos", "paintings"), "images"), (("labelled.csv", "unlabelled.csv"), "tables")):
        sentence = f"classes are for label maps, the {kind} have none"
        refused(2, sentence, "check", *sides_, "--classes", "drawn/classes.toml")
        refused(2, sentence, "fit", *sides_, "-o", "new", "--classes", "drawn/classes.toml")


# --- settings


def test_settings_of_another_kind_of_data_are_refused(here: Path) -> None:
    write_tables(here)
    tables = ("fit", "labelled.csv", "unlabelled.csv", "-o", "new")
    refused(2, "maps settings are for label maps, the data have none: size", *tables, "maps.size=32")
    known = "known for arrays: adapter, extra_trees, hist_gradient_boosting, linear, mlp, random_forest, small_cnn"
    for name in ("small_fcn", "fast_segment"):
        refused(2, f"network '{name}' is for pictures with label maps; {known}", *tables, "--backbone", name)
    folders = ("fit", "drawn", "streets", "-o", "new")
    sentence = "images settings are for images, the data have label maps, whose settings begin with maps: depth"
    refused(2, sentence, *folders, "images.depth=full")
    for name in ("mlp", "timm:resnet18", "efficientnet_lite0"):
        sentence = f"network '{name}' is not for label maps; known for them: deeplab_v2, fast_segment, small_fcn"
        refused(2, sentence, *folders, "--backbone", name)
    refused(2, "label maps have no columns, so none can be named: label", *folders, "--label", "x")
    refused(2, "maps.size must be 0 or at least 16, got 7", *folders, "maps.size=7")
    refused(
        2,
        "unknown maps setting 'crop'; known: blur, colour, crop_height, crop_width, flip, least_scale, most_scale, "
        "rare, size, window, workers",
        *(*folders, "maps.crop=7"),
    )


def test_size_and_workers_belong_to_what_the_data_are(here: Path) -> None:
    image_sides(here)
    maps = load(None, ("size=64", "workers=0"), data={"labelled": "drawn", "unlabelled": "streets"})
    assert (maps.maps, maps.images, maps.network) == ({"size": 64, "workers": 0}, {}, {})
    images = load(None, ("size=64", "workers=0"), data={"labelled": "photos", "unlabelled": "paintings"})
    assert (images.maps, images.images, images.network) == ({}, {"workers": 0}, {"size": 64})
    assert load(None, ("workers=0",), data={"dataset": "gta5_cityscapes"}).maps == {"workers": 0}
    assert load(None, ("workers=0",), data={"dataset": "pacs"}).images == {"workers": 0}


def test_a_backbone_of_timm_is_trained_for_label_maps(here: Path) -> None:
    words = ("maps.size=64", "maps.crop_height=64", "maps.crop_width=64", "rounds=0", "source_epochs=1", "workers=0")
    fit = ("fit", "drawn", "streets", "-o", "new", "--backbone", "fast_segment", "backbone=timm:resnet18",
           "pretrained=false", *words)  # fmt: skip
    result = embasis(*fit)
    assert result.exit_code == 0, result.output
    network = read_newest("new").facts["config"]["network"]
    assert (network["name"], network["backbone"], network["pretrained"]) == ("fast_segment", "timm:resnet18", False)
    assert embasis("predict", "new", "streets/1 ü.png", "-o", "maps", "--workers", 0).exit_code == 0


@pytest.mark.parametrize("name", ["paper-gta5-cityscapes", "paper-synthia-cityscapes", "street-cpu"])
def test_presets_of_street_scenes_can_be_read(name: str) -> None:
    assert name in presets()
    config = load(None, ("maps.size=64", "plan.rounds=1"), preset=name)
    assert config.maps["size"] == 64
    assert config.network["name"] in ("deeplab_v2", "fast_segment")
    assert config.method.get("name") == ("em_basis_paper" if name.startswith("paper-") else None)


@pytest.mark.parametrize("words", [("list",), ("fit", "--help"), ("predict", "--help"), ("check", "--help")], ids=str)
def test_all_that_is_listed_fits_in_80_columns(words: tuple[str, ...]) -> None:
    text = embasis(*words).stdout
    assert max(map(len, text.splitlines())) <= 80
    if words == ("list",):
        for name in ("deeplab_v2", "fast_segment", "small_fcn", "scenes", "carla_camvid", "mean_dataset_iou"):
            assert f"  {name}\n" in text


def test_the_demo_knows_its_tasks() -> None:
    assert "--task" in embasis("demo", "--help").stdout
    result = embasis("demo", "--task", "streets")
    assert result.exit_code == 2
    assert "'streets' is not one of 'digits', 'scenes'" in result.stderr


# --- compare

SHORT = ("--seeds", "1", "plan.rounds=1", "plan.source_epochs=1", "plan.epochs=1", "plan.batch_size=4")


def test_a_comparison_on_scenes_has_the_mean_iou(tmp_path: Path) -> None:
    words = ("labelled_rows=8", "unlabelled_rows=6", "test_rows=4", "--backbone", "small_fcn", "network.width=16")
    methods = ("--methods", "source_only,em_basis")
    result = embasis("compare", "scenes", *methods, *SHORT, *words, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "mIoU" in result.stdout
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "compare.csv", "compare.md", "runs.csv", "report.html",
    }  # fmt: skip
    with open(tmp_path / "out" / "runs.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["method"] for row in rows] == ["source_only", "em_basis"]
    assert all(0 <= float(row["mean_iou"]) <= 1 for row in rows)


def test_a_miniature_of_the_papers_streets_gets_the_papers_table(tmp_path: Path) -> None:
    root = grow(tmp_path / "data", "gta5_cityscapes")
    words = ("network.backbone=timm:resnet18", "network.pretrained=false", "maps.size=32", "maps.crop_height=32",
             "maps.crop_width=32", "maps.workers=0")  # fmt: skip
    preset = ("--root", root, "--preset", "paper-gta5-cityscapes", "--methods", "source_only,em_basis")
    result = embasis("compare", "gta5_cityscapes", *preset, *SHORT, *words)
    assert result.exit_code == 0, result.output
    assert "mIoU" in result.stdout
    lines = [line.split("  ")[0] for line in result.stdout.splitlines()]
    layout = lines[lines.index("ours, one seed:") :]
    assert layout[1:4] == ["source_only", "em_basis", "published, not run by us:"]
    assert any(line.startswith("Ours (paper), DeepLabv2 80.3") for line in layout)
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_a_run_on_a_pair_of_folders_scores_a_test_side(here: Path) -> None:
    for number in range(20, 24):
        plant(Path("proof"), pair(number, 25))
    result = embasis(*command(Path(), Path("new"), "--test", "proof", "rounds=0"))
    assert result.exit_code == 0, result.output
    assert "  test mIoU 0." in result.stdout
