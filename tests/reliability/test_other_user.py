"""Another user than the owner, and no root: runs that may only be read, folders that are closed, masks of new files.

Where the tests run as root, commands are those of uid 65534; else this user's own, to whom the modes say the same.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from cli_tables import embasis, write_tables
from deep_runs import MODULES
from embasis.storage import RunFolder
from folder_runs import digests
from forked import Child, Zygote
from image_runs import WORDS, picture, sides
from kill_runs import TINY
from map_folder_runs import sides as map_sides
from other_user import prefix, why_not
from signal_runs import orphans
from storage_runs import tree

AS_TOLD = """
import os, sys
from embasis.__main__ import main
for name, value in (word[1:].split("=", 1) for word in words if word[0] == "@"):
    os.umask(int(value, 8)) if name == "umask" else os.environ.update({name: value})
sys.argv = ["embasis", *(word for word in words if word[0] != "@")]
main()
"""
"""A word that begins with @ sets a variable, or the mask of new files."""
FEATURES = "images.cache=DIR or EMBASIS_CACHE names another folder for features"


class Other:
    """The other user: a folder of the owner's at `place`, one of the user's own at `own`."""

    def __init__(self, zygote: Zygote, place: Path) -> None:
        self.zygote, self.place, self.own = zygote, place, place / "own"
        self.own.mkdir()
        self.own.chmod(0o777)

    def __call__(self, *words: object) -> Child:
        home = f"@HOME={self.own}"
        return self.zygote.run(self.own / "log", home, *words, code=AS_TOLD)

    def refused(self, code: int, *words: object) -> str:
        """The sentence with which a command is refused that says nothing else on stderr."""
        child = self(*words)
        assert (child.code, child.stderr.count("\n")) == (code, 1), child.stderr
        return child.stderr.removeprefix("embasis: ").removesuffix("\n")


@pytest.fixture(scope="module")
def other() -> Iterator[Other]:
    if reason := why_not():
        pytest.skip(reason)
    place = Path(tempfile.mkdtemp()).resolve()
    place.chmod(0o755)
    with Zygote(prefix()) as zygote:
        yield Other(zygote.know(*MODULES), place)
    remove(place)


@pytest.fixture(scope="module")
def tables(other: Other) -> Path:
    """Two tables, and a run of them that others may read and nobody write."""
    (home := other.place / "tables").mkdir()
    write_tables(home)
    assert embasis("fit", home / "labelled.csv", home / "judged.csv", "-o", home / "run", "rounds=1").exit_code == 0
    read_only(home)
    return home


@pytest.fixture(scope="module")
def pictures(other: Other) -> Path:
    """Two folders of images, a run of them, and the features of both."""
    sides(home := other.place / "pictures")
    words = ("fit", home / "photos", home / "paintings", *WORDS, "rounds=1", "workers=0")
    assert embasis(*words, f"images.cache={home / 'cache'}", "-o", home / "run").exit_code == 0
    read_only(home)
    return home


@pytest.fixture
def closed(other: Other) -> Iterator[Path]:
    """A folder with something of everything, for the test to close."""
    home = other.place / "closed"
    write_tables(map_sides(sides(home)))
    torch.save({"a": torch.ones(2)}, home / "weights.pt")
    (home / "weights.safetensors").write_bytes(b"")
    yield home
    remove(home)


def remove(path: Path) -> None:
    """A folder and all in it, closed or not."""
    path.chmod(0o755)
    for top, folders, _ in os.walk(path):
        for name in folders:
            if not os.access(place := Path(top, name), os.R_OK | os.W_OK | os.X_OK):
                place.chmod(0o755)
    shutil.rmtree(path)


def read_only(path: Path) -> None:
    for file in (path, *path.rglob("*")):
        file.chmod(0o555 if file.is_dir() else 0o444)


# --- a run that may only be read


def test_the_run_of_another_user_is_read_and_reported_and_stays_as_it_is(other: Other, tables: Path) -> None:
    run, before = tables / "run", tree(tables)
    assert other("predict", run, tables / "judged.csv", "-o", other.own / "labels.csv").code == 0
    mine = other.own / "mine.csv"
    assert embasis("predict", run, tables / "judged.csv", "-o", mine).exit_code == 0
    assert (other.own / "labels.csv").read_bytes() == mine.read_bytes()
    assert other("export", run, "-o", other.own / "trusted.csv", "--as", "csv").code == 0
    page = other.own / "page.html"
    child = other("report", run, "-o", page)
    assert child.code == 0, child.stderr
    assert child.stdout.splitlines()[-1] == f"finished: round 1 of 1 is kept; wrote {page}"
    assert page.read_text().startswith("<!doctype html>")
    assert tree(tables) == before


def test_what_would_write_into_the_run_of_another_user_is_refused(other: Other, tables: Path) -> None:
    run, before = tables / "run", tree(tables)
    fit = ("fit", tables / "labelled.csv", tables / "judged.csv", "rounds=1")
    kept = "the last good generation 2 is kept"
    assert other.refused(5, *fit, "-o", run) == f"cannot write {run}: Permission denied; {kept}"
    none = "no generation exists yet"
    assert other.refused(5, *fit, "-o", tables / "new") == f"cannot write {tables / 'new'}: Permission denied; {none}"
    page = run / "report.html"
    assert other.refused(5, "report", run) == (
        f"cannot write {page}: Permission denied; -o FILE writes the page elsewhere"
    )
    out = tables / "labels.csv"
    assert (
        other.refused(5, "predict", run, tables / "judged.csv", "-o", out) == f"cannot write {out}: Permission denied"
    )
    for command in (("compare", "blobs"), ("ablate", "blobs"), ("demo",)):
        assert other.refused(5, *command, "-o", tables / "out") == (
            f"cannot write {tables / 'out'}: this user may not write in {tables}; name another folder with -o"
        )
    assert tree(tables) == before


def test_a_lock_that_another_user_holds_stops_no_reader(other: Other, tables: Path) -> None:
    shutil.copytree(tables / "run", run := other.place / "locked")
    for folder in (run, *(path for path in run.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    fit = ("fit", tables / "labelled.csv", tables / "judged.csv", "rounds=1", "-o", run)
    (run / "lock").chmod(0o666)
    with RunFolder(run):
        assert other("predict", run, tables / "judged.csv", "-o", other.own / "labels.csv").code == 0
        sentence = other.refused(7, *fit)
    assert sentence.startswith(f"run folder {run} is locked by pid {os.getpid()} since 2")
    assert sentence.endswith("; wait for it or choose another folder")
    (run / "lock").chmod(0o444)
    assert other.refused(5, *fit) == f"cannot write {run}: Permission denied; the last good generation 2 is kept"


# --- what is closed


def test_a_closed_table_run_or_settings_is_one_sentence(other: Other, tables: Path, closed: Path) -> None:
    table, out, denied = closed / "judged.csv", ("-o", other.own / "out"), "Permission denied"
    fit, cannot = ("fit", tables / "labelled.csv", tables / "judged.csv"), "cannot be read: Permission denied"
    shutil.copytree(tables / "run", closed / "run")
    closed.chmod(0)
    assert other.refused(3, "fit", table, tables / "judged.csv", *out) == f"{table}: {cannot}"
    assert other.refused(3, "predict", tables / "run", table, "-o", other.own / "l.csv") == f"{table}: {cannot}"
    assert other.refused(3, *fit, *out, "--corrections", table) == f"{table}: {cannot}"
    config = closed / "run.toml"
    assert other.refused(2, *fit, *out, "--config", config) == f"cannot read config {config}: {denied}"
    assert other.refused(5, *fit, "-o", closed / "out") == f"cannot use {closed / 'out'}: {denied}"
    head = f"cannot read {closed / 'run' / 'HEAD'}: {denied}"
    assert other.refused(5, "predict", closed / "run", tables / "judged.csv", "-o", other.own / "l.csv") == head
    pack = closed / "mnist.npz"
    assert other.refused(3, "compare", "mnist_usps", "--root", closed) == (
        f"mnist_usps: {pack}: {cannot}; set --root or EMBASIS_DATA"
    )


def test_closed_images_are_one_sentence_or_a_line_of_the_quarantine(other: Other, pictures: Path, closed: Path) -> None:
    out, run = ("-o", other.own / "out"), pictures / "run"
    images, denied = closed / "paintings", "cannot be read: permission denied"
    fit = ("fit", pictures / "photos", images, *WORDS, "rounds=1", f"images.cache={other.own / 'cache'}")
    (images / "0ä 0.png").chmod(0)
    assert other(*fit, "workers=0", "-o", other.own / "one").code == 0
    assert (
        '"name": "0\\u00e4 0.png", "phase": "scan", "reason": "permission denied"'
        in (other.own / "one" / "quarantine.jsonl").read_text()
    )
    images.chmod(0)
    assert other.refused(3, *fit, *out) == f"{images}: {denied}"
    assert other.refused(3, "predict", run, images, "-o", other.own / "l.csv") == f"{images}: {denied}"
    export = ("export", run, "-o", other.own / "sorted", "--as", "folder", "--all", "--images")
    assert other.refused(3, *export, images) == f"{images}: {denied}"
    images.chmod(0o755)
    (images / "oben").chmod(0)
    assert re.fullmatch(rf"{images}/oben/.+: {denied}", other.refused(3, *export, images))
    closed.chmod(0)
    assert other.refused(3, *export, images) == f"{images}: {denied}"


@pytest.mark.parametrize("name", ["labels", "images"])
def test_a_closed_folder_of_label_maps_is_said_to_be_closed(other: Other, closed: Path, name: str) -> None:
    (closed / "drawn" / name).chmod(0)
    sentence = other.refused(3, "fit", closed / "drawn", closed / "streets", "-o", other.own / "out")
    assert sentence == f"{closed / 'drawn' / name}: cannot be read: permission denied"


def test_closed_weights_are_said_to_be_closed(other: Other, pictures: Path, closed: Path) -> None:
    fit = ("fit", pictures / "photos", pictures / "paintings", *WORDS, "-o", other.own / "out")
    ours, foreign = closed / "weights.safetensors", closed / "weights.pt"
    ours.chmod(0)
    assert other.refused(4, *fit, f"network.weights={ours}") == f"cannot read {ours}: Permission denied"
    closed.chmod(0)
    assert other.refused(4, *fit, f"network.weights={ours}") == f"cannot read {ours}: Permission denied"
    sentence = other.refused(2, "import-weights", foreign, "-o", other.own / "w.safetensors")
    assert sentence == f"cannot read {foreign}: Permission denied"


def test_the_backbone_of_a_run_that_is_closed_is_no_damage(other: Other, pictures: Path, closed: Path) -> None:
    shutil.copytree(pictures / "run", run := closed / "run")
    (run / "backbone.safetensors").chmod(0)
    sentence = other.refused(4, "predict", run, pictures / "paintings", "-o", other.own / "l.csv")
    assert sentence == f"cannot read {run / 'backbone.safetensors'}: Permission denied"


# --- the feature cache


def test_a_cache_that_is_not_ours_is_used_or_refused_before_an_image_is_read(other: Other, pictures: Path) -> None:
    fit = ("fit", pictures / "photos", pictures / "paintings", *WORDS, "rounds=1", "workers=0", "-o")
    theirs = f"images.cache={pictures / 'cache'}"
    assert other(*fit, other.own / "shared", theirs).code == 0
    assert digests(other.own / "shared") == digests(pictures / "run")
    child = other(*fit, other.own / "new", theirs, "seed=9")
    (before,) = (pictures / "cache" / "features").iterdir()
    new = child.stderr.removeprefix("embasis: cannot write ").partition(":")[0]
    assert Path(new).parent == before.parent
    assert (child.code, child.stderr) == (5, f"embasis: cannot write {new}: Permission denied; {FEATURES}\n")
    assert child.stdout == "", "not one image was read"
    assert not (other.own / "new").exists()


def test_a_cache_that_is_closed_is_refused_with_a_cure(other: Other, pictures: Path, closed: Path) -> None:
    fit = ("fit", pictures / "photos", pictures / "paintings", *WORDS, "rounds=1", "workers=0", "-o", other.own / "c")
    (home := closed / "home").mkdir()
    home.chmod(0)
    sentence = other.refused(5, *fit, f"@HOME={home}")
    cache = home / ".cache" / "embasis"
    assert sentence == f"cannot write {cache}: {cache / 'features'}: Permission denied; {FEATURES}"
    assert other(*fit, f"@HOME={home}", f"images.cache={other.own / 'cache'}").code == 0


def test_images_are_not_read_for_a_run_that_may_not_be_written(other: Other, pictures: Path) -> None:
    out, cache = pictures / "mine", other.own / "untouched"
    fit = ("fit", pictures / "photos", pictures / "paintings", *WORDS, "rounds=1", f"images.cache={cache}", "-o", out)
    rule = f"this user may not write in {pictures}; name another folder with -o"
    assert other.refused(5, *fit) == f"cannot write {out}: {rule}"
    assert not cache.exists()


# --- processes of the other user, and masks of new files


def test_workers_and_the_reader_of_foreign_weights_need_no_root(other: Other, pictures: Path) -> None:
    fit = ("fit", pictures / "photos", pictures / "paintings", *WORDS, "rounds=1", "workers=1")
    child = other(*fit, "-o", other.own / "worked", f"images.cache={other.own / 'fresh'}")
    assert child.code == 0, child.stderr
    assert not orphans(child.pid)
    assert digests(other.own / "worked") == digests(pictures / "run")
    torch.save({"a": torch.ones(2)}, file := other.place / "weights.pt")
    child = other("import-weights", file, "-o", other.own / "weights.safetensors")
    assert child.code == 0, child.stderr


@pytest.mark.parametrize(("mask", "folder", "file"), [("077", 0o700, 0o600), ("000", 0o777, 0o666)])
def test_what_a_run_writes_has_the_modes_that_the_user_wants(other: Other, mask: str, folder: int, file: int) -> None:
    run, usual = other.own / f"masked-{mask}", other.own / f"usual-{mask}"
    for path, words in ((run, (f"@umask={mask}",)), (usual, ("@umask=022",))):
        for _ in range(2):  # the second goes on
            child = other(*words, *TINY, "-o", path)
            assert child.code == 0, child.stderr
    assert digests(run) == digests(usual)
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in (run, *run.rglob("*"))}
    assert modes == {(True, folder), (False, file)}
    if os.geteuid() == 0 and mask == "077":
        return  # root reads it all the same
    assert embasis("report", run, "-o", usual.with_suffix(".html")).exit_code == 0


def test_pictures_of_another_user_are_never_touched(other: Other, pictures: Path) -> None:
    before = tree(pictures)
    assert other("predict", pictures / "run", pictures / "paintings", "-o", other.own / "labels.csv").code == 0
    assert tree(pictures) == before
    assert picture(0, 0) == (pictures / "photos" / "amsel" / "bild 0.png").read_bytes()
