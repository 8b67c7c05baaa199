"""Folders, archives and lists of images: what is there, what is refused, and why."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import tarfile
import tempfile
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embasis.data.images import files as image_files
from embasis.data.images.files import ImageFile, escape_name, unescape_name
from embasis.data.images.header import Header
from embasis.data.images.scan import is_list, scan_file, scan_folder, scan_list, scan_tar
from embasis.types import RejectedFile
from image_trees import archive, picture, pictures, plant, refusal


def names(scan) -> list[str]:
    return [file.name for file in scan.files]


def reasons(scan) -> dict[str, str]:
    assert {item.phase for item in scan.rejected} <= {"scan"}
    return {item.name: item.reason for item in scan.rejected}


@contextmanager
def as_nobody() -> Iterator[None]:
    """The superuser may read everything, so tests of permissions are somebody else."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


# Folders


def test_images_at_any_depth_are_found_in_the_order_of_their_names(tmp_path):
    content = pictures(["b.png", "a/c.png", "a/d/e.png", "a.png"])
    scan = scan_folder(plant(tmp_path, content))
    assert names(scan) == ["a.png", "a/c.png", "a/d/e.png", "b.png"]
    assert [file.read() for file in scan.files] == [content[name] for name in names(scan)]
    assert scan.files[0].digest == hashlib.blake2b(content["a.png"], digest_size=16).digest()
    assert scan.folders == ("a",)
    assert (scan.rejected, scan.notes, scan.small) == ((), (), ())


def test_a_path_may_be_relative_and_text(tmp_path, monkeypatch):
    plant(tmp_path, pictures(["in/a.png"]))
    monkeypatch.chdir(tmp_path)
    (file,) = scan_folder("in").files
    monkeypatch.chdir("/")
    assert file.read() == picture()


def test_an_id_hangs_on_the_name_alone_and_has_63_bits(tmp_path):
    one = scan_folder(plant(tmp_path / "one", pictures(["x/a.png", "b.png"])))
    two = scan_folder(plant(tmp_path / "two", pictures(["x/a.png", "0.png", "c.png"], 7)))
    ids = {file.name: file.id for file in one.files}
    assert ids["x/a.png"] == next(file.id for file in two.files if file.name == "x/a.png")
    digest = hashlib.blake2b(b"b.png", digest_size=8).digest()
    assert ids["b.png"] == int.from_bytes(digest, "little") >> 1 < 2**63


def test_hidden_and_system_entries_and_other_files_are_ignored_with_a_notice(tmp_path):
    ignored = [".DS_Store", ".ipynb_checkpoints/a.png", "__MACOSX/a.png", "x/@eaDir/a.png", "Thumbs.db", "x/.b.png"]
    scan = scan_folder(plant(tmp_path, pictures(["x/a.png", *ignored, "read.txt", "x/b.TXT", "x/c.csv", "noend"])))
    assert names(scan) == ["x/a.png"]
    assert scan.folders == ("x",)
    assert scan.notes == (
        f"{tmp_path}: 6 hidden or system entries are ignored: "
        "'.DS_Store', '.b.png', '.ipynb_checkpoints', '@eaDir', 'Thumbs.db', '__MACOSX'",
        f"{tmp_path}: 4 files of other kinds are ignored: no ending 1, .csv 1, .txt 2",
    )


def test_an_ending_counts_in_any_case(tmp_path):
    assert names(scan_folder(plant(tmp_path, {"A.JPG": picture(0, 40, "JPEG")}))) == ["A.JPG"]


def test_what_is_no_regular_file_is_never_opened(tmp_path):
    plant(tmp_path, pictures(["a.png", "dir.png/b.png"]))
    os.mkfifo(tmp_path / "pipe.png")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s.png"))
        scan = scan_folder(tmp_path)
    assert names(scan) == ["a.png", "dir.png/b.png"]
    assert reasons(scan) == {"pipe.png": "not a regular file", "s.png": "not a regular file"}


