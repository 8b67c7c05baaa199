"""A run folder of scenes with label maps: what it holds, with what it goes on, and what `predict` writes."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cli_tables import copied, embasis, refused, write_tables
from embasis.runs.run import TrainingRun
from embasis.storage import read_newest, read_stored_table
from folder_runs import digests
from image_trees import plant
from map_folder_runs import IDS, NAMES, command, fitted, pair, scene, sides
from map_trees import saved
from storage_runs import tree

KINDS = ("labels", "confidence", "variance", "trusted")
STREETS = sorted(f"{'' if number % 3 else 'unten/'}{number} ü.png" for number in range(12))


pytestmark = pytest.mark.usefixtures("fast_runs")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both sides and a finished run with its page."""
    home = sides(tmp_path_factory.mktemp("map runs"))
    fitted(home, home / "run")
    return home


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return copied(made, tmp_path / "here", monkeypatch)


def pixels(path: Path | str) -> np.ndarray:
    with Image.open(path) as image:
        return np.array(image)


def lines(path: Path | str) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


# --- what a run holds


def test_a_run_keeps_maps_of_every_round_for_every_picture(made: Path) -> None:
    for number in range(3):
        home = made / "run" / "labels" / f"round-{number:03d}"
        for kind in KINDS:
            names = sorted(path.relative_to(home / kind).as_posix() for path in (home / kind).rglob("*.png"))
            assert names == STREETS
            assert all(pixels(home / kind / name).shape == (32, 48) for name in names)
        table = read_stored_table(home / "maps.parquet")
        assert table["id"] == STREETS
        assert list(table)[:7] == ["id", "file", "width", "height", "mean_confidence", "mean_variance", "trusted"]
        assert list(table)[7:] == [column for name in NAMES for column in (name, f"{name} trusted")]
        assert json.loads((home / "maps.json").read_text())["complete"] is True


