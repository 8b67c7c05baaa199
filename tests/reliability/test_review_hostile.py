"""The review page before people who wish it ill, and before two reviewers at once; archives of maps likewise."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import stat
import threading
import time
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image

import map_folder_runs
from cli_tables import embasis, fit_tables
from embasis.data.segmentation.cvat import open_masks
from embasis.errors import InputDataError
from embasis.runs import cvat, review_server
from embasis.storage import atomic, read_stored_table
from embasis.storage.correction_files import Correction, CorrectionFile, CorrectionMaps
from embasis.types import ClassTable
from reviews import ServedReview, served

TABLES, MAPS = ("run", "judged.csv"), ("run", "streets")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("runs")
    (home / "tables").mkdir()
    fit_tables(home / "tables", "rounds=0")
    map_folder_runs.fitted(map_folder_runs.sides(home / "maps", 3), home / "maps" / "run")
    return home


def send(review: ServedReview, text: bytes) -> bytes:
    """Bytes as they are, and the answer."""
    with socket.create_connection(("127.0.0.1", urlsplit(review.address).port or 0), 30) as client:
        client.sendall(text)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(2**16), b""))


def error_of(review: ServedReview, body: Any) -> tuple[int, str]:
    status, data, _ = review.ask("decide", body)
    return status, json.loads(data)["error"]


# --- strangers


def test_requests_that_no_browser_sends_are_answered_and_give_nothing_away(tables: Path) -> None:
    with served(*TABLES) as review:
        token = urlsplit(review.address).path.strip("/")
        for line in (
            b"GET http://[ HTTP/1.0",
            b"GET http://[::1/state HTTP/1.1",
            b"GET /%00 HTTP/1.0",
            b"GET * HTTP/1.0",
        ):
            answer = send(review, line + b"\r\nHost: 127.0.0.1\r\n\r\n")
            assert answer.startswith(b"HTTP/1.0 404 "), answer
            assert token.encode() not in answer
        for line in (b"PUT / HTTP/1.0", b"OPTIONS / HTTP/1.0", b"\x00\xff", b"GET " + b"a" * 70_000 + b" HTTP/1.0"):
            answer = send(review, line + b"\r\nHost: 127.0.0.1\r\n\r\n")
            assert not answer or answer.split(b" ")[1][:1] in (b"4", b"5") or b"Error code: 4" in answer
            assert token.encode() not in answer
        two = f"GET /{token}/state HTTP/1.0\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n".encode()
        assert send(review, two).startswith(b"HTTP/1.0 403 ")
        short = f"POST /{token}/decide HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        answer = send(review, f"{short}Content-Length: 60000\r\n\r\n{{".encode())
        assert answer.startswith(b"HTTP/1.0 400 ")
        assert review.value("state")["decided"] == 0


def test_tokens_are_compared_in_constant_time(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared, usual = [], review_server.secrets.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return usual(one, other)

    monkeypatch.setattr(review_server.secrets, "compare_digest", compare)
    with served(*TABLES) as review:
        token = urlsplit(review.address).path.strip("/")
        assert review.ask(f"/{token[:-1]}/state")[0] == 404
        assert review.ask(f"/{token}x/state")[0] == 404
    assert compared == [(token[:-1].encode(), token.encode()), (f"{token}x".encode(), token.encode())]


def test_no_name_server_is_asked_what_this_machine_is_called(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: object) -> str:
        raise AssertionError("a name was looked up")

    for name in ("getfqdn", "gethostbyaddr", "gethostbyname"):
        monkeypatch.setattr(socket, name, ask)
    with served(*TABLES) as review:
        assert review.value("state")["total"] == 60


def test_connections_beyond_a_limit_are_closed_and_the_page_goes_on_afterwards(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(review_server, "MOST_CONNECTIONS", 4)
    with served(*TABLES) as review:
        place = ("127.0.0.1", urlsplit(review.address).port or 0)
        with ExitStack() as silent:
            for _ in range(4):
                silent.enter_context(socket.create_connection(place, 30))
            until(lambda: send_or_nothing(review) == b"")
        until(lambda: send_or_nothing(review).startswith(b"HTTP/1.0 404 "))


def send_or_nothing(review: ServedReview) -> bytes:
    try:
        return send(review, b"GET / HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
    except ConnectionError:
        return b""


def until(holds: Any) -> None:
    """Wait for what comes soon."""
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_bug_of_ours_is_said_and_does_not_look_like_the_end(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(*TABLES) as review:
        monkeypatch.setattr(CorrectionFile, "put", lambda *_: {}["x"])
        status, sentence = error_of(review, {"place": 0, "label": "c0"})
    assert (status, sentence) == (500, "a bug of ours: KeyError('x'); what was answered before is saved")


def test_a_run_folder_whose_name_is_no_text_has_a_page(tables: Path) -> None:
    os.rename("run", b"r\xff")
    with served(os.fsdecode(b"r\xff"), "judged.csv") as review:
        assert review.ask("")[0] == 200
        review.value("decide", {"place": 0, "label": "c0"})
    assert len(read_stored_table(Path(os.fsdecode(b"r\xff")) / "corrections.csv")["id"]) == 1


@pytest.mark.parametrize("number", ["9" * 5000, "0", "01", "-1", "٣", "121", "", "1.0"])
def test_numbers_that_are_those_of_no_part_are_refused(maps: Path, number: str) -> None:
    with served(*MAPS) as review:
        status, sentence = error_of(review, {"place": 0, "parts": {number: "car"}, "version": ""})
    assert status == 409
    assert sentence.startswith("no part ")


def test_corrections_behind_a_planted_link_are_neither_read_nor_written(maps: Path) -> None:
    Path("elsewhere").mkdir()
    with served(*MAPS) as review:
        name = review.value("item/0")["id"]
        review.value("decide", {"place": 1, "parts": {}, "version": ""})
        Path("elsewhere/secret").write_bytes(b"secret")
        Path("run/corrections", name).parent.mkdir(parents=True, exist_ok=True)
        Path("run/corrections", name).symlink_to(Path("elsewhere/secret").absolute())
        for path in ("item/0", "map/0"):
            status, data, _ = review.ask(path)
            assert status == 409
            assert "is a symbolic link; links are not followed" in json.loads(data)["error"]
        assert error_of(review, {"place": 0, "parts": {}, "version": ""})[0] == 409
    assert Path("elsewhere/secret").read_bytes() == b"secret"


# --- two at once


def test_a_map_that_was_saved_in_another_tab_is_not_overwritten_by_numbers_of_its_old_parts(maps: Path) -> None:
    with served(*MAPS) as first, served(*MAPS) as second:
        shown = first.value("item/0")
        assert second.value("item/0") == shown
        answer = {"place": 0, "parts": {"1": "car"}, "version": shown["version"]}
        other = {**answer, "parts": {"1": "sky"}}
        first.value("decide", answer)
        (file,) = Path("run/corrections").rglob("*.png")
        saved = file.read_bytes()
        rule = "the map was saved elsewhere since it was shown here: go on and back (→ ←) to see it as it is now"
        assert error_of(first, other) == (409, rule)
        assert error_of(second, other) == (409, rule)
        assert file.read_bytes() == saved
        again = second.value("item/0")["version"]
        second.value("decide", {**other, "version": again})
        later = file.read_bytes()
        status, data, _ = first.ask("undo", {})  # what the other has made of it since is not ours to take back
        assert status == 409
        assert "was changed by another program since it was read" in json.loads(data)["error"]
        assert file.read_bytes() == later
        second.value("undo", {})
        assert file.read_bytes() == saved
        first.value("undo", {})
        assert not file.exists()


def test_two_reviews_of_one_file_lose_no_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each writes until it is told that the other was there; whatever was taken is in the file. The disk is slow, so
    that they meet between the look and the write."""
    monkeypatch.chdir(tmp_path)
    taken, turns, usual = list[str](), 10, atomic.write_output

    def write_slowly(path: Path, data: bytes) -> None:
        time.sleep(0.01)
        usual(path, data)

    monkeypatch.setattr(atomic, "write_output", write_slowly)

    def write(name: str) -> None:
        for turn in range(turns):
            file = CorrectionFile("c.csv")
            try:
                file.put(f"{name}{turn}", Correction("c0", "c1"))
            except OSError:
                continue
            taken.append(f"{name}{turn}")

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(read_stored_table("c.csv")["id"]) == sorted(taken)
    assert len(taken) >= turns


