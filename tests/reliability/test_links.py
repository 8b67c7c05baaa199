"""Links that lead in a circle, wherever a path is given or found: a sentence and its exit code, no bug and no hang."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cli_tables import embasis, refused, write_tables
from image_runs import WORDS, picture, sides
from image_trees import plant
from map_trees import folder, scenes

NOWHERE = "is a link that leads nowhere"
OUTPUT = f"{NOWHERE}; remove it or name another place"
CIRCLE = "Too many levels of symbolic links"
CACHE = "images.cache=DIR or EMBASIS_CACHE names another folder for features"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables, images, label maps, a run on tables and one on images, and links to themselves under many endings."""
    root = sides(tmp_path_factory.mktemp("links"))
    write_tables(root)
    folder(root / "maps", scenes(3))
    folder(root / "streets", scenes(2, 50, maps=False), toml=None)
    for name in ("o", "o.csv", "o.npz", "o.npy", "o.parquet", "o.toml", "o.json", "o.png", "o.pt", "o.safetensors"):
        (root / name).symlink_to(name)
    (root / "p").symlink_to("q")
    (root / "q").symlink_to("p")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMBASIS_CACHE", str(root / "cache"))
        patch.setattr("embasis.runs.run.run_page", lambda view: "page")
        patch.chdir(root)
        assert embasis("fit", "photos", "paintings", "-o", "run", *WORDS, "rounds=1").exit_code == 0
        assert embasis("fit", "labelled.csv", "unlabelled.csv", "-o", "rows", "rounds=1").exit_code == 0
    return root