def test_a_round_that_is_not_kept_has_its_maps_too(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = TrainingRun.write_maps
    monkeypatch.setattr(
        TrainingRun, "write_maps", lambda run, number, labels, _: usual(run, number, labels, number > 0)
    )
    fitted(made, tmp_path / "run")
    for kind in KINDS:
        old, new = (sorted((home / "run/labels/round-000" / kind).rglob("*.png")) for home in (made, tmp_path))
        assert [path.read_bytes() for path in new] == [path.read_bytes() for path in old] != []
    assert not (tmp_path / "run/gallery/round-000").exists()


def test_labels_have_the_numbers_of_the_labelled_maps_and_trust_is_black_or_white(made: Path) -> None:
    home = made / "run" / "labels" / "round-002"
    for row, name in enumerate(STREETS):
        assert set(np.unique(pixels(home / "labels" / name))) <= set(IDS)
        trusted = pixels(home / "trusted" / name)
        assert set(np.unique(trusted)) <= {0, 255}
        assert read_stored_table(home / "maps.parquet")["trusted"][row] == pytest.approx((trusted == 255).mean())


def test_the_maps_are_right_for_scenes_that_are_easy(made: Path) -> None:
    right = []
    for name in STREETS:
        number = int(name.split("/")[-1].split()[0])
        truth = np.array(IDS)[scene(number, 25)[1]]
        right.append((pixels(made / "run" / "labels" / "round-002" / "labels" / name) == truth).mean())
    assert np.mean(right) > 0.6


def test_a_run_keeps_the_sites_of_two_rounds_and_a_small_gallery(made: Path) -> None:
    assert sorted(path.name for path in (made / "run" / "sites").iterdir()) == ["round-001", "round-002"]
    index = json.loads((made / "run" / "gallery" / "round-002" / "index.json").read_text())
    assert [row["why"] for row in index] == ["least sure"] * 4 + ["surest"] * 4
    assert {row["name"] for row in index} <= set(STREETS)
    assert set(index[0]) == {"name", "why", "picture", "labels", "variance", "trusted"}


def test_the_report_shows_picture_labels_variance_and_trust(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = embasis("report", "run")
    assert result.exit_code == 0, result.output
    page = Path("run", "report.html").read_text()
    assert page.count("data:image/png;base64,") >= 4 * 8
    assert all(name in page for name in NAMES)
    assert str(here) not in page


def test_the_same_command_again_trains_nothing(here: Path) -> None:
    before = tree(here / "run")
    result = embasis(*command(Path(), Path("run")))
    assert result.exit_code == 0, result.output
    assert "run had ended (finished) with generation 3; nothing is left to train" in result.stdout
    drawn_again = {"lock": b"", "report.html": b"", "log.txt": b""}
    assert {**tree(here / "run"), **drawn_again} == {**before, **drawn_again}


def test_a_run_holds_no_path_of_this_machine(made: Path) -> None:
    for name, data in tree(made / "run").items():
        assert str(made).encode() not in data, name


# --- going on with something else


def test_a_run_does_not_go_on_with_other_settings(here: Path) -> None:
    sentence = (
        "the run folder was begun with other settings: {0}: {1}; "
        "use another folder, the old settings, or --allow-change {0}"
    )
    refused(2, sentence.format("maps.size", "32 → 48"), *command(Path(), Path("run"), "maps.size=48"))
    refused(2, sentence.format("network.width", "16 → 32"), *command(Path(), Path("run"), "network.width=32"))


def test_a_run_does_not_go_on_with_other_data(here: Path) -> None:
    sentence = (
        "the data have changed since the run began: {}; use another folder, the old data, or --accept-data-change"
    )
    fit, toml = command(Path(), Path("run")), Path("drawn/classes.toml").read_text()
    plant(Path("drawn"), {"labels/3.png": pair(4)["labels/4.png"]})
    refused(3, sentence.format("labelled (0 added, 0 removed, 1 edited: '3.png')"), *fit)
    plant(Path("drawn"), {**pair(3), **pair(50)})
    refused(3, sentence.format("labelled (1 added, 0 removed, 0 edited: '50.png')"), *fit)
    for kind in ("images", "labels"):
        Path("drawn", kind, "50.png").unlink()
    plant(Path("streets"), {"neu.png": saved(scene(60)[0])})
    refused(3, sentence.format("unlabelled (1 added, 0 removed, 0 edited: 'neu.png')"), *fit)
    Path("streets/neu.png").unlink()
    Path("drawn/classes.toml").write_text(toml.replace("id = 7", 'id = 7\ncolour = "#123456"'))
    refused(3, sentence.format("labels"), *fit)
    Path("drawn/classes.toml").write_text(toml)
    assert embasis(*fit).exit_code == 0


def test_maps_of_the_unlabelled_side_are_scored_and_a_change_of_them_is_seen(here: Path) -> None:
    for number in range(6):
        plant(Path("judged"), pair(number, 25))
    words = ("fit", "drawn", "judged", "-o", "new", *command(Path(), Path())[5:], "rounds=0")
    first = embasis(*words)
    assert first.exit_code == 0, first.output
    assert "note: judged: has labels/; used for scores only" in first.stdout
    assert " mIoU 0." in first.stdout
    assert "truth" in json.loads(next(Path("new/gallery").glob("*/index.json")).read_text())[0]
    plant(Path("judged"), {"labels/3.png": pair(4)["labels/4.png"]})
    sentence = (
        "the data have changed since the run began: labels; use another folder, the old data, or --accept-data-change"
    )
    refused(3, sentence, *words)


def unfinished(folder: Path) -> Path:
    """A run that was left in round 2: its labels of round 1 are needed."""
    run = folder / "left"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("embasis.runs.run.TrainingRun._count", leaving_at(2))
        assert embasis(*command(Path(), run, "save_seconds=0")).exit_code != 0
    assert read_newest(run).facts["progress"]["round"] == 2
    return run


def leaving_at(round_: int) -> Any:
    def count(self: Any, event: Any, seconds: float) -> None:
        if event.state.round == round_ and event.state.step > 0:
            raise RuntimeError("left")

    return count


def test_damaged_or_missing_labels_of_the_last_round_are_said_with_code_4(here: Path) -> None:
    run = unfinished(here)
    shard = run / "sites" / "round-001" / "000000.shard"
    data = bytearray(shard.read_bytes())
    data[100] ^= 4
    shard.write_bytes(data)
    again = command(Path(), run, "save_seconds=0")
    refused(4, f"{shard}: sha256 differs", *again)
    shutil.rmtree(run / "sites")
    refused(4, f"cannot read {run / 'sites' / 'round-001' / 'index.json'}: No such file or directory", *again)
    assert embasis("report", run).exit_code == 0


def test_a_finished_run_needs_no_sites_to_label_other_pictures(here: Path) -> None:
    shutil.rmtree("run/sites")
    assert embasis("predict", "run", "streets", "-o", "maps", "--workers", 0).exit_code == 0
    assert embasis(*command(Path(), Path("run"))).exit_code == 0


# --- predict


def test_predict_writes_what_the_last_round_wrote(here: Path) -> None:
    result = embasis("predict", "run", "streets", "-o", "maps", "--workers", 0)
    assert result.exit_code == 0, result.output
    for kind in KINDS:
        assert tree(Path("maps", kind)) == tree(Path("run/labels/round-002", kind))
    table, found = read_stored_table(Path("run/labels/round-002/maps.parquet")), lines("maps/maps.csv")
    assert [row["id"] for row in found] == table["id"]
    assert [float(row["trusted"]) for row in found] == table["trusted"]
    share = np.mean(table["trusted"])
    assert result.stdout == f"wrote maps: labels, confidence, variance and trust of 12 pictures, {share:.0%} trusted\n"
    shutil.copytree("streets", "umbrella/images")
    assert embasis("predict", "run", "umbrella", "-o", "other", "--workers", 1).exit_code == 0
    assert tree(Path("other")) == tree(Path("maps"))


def test_colour_coded_maps_are_written_in_their_colours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(sides(tmp_path))
    colours = np.array([(10, 20, 30), (0, 200, 0), (250, 0, 90)], np.uint8)
    toml = "".join(f'[[class]]\nname = "{n}"\ncolour = {c.tolist()}\n' for n, c in zip(NAMES, colours, strict=True))
    Path("drawn/classes.toml").write_text(toml)
    for number in range(12):
        plant(Path("drawn"), {f"labels/{number}.png": saved(colours[scene(number)[1]])})
    fitted(Path(), Path("run"), "rounds=0")
    assert embasis("predict", "run", "streets", "-o", "maps", "--workers", 0).exit_code == 0
    with Image.open("maps/labels/4 ü.png") as image:
        seen = np.array(image.convert("RGB"))
    assert {tuple(row) for row in seen.reshape(-1, 3).tolist()} <= {tuple(row) for row in colours.tolist()}
    shutil.copytree("streets", "back/images")
    shutil.copytree("maps/labels", "back/labels")
    shutil.copy("drawn/classes.toml", "back/classes.toml")
    assert embasis("check", "back", "drawn/images", "--workers", 0).exit_code == 0


def odd_pictures(folder: Path) -> dict[str, tuple[int, int]]:
    """Pictures of every kind and the size that their maps must have."""
    draw = np.random.default_rng(0)
    made = {
        "one.png": draw.integers(0, 256, (1, 1, 3), dtype=np.uint8),
        "long.png": draw.integers(0, 256, (3, 5000, 3), dtype=np.uint8),
        "grey.png": draw.integers(0, 256, (40, 50), dtype=np.uint8),
        "seen through.png": draw.integers(0, 256, (50, 40, 4), dtype=np.uint8),
        "deep.png": draw.integers(0, 2**16, (30, 20), dtype=np.uint16),
        "large.png": draw.integers(0, 256, (100, 130, 3), dtype=np.uint8),
    }
    plant(folder, {name: saved(values) for name, values in made.items()})
    turned = Image.Exif()
    turned[0x112] = 6
    Image.fromarray(draw.integers(0, 256, (30, 60, 3), dtype=np.uint8)).save(folder / "turned.jpg", exif=turned)
    return {**{name: values.shape[:2] for name, values in made.items()}, "turned.jpg": (60, 30)}


def test_maps_have_the_size_of_the_upright_picture_whatever_it_is(here: Path) -> None:
    sizes = odd_pictures(Path("odd"))
    for words in ((), ("--scales", "0.5,1,2", "--flip")):
        result = embasis("predict", "run", "odd", "-o", "maps", "--workers", 0, *words)
        assert result.exit_code == 0, result.output
        for row in lines("maps/maps.csv"):
            shape = sizes[row["id"]]
            assert (int(row["height"]), int(row["width"])) == shape
            assert all(pixels(Path("maps", kind, row["file"])).shape == shape for kind in KINDS)
            assert set(np.unique(pixels(Path("maps/labels", row["file"])))) <= set(IDS)


def test_one_picture_and_a_list_get_the_maps_that_they_get_in_a_folder(here: Path) -> None:
    Path("list.csv").write_text("path\nstreets/4 ü.png\n")
    for place, name in (("streets/4 ü.png", "4 ü.png"), ("list.csv", "streets/4 ü.png")):
        shutil.rmtree("maps", ignore_errors=True)
        result = embasis("predict", "run", place, "-o", "maps", "--workers", 0)
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith("wrote maps: labels, confidence, variance and trust of 1 picture, ")
        (row,) = lines("maps/maps.csv")
        assert row["file"].endswith(name)
        assert Path("maps/labels", row["file"]).read_bytes() == Path("run/labels/round-002/labels/4 ü.png").read_bytes()


def test_more_scales_and_a_flip_change_the_maps_and_the_same_scale_alone_does_not(here: Path) -> None:
    for words, alike in ((("--scales", "1"), True), (("--scales", "1,1"), True), (("--flip",), False)):
        assert embasis("predict", "run", "streets", "-o", "maps", "--workers", 0, *words).exit_code == 0
        same = tree(Path("maps/confidence")) == tree(Path("run/labels/round-002/confidence"))
        assert same == alike, words


def test_pictures_that_cannot_be_read_get_no_map_and_a_warning(here: Path) -> None:
    plant(Path("streets"), {"kaputt.png": saved(scene(3)[0])[:200], "text.png": b"no picture"})
    result = embasis("predict", "run", "streets", "-o", "maps", "--workers", 0)
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: 2 files could not be read and got no labels: ")
    assert "kaputt.png: truncated PNG" in result.stderr
    assert [row["id"] for row in lines("maps/maps.csv")] == STREETS


def test_where_no_picture_can_be_read_nothing_is_written(here: Path) -> None:
    plant(Path("bad"), {"kaputt.png": saved(scene(3)[0])[:200]})
    Path("leer").mkdir()
    write_tables(here)
    refused(3, "bad: no picture can be read: kaputt.png: truncated PNG", "predict", "run", "bad", "-o", "maps")
    hint = "is a table without a column path, the run labels images; name a folder, an image, or a .csv with a column"
    refused(3, f"unlabelled.csv: {hint} path", "predict", "run", "unlabelled.csv", "-o", "maps")
    refused(3, "gone: no image can be read: no such file", "predict", "run", "gone", "-o", "maps")
    result = embasis("predict", "run", "leer", "-o", "maps")
    assert (result.exit_code, result.stderr.startswith("embasis: leer: no images; read are .bmp, ")) == (3, True)
    assert not Path("maps").exists()


def test_a_precision_trusts_the_pixels_that_are_sure_enough(here: Path) -> None:
    assert embasis("predict", "run", "streets", "-o", "plain", "--workers", 0).exit_code == 0
    sure = np.concatenate([np.array(Image.open(path)).ravel() for path in Path("plain", "confidence").rglob("*.png")])
    asked = round(float(sure[sure > np.median(sure)].mean()) / 255, 3)  # the surer half keeps it, all together do not
    result = embasis("predict", "run", "streets", "-o", "sure", "--precision", asked, "--workers", 0)
    assert result.exit_code == 0, result.output
    said = rf"at the sites of the network [\d,]+ of [\d,]+ trusted \(\d+%\) for a precision of {asked:.4g}: "
    assert re.search(said, result.stdout)
    confidence, trusted = (
        np.concatenate([np.array(Image.open(path)).ravel() for path in sorted(Path("sure", kind).rglob("*.png"))])
        for kind in ("confidence", "trusted")
    )
    assert 0 < (trusted == 255).mean() < 1
    assert confidence[trusted == 255].min() >= confidence[trusted == 0].max() - 1  # one threshold; 8 bits round it
    refused(2, "precision must be between 0 and 1, got 1.5", "predict", "run", "streets", "-o", "m", "--precision", 1.5)


def test_predict_refuses_outputs_that_are_no_folder_for_maps(here: Path) -> None:
    Path("file").write_text("mine")
    predict = ("predict", "run", "streets")
    sentence = "the run has label maps: output must be a folder for them, got 'maps.csv'"
    refused(2, sentence, *predict, "-o", "maps.csv")
    refused(2, "output file is a file; name a folder", *predict, "-o", "file")
    sentence = "output drawn holds files that are no maps of embasis: 'classes.toml' and 2 more; name a new or an empty"
    refused(2, f"{sentence} folder", *predict, "-o", "drawn")
    refused(
        2, "--sort is for tables; maps.csv has mean_variance to sort by", *predict, "-o", "m", "--sort", "uncertainty"
    )
    refused(2, "scales must be numbers with commas between them, got '1,x'", *predict, "-o", "m", "--scales", "1,x")
    refused(2, "scales must be in [0.1, 10], got '1,nan'", *predict, "-o", "m", "--scales", "1,nan")
    write_tables(here)
    assert embasis("fit", "labelled.csv", "unlabelled.csv", "-o", "plain", "rounds=1").exit_code == 0
    sentence = "--scales and --flip are for runs with label maps"
    refused(2, sentence, "predict", "plain", "unlabelled.csv", "-o", "l.csv", "--flip")
    assert not Path("m").exists()


def test_maps_of_earlier_pictures_are_counted(here: Path) -> None:
    for place in ("streets", "streets/unten"):
        result = embasis("predict", "run", place, "-o", "maps", "--workers", 0)
    assert result.stdout.splitlines()[-1] == "note: 12 maps of earlier pictures are still in maps"


def test_the_number_of_workers_and_a_second_run_change_nothing(here: Path) -> None:
    fitted(Path(), Path("again"), "maps.workers=2")
    assert digests(Path("again")) == digests(Path("run"))