def test_a_file_that_becomes_a_pipe_after_the_scan_raises_instead_of_waiting(tmp_path):
    (file,) = scan_folder(plant(tmp_path, pictures(["a.png"]))).files
    (tmp_path / "a.png").unlink()
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(OSError, match="not a regular file"):
        file.read()


def test_a_file_that_becomes_a_link_after_the_scan_is_not_read(tmp_path):
    (file,) = scan_folder(plant(tmp_path / "in", pictures(["a.png"]))).files
    (tmp_path / "in/a.png").rename(tmp_path / "other.png")
    (tmp_path / "in/a.png").symlink_to(tmp_path / "other.png")
    with pytest.raises(OSError, match="symbolic link"):
        file.read()


def test_links_are_refused_unless_they_are_followed(tmp_path):
    root = plant(tmp_path / "in", pictures(["real.png"]))
    plant(tmp_path / "out", pictures(["deep/b.png", "c.png"], 5))
    (root / "link.png").symlink_to(tmp_path / "out/c.png")
    (root / "folder").symlink_to(tmp_path / "out/deep")
    (root / "gone.png").symlink_to(tmp_path / "nothing")
    scan = scan_folder(root)
    assert names(scan) == ["real.png"]
    assert reasons(scan) == dict.fromkeys(["folder", "gone.png", "link.png"], "is a link; links are not followed")
    followed = scan_folder(root, follow_links=True)
    assert names(followed) == ["folder/b.png", "link.png", "real.png"]
    assert reasons(followed) == {"gone.png": "is a link that leads nowhere"}
    assert followed.folders == ("folder",)
    assert [file.read() for file in followed.files] == [picture(5), picture(6), picture(0)]


def test_loops_of_links_end_and_each_file_is_seen_once(tmp_path):
    plant(tmp_path, pictures(["a/one.png"]))
    (tmp_path / "a/up").symlink_to("..")
    (tmp_path / "a/self").symlink_to("self")
    (tmp_path / "0.png").symlink_to("a/one.png")
    (tmp_path / "b").symlink_to("a")
    scan = scan_folder(tmp_path, follow_links=True)
    assert names(scan) == ["a/one.png"]
    assert reasons(scan) == {"a/self": "is a link that leads nowhere"}
    assert scan.notes == (f"{tmp_path}: 3 links lead to what is there already; each file is used once",)


def test_a_link_to_a_pipe_is_not_opened(tmp_path):
    root = plant(tmp_path / "in", pictures(["a.png"]))
    os.mkfifo(tmp_path / "pipe")
    (root / "b.png").symlink_to(tmp_path / "pipe")
    assert reasons(scan_folder(root, follow_links=True)) == {"b.png": "not a regular file"}


def test_hard_links_are_files_of_their_own(tmp_path):
    plant(tmp_path, pictures(["a.png"]))
    os.link(tmp_path / "a.png", tmp_path / "b.png")
    for follow in (False, True):
        assert names(scan_folder(tmp_path, follow_links=follow)) == ["a.png", "b.png"]


def test_damaged_files_are_refused_with_the_reason(tmp_path):
    plant(tmp_path, {"good.png": picture(), "empty.png": b"", "text.jpg": b"hello", "psd.png": b"8BPS\0\1" + bytes(99)})
    scan = scan_folder(tmp_path)
    assert names(scan) == ["good.png"]
    assert reasons(scan) == {
        "empty.png": "the file is empty",
        "psd.png": "format PSD is not read",
        "text.jpg": "not an image that is read",
    }


def test_a_file_over_the_limit_is_refused_by_its_size(tmp_path, monkeypatch):
    plant(tmp_path, pictures(["a.png"]))
    with (tmp_path / "huge.png").open("wb") as stream:
        stream.truncate(257 * 2**20)
    sizes = []
    monkeypatch.setattr(os, "pread", lambda *call, read=os.pread: sizes.append(call[1]) or read(*call))
    assert reasons(scan_folder(tmp_path)) == {"huge.png": "269,484,032 bytes exceed 256 MiB"}
    assert sizes == [len(picture())]