def test_many_tabs_at_once_have_every_answer_on_disk(tables: Path) -> None:
    with served(*TABLES) as review:
        answers = [{"place": place, "label": "c0"} for place in range(24)]
        threads = [threading.Thread(target=review.value, args=("decide", answer)) for answer in answers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert review.value("state")["decided"] == 24
    assert len(read_stored_table("run/corrections.csv")["id"]) == 24


# --- archives of label maps

PIXEL = io.BytesIO()
Image.fromarray(np.full((2, 2, 3), (0, 0, 255), np.uint8)).save(PIXEL, "PNG")
LABELS = b"background:0,0,0::\nx:0,0,255::\ny:9,8,7::\n"
MASK = "SegmentationClass/a.png"


def archive(path: Path, files: list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED, mode: int = 0) -> Path:
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", method) as made:
        warnings.simplefilter("ignore", UserWarning)  # two files of one name
        for name, data in files:
            info = zipfile.ZipInfo(name)
            info.compress_type, info.external_attr = method, mode << 16
            made.writestr(info, data)
    return path


def read_all(path: Path) -> list[Any]:
    with open_masks(path, ("x", "y")) as masks:
        return [masks.read(name, (2, 2)).tolist() for name in masks.members]


def refusal(path: Path) -> str:
    with pytest.raises(InputDataError) as caught:
        read_all(path)
    return str(caught.value).removeprefix(f"{path}: ")


def test_bombs_doubles_and_strange_packing_are_refused(tmp_path: Path) -> None:
    good, path = [("labelmap.txt", LABELS), (MASK, PIXEL.getvalue())], tmp_path / "m.zip"
    assert read_all(archive(path, good)) == [[[0, 0], [0, 0]]]
    bomb = archive(path, [good[0], (MASK, bytes(2**27 + 1))])
    assert path.stat().st_size < 2**18
    assert refusal(bomb) == f"'{MASK}' has 134,217,729 bytes, at most 134,217,728 are read"
    large = archive(path, [("labelmap.txt", bytes(2**22)), good[1]])
    assert "'labelmap.txt' has 4,194,304 bytes, at most " in refusal(large)
    for method in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        assert refusal(archive(path, good, method)) == "'labelmap.txt' is packed in another way than deflate"
    hint = "export from CVAT as 'Segmentation mask 1.1'"
    assert refusal(archive(path, [*good, good[0]])) == f"2 files are called labelmap.txt; {hint}"
    assert refusal(archive(path, [*good, good[1]])) == "two maps have one name"
    double = [("labelmap.txt", LABELS + b"x:1,1,1::\n"), good[1]]
    assert refusal(archive(path, double)) == "labelmap.txt names 'x' twice"


def test_a_size_that_the_archive_lies_about_is_no_way_around_the_limit(tmp_path: Path) -> None:
    path = archive(tmp_path / "m.zip", [("labelmap.txt", LABELS), (MASK, bytes(2**20))])
    data = path.read_bytes().replace((2**20).to_bytes(4, "little"), (16).to_bytes(4, "little"))
    path.write_bytes(data)
    assert refusal(path).startswith("not a readable .zip file: Bad CRC-32 for file")


def test_one_map_is_not_given_to_two_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classes = np.ones((2, 2), np.int64)
    pairs = [(id, f"{id}.png", classes, classes) for id in ("a.jpg", "a.png")]
    monkeypatch.setattr(cvat, "pair_maps", lambda run: iter(pairs))
    path = archive(tmp_path / "m.zip", [("labelmap.txt", LABELS), (MASK, PIXEL.getvalue())])
    rule = "pictures whose names differ in their endings alone cannot be told apart in CVAT: 'a'"
    table = ClassTable(("x", "y"), ((0,), (1,)))
    with open_masks(path, ("x", "y")) as masks, pytest.raises(InputDataError, match=re.escape(rule)):
        cvat.choose_maps(None, masks, table, False)  # type: ignore[arg-type]


@pytest.fixture
def exported(maps: Path) -> Iterator[list[tuple[str, bytes]]]:
    assert embasis("export", "run", "-o", "maps.zip", "--as", "cvat", "--all").exit_code == 0
    with zipfile.ZipFile("maps.zip") as made:
        yield [(name, made.read(name)) for name in made.namelist()]


@pytest.mark.parametrize("name", ["../../evil", "/etc/evil", "..\\evil", "a/../../evil"])
def test_names_that_lead_out_of_a_folder_lead_nowhere(exported: list[tuple[str, bytes]], name: str) -> None:
    mask = next(data for each, data in exported if each.startswith("SegmentationClass/"))
    archive(Path("out.zip"), [*exported, (f"SegmentationClass/{name}.png", mask)])
    before = {str(path) for path in Path("..").resolve().rglob("*")}
    result = embasis("import-maps", "run", "out.zip", "-o", "fixed", "--unchanged")
    assert result.exit_code == 3
    assert "the run has no such pictures: " in result.stderr
    assert {str(path) for path in Path("..").resolve().rglob("*")} == before


def test_an_entry_that_is_a_link_is_bytes_and_no_link(exported: list[tuple[str, bytes]]) -> None:
    at = next(place for place, (name, _) in enumerate(exported) if name.startswith("SegmentationClass/"))
    linked = [(name, b"/etc/passwd" if place == at else data) for place, (name, data) in enumerate(exported)]
    archive(Path("out.zip"), linked, mode=stat.S_IFLNK | 0o777)
    result = embasis("import-maps", "run", "out.zip", "-o", "fixed", "--unchanged")
    assert result.exit_code == 3, result.output
    assert not Path("fixed").exists()


def test_maps_are_not_written_through_a_link_in_their_folder(exported: list[tuple[str, bytes]]) -> None:
    os.rename("maps.zip", "out.zip")
    Path("elsewhere").mkdir()
    folder = CorrectionMaps("fixed")
    folder.put("x.png", b"x", None)
    names = [name.removeprefix("SegmentationClass/") for name, _ in exported if name.endswith(".png")]
    for name in names:
        top = Path("fixed", name.split("/")[0])
        if not os.path.lexists(top):
            top.symlink_to(Path("elsewhere").absolute() / ("" if "/" in name else "x"))
    result = embasis("import-maps", "run", "out.zip", "-o", "fixed", "--unchanged")
    assert result.exit_code == 4, result.output
    assert "is a symbolic link; links are not followed" in result.stderr
    assert [*Path("elsewhere").iterdir()] == []
