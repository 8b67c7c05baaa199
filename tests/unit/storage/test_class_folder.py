"""Images by class as links or copies: whatever they and their classes are called, and whoever has files there."""

from __future__ import annotations

import csv
import errno
import os
import shutil
from pathlib import Path

import pytest

from cli_tables import embasis
from embasis.data.images.scan import scan_folder
from embasis.errors import ConfigError, ResourceError
from embasis.runs.export import image_items
from embasis.storage import atomic, encode_table, read_stored_table
from embasis.storage.class_folder import EXPORT_MARKER, ExportedImage, make_safe_names, write_class_folder
from image_runs import WORDS, picture
from image_trees import plant
from resealed import reseal
from storage_runs import CALLS, Faulty, do_not_wait

CLASSES = ("../x", "=cmd()", "A/b\nc")
NAMES = ("{}a/twin.png", "{}b/twin.png", "=cmd({}).png", "zeile\n{}.png", '{} "q", ü.png', "con.{}.png", "{}.png")


def image_run(root: Path, run: Path) -> None:
    """A run on a list with hostile classes and a folder with hostile names."""
    with open(root / "photos.csv", "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["path", "label"])
        for label, name in enumerate(CLASSES):
            plant(root / "photos", {f"{label}-{number}.png": picture(label, number) for number in range(6)})
            writer.writerows([f"photos/{label}-{number}.png", name] for number in range(6))
    for label in range(3):
        names = [name.format(label) for name in NAMES]
        plant(root / "paintings", {name: picture(label, number, 40) for number, name in enumerate(names)})
    result = embasis("fit", root / "photos.csv", root / "paintings", "-o", run, *WORDS, "rounds=1")
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("folder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMBASIS_CACHE", str(root / "cache"))
        patch.setattr("embasis.runs.run.run_page", lambda view: "page")
        image_run(root, root / "run")
    return root


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to spoil, as the current folder."""
    shutil.copytree(made, place := tmp_path / "a" / "here")
    monkeypatch.chdir(place)
    monkeypatch.setattr(os, "sync", lambda: None)
    return place


def export(*words: object) -> tuple[int, str, str]:
    result = embasis("export", "run", "-o", "out", "--as", "folder", *words)
    return result.exit_code, result.stdout, result.stderr


def everything(path: Path) -> dict[str, bytes | str | None]:
    """Every name below a folder: a link's target, a file's bytes, None for a folder."""
    found: dict[str, bytes | str | None] = {}
    for entry in sorted(path.rglob("*")):
        name = entry.relative_to(path).as_posix()
        found[name] = os.readlink(entry) if entry.is_symlink() else entry.read_bytes() if entry.is_file() else None
    return found


def test_every_image_has_one_link_in_the_folder_of_its_class(here: Path) -> None:
    outside = everything(here.parent)
    code, said, _ = export("--images", "paintings", "--all")
    assert code == 0
    assert said.startswith("wrote out: links to 21 images in ")
    labels = read_stored_table("run/labels/round-001.parquet")
    expected = {str(here / "paintings" / id): label for id, label in zip(labels["id"], labels["label"], strict=True)}
    links = [path for path in Path("out").rglob("*") if path.is_symlink()]
    assert {os.readlink(link) for link in links} == expected.keys()
    assert len(links) == 21
    folders = {os.readlink(link): link.parent.name for link in links}
    for one in expected:
        for other in expected:
            assert (folders[one] == folders[other]) == (expected[one] == expected[other])
    assert "=cmd()" in os.listdir("out")
    assert "2.png" in os.listdir(Path("out", folders[str(here / "paintings" / "2.png")]))
    assert {name for name in everything(here.parent) if not name.startswith("here/out")} == outside.keys()


def test_only_trusted_labels_are_linked_unless_all_are_asked_for(here: Path) -> None:
    assert export("--images", "paintings")[0] == 0
    labels = read_stored_table("run/labels/round-001.parquet")
    trusted = {id for id, sure in zip(labels["id"], labels["trusted"], strict=True) if sure}
    links = [path for path in Path("out").rglob("*") if path.is_symlink()]
    assert {Path(os.readlink(link)).relative_to(here / "paintings").as_posix() for link in links} == trusted
    assert 0 < len(trusted) < 21


def test_copies_have_the_bytes_of_the_images(here: Path) -> None:
    code, said, _ = export("--images", "paintings", "--all", "--copy")
    assert code == 0
    assert said.startswith("wrote out: copies of 21 images in ")
    found, images = (sorted(Path(folder).rglob("*.png")) for folder in ("out", "paintings"))
    assert not any(path.is_symlink() for path in found)
    assert sorted(path.read_bytes() for path in found) == sorted(path.read_bytes() for path in images)


def test_the_same_export_again_gives_the_same_folder_and_another_one_replaces_it(here: Path) -> None:
    assert export("--images", "paintings", "--all")[0] == 0
    first = everything(Path("out"))
    assert export("--images", "paintings", "--all")[0] == 0
    assert everything(Path("out")) == first
    assert export("--images", "paintings", "--copy")[0] == 0
    assert export("--images", "paintings", "--copy")[0] == 0
    second = everything(Path("out"))
    assert len(second) < len(first)
    assert export("--images", "paintings", "--all")[0] == 0
    assert everything(Path("out")) == first
    assert not [name for name in os.listdir() if "tmp" in name]


def test_the_exported_folder_is_a_labelled_side_for_the_next_run(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBASIS_CACHE", str(here / "cache"))
    assert export("--images", "paintings", "--all")[0] == 0
    result = embasis("check", "out", "photos", "--follow-links", "--workers", 0)
    assert "out: 21 images" in result.stdout
    assert embasis("check", "out", "photos", "--workers", 0).exit_code == 3  # links are not followed unasked


FOREIGN: dict[str, tuple[str, str]] = {
    "a file": ("out/=cmd()/mine.png", "'=cmd()/mine.png'"),
    "a file beside": ("out/notes.txt", "'notes.txt'"),
    "a folder": ("out/new/", "'new'"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_an_export_to_which_somebody_added_something_is_left_alone(here: Path, kind: str) -> None:
    assert export("--images", "paintings", "--all")[0] == 0
    place, named = FOREIGN[kind]
    Path(place).mkdir() if place.endswith("/") else Path(place).write_text("mine")
    before = everything(here)
    code, _, said = export("--images", "paintings", "--all")
    assert said == f"embasis: output out holds what export did not make: {named}; name another folder\n"
    assert code == 2
    assert everything(here) == before


def test_a_copy_that_somebody_edited_and_a_link_that_was_moved_are_left_alone(here: Path) -> None:
    assert export("--images", "paintings", "--copy")[0] == 0
    edited = next(path for path in Path("out").rglob("*.png"))
    edited.write_bytes(b"drawn on")
    assert export("--images", "paintings", "--copy")[0] == 2
    assert edited.read_bytes() == b"drawn on"
    shutil.rmtree("out")
    assert export("--images", "paintings", "--all")[0] == 0
    link = next(path for path in Path("out").rglob("*.png"))
    link.unlink()
    link.symlink_to("elsewhere")
    assert export("--images", "paintings", "--all")[0] == 2
    assert os.readlink(link) == "elsewhere"


def test_other_places_that_are_taken_are_refused_and_an_empty_one_is_not(here: Path) -> None:
    Path("out").mkdir()
    Path("out/mine.txt").write_text("mine")
    code, _, said = export("--images", "paintings")
    rule = "output out is not empty and was not made by export; name a new or an empty folder"
    assert (code, said) == (2, f"embasis: {rule}\n")
    Path("out", EXPORT_MARKER).write_text('{"what": "embasis export", "files": {}}')  # not sealed
    assert export("--images", "paintings")[0] == 2
    assert Path("out/mine.txt").read_text() == "mine"
    shutil.rmtree("out")
    Path("out").symlink_to("photos")
    assert export("--images", "paintings")[1:] == ("", "embasis: output out is a file or a link; name a folder\n")
    Path("out").unlink()
    Path("out").mkdir()
    assert export("--images", "paintings")[0] == 0


def test_images_are_needed_and_must_all_be_there(here: Path) -> None:
    hint = "a run keeps no paths of your machine"
    needed = f"embasis: --as folder needs --images, the run's folder or list of images: {hint}\n"
    assert export() == (2, "", needed)
    assert export("--images", "nowhere") == (3, "", "embasis: nowhere: no such folder or list\n")
    assert export("--images", "run/HEAD") == (3, "", "embasis: run/HEAD: is no folder and no list of images\n")
    Path("paintings/=cmd(1).png").unlink()
    lacking = "embasis: paintings: 1 of 21 images of the run are not there: '=cmd(1).png'\n"
    assert export("--images", "paintings", "--all") == (3, "", lacking)
    inside = embasis("export", "run", "-o", "paintings/out", "--as", "folder", "--images", "paintings")
    where = "output paintings/out lies in the folder of images paintings; name a place outside of it"
    assert (inside.exit_code, inside.stderr) == (2, f"embasis: {where}\n")
    assert not Path("out").exists()


@pytest.mark.parametrize("name", ["../secret.png", "/etc/passwd", "a/../../x.png", "..\\x2fsecret.png", "a\\x00.png"])
def test_a_name_in_the_run_that_leads_out_of_the_images_is_refused(here: Path, name: str) -> None:
    Path("secret.png").write_bytes(picture(0, 0))
    path = Path("run/labels/round-001.parquet")
    columns = read_stored_table(path)
    columns["id"][0], columns["trusted"][0] = name, True
    path.write_bytes(encode_table(columns, ".parquet"))
    reseal(Path("run"))
    assert export("--images", "paintings") == (4, "", f"embasis: path escapes the folder of images: {name!r}\n")
    assert not Path("out").exists()


def test_a_run_on_a_list_is_exported_by_that_list(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBASIS_CACHE", str(here / "cache"))
    rows = [["path"], ["paintings/0.png"], [str(here / "paintings" / "1.png")], ["photos/../paintings/2.png"]]
    with open("list.csv", "w", newline="") as stream:
        csv.writer(stream).writerows(rows)
    result = embasis("fit", "photos.csv", "list.csv", "-o", "listed", *WORDS, "rounds=0")
    assert result.exit_code == 0, result.output
    result = embasis("export", "listed", "-o", "out", "--as", "folder", "--images", "list.csv", "--all")
    assert result.exit_code == 0, result.output
    links = {os.readlink(path) for path in Path("out").rglob("*.png")}
    assert links == {str(here / "paintings" / f"{number}.png") for number in range(3)}


def test_coco_of_images_is_refused(here: Path) -> None:
    result = embasis("export", "run", "-o", "x.json", "--as", "coco")
    which = "the run labelled images: --as csv or parquet or folder or label-studio or onnx or torch"
    assert result.stderr == f"embasis: --as coco is for runs on pictures with label maps, {which}\n"
    assert result.exit_code == 2


# --- what can go wrong while it is written


def items(root: Path, count: int = 5) -> list[ExportedImage]:
    plant(root, {f"{number}.png": picture(0, number) for number in range(count)})
    return [ExportedImage(f"{number}.png", "ab"[number % 2], str(root / f"{number}.png")) for number in range(count)]


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_whatever_call_of_the_system_fails_there_is_never_half_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copy: bool, again: bool
) -> None:
    do_not_wait(monkeypatch)
    monkeypatch.setattr(os, "sync", lambda: None)
    rows = items(tmp_path / "images")
    write_class_folder(tmp_path / "whole" / "out", rows, "ab", copy)
    new = everything(tmp_path / "whole")
    for at in range(1, 100):
        place = tmp_path / f"at{at}"
        place.mkdir()
        if again:
            write_class_folder(place / "out", rows[:3], "ab", copy)
        old = everything(place)
        disk = Faulty(at, errno.ENOSPC, kinds=(*CALLS, "symlink"))
        with monkeypatch.context() as patch:
            patch.setattr(atomic, "disk", disk)
            if disk_failed(place / "out", rows, copy):
                found = everything(place)
                left = {name: value for name, value in found.items() if not name.startswith(".embasis-tmp")}
                assert left in (old, new)
                assert left == new or found == old  # nothing is left behind unless the new folder is there
                continue
        assert not disk.fired
        assert everything(place) == new
        break
    else:
        raise AssertionError("it never ended")
    assert at > 10


def disk_failed(out: Path, rows: list[ExportedImage], copy: bool) -> bool:
    try:
        write_class_folder(out, rows, "ab", copy)
    except ResourceError as error:
        return str(error) == f"cannot write {out}: No space left on device"
    return False


def test_ctrl_c_leaves_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[str]()

    def symlink(source: str, path: Path) -> None:
        seen.append(source)
        if len(seen) == 4:
            raise KeyboardInterrupt
        os.symlink(source, path)

    monkeypatch.setattr(atomic.Disk, "symlink", staticmethod(symlink))
    before = everything(here)
    code, _, said = export("--images", "paintings")
    assert (code, said) == (130, "embasis: interrupted\n")
    assert everything(here) == before


def test_names_that_are_no_text_are_linked_and_exported_again(tmp_path: Path) -> None:
    raw = os.fsencode(tmp_path / "images") + b"/\xff\\.png"
    plant(tmp_path / "images", {os.fsdecode(b"\xff\\.png"): picture(0, 0)})
    (name,) = [file.name for file in scan_folder(tmp_path / "images").files]
    rows = image_items({"id": [name], "label": ["a"]}, str(tmp_path / "images"))
    for _ in range(2):
        write_class_folder(tmp_path / "out", rows, ["a"], copy=False)
        (link,) = (tmp_path / "out" / "a").iterdir()
        assert os.readlink(os.fsencode(link)) == raw
        assert link.name.isprintable()


def test_a_marker_that_names_files_elsewhere_is_not_believed(tmp_path: Path) -> None:
    from storage_runs import sealed

    (tmp_path / "keep.txt").write_text("mine")
    (tmp_path / "out").mkdir()
    entry = {"what": "embasis export", "version": "0", "files": {"../keep.txt": {"link": "x"}}}
    (tmp_path / "out" / EXPORT_MARKER).write_bytes(sealed(entry))
    with pytest.raises(ConfigError, match="was not made by export"):
        write_class_folder(tmp_path / "out", items(tmp_path / "images"), "ab", False)
    assert (tmp_path / "keep.txt").read_text() == "mine"


def test_safe_names_are_different_plain_and_stay_as_they_are_where_they_can() -> None:
    names = ["dog", "Dog", "..", ".", "", "a/b", "a\\b", "CON", "nul.png", "x\n", "x\x1b[31m", ".hidden", "ä",
             "a\u0308", "end.", "z" * 300, "=cmd()", "-rf", "\u202egnp.exe", "\udcff", "__MACOSX",
             "plain ü.png"]  # fmt: skip
    found = make_safe_names(names, names)
    assert len({name.casefold() for name in found}) == len(names)
    kept = {name: new for name, new in zip(names, found, strict=True) if name == new}
    assert kept.keys() == {"=cmd()", "-rf", "plain ü.png"}
    for new in found:
        assert new.isprintable()
        assert "/" not in new
        assert "\\" not in new
        assert new not in ("", ".", "..")
        assert new[0] != "."
        assert len(new.encode()) <= 255
    assert make_safe_names(names, names) == found
    assert found[8].endswith(".png")