def test_small_pictures_are_known(tmp_path):
    scan = scan_folder(plant(tmp_path, {"a.png": picture(0, 31), "b.png": picture(0, 32)}))
    assert scan.small == ("a.png",)


def test_files_and_folders_without_permission_are_refused(open_folder):
    plant(open_folder, pictures(["a.png", "b.png", "shut/c.png"]))
    (open_folder / "b.png").chmod(0)
    (open_folder / "shut").chmod(0)
    with as_nobody():
        scan = scan_folder(open_folder)
    assert names(scan) == ["a.png"]
    assert reasons(scan) == {"b.png": "permission denied", "shut/": "permission denied"}
    (open_folder / "shut").chmod(0o755)


def test_a_folder_that_cannot_be_opened_is_refused(open_folder):
    shut = plant(open_folder / "shut", pictures(["a.png"]))
    shut.chmod(0)
    with as_nobody():
        assert refusal(lambda: scan_folder(shut)) == f"{shut}: cannot be read: permission denied"
    shut.chmod(0o755)


def test_a_missing_folder_and_a_file_are_refused(tmp_path):
    plant(tmp_path, pictures(["a.png"]))
    assert refusal(lambda: scan_folder(tmp_path / "no")) == f"{tmp_path}/no: no such folder"
    assert refusal(lambda: scan_folder(tmp_path / "a.png")) == f"{tmp_path}/a.png: is no folder"


def test_a_folder_without_images_is_refused_with_what_is_read_and_what_is_there(tmp_path):
    text = refusal(lambda: scan_folder(tmp_path))
    assert text.startswith(f"{tmp_path}: no images; read are .bmp, ")
    assert ".png" in text
    plant(tmp_path, {"a.tgz": b"1", "b.png": b""})
    assert refusal(lambda: scan_folder(tmp_path)) == (
        f"{text}; 1 file of another kind is ignored: .tgz 1; 1 refused, first: b.png (the file is empty); "
        "compressed shards can be read once they are plain .tar"
    )


def test_the_input_is_only_read(tmp_path, monkeypatch):
    plant(tmp_path, pictures(["a/b.png", "c.png"]))
    flags = []
    monkeypatch.setattr(os, "open", lambda path, flag, *rest, real=os.open: flags.append(flag) or real(path, flag))
    scan_folder(tmp_path)
    assert len(flags) == 2
    wanted = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    assert set(flags) == {wanted}
    assert not wanted & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)


def test_one_file_is_an_image_or_a_reason(tmp_path):
    plant(tmp_path, {"a.dat": picture(), "b.png": b""})
    (tmp_path / "link").symlink_to("a.dat")
    for path in (tmp_path / "a.dat", str(tmp_path / "link")):
        scan = scan_file(path)
        assert (names(scan), scan.rejected) == ([str(path)], ())
        assert scan.files[0].read() == picture()
    for name, reason in (("b.png", "the file is empty"), ("no", "no such file"), ("", "not a regular file")):
        scan = scan_file(tmp_path / name)
        assert (scan.files, reasons(scan)) == ((), {str(tmp_path / name): reason})


# Names

AWKWARD = [
    b"new\nline.png",
    b"quo\"te'.png",
    "עברית.png".encode(),
    unicodedata.normalize("NFC", "é.png").encode(),
    unicodedata.normalize("NFD", "é.png").encode(),
    b"\xff\xfe.png",
    rb"\xff\xfe.png",
    b"back\\slash.png",
    b"x" * 251 + b".png",
    b"\x1b[31m.png",
]


