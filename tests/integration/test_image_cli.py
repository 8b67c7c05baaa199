"""Folders of images on the command line: fit, predict and check, and a sentence for each mistake."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from cli_tables import copied, embasis, refused, write_tables
from embasis.storage import read_newest, read_stored_table
from image_runs import CLASSES, WORDS, counting, picture, sides
from image_trees import plant

COLUMNS = ["id", "label", "probability", "between", "within", "uncertainty", "trusted"]


pytestmark = pytest.mark.usefixtures("plain_page")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders made by hand, and a finished run on them."""
    root = sides(tmp_path_factory.mktemp("Bilder von Jürgen"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMBASIS_CACHE", str(root / "cache"))
        patch.setattr("embasis.runs.run.run_page", lambda view: "page")
        result = embasis("fit", root / "photos", root / "paintings", "-o", root / "run", *WORDS, "rounds=1")
    assert result.exit_code == 0, result.output
    (root / "said.txt").write_text(result.output)
    plant(root / "neu", {f"a b/{number} ö.png": picture(number % 3, 50 + number, 40) for number in range(9)})
    return root


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to spoil, as the current folder."""
    monkeypatch.setenv("EMBASIS_CACHE", str(tmp_path / "here" / "cache"))
    return copied(made, tmp_path / "here", monkeypatch)


def table(path: str | Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_fit_says_what_it_reads_and_how_to_go_on(made: Path) -> None:
    said = (made / "said.txt").read_text().splitlines()
    assert said[0] == "36 different images, timm:test_efficientnet, frozen: 0 of them are in the feature cache"
    assert "18 labelled and 18 unlabelled rows, 3 classes" in said
    assert said[-1] == f"label other rows with: embasis predict '{made / 'run'}' INPUT -o labels.csv"
    labels = read_stored_table(made / "run" / "labels" / "round-001.parquet")
    names = {path.relative_to(made / "paintings").as_posix() for path in (made / "paintings").rglob("*.png")}
    assert set(labels["id"]) == names
    assert (made / "run" / "quarantine.jsonl").read_text() == ""


def test_the_same_command_again_reads_nothing_and_trains_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = counting(monkeypatch)
    result = embasis("fit", "photos", "paintings", "-o", "run", *WORDS, "rounds=1")
    assert result.exit_code == 0, result.output
    assert "36 of them are in the feature cache" in result.stdout
    assert "run had ended (finished)" in result.stdout
    assert seen == []


def test_predict_labels_a_folder_of_new_images(here: Path) -> None:
    result = embasis("predict", "run", "neu", "-o", "labels.csv", "--workers", 0)
    assert result.exit_code == 0, result.output
    rows = table("labels.csv")
    assert list(rows[0]) == COLUMNS
    assert [row["id"] for row in rows] == [f"a b/{number} ö.png" for number in range(9)]
    right = [row["label"] == CLASSES[number % 3] for number, row in enumerate(rows)]
    assert sum(right) >= 8
    trusted = sum(row["trusted"].lower() == "true" for row in rows)
    assert result.stdout == f"wrote labels.csv: 9 rows, {trusted} of them trusted ({trusted / 9:.0%})\n"


def test_an_image_without_a_label_is_never_trusted_whatever_the_precision(here: Path) -> None:
    Path("neu", "kaputt.png").write_bytes(picture(0, 0)[:300])
    result = embasis("predict", "run", "neu", "-o", "labels.csv", "--workers", 0, "--precision", 0.01)
    assert result.exit_code == 0, result.output
    trusted = {row["id"]: row["trusted"].lower() for row in table("labels.csv")}
    assert trusted.pop("kaputt.png") == "false"
    assert set(trusted.values()) == {"true"}
    assert "9 of 9 trusted (100%) for a precision of 0.01" in result.stdout


def test_the_order_by_uncertainty_puts_what_needs_a_human_first(here: Path) -> None:
    for name in ("broken.png", "a.png"):
        Path("neu", name).write_bytes(picture(0, 0)[:300])
    result = embasis("predict", "run", "neu", "-o", "labels.csv", "--workers", 0, "--sort", "uncertainty")
    assert result.exit_code == 0, result.output
    rows = table("labels.csv")
    assert {row["id"] for row in rows[:2]} == {"broken.png", "a.png"}
    values = [float(row["uncertainty"]) for row in rows[2:]]
    assert values == sorted(values, reverse=True)
    assert len(values) == 9


def test_an_image_that_cannot_be_read_has_a_row_without_a_label_and_a_warning(here: Path) -> None:
    Path("neu", "kaputt.png").write_bytes(picture(0, 0)[:300])
    result = embasis("predict", "run", "neu", "-o", "labels.csv", "--workers", 0)
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: 1 file could not be read and got no label: kaputt.png: ")
    rows = {row["id"]: row for row in table("labels.csv")}
    assert len(rows) == 10
    assert rows["kaputt.png"] == {**dict.fromkeys(COLUMNS, ""), "id": "kaputt.png", "trusted": "false"}


def test_one_image_a_list_and_a_parquet_file_give_the_same_labels(here: Path) -> None:
    name = "a b/4 ö.png"
    Path("list.csv").write_text(f"path\nneu/{name}\nneu/a b/0 ö.png\n")
    for place, output in (("neu", "all.csv"), (f"neu/{name}", "one.csv"), ("list.csv", "list.out.csv")):
        result = embasis("predict", "run", place, "-o", output, "--workers", 0)
        assert result.exit_code == 0, result.output
    expected = {row["id"]: row for row in table("all.csv")}[name]
    (one,) = table("one.csv")
    assert {**one, "id": name} == expected
    assert len(table("list.out.csv")) == 2
    assert {**expected, "id": f"neu/{name}"} in table("list.out.csv")
    assert embasis("predict", "run", "neu", "-o", "all.parquet", "--workers", 0).exit_code == 0
    found = read_stored_table(here / "all.parquet")
    assert found["label"][found["id"].index(name)] == expected["label"]
    assert found["probability"][found["id"].index(name)] == float(expected["probability"])


def test_links_in_a_list_are_followed_when_that_is_asked_for(here: Path) -> None:
    Path("linked.png").symlink_to(here / "neu" / "a b" / "4 ö.png")
    Path("links.csv").write_text("path\nlinked.png\nneu/a b/0 ö.png\n")
    for flags, labelled in (((), 1), (("--follow-links",), 2)):
        result = embasis("predict", "run", "links.csv", "-o", "links.out.csv", "--workers", 0, *flags)
        assert result.exit_code == 0, result.output
        assert sum(row["label"] != "" for row in table("links.out.csv")) == labelled


def test_predict_refuses_what_holds_no_image(here: Path) -> None:
    Path("leer").mkdir()
    Path("nur.png").write_bytes(b"no image")
    for place in ("leer", "nur.png", "gone"):
        result = embasis("predict", "run", place, "-o", "labels.csv", "--workers", 0)
        assert result.exit_code == 3, result.output
        assert result.stderr.startswith(f"embasis: {place}")
        assert len(result.stderr.splitlines()) == 1
        assert not Path("labels.csv").exists()


# --- mistakes


def test_folders_and_tables_cannot_be_mixed(here: Path) -> None:
    write_tables(here)
    sentence = "images and tables cannot be mixed; no folder or list of images: {}"
    refused(3, sentence.format("unlabelled.csv"), "fit", "photos", "unlabelled.csv", "-o", "new", *WORDS)
    refused(3, sentence.format("labelled.csv"), "fit", "labelled.csv", "paintings", "-o", "new", *WORDS)
    assert not Path("new").exists()


def test_settings_of_images_are_refused_for_tables_and_the_other_way_round(here: Path) -> None:
    write_tables(here)
    tables = ("fit", "labelled.csv", "unlabelled.csv", "-o", "new")
    refused(2, "images settings are for images, the data are none: depth", *tables, "images.depth=frozen")
    refused(2, "data settings for images, but the data are tables: follow_links", *tables, "--follow-links")
    refused(
        2,
        "network 'timm:resnet50' is for image files; known for arrays: adapter, extra_trees, "
        "hist_gradient_boosting, linear, mlp, random_forest, small_cnn",
        *(*tables, "--backbone", "timm:resnet50"),
    )
    folders = ("fit", "photos", "paintings", "-o", "new")
    refused(
        2,
        "network 'mlp' is not for image files; known for them: efficientnet_lite0, timm (timm as timm:MODEL)",
        *(*folders, "--backbone", "mlp"),
    )
    refused(
        2,
        "plan.augment = 1.0 is for pictures in arrays, (channels, height, width); image files have images.augment; "
        "the rows here have shape (256,)",
        *(*folders, *WORDS, "plan.augment=1"),
    )
    refused(2, "images.depth must be one of auto, frozen, partial, full, got 'deep'", *folders, *WORDS, "depth=deep")
    refused(
        2,
        "timm:test_efficientnet has 5 stages that can be trained, got 9",
        *(*folders, *WORDS, "depth=partial", "stages=9"),
    )
    assert not Path("new").exists()


def test_a_run_does_not_go_on_at_another_depth_or_with_other_images(here: Path) -> None:
    command = ("fit", "photos", "paintings", "-o", "run", *WORDS, "rounds=1")
    result = embasis(*command, "images.depth=partial")
    assert result.exit_code == 2
    assert result.stderr.startswith("embasis: the run folder was begun with other settings: ")
    assert "images.depth: 'frozen' → 'partial'" in result.stderr
    Path("paintings", "0ä 0.png").write_bytes(picture(0, 70))
    changed = "unlabelled (0 added, 0 removed, 1 edited: '0ä 0.png')"
    advice = "use another folder, the old data, or --accept-data-change"
    refused(3, f"the data have changed since the run began: {changed}; {advice}", *command)


def test_a_run_on_tables_does_not_label_folders(here: Path) -> None:
    write_tables(here)
    assert embasis("fit", "labelled.csv", "unlabelled.csv", "-o", "plain", "rounds=1").exit_code == 0
    result = embasis("predict", "plain", "neu", "-o", "labels.csv")
    assert result.exit_code == 3
    assert result.stderr.startswith("embasis: neu: is a folder")


def test_a_labelled_folder_to_score_on_is_scored_in_every_round(here: Path) -> None:
    plant(Path("proof"), {f"{CLASSES[n % 3]}/{n}.png": picture(n % 3, 80 + n, 40) for n in range(9)})
    result = embasis("fit", "photos", "paintings", "-o", "new", *WORDS, "--test", "proof", "rounds=1", "workers=0")
    assert result.exit_code == 0, result.output
    assert "45 different images" in result.stdout
    records = read_newest("new").facts["records"]
    assert [record["test"]["accuracy"] > 0.5 for record in records] == [True, True]
    assert [f"  test {record['test']['accuracy']:.3f}\n" in result.stdout for record in records] == [True, True]


# --- check


def test_check_is_content_with_what_fit_can_use(here: Path) -> None:
    result = embasis("check", "photos", "paintings", "--workers", 0)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "no errors, no warnings: embasis fit can use these images"


def test_check_finds_what_is_wrong_before_training(here: Path) -> None:
    Path("paintings", "kaputt.png").write_bytes(picture(0, 0)[:300])
    Path("paintings", "zwilling.png").write_bytes(Path("photos", CLASSES[0], "bild 0.png").read_bytes())
    Path("photos", "leer").mkdir()
    result = embasis("check", "photos", "paintings", "--workers", 0)
    assert result.exit_code == 3, result.output
    lines = result.stdout.splitlines()
    assert lines[:3] == [
        "error: photos: class folders without a readable image: 'leer'; remove them, or data.allow_empty_class=true "
        "leaves those classes out",
        "warning: paintings: kaputt.png: truncated PNG",
        "warning: 1 file is byte for byte in photos and in paintings; first: zwilling.png = amsel/bild 0.png",
    ]
    assert lines[-1] == "1 error, 2 warnings: embasis fit would refuse these images"


def test_check_finds_an_unlabelled_side_that_is_the_labelled_one(here: Path) -> None:
    shutil.copytree("photos", "kopie")
    for other in ("photos", "kopie"):
        result = embasis("check", "photos", other, "--workers", 0)
        assert result.exit_code == 3, result.output
        assert result.stdout.startswith("error: ")
        again = embasis("fit", "photos", other, "-o", "new", *WORDS)
        assert again.exit_code == 3
        assert f"error: {again.stderr.removeprefix('embasis: ')}" in result.stdout


def test_check_finds_class_sets_that_differ(here: Path) -> None:
    plant(Path("judged"), {f"{name}/1.png": picture(0, 90 + n) for n, name in enumerate((*CLASSES[:2], "Neues"))})
    result = embasis("check", "photos", "judged", "--workers", 0)
    lines = result.stdout.splitlines()
    assert "warning: judged: not scored, no class of the labelled side: 'Neues'" in lines
    assert "note: judged: classes without an image: 'Möwe'" in lines


# --- the networks by name


def test_the_list_of_backbones_names_those_for_images_with_their_settings() -> None:
    lines = embasis("list", "backbones").stdout.splitlines()
    names = [line.strip() for line in lines if line.startswith("  ") and not line.startswith("   ")]
    assert names[:7] == ["linear", "mlp", "adapter", "small_cnn", "small_fcn", "efficientnet_lite0", "timm"]
    assert names[7:] == ["deeplab_v2", "fast_segment", "what deeplab_v2 and fast_segment are built on"]
    assert "      size=0, weights=''" in lines
    assert all(len(line) <= 80 for line in lines)


def test_the_default_network_needs_no_setting(here: Path) -> None:
    fit = embasis("fit", "photos", "paintings", "-o", "lite", "rounds=1", "network.size=64", "workers=0")
    assert fit.exit_code == 0, fit.output
    assert read_newest("lite").facts["config"]["network"] == {"name": "efficientnet_lite0", "size": 64, "weights": ""}
    assert embasis("predict", "lite", "neu", "-o", "labels.csv", "--workers", 0).exit_code == 0
    assert [row["label"] for row in table("labels.csv")] == [CLASSES[number % 3] for number in range(9)]
    config = json.loads(Path("lite", "config.json").read_text())
    assert config["images"] == {"augment": "light", "depth": "frozen", "head": "linear", "stages": 1}