@pytest.fixture
def here(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    monkeypatch.setenv("EMBASIS_CACHE", str(made / "cache"))
    return made


INPUTS = {
    "fit o paintings -o new": f"o: {NOWHERE}",
    "fit photos o -o new": f"o: {NOWHERE}",
    "fit p/below paintings -o new": f"p/below: {NOWHERE}",
    "fit photos paintings -o new --test o": f"o: {NOWHERE}",
    "fit maps o -o new": f"o: {NOWHERE}",
    "fit labelled.csv o -o new": f"o: cannot be read: {CIRCLE}",
    "fit o o -o new": f"o: cannot be read: {CIRCLE}",
    "fit o.csv unlabelled.csv -o new": f"o.csv: cannot be read: {CIRCLE}",
    "fit o.csv paintings -o new": f"o.csv: cannot be read: {CIRCLE}",
    "fit labelled.csv o.npz -o new": f"o.npz: cannot be read: {CIRCLE}",
    "fit labelled.csv o.npy -o new": f"o.npy: cannot be read: {CIRCLE}",
    "fit labelled.csv o.parquet -o new": f"o.parquet: cannot be read: {CIRCLE}",
    "fit labelled.csv unlabelled.csv -o new --corrections o.csv": f"o.csv: cannot be read: {CIRCLE}",
    "fit labelled.csv unlabelled.csv -o new --corrections o": (
        "o: corrections must be a .csv or .parquet file with columns id and label, or a .json file of Label Studio"
    ),
    "fit maps streets -o new --classes o": f"o: cannot be read: {CIRCLE}",
    "fit maps streets -o new --corrections o": (
        "o: a folder of label maps is expected, a PNG with the name of each corrected picture"
    ),
    "predict run o -o new.csv": f"o: no image can be read: {NOWHERE}",
    "predict run o.png -o new.csv": f"o.png: no image can be read: {NOWHERE}",
    "predict rows o.csv -o new.csv": f"o.csv: cannot be read: {CIRCLE}",
    "export run --as folder -o new --images o": "o: no such folder or list",
}


@pytest.mark.parametrize("words", INPUTS)
def test_an_input_that_is_a_circle_is_refused_with_code_3(words: str, here: Path) -> None:
    refused(3, INPUTS[words], *words.split())
    assert not (here / "new").exists()


@pytest.mark.parametrize(
    "words", ["fit labelled.csv unlabelled.csv -o {}", "demo -o {}", "compare digits -o {}", "ablate digits -o {}",
              "export run --as folder --images paintings -o {}"],
)  # fmt: skip
@pytest.mark.parametrize(("output", "link"), [("o", "o"), ("p/new", "p")])
def test_an_output_at_a_circle_is_refused_with_code_2(words: str, output: str, link: str, here: Path) -> None:
    refused(2, f"output {output}: {link} {OUTPUT}", *words.format(output).split())


OTHERS = {
    "predict rows unlabelled.csv -o o.csv": (5, "cannot write o.csv: it is not a regular file"),
    "predict rows unlabelled.csv -o p/new.csv": (5, "cannot write p/new.csv: folder p does not exist"),
    "fit labelled.csv unlabelled.csv -o new --config o.toml": (2, f"cannot read config o.toml: {CIRCLE}"),
    "fit labelled.csv unlabelled.csv -o new --config o.json": (2, f"cannot read config o.json: {CIRCLE}"),
    "import-weights o.pt -o new.safetensors": (2, f"cannot read o.pt: {CIRCLE}"),
    "report o": (4, "o holds no finished generation; is it a run folder?"),
    "predict p/run unlabelled.csv -o new.csv": (4, "p/run holds no finished generation; is it a run folder?"),
    "fit photos paintings -o new images.cache=o": (5, f"cannot write o: o: {CIRCLE}; {CACHE}"),
    "fit photos paintings -o new images.cache=p/x": (5, f"cannot write p/x: p: {CIRCLE}; {CACHE}"),
}


@pytest.mark.parametrize("words", OTHERS)
def test_other_places_at_a_circle_have_their_codes(words: str, here: Path) -> None:
    refused(*OTHERS[words], *words.split())


def test_a_home_that_is_a_circle_is_refused_before_images_are_read(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EMBASIS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(here / "o"))
    sentence = f"cannot write {here}/o/.cache/embasis: {here}/o: {CIRCLE}; {CACHE}"
    refused(5, sentence, "fit", "photos", "paintings", "-o", "new", *WORDS)


def test_circles_among_the_images_are_refused_one_by_one(here: Path, tmp_path: Path) -> None:
    root = tmp_path / "photos"
    shutil.copytree(here / "photos", root)
    (root / "self").symlink_to("self")
    (root / "amsel" / "x.png").symlink_to("x.png")
    said = embasis("check", root, "paintings")
    assert said.exit_code == 0, said.output
    assert f"warning: {root}: self: is a link; links are not followed" in said.output.splitlines()
    assert f"warning: {root}: amsel/x.png: is a link; links are not followed" in said.output.splitlines()
    said = embasis("check", root, "paintings", "--follow-links")
    assert f"warning: {root}: self: {NOWHERE}" in said.output.splitlines()


def test_circles_beside_pictures_and_maps_change_nothing(here: Path, tmp_path: Path) -> None:
    root = folder(tmp_path / "maps", scenes(3))
    (root / "self").symlink_to("self")
    (root / "labels" / "x.png").symlink_to("x.png")
    said = embasis("check", root, "streets")
    assert said.exit_code == 0, said.output


def test_paths_of_a_list_through_a_circle_are_refused_one_by_one(here: Path, tmp_path: Path) -> None:
    plant(tmp_path, {f"{number}.png": picture(number % 2, number) for number in range(4)})
    (tmp_path / "o").symlink_to("o")
    rows = [*(f"{number}.png,{'ab'[number % 2]}" for number in range(4)), "o/1.png,a", "o,b"]
    (tmp_path / "list.csv").write_text("\n".join(["path,label", *rows, ""]))
    for flag, last in (((), "is a link; links are not followed"), (("--follow-links",), NOWHERE)):
        said = embasis("check", tmp_path / "list.csv", "paintings", *flag)
        assert said.exit_code == 0, said.output
        assert f"warning: {tmp_path}/list.csv: o/1.png: {NOWHERE}" in said.output.splitlines()
        assert f"warning: {tmp_path}/list.csv: o: {last}" in said.output.splitlines()
