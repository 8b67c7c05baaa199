"""Our own reader of tar headers: what Python's reader finds in sound archives, and one reason for each damaged one."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest

from embasis.data.images import tar_members
from embasis.data.images.tar_members import BadTar, TarMember, iter_tar

LONG = "ordner/" * 20 + "ein langer name " * 10 + ".png"


def add(archive: tarfile.TarFile, name: str, data: bytes = b"x", **facts: object) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    for key, value in facts.items():
        setattr(entry, key, value)
    archive.addfile(entry, io.BytesIO(data))


def made(path: Path, form: int = tarfile.GNU_FORMAT, names: tuple[str, ...] = ("a.png", "b/c.png")) -> Path:
    with tarfile.open(path, "w", format=form, encoding="utf-8") as archive:
        for number, name in enumerate(names):
            add(archive, name, bytes([number]) * (number * 700))
    return path


def said(path: Path) -> tuple[list[TarMember], str]:
    """The members that are found, and why there are no more."""
    members, archive = list[TarMember](), iter_tar(str(path))
    while True:
        try:
            members.append(next(archive))
        except StopIteration:
            return members, ""
        except BadTar as error:
            return members, str(error)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_sound_archives_are_read_as_python_reads_them(tmp_path: Path, form: int) -> None:
    long = "o/" * 60 + "name.png" if form == tarfile.USTAR_FORMAT else LONG
    path = made(tmp_path / "a.tar", form, ("a.png", "b/c.png", "ö ü.jpg", long, "empty.png"))
    with tarfile.open(path) as archive:
        expected = [TarMember(entry.name.encode(), entry.offset_data, entry.size) for entry in archive]
    assert len(expected) == 5
    assert said(path) == (expected, "")


def test_names_are_bytes_and_a_pax_path_and_size_win(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        add(archive, "short.png", b"12345", pax_headers={"path": "other.png", "comment": "=\n=", "size": "5"})
    raw = tmp_path / "raw.tar"
    with tarfile.open(raw, "w", format=tarfile.GNU_FORMAT, encoding="latin-1") as archive:
        add(archive, "é.png")
    assert [member.name for member in iter_tar(str(path))] == [b"other.png"]
    assert [member.name for member in iter_tar(str(raw))] == [b"\xe9.png"]


def test_a_size_of_more_than_eight_gigabytes_is_read(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("a.png")
    entry.size = 2**40
    path = tmp_path / "a.tar"
    path.write_bytes(entry.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    members, reason = said(path)
    assert members == [TarMember(b"a.png", 512, 2**40)]
    assert reason == "is cut off: it ends after 1,536 bytes without an end mark, members may be missing"


def test_folders_are_passed_over_and_all_that_is_no_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    kinds = {
        "hard.png": tarfile.LNKTYPE, "soft.png": tarfile.SYMTYPE, "device.png": tarfile.CHRTYPE,
        "block.png": tarfile.BLKTYPE, "pipe.png": tarfile.FIFOTYPE, "sparse.png": tarfile.GNUTYPE_SPARSE,
    }  # fmt: skip
    with tarfile.open(path, "w") as archive:
        add(archive, "folder", b"", type=tarfile.DIRTYPE)
        for name, kind in kinds.items():
            add(archive, name, b"", type=kind, linkname="/etc/passwd")
        add(archive, "good.png")
    members, reason = said(path)
    assert reason == ""
    link, other = "is a link; links are not followed", "not a regular file"
    assert [(member.name.decode(), member.refused) for member in members] == [
        ("hard.png", link), ("soft.png", link), ("device.png", other), ("block.png", other), ("pipe.png", other),
        ("sparse.png", other), ("good.png", ""),
    ]  # fmt: skip


def test_an_archive_that_is_cut_off_anywhere_says_so(tmp_path: Path) -> None:
    whole = made(tmp_path / "a.tar").read_bytes()
    ends = len(whole.rstrip(b"\0"))
    path = tmp_path / "cut.tar"
    for length in [*range(1, ends + 512, 97), 512, 1024, 1536]:
        path.write_bytes(whole[:length])
        members, reason = said(path)
        assert reason, length
        assert len(members) <= 2


def test_a_damaged_header_ends_the_archive_with_its_place(tmp_path: Path) -> None:
    path = made(tmp_path / "a.tar", names=("a.png", "b.png", "c.png"))
    data = bytearray(path.read_bytes())
    data[512 + 3] ^= 1
    path.write_bytes(data)
    members, reason = said(path)
    assert [member.name for member in members] == [b"a.png"]
    assert reason == "is damaged at byte 512, members may be missing: the sum of a header is wrong"


def test_what_is_no_tar_is_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    for data, expected in (
        (b"", "not a tar: it is shorter than a header"),
        (b"hello " * 200, "is no tar, or damaged: a number of a header is none"),
        (bytes([1]) + bytes(1023), "not a tar: the sum of a header is wrong"),
        (gzip.compress(os.urandom(2000)), "is compressed (gzip); unpack it to a plain .tar"),
    ):
        path.write_bytes(data)
        assert said(path) == ([], expected)
    os.mkfifo(tmp_path / "pipe.tar")
    assert said(tmp_path / "pipe.tar") == ([], "not a regular file")
    (tmp_path / "link.tar").symlink_to(path)
    with pytest.raises(OSError, match=r"symbolic links"):
        list(iter_tar(str(tmp_path / "link.tar")))


def header(name: bytes, size: bytes, kind: bytes = b"0") -> bytes:
    """A header with a right sum, whatever it holds."""
    block = bytearray(512)
    block[: len(name)] = name
    block[124 : 124 + len(size)] = size
    block[156:157] = kind
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (header(b"a.png", b"\x80" + b"\xff" * 11) + bytes(2048), "is cut off: it ends after 2,560 bytes"),
        (header(b"a.png", b"\xff" * 12) + bytes(2048), "is no tar, or damaged: a number of a header is none"),
        (header(b"", b"77777777777", b"L") + bytes(2048), "an extended header has 8,589,934,591 bytes, at most 65,536"),
        (header(b"", b"1000", b"L") + b"n" * 100, "is cut off: it ends after 612 bytes, members may be missing"),
        (header(b"", b"12", b"x") + b"99 path=x\n".ljust(512, b"\0"), "is damaged: a record of an extended header"),
        (
            header(b"", b"13", b"x") + b"11 size=-5\n".ljust(512, b"\0"),
            "is damaged: a size of an extended header is no",
        ),
    ],
)
def test_numbers_and_records_that_lie_are_refused(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(content)
    assert said(path)[1].startswith(expected)


def test_too_many_members_and_too_long_names_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path / "a.tar", names=("a.png", "b.png", "c.png"))
    monkeypatch.setattr(tar_members, "MOST_MEMBERS", 2)
    members, reason = said(path)
    assert len(members) == 2
    assert reason == "has more than 2 members"
    long = made(tmp_path / "b.tar", names=("n" * 5000,))
    assert said(long) == ([], "a name has 5,000 bytes, at most 4,096 are read")