def test_awkward_names_are_all_usable_with_ids_of_their_own(tmp_path):
    for raw in AWKWARD:
        with open(os.path.join(os.fsencode(tmp_path), raw), "wb") as stream:
            stream.write(picture())
    scan = scan_folder(tmp_path)
    assert len(scan.files) == len({file.id for file in scan.files}) == len(AWKWARD)
    assert {unescape_name(file.name) for file in scan.files} == set(AWKWARD)
    assert all(file.read() == picture() for file in scan.files)
    assert {r"\xff\xfe.png", r"\x5cxff\x5cxfe.png", r"back\x5cslash.png"} <= set(names(scan))


@given(st.binary(max_size=60))
def test_any_bytes_have_a_name_of_text_that_leads_back_to_them(raw):
    assert unescape_name(escape_name(raw)) == raw
    escape_name(raw).encode()


PARTS = st.binary(min_size=1, max_size=40).filter(lambda raw: not {0, 47} & set(raw) and not raw.startswith(b"."))


@settings(max_examples=25)
@given(st.sets(PARTS, min_size=1, max_size=5))
def test_names_on_disk_come_back_as_the_same_bytes(parts):
    with tempfile.TemporaryDirectory() as folder:
        wanted = {raw + b"/" + raw + b".png" for raw in parts if not image_files.is_hidden(os.fsdecode(raw))}
        for raw in wanted:
            os.makedirs(os.path.join(os.fsencode(folder), os.path.dirname(raw)))
            with open(os.path.join(os.fsencode(folder), raw), "wb") as stream:
                stream.write(picture(0, 2))
        scan = scan_folder(folder) if wanted else None
        assert wanted == {unescape_name(file.name) for file in (scan.files if scan else ())}
        assert scan is None or [file.path for file in scan.files] == [
            os.path.join(folder, os.fsdecode(unescape_name(file.name))) for file in scan.files
        ]


# Archives


def test_members_of_a_tar_are_read_where_they_lie(tmp_path):
    content = pictures(["top/a/x.png", "./top/b/y.png", "other/z.png", "top/c.png"])
    scan = scan_tar(archive(tmp_path / "p.tar", content), "top")
    assert names(scan) == ["a/x.png", "b/y.png", "c.png"]
    assert [file.read() for file in scan.files] == [picture(0), picture(1), picture(3)]
    assert {file.path for file in scan.files} == {str(tmp_path / "p.tar")}
    assert scan.folders == ("a", "b")
    assert os.listdir(tmp_path) == ["p.tar"]


def test_a_tar_and_its_extracted_folder_have_the_same_names_ids_and_digests(tmp_path):
    content = pictures(["d/a/x.png", "d/b.png"])
    inside = scan_tar(archive(tmp_path / "p.tar", content), "d/").files
    outside = scan_folder(plant(tmp_path, content) / "d").files
    assert [(file.name, file.id, file.digest) for file in inside] == [
        (file.name, file.id, file.digest) for file in outside
    ]


