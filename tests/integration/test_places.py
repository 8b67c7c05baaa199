"""An output never goes onto what is read, whatever the two are called, and never into a run folder."""

from __future__ import annotations

import csv
import os
import shutil
from pathlib import Path

import pytest

from cli_tables import embasis
from embasis import fit_images
from embasis.errors import ConfigError
from image_trees import plant
from paths import TESTS

STORED = TESTS / "zoo" / "0.1.0" / "em_basis-linear"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run, tables, folders of pictures, and other names for them."""
    place = tmp_path / "here"
    shutil.copytree(STORED, place)
    monkeypatch.chdir(place)
    plant(place, {"photos/dog/1.png": b"1", "photos/cat/2.png": b"2", "paintings/a/3.png": b"3", "net.pt": b"4"})
    os.symlink("rows.csv", "link.csv")
    os.link("rows.csv", "hard.csv")
    os.symlink("run", "link-run")
    os.symlink("photos", "link-photos")
    os.link("net.pt", "net.safetensors")
    return place


def tree(place: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file: which one it is, when it was written, its bytes; and every folder."""
    found = [path for path in sorted(place.rglob("*")) if not path.is_symlink()]
    return {
        str(path): (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in found
    }


def refused(place: Path, sentence: str, *words: object) -> None:
    """The whole of stderr, code 2, and not one file touched, no folder made."""
    before = tree(place)
    result = embasis(*words)
    assert (result.stderr, result.exit_code) == (f"embasis: {sentence}\n", 2)
    assert tree(place) == before


@pytest.mark.parametrize("name", ["rows.csv", "./rows.csv", "run/../rows.csv", "link.csv", "hard.csv"])
def test_predict_never_writes_over_its_input(here: Path, name: str) -> None:
    sentence = f"output {name} is the input rows.csv itself; name another place"
    refused(here, sentence, "predict", "run", "rows.csv", "-o", name)


@pytest.mark.parametrize(
    "name", ["run/labels/round-001.parquet", "link-run/labels.csv", "./run/x.csv", "run/labels/../new.csv"]
)
def test_predict_never_writes_into_its_run(here: Path, name: str) -> None:
    sentence = f"output {name} lies in the run folder run; name a place outside of it"
    refused(here, sentence, "predict", "run", "rows.csv", "-o", name)


def test_an_absolute_name_is_seen_through_too(here: Path) -> None:
    full = here / "rows.csv"
    sentence = f"output {full} is the input hard.csv itself; name another place"
    refused(here, sentence, "predict", "run", "hard.csv", "-o", full)


def test_predict_beside_its_input_works_as_before(here: Path) -> None:
    assert embasis("predict", "run", "rows.csv", "-o", "new.csv").exit_code == 0
    new, old = (list(csv.reader(Path(name).read_text().splitlines())) for name in ("new.csv", "labels.csv"))
    assert [row[:2] + row[-1:] for row in new] == [row[:2] + row[-1:] for row in old]  # id, label, trusted
    for made, stored in zip(new[1:], old[1:], strict=True):  # sums are rounded in another order since decision 0053
        assert [float(cell) for cell in made[2:-1]] == pytest.approx([float(cell) for cell in stored[2:-1]], abs=5e-6)
    assert embasis("predict", "run", "rows.csv", "-o", "new.csv").exit_code == 0  # an output of before is replaced


SIDES = ("photos", "paintings")
REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "predict, images": (
        "output photos/labels.csv lies in the input photos; name a place outside of it",
        ("predict", "run", "photos", "-o", "photos/labels.csv"),
    ),
    "predict, maps onto the input": (
        "output link-photos is the input photos itself; name another place",
        ("predict", "run", "photos", "-o", "link-photos"),
    ),
    "predict, maps into the input": (
        "output link-photos/maps/new lies in the input photos; name a place outside of it",
        ("predict", "run", "photos", "-o", "link-photos/maps/new"),
    ),
    "predict, maps around the input": (
        "output photos contains the input photos/dog; name another place",
        ("predict", "run", "photos/dog", "-o", "photos"),
    ),
    "predict, maps around the run": (
        "output . contains the run folder run; name another place",
        ("predict", "run", "photos", "-o", "."),
    ),
    "fit, onto a side": (
        "output photos is the labelled side photos itself; name another place", ("fit", *SIDES, "-o", "photos"),
    ),
    "fit, into a side": (
        "output paintings/a/run lies in the unlabelled side paintings; name a place outside of it",
        ("fit", *SIDES, "-o", "paintings/a/run"),
    ),
    "fit, around a side": (
        "output paintings contains the unlabelled side paintings/a; name another place",
        ("fit", "photos", "paintings/a", "-o", "paintings"),
    ),
    "fit, around a test table": (
        "output run contains the test side run/rows/2ae5ea5f663fbaed.parquet; name another place",
        ("fit", "labelled.csv", "judged.csv", "--test", "run/rows/2ae5ea5f663fbaed.parquet", "-o", "run"),
    ),
    "fit, onto a table": (
        "output link.csv is the unlabelled side rows.csv itself; name another place",
        ("fit", "labelled.csv", "rows.csv", "-o", "link.csv"),
    ),
    "fit, into corrections": (
        "output photos/run lies in the corrections photos; name a place outside of it",
        ("fit", "labelled.csv", "rows.csv", "--corrections", "photos", "-o", "photos/run"),
    ),
    "fit, into another's folder": (
        "output photos holds files and is not a run folder; name a new one",
        ("fit", "labelled.csv", "rows.csv", "-o", "photos"),
    ),
    "fit, cache": (
        "feature cache photos/cache lies in the labelled side photos; name a place outside of it",
        ("fit", *SIDES, "-o", "new", "images.cache=photos/cache"),
    ),
    "fit, data packs": (
        "output photos/run lies in the folder of data packs photos; name a place outside of it",
        ("fit", "--dataset", "blobs", "--root", "photos", "-o", "photos/run"),
    ),
    "export": (
        "output link-run/labels.csv lies in the run folder run; name a place outside of it",
        ("export", "run", "-o", "link-run/labels.csv", "--as", "csv"),
    ),
    "export, folder": (
        "output photos contains the folder of images photos/dog; name another place",
        ("export", "run", "-o", "photos", "--as", "folder", "--images", "photos/dog"),
    ),
    "export, list": (
        "output rows.csv is the list of images hard.csv itself; name another place",
        ("export", "run", "-o", "rows.csv", "--as", "csv", "--images", "hard.csv"),
    ),
    "compare": ("output link-run is a run folder; name another place", ("compare", "blobs", "-o", "link-run")),
    "compare, data packs": (
        "output photos/out lies in the folder of data packs link-photos; name a place outside of it",
        ("compare", "blobs", "--root", "link-photos", "-o", "photos/out"),
    ),
    "ablate, data packs": (
        "output photos is the folder of data packs photos itself; name another place",
        ("ablate", "blobs", "--root", "photos", "-o", "photos"),
    ),
    "demo": ("output run is a run folder; name another place", ("demo", "-o", "run")),
    "check": (
        "output photos/bad.jsonl lies in the labelled side photos; name a place outside of it",
        ("check", *SIDES, "-o", "photos/bad.jsonl"),
    ),
    "import-weights": (
        "output net.safetensors is the input net.pt itself; name another place",
        ("import-weights", "net.pt", "-o", "net.safetensors"),
    ),
    "nothing": ("output must be a path, got ''", ("fit", "labelled.csv", "judged.csv", "-o", "")),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_no_command_writes_onto_what_it_reads(here: Path, kind: str) -> None:
    sentence, words = REFUSED[kind]
    refused(here, sentence, *words)


@pytest.mark.parametrize(
    "words",
    [
        ("fit", "labelled.csv", "judged.csv", "-o"),
        ("predict", "other", "rows.csv", "-o"),
        ("import-weights", "net.pt", "-o"),
        ("compare", "blobs", "-o"),
        ("demo", "-o"),
    ],
)
def test_no_command_writes_into_the_folder_of_any_run(here: Path, words: tuple[str, ...]) -> None:
    name = "link-run/labels/x.safetensors" if words[0] == "import-weights" else "link-run/labels/x"
    home = os.path.realpath("run")
    refused(here, f"output {name} lies in the run folder {home}; name a place outside of it", *words, name)


def test_the_cache_that_the_environment_names_is_no_folder_of_data_either(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBASIS_CACHE", "paintings")
    sentence = "feature cache paintings is the unlabelled side paintings itself; name another place"
    refused(here, sentence, "fit", *SIDES, "-o", "new")


def test_in_python_a_run_does_not_go_into_its_images_either(here: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        fit_images("photos", "paintings", output=Path("link-photos/run"))
    sentence = "output link-photos/run lies in the labelled side photos; name a place outside of it"
    assert str(raised.value) == sentence
    assert not Path("photos/run").exists()


def test_a_run_goes_on_with_its_own_settings_as_before(here: Path) -> None:
    words = ("fit", "labelled.csv", "rows.csv", "-o", "new", "rounds=1", "source_epochs=1", "epochs=1")
    assert embasis(*words).exit_code == 0
    assert embasis("fit", "labelled.csv", "rows.csv", "-o", "new", "--config", "new/config.json").exit_code == 0
