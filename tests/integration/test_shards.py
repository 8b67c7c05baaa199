"""Pools in shards on the command line: fit, check and predict take them, and label every row exactly once."""

from __future__ import annotations

import csv
import json
import tarfile
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from cli_tables import copied, embasis, fit_without_page, refused, write_tables
from image_runs import WORDS, picture
from image_runs import sides as image_sides
from image_trees import plant
from map_folder_runs import fitted, scene
from map_folder_runs import sides as map_sides
from map_trees import saved

pytestmark = pytest.mark.usefixtures("plain_page")


def done(*words: object) -> str:
    """What a command that succeeds says on the error stream."""
    result = embasis(*words)
    assert result.exit_code == 0, result.output
    return result.stderr


def joined(source: str, count: int, *words: object) -> bytes:
    """The labels of all parts of a source, one after the other."""
    parts = list[bytes]()
    for number in range(1, count + 1):
        done("predict", "run", source, "-o", "part.csv", "--part", f"{number}/{count}", *words)
        header, body = Path("part.csv").read_bytes().split(b"\n", 1)
        parts.append(body)
    return b"\n".join([header, b"".join(parts)])


def rows_of(path: str | Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


# --- tables


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, the same in shards of 25, 0, 30 and 5 rows, a list of them, and a run on the shards."""
    root = tmp_path_factory.mktemp("tables")
    write_tables(root)
    whole = pyarrow.csv.read_csv(root / "judged.csv")
    pq.write_table(whole, root / "one.parquet")
    (root / "pool" / "b").mkdir(parents=True)
    names = {"a.parquet": (0, 25), "aa.parquet": (25, 25), "b/x.parquet": (25, 55), "c.parquet": (55, 60)}
    for name, (first, last) in names.items():
        pq.write_table(whole.slice(first, last - first), root / "pool" / name, row_group_size=7)
    (root / "list.csv").write_text("path\n" + "".join(f"pool/{name}\n" for name in names))
    return fit_without_page(root, root / "labelled.csv", root / "pool", "rounds=1")


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return copied(made, tmp_path / "here", monkeypatch)


def test_a_run_on_shards_is_that_on_one_table(here: Path) -> None:
    done("fit", "labelled.csv", "one.parquet", "-o", "other", "rounds=1")
    names = [f"labels/round-{number:03d}.parquet" for number in (0, 1)]
    assert [Path("run", name).read_bytes() == Path("other", name).read_bytes() for name in names] == [True, True]
    records = [json.loads(line) for line in Path("run/shards.jsonl").read_text().splitlines()]
    assert [(each["side"], each["name"], each["first"], each["rows"]) for each in records] == [
        ("unlabelled", "a.parquet", 0, 25), ("unlabelled", "aa.parquet", 25, 0), ("unlabelled", "b/x.parquet", 25, 30),
        ("unlabelled", "c.parquet", 55, 5),
    ]  # fmt: skip
    assert not Path("other/shards.jsonl").exists()
    again = embasis("fit", "labelled.csv", "pool", "-o", "run", "rounds=1")
    assert "run had ended (finished)" in again.stdout


@pytest.mark.parametrize("words", [(), ("--sort", "uncertainty"), ("--precision", "0.9")])
@pytest.mark.parametrize("source", ["pool", "list.csv"])
def test_shards_are_labelled_as_one_table(here: Path, source: str, words: tuple[str, ...]) -> None:
    done("predict", "run", "one.parquet", "-o", "one.csv", *words)
    done("predict", "run", source, "-o", "all.csv", *words)
    assert Path("all.csv").read_bytes() == Path("one.csv").read_bytes()


@pytest.mark.parametrize("count", [2, 7])
def test_parts_of_shards_are_all_rows(here: Path, count: int) -> None:
    done("predict", "run", "one.parquet", "-o", "one.csv")
    assert joined("pool", count) == Path("one.csv").read_bytes()


def test_check_counts_shards_and_refuses_what_fit_refuses(here: Path) -> None:
    result = embasis("check", "labelled.csv", "pool")
    assert result.exit_code == 0
    assert "note: pool: 60 rows in 4 shards\n" in result.stdout
    Path("pool/d.parquet").write_bytes(b"PAR1 no")
    result = embasis("check", "labelled.csv", "pool")
    assert result.exit_code == 3
    assert result.stdout.startswith("error: pool/d.parquet: not a readable .parquet file: ")
    for command in (("predict", "run", "pool", "-o", "x.csv"), ("fit", "labelled.csv", "pool", "-o", "new")):
        result = embasis(*command)
        assert result.exit_code == 3
        assert result.stderr.startswith("embasis: pool/d.parquet: not a readable .parquet file: ")
    assert not Path("x.csv").exists()


def test_a_value_that_is_not_finite_is_named_by_its_shard_and_nothing_is_written(here: Path) -> None:
    bad = pq.read_table("pool/b/x.parquet").to_pydict()
    bad["f3"][20] = float("inf")
    pq.write_table(pyarrow.table(bad), "pool/b/x.parquet")
    sentence = "values must be finite, got 1 inf in 1 of 30 rows and 1 of 8 columns; first at row 20, column 'f3'"
    refused(3, f"pool/b/x.parquet: {sentence}", "predict", "run", "pool", "-o", "x.csv")
    assert not Path("x.csv").exists()


def test_no_output_overwrites_a_shard(here: Path) -> None:
    before = Path("pool/a.parquet").read_bytes()
    rule = "output pool/a.parquet is a shard of the input list.csv; name another place"
    refused(2, rule, "predict", "run", "list.csv", "-o", "pool/a.parquet")
    rule = "output pool/a.parquet lies in the input pool; name a place outside of it"
    refused(2, rule, "predict", "run", "pool", "-o", "pool/a.parquet")
    assert Path("pool/a.parquet").read_bytes() == before


# --- images


@pytest.fixture(scope="module")
def made_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images in three tar shards, some of which cannot be read, the same unpacked, and a run on the shards."""
    root = image_sides(tmp_path_factory.mktemp("images"))
    paintings = sorted((root / "paintings").rglob("*.png"))
    for shard in range(3):
        files = {f"{number:04d}.png": path.read_bytes() for number, path in enumerate(paintings) if number % 3 == shard}
        files |= {"0000.cls": b"1", "zz.json": b"{}"} | (
            {"bad.png": picture(0, 0)[:300], "no.png": b"no"} if shard else {}
        )
        plant(root / "unpacked" / f"s-{shard}.tar", files)
        (root / "pool").mkdir(exist_ok=True)
        with tarfile.open(root / "pool" / f"s-{shard}.tar", "w") as archive:
            for name in files:
                archive.add(root / "unpacked" / f"s-{shard}.tar" / name, name)
            (link := tarfile.TarInfo("link.png")).type = tarfile.SYMTYPE
            link.linkname = "/etc/passwd"
            archive.addfile(link)
    return fit_without_page(root, root / "photos", root / "pool", *WORDS, "rounds=1")


@pytest.fixture
def images(made_images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EMBASIS_CACHE", str(tmp_path / "here" / "cache"))
    return copied(made_images, tmp_path / "here", monkeypatch)


def test_a_run_on_tar_shards_accounts_for_every_member(images: Path) -> None:
    ledger = json.loads(Path("run/ledger.json").read_text())["unlabelled"]
    assert (ledger["seen"], ledger["quarantined"], ledger["refused"]) == (18 + 4 + 3, 4, 3)
    lost = [json.loads(line)["name"] for line in Path("run/quarantine.jsonl").read_text().splitlines()]
    assert sorted(lost) == [
        "s-0.tar/link.png", "s-1.tar/bad.png", "s-1.tar/link.png", "s-1.tar/no.png", "s-2.tar/bad.png",
        "s-2.tar/link.png", "s-2.tar/no.png",
    ]  # fmt: skip


def test_images_of_shards_have_the_labels_that_they_have_as_files(images: Path) -> None:
    said = done("predict", "run", "pool", "-o", "all.csv", "--workers", 0)
    assert said.startswith(
        "warning: pool: 6 files of other kinds are ignored: .cls 3, .json 3; labels in shards are not read\n"
        "warning: 7 files could not be read and got no label: s-0.tar/link.png: is a link; links are not followed; "
    )
    done("predict", "run", "unpacked", "-o", "files.csv", "--workers", 0)
    rows, files = rows_of("all.csv"), rows_of("files.csv")
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
    assert [row for row in rows if not row["id"].endswith("link.png")] == files
    assert len(rows) == len(files) + 3 == 25


@pytest.mark.parametrize("count", [2, 9, 40])
def test_parts_of_tar_shards_are_all_images(images: Path, count: int) -> None:
    done("predict", "run", "pool", "-o", "all.csv", "--workers", 0)
    assert joined("pool", count, "--workers", 0) == Path("all.csv").read_bytes()


def test_a_list_of_tar_shards_is_labelled_too_and_one_that_is_cut_off_is_named(images: Path) -> None:
    cut = Path("pool/s-1.tar").read_bytes()
    Path("cut.tar").write_bytes(cut[: 512 * 3 + 100])
    Path("list.csv").write_text("path\npool/s-0.tar\ncut.tar\n")
    said = done("predict", "run", "list.csv", "-o", "all.csv", "--workers", 0)
    rows = {row["id"]: row["label"] for row in rows_of("all.csv")}
    assert [name for name in rows if name.startswith("cut.tar")] == ["cut.tar", "cut.tar/0001.png"]
    assert rows["cut.tar"] == rows["cut.tar/0001.png"] == ""
    assert sum(label != "" for label in rows.values()) == 6
    assert "cut.tar: is cut off: it ends after 1,636 bytes without an end mark, members may be missing" in said


def test_commands_that_need_files_say_how_to_unpack(images: Path) -> None:
    rule = "pool: images in tar shards are no files of their own; unpack each into a folder of its name, and name the "
    refused(3, f"{rule}folder around them", "export", "run", "-o", "x", "--as", "folder", "--images", "pool", "--all")
    done("export", "run", "-o", "x", "--as", "folder", "--images", "unpacked", "--all")
    assert len(list(Path("x").rglob("*.png"))) == 18


# --- label maps


def test_pictures_in_tar_shards_get_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = map_sides(tmp_path / "maps", 6)
    monkeypatch.chdir(home)
    plant(home / "unpacked" / "s.tar", {f"{number}.png": saved(scene(number, 25)[0]) for number in range(5)})
    Path("pool").mkdir()
    with tarfile.open("pool/s.tar", "w") as archive:
        for path in sorted(Path("unpacked/s.tar").iterdir()):
            archive.add(path, path.name)
    fitted(home, home / "run", "rounds=1")
    for source in ("pool", "unpacked"):
        done("predict", "run", source, "-o", f"of-{source}", "--workers", 0)
    found = [{path.relative_to(top).as_posix(): path.read_bytes() for path in Path(top).rglob("*.*") if path.is_file()
              and path.suffix in (".png", ".csv")} for top in ("of-pool", "of-unpacked")]  # fmt: skip
    assert found[0] == found[1]
    assert len(found[0]) == 5 * 4 + 1
    done("fit", "drawn", "pool", "-o", "other", "rounds=0", "--backbone", "small_fcn",
         "maps.size=32", "maps.crop_height=32", "maps.crop_width=48", "source_epochs=1")  # fmt: skip
    labelled = sorted(path.relative_to("other/labels/round-000/labels").as_posix()
                      for path in Path("other/labels/round-000/labels").rglob("*.png"))  # fmt: skip
    assert labelled == [f"s.tar/{number}.png" for number in range(5)]
