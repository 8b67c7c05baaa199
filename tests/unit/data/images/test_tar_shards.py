"""Images in tar shards: which files are rows, what they are called, and that each is counted once."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from embasis.data.images.folders import ImageOptions, check_images, load_images
from embasis.data.images.tar_shards import list_shard, open_tar_shards
from embasis.data.problem import account_for_files
from embasis.data.reader import Reader
from embasis.data.shards import ShardFile, find_shards, shard_kind
from embasis.errors import InputDataError
from image_runs import picture
from image_trees import plant

PNG = picture(0, 0)


def write_tar(path: Path, files: dict[str, bytes | int]) -> Path:
    """An archive of these files; a number is the kind of an entry without content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name.partition("#")[0])
            entry.size = len(data) if isinstance(data, bytes) else 0
            entry.type = tarfile.REGTYPE if isinstance(data, bytes) else b"%d" % data
            entry.linkname = "" if isinstance(data, bytes) else "/etc/passwd"
            archive.addfile(entry, io.BytesIO(data) if isinstance(data, bytes) else None)
    return path


def rows_of(path: Path) -> list[tuple[str, str]]:
    return [(row.name, row.reason) for row in list_shard(ShardFile("s.tar", str(path))).rows]


def test_a_row_is_an_image_whose_ending_is_all_that_follows_its_key(tmp_path: Path) -> None:
    files = {
        "b/0002.jpg": b"", "b/0002.cls": b"", "b/0002.json": b"", "0001.PNG": b"", "0001.seg.png": b"",
        "x.left.jpg": b"", "./c/3.webp": b"", ".hidden.png": b"", "__MACOSX/4.png": b"", "readme": b"", "folder": 5,
    }  # fmt: skip
    path = write_tar(tmp_path / "s.tar", files)
    listing = list_shard(ShardFile("s.tar", str(path)))
    assert [row.name for row in listing.rows] == ["s.tar/0001.PNG", "s.tar/b/0002.jpg", "s.tar/c/3.webp"]
    assert listing.others == {".cls": 1, ".json": 1, ".seg.png": 1, ".left.jpg": 1, "": 1}
    assert listing.hidden == {".hidden.png": 1, "__MACOSX": 1}


def test_what_is_refused_is_a_row_with_its_reason(tmp_path: Path) -> None:
    link, out = "is a link; links are not followed", "leads out of the archive"
    files: dict[str, bytes | int] = {
        "a.png": b"1", "a.jpg": b"2", "a.png#again": b"3", "/etc/b.png": b"4", "../c.png": b"5", "d/../../e.png": b"6",
        "hard.png": 1, "soft.png": 2, "device.png": 3, "pipe.png": 6, "soft.cls": 2,
    }  # fmt: skip
    assert rows_of(write_tar(tmp_path / "s.tar", files)) == [
        ("s.tar/../c.png", out),
        ("s.tar/a.jpg", "its sample has another image, a.png"),
        ("s.tar/a.png", ""),
        ("s.tar/a.png (2)", "its name is in the shard before"),
        ("s.tar/d/../../e.png", out),
        ("s.tar/device.png", "not a regular file"),
        ("s.tar/etc/b.png", out),
        ("s.tar/hard.png", link),
        ("s.tar/pipe.png", "not a regular file"),
        ("s.tar/soft.png", link),
    ]