def test_members_that_escape_or_are_no_files_are_refused(tmp_path):
    content = pictures(["a.png", "x/../../b.png", "/c.png", ".git/d.png", "note.txt"]) | {"e.png": b""}
    with tarfile.open(archive(tmp_path / "p.tar", content), "a") as tar:
        for name, kind in (
            ("link.png", tarfile.SYMTYPE),
            ("hard.png", tarfile.LNKTYPE),
            ("pipe.png", tarfile.FIFOTYPE),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "a.png"
            tar.addfile(info)
    scan = scan_tar(tmp_path / "p.tar")
    assert names(scan) == ["a.png"]
    assert reasons(scan) == {
        "/c.png": "leads out of the archive",
        "x/../../b.png": "leads out of the archive",
        "e.png": "the file is empty",
        **dict.fromkeys(["link.png", "hard.png", "pipe.png"], "not a regular file"),
    }
    assert len(scan.notes) == 2


def test_archives_that_cannot_be_used_are_refused(tmp_path):
    path = archive(tmp_path / "p.tar", pictures(["a.png"]))
    assert refusal(lambda: scan_tar(path, "b")).startswith(f"{path}/b: no images; read are .bmp, ")
    assert refusal(lambda: scan_tar(tmp_path / "no.tar")) == f"{tmp_path}/no.tar: no such file"
    with tarfile.open(tmp_path / "p.tgz", "w:gz") as tar:
        tar.add(path, "p.tar")
    assert refusal(lambda: scan_tar(tmp_path / "p.tgz")).startswith(
        f"{tmp_path}/p.tgz: not a readable uncompressed tar:"
    )
    with tarfile.open(path, "a") as tar:
        info = tarfile.TarInfo("a.png")
        info.size = len(picture(9))
        tar.addfile(info, io.BytesIO(picture(9)))
    assert refusal(lambda: scan_tar(path)) == f"{path}: holds two files of one name; make the archive anew"


def test_a_truncated_tar_never_gives_a_part_of_an_image(tmp_path):
    content = pictures(["a.png", "b.png"])
    whole = archive(tmp_path / "p.tar", content).read_bytes()
    (tmp_path / "p.tar").write_bytes(whole[: 512 + 1024 + 600])
    try:
        scan = scan_tar(tmp_path / "p.tar")
    except ValueError:
        return
    assert all(file.read() == content[file.name] for file in scan.files)


# Lists


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_list_names_images_and_labels(tmp_path):
    plant(tmp_path, pictures(["z.png", "in/a.png", "in/b.png"]))
    text = f"label,path,more\ndog,in/b.png,1\ncat,{tmp_path}/z.png,2\n,in/a.png,3\n"
    for mark in ("", "\ufeff"):
        scan, labels = scan_list(write(tmp_path / "l.csv", mark + text))
        assert names(scan) == [f"{tmp_path}/z.png", "in/a.png", "in/b.png"]
        assert labels == ["cat", "", "dog"]
        assert [file.read() for file in scan.files] == [picture(0), picture(1), picture(2)]


def test_a_list_without_labels_has_none_and_another_column_may_hold_them(tmp_path):
    plant(tmp_path, pictures(["a.png"]))
    path = write(tmp_path / "l.csv", "path,kind\na.png,7.0\n")
    assert scan_list(path)[1] is None
    assert scan_list(path, label="kind")[1] == ["7"]


def test_a_parquet_list_is_read_like_a_csv(tmp_path):
    plant(tmp_path, pictures(["a.png", "b.png"]))
    pq.write_table(pa.table({"path": ["b.png", None, "a.png", "b.png"], "label": [1, 2, 0, 1]}), tmp_path / "l.parquet")
    scan, labels = scan_list(tmp_path / "l.parquet")
    assert (names(scan), labels) == (["a.png", "b.png"], ["0", "1"])
    assert reasons(scan) == {"row 2": "has no path", "b.png": "is listed twice, again in row 4"}
    assert is_list(tmp_path / "l.parquet")


def test_lines_that_lead_to_no_image_are_refused_with_their_line(tmp_path):
    plant(tmp_path, {"a.png": picture(), "bad.png": b"", "d/x.png": b""})
    (tmp_path / "l.png").symlink_to("a.png")
    lines = ["path", "a.png", "no.png", '""', "./a.png", "bad.png", "d", "l.png", "a.png/b.png", "d/../a.png"]
    path = write(tmp_path / "l.csv", "\n".join(lines) + "\n")
    scan, _ = scan_list(path)
    assert names(scan) == ["a.png"]
    assert scan.rejected == tuple(
        RejectedFile(name, reason, "scan")
        for name, reason in [
            ("./a.png", "is listed twice, again in line 5"),
            ("a.png/b.png", "no such file (line 9)"),
            ("bad.png", "the file is empty"),
            ("d", "not a regular file"),
            ("d/../a.png", "is listed twice, again in line 10"),
            ("l.png", "is a link; links are not followed"),
            ("line 4", "has no path"),
            ("no.png", "no such file (line 3)"),
        ]
    )
    followed, _ = scan_list(path, follow_links=True)
    assert names(followed) == ["a.png", "l.png"]


def test_a_list_reaches_names_that_are_not_text(tmp_path):
    with open(os.path.join(os.fsencode(tmp_path), b"\xff.png"), "wb") as stream:
        stream.write(picture())
    (file,) = scan_list(write(tmp_path / "l.csv", "path\n\\xff.png\n"))[0].files
    assert file.read() == picture()
    assert file.id == scan_folder(tmp_path).files[0].id


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the file is empty"),
        ("path,label\n", "no rows"),
        ("path,label\na.png\n", "line 2 has 1 fields, the header has 2"),
        ("file,label\na.png,b\n", "no column 'path'; columns: 'file', 'label'"),
        ("path,label,path\na.png,b,c\n", "columns must have different names, twice or more: 'path'"),
    ],
)
def test_lists_that_cannot_be_read_are_refused(tmp_path, text, sentence):
    path = write(tmp_path / "l.csv", text)
    assert refusal(lambda: scan_list(path)) == f"{path}: {sentence}"


