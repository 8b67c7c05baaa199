"""Label maps for CVAT and back: every pixel comes back as it went, and what a person changed is a correction."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import map_folder_runs
from cli_tables import copied, embasis, refused
from embasis.runs.export import read_labelled_pictures
from embasis.runs.finished_run import iter_class_maps, read_finished_run
from embasis.storage import read_newest

NAMES = map_folder_runs.NAMES
EXPORT = ("export", "run", "-o", "maps.zip", "--as", "cvat")
IMPORT = ("import-maps", "run", "out.zip", "-o", "fixed")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = map_folder_runs.sides(tmp_path_factory.mktemp("runs") / "maps", 6)
    map_folder_runs.fitted(home, home / "run")
    return home


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return copied(made, tmp_path / "here", monkeypatch)


def read_archive(name: str) -> tuple[dict[str, tuple[int, ...]], dict[str, np.ndarray]]:
    """The colours of the labels, and the colours of each map."""
    with zipfile.ZipFile(name) as archive:
        lines = [line.split(":") for line in archive.read("labelmap.txt").decode().splitlines()[1:]]
        colours = {line[0]: tuple(map(int, line[1].split(","))) for line in lines}
        masks = [each for each in archive.namelist() if each.startswith("SegmentationClass/")]
        maps = {each[18:-4]: np.asarray(Image.open(io.BytesIO(archive.read(each)))) for each in masks}
    return colours, maps


def write_archive(colours: dict[str, tuple[int, ...]], maps: dict[str, np.ndarray], name: str = "out.zip") -> None:
    """As CVAT exports it."""
    text = "".join(f"{label}:{','.join(map(str, colour))}::\n" for label, colour in colours.items())
    with zipfile.ZipFile(name, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("labelmap.txt", "# label:color_rgb:parts:actions\n" + text)
        for member, pixels in maps.items():
            stream = io.BytesIO()
            Image.fromarray(pixels).save(stream, "PNG")
            archive.writestr(f"SegmentationClass/{member}.png", stream.getvalue())
            archive.writestr(f"SegmentationObject/{member}.png", b"not read")


def test_every_pixel_of_every_map_is_in_the_archive_in_the_colour_of_its_class(here: Path) -> None:
    for words, everything in (((), False), (("--all",), True)):
        result = embasis(*EXPORT, *words)
        assert result.exit_code == 0, result.output
        colours, maps = read_archive("maps.zip")
        assert [*colours] == ["background", *NAMES]
        palette = np.array([*[colours[name] for name in NAMES], (0, 0, 0)], np.uint8)
        stored = {id: classes for id, _, classes in iter_class_maps(read_finished_run(Path("run")), everything)}
        assert {*maps} == {id.removesuffix(".png") for id in stored}
        for id, classes in stored.items():
            assert np.array_equal(maps[id.removesuffix(".png")], palette[classes])
        with zipfile.ZipFile("maps.zip") as archive:
            listed = archive.read("ImageSets/Segmentation/default.txt").decode().splitlines()
        assert listed == [*maps]
        before = Path("maps.zip").read_bytes()
        assert embasis(*EXPORT, *words).exit_code == 0
        assert Path("maps.zip").read_bytes() == before
    assert result.stdout.startswith("wrote maps.zip: 6 label maps of 6 pictures, trusted or not\n")
    assert len([*read_labelled_pictures(read_finished_run(Path("run")), True)]) == 6


def test_a_map_that_a_person_changed_comes_back_exactly_and_the_next_fit_learns_from_it(here: Path) -> None:
    assert embasis(*EXPORT, "--all").exit_code == 0
    colours, maps = read_archive("maps.zip")
    other = dict(zip(["background", *NAMES], [(0, 0, 0), (1, 2, 3), (250, 50, 83), (9, 9, 9)], strict=True))
    changed = {member: np.zeros_like(pixels) for member, pixels in maps.items()}
    for label, colour in colours.items():  # CVAT gives labels colours of its own
        for member, pixels in maps.items():
            changed[member][(pixels == colour).all(-1)] = other[label]
    first = sorted(changed)[0]
    changed[first][:4, :5] = other["car"]
    changed[first][0, 0] = other["background"]
    write_archive(other, changed)
    result = embasis(*IMPORT)
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        "wrote fixed: 1 corrected map\n"
        "note: left out: 5 maps as the run has them\n"
        "next: embasis fit LABELLED UNLABELLED -o NEW --corrections fixed\n"
    )
    after = np.asarray(Image.open(f"fixed/{first}.png"))
    before = np.asarray(Image.open(f"run/labels/round-002/labels/{first}.png")).copy()
    before[:4, :5] = map_folder_runs.IDS[NAMES.index("car")]
    before[0, 0] = 255
    assert np.array_equal(after, before)
    fit = embasis(*map_folder_runs.command(here, here / "new", "rounds=0", "--corrections", str(here / "fixed")))
    assert fit.exit_code == 0, fit.output
    assert read_newest("new").facts["corrected"] == 1


def test_maps_that_nobody_has_changed_are_taken_only_when_that_is_wanted(here: Path) -> None:
    for words in ((), ("--all",)):
        assert embasis(*EXPORT, *words).exit_code == 0
        Path("maps.zip").rename("out.zip")
        rule = "no map differs from those of the run; --unchanged takes them, too, if people have looked at them"
        refused(3, f"out.zip: {rule}", *IMPORT)
        assert not Path("fixed").exists()
    assert embasis(*IMPORT, "--unchanged").exit_code == 0
    for file in Path("fixed").rglob("*.png"):
        mine = np.asarray(Image.open(Path("run/labels/round-002/labels", file.relative_to("fixed"))))
        assert np.array_equal(np.asarray(Image.open(file)), mine)
    assert len([*Path("fixed").rglob("*.png")]) == 6


def test_archives_that_cannot_be_used_are_refused_with_a_sentence(here: Path) -> None:
    assert embasis(*EXPORT, "--all").exit_code == 0
    colours, maps = read_archive("maps.zip")
    first = sorted(maps)[0]
    hint = "export from CVAT as 'Segmentation mask 1.1'"
    refused(3, "lost.zip: no such file", "import-maps", "run", "lost.zip", "-o", "fixed")
    Path("out.zip").write_bytes(b"PK")
    refused(3, f"out.zip: not a readable .zip file: File is not a zip file; {hint}", *IMPORT)
    write_archive(colours, {})
    refused(3, f"out.zip: no map in SegmentationClass/; {hint}", *IMPORT)
    write_archive({**colours, "dog": (5, 5, 5)}, maps)
    refused(3, "out.zip: unknown classes: 'dog'; the run has: 'car', 'road', 'sky'", *IMPORT)
    write_archive({**colours, "car": colours["sky"]}, maps)
    refused(3, "out.zip: labelmap.txt has two classes of one colour", *IMPORT)
    write_archive({**colours, "car": (300, 0, 0)}, maps)
    refused(3, "out.zip: labelmap.txt, line 5: a colour has parts up to 255", *IMPORT)
    write_archive(colours, {"../../evil": maps[first]})
    refused(3, "out.zip: the run has no such pictures: '../../evil'", *IMPORT)
    write_archive(colours, {first: maps[first][:3]})
    refused(3, f"out.zip: SegmentationClass/{first}.png: has 48×3 pixels, its picture 48×32", *IMPORT)
    strange = maps[first].copy()
    strange[0, 0] = (77, 77, 77)
    write_archive(colours, {first: strange})
    result = embasis(*IMPORT)
    assert result.exit_code == 3
    assert result.stderr.startswith(
        f"embasis: out.zip: SegmentationClass/{first}.png: colours {{#4d4d4d: 1 px}}; allowed "
    )
    assert not Path("fixed").exists()


def test_places_are_kept_apart(here: Path) -> None:
    write_archive({}, {})
    inside = "output run/fixed lies in the run folder run; name a place outside of it"
    refused(2, inside, "import-maps", "run", "out.zip", "-o", "run/fixed")
    refused(2, "output must end in .zip for --as cvat, got 'x.json'", "export", "run", "-o", "x.json", "--as", "cvat")