def test_a_damaged_shard_gives_what_can_be_read_and_is_named_itself(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "s.tar", {"a.png": PNG, "b.png": PNG})
    length = 512 + -(-len(PNG) // 512) * 512 + 512 + 30
    path.write_bytes(path.read_bytes()[:length])
    assert rows_of(path) == [
        ("s.tar", f"is cut off: it ends after {length:,} bytes without an end mark, members may be missing"),
        ("s.tar/a.png", ""),
        ("s.tar/b.png", ""),
    ]
    scan = open_tar_shards(find_shards(tmp_path)).scan()
    assert [file.name for file in scan.files] == ["s.tar/a.png"]
    assert [(item.name, item.kind) for item in scan.rejected] == [
        ("s.tar", "quarantined"),
        ("s.tar/b.png", "quarantined"),
    ]
    assert scan.rejected[1].reason == f"its archive ends after 30 of {len(PNG):,} bytes"
    assert scan.seen == 3


def test_any_part_of_the_rows_is_found_as_in_the_whole(tmp_path: Path) -> None:
    for shard in range(3):
        files = {f"{shard}{number:03d}.png": PNG + bytes([number]) for number in range(7)}
        write_tar(tmp_path / f"b/{shard}.tar", {**files, "broken.png": b"no image"})
    shards = open_tar_shards(find_shards(tmp_path))
    assert [shard.first for shard in shards.manifest.shards] == [0, 8, 16]
    whole = shards.scan()
    names = sorted([*(file.name for file in whole.files), *(item.name for item in whole.rejected)])
    assert len(names) == 24
    for rows in (range(24), range(3, 4), range(5, 19), range(24, 24)):
        chunks = list(shards.chunks(rows, 3))
        found = [name for chunk in chunks for name in sorted(
            [*(file.name for file in chunk.files), *(item.name for item in chunk.rejected)])]  # fmt: skip
        assert found == [names[row] for row in rows]
        assert all(file in whole.files for chunk in chunks for file in chunk.files)
        assert max((len(chunk.files) + len(chunk.rejected) for chunk in chunks), default=0) <= 3


def test_a_folder_with_an_image_is_no_folder_of_shards(tmp_path: Path) -> None:
    write_tar(tmp_path / "pool" / "a.tar", {"a.png": PNG})
    assert shard_kind(tmp_path / "pool") == ".tar"
    plant(tmp_path / "pool", {"deep/er/b.png": PNG})
    assert shard_kind(tmp_path / "pool") == ""
    assert shard_kind(tmp_path / "gone") == ""


def sides(root: Path) -> tuple[Path, Path]:
    plant(
        root / "photos",
        {f"{name}/{number}.png": picture(at, number) for at, name in enumerate("ab") for number in (1, 2)},
    )
    pool = {f"{number}.png": picture(number % 2, 30 + number) for number in range(5)}
    write_tar(root / "pool" / "s-0.tar", {**pool, "0.cls": b"1", "bad.png": b"no", "link.png": 2})
    return root / "photos", root / "pool"


def test_a_pool_of_shards_is_a_side_whose_ledger_adds_up(tmp_path: Path) -> None:
    photos, pool = sides(tmp_path)
    problem = load_images(photos, pool)
    assert sorted(problem.row_names or ()) == [f"s-0.tar/{number}.png" for number in range(5)]
    assert [(item.name, item.kind, item.side) for item in problem.rejected] == [
        ("s-0.tar/bad.png", "quarantined", "unlabelled"),
        ("s-0.tar/link.png", "refused", "unlabelled"),
    ]
    account = account_for_files(problem, {}, None)["unlabelled"]
    assert str(account) == "7 seen = 5 used + 0 unselected + 1 quarantined + 1 refused"
    (record,) = problem.shards["unlabelled"]
    assert (record.name, record.rows, record.first) == ("s-0.tar", 7, 0)
    assert len(record.sha256) == 64
    assert f"{pool}: 7 rows in 1 shard" in problem.notes
    assert f"{pool}: 1 file of another kind is ignored: .cls 1; labels in shards are not read" in problem.notes


def test_check_decodes_the_images_of_shards(tmp_path: Path) -> None:
    photos, pool = sides(tmp_path)
    findings = check_images(photos, pool, options=ImageOptions(), reader=Reader(0))
    texts = [finding.text for finding in findings if finding.level != "note"]
    assert f"{pool}: s-0.tar/link.png: is a link; links are not followed" in texts
    assert f"{pool}: 5 of 7 images can be used" in [finding.text for finding in findings]


def test_a_labelled_side_cannot_be_shards(tmp_path: Path) -> None:
    photos, pool = sides(tmp_path)
    with pytest.raises(InputDataError) as caught:
        load_images(pool, photos)
    cure = "unpack them to a folder for each class, or name a list of images"
    assert str(caught.value) == f"{pool}: labels in shards are not read; {cure}"


def test_shards_without_an_image_are_refused(tmp_path: Path) -> None:
    write_tar(tmp_path / "pool" / "a.tar", {"a.txt": b"1"})
    with pytest.raises(InputDataError, match=r": no images in its shards; read are key\.bmp, key\."):
        open_tar_shards(find_shards(tmp_path / "pool"))