def test_a_missing_or_broken_list_is_refused(tmp_path):
    assert refusal(lambda: scan_list(tmp_path / "l.csv")) == f"{tmp_path}/l.csv: no such file"
    path = write(tmp_path / "l.parquet", "no parquet")
    assert refusal(lambda: scan_list(path)).startswith(f"{path}: not a readable .parquet file: ")


def test_only_tables_with_a_path_column_are_lists(tmp_path):
    assert is_list(write(tmp_path / "a.csv", "path,label\n"))
    assert not is_list(write(tmp_path / "b.csv", "w,h\n1,2\n"))
    assert not is_list(write(tmp_path / "c.txt", "path\n"))
    assert not is_list(write(tmp_path / "d.csv", ""))
    assert not is_list(write(tmp_path / "e.parquet", "path"))
    assert not is_list(tmp_path)
    assert not is_list(tmp_path / "none.csv")


def test_an_image_file_takes_little_memory():
    assert not hasattr(ImageFile("a", "a", b""), "__dict__")


def test_files_of_the_same_bytes_share_one_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"a.png": b"one", "b.png": b"two", "c.png": b"one", "d.png": b"two"}
    monkeypatch.setattr("embasis.data.images.files.read_header", lambda content: Header("PNG", 40, 40))
    monkeypatch.setattr("embasis.data.images.files.MOST_SHARED_DIGESTS", 1)
    for name, content in data.items():
        (tmp_path / name).write_bytes(content)
    found = {file.name: file.digest for file in scan_folder(tmp_path).files}
    assert found == {name: hashlib.blake2b(content, digest_size=16).digest() for name, content in data.items()}
    shared = [found["a.png"] is found["c.png"], found["b.png"] is found["d.png"]]
    assert sum(shared) == 1, "of the content that was met first; the memory for more is limited"


@pytest.mark.parametrize("address", ["https://example.org/a.png", "S3://bucket/a.png", "file:///etc/a.png"])
def test_addresses_in_a_list_are_refused_with_the_cure(tmp_path, address):
    plant(tmp_path, {"a.png": picture()})
    path = tmp_path / "list.csv"
    path.write_text(f"path\na.png\n{address}\n")
    cure = "embasis opens no connection: download the files, and name their paths"
    assert refusal(lambda: scan_list(path)) == f"{path}: line 3: {address!r} is an address; {cure}"


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("data-00000-of-00001.arrow", "a data set of Hugging Face can be read once it is saved by its save_to_disk"),
        ("part-0.tar.gz", "compressed shards can be read once they are plain .tar"),
    ],
)
def test_what_people_have_instead_of_images_is_refused_with_the_cure(tmp_path, name, cure):
    plant(tmp_path, {name: b"x"})
    assert refusal(lambda: scan_folder(tmp_path)).endswith(f"; {cure}")
