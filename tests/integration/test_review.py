"""`embasis review`: what a person answers is on disk at once, fit takes it, and nobody else is let in."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import image_runs
import map_folder_runs
from cli_tables import embasis, fit_tables, fit_without_page, refused
from embasis.storage import read_newest, read_stored_table
from reviews import ServedReview, reviewed, served


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("runs")
    for name in ("tables", "images", "maps"):
        (home / name).mkdir()
    fit_tables(home / "tables", "rounds=1")
    sides = image_runs.sides(home / "images")
    fit_without_page(sides, sides / "photos", sides / "paintings", "rounds=1", *image_runs.WORDS)
    map_folder_runs.fitted(map_folder_runs.sides(home / "maps"), home / "maps" / "run")
    return home


def least_sure(count: int) -> list[str]:
    labels = read_stored_table("run/labels/round-001.parquet")
    order = sorted(range(len(labels["id"])), key=lambda row: -labels["uncertainty"][row])
    return [str(labels["id"][row]) for row in order[:count]]


# --- from fit to fit


def test_answers_become_corrections_and_the_next_fit_has_them_as_labels(tables: Path) -> None:
    first, second, third = least_sure(3)
    with reviewed(tables, "run", "judged.csv") as review:
        item = review.value("item/0")
        assert item["id"] == first
        assert [name for name, _ in item["values"]] == [f"f{number}" for number in range(8)]  # no id, no true label
        other = next(name for name in ("c0", "c1", "c2") if name != item["label"])
        assert review.value("decide", {"place": 0, "label": other})["next"] == 1
        assert review.value("decide", {"place": 1, "unusable": True})["next"] == 2
        same = review.value("item/2")["label"]
        assert review.value("decide", {"place": 2, "label": same})["decided"] == 3
        assert review.value("finish", {})["decided"] == 3
        code, out, err = review.end()
    assert (code, err) == (0, "")
    assert out == (
        "3 rows decided in run/corrections.csv, 57 rows left\n"
        "next: embasis fit LABELLED UNLABELLED -o NEW --corrections run/corrections.csv\n"
    )
    rows = read_stored_table("run/corrections.csv")
    assert rows["id"] == [first, second, third]
    assert rows["label"] == [other, "", same]
    assert rows["unusable"] == ["", "true", ""]
    result = embasis(
        "fit", "labelled.csv", "judged.csv", "-o", "new", "rounds=1", "--corrections", "run/corrections.csv"
    )
    assert result.exit_code == 0, result.output
    assert "note: corrections.csv: 2 rows of judged.csv are labelled ones now\n" in result.stdout
    assert "note: corrections.csv: 1 row of judged.csv is unusable and left out\n" in result.stdout
    assert "62 labelled and 57 unlabelled rows, 3 classes\n" in result.stdout
    left = {*map(str, read_stored_table("new/labels/round-001.parquet")["id"])}
    assert left == {str(id) for id in range(10, 70)} - {first, second, third}


def test_ctrl_c_ends_with_everything_saved_and_the_same_command_goes_on(images: Path) -> None:
    with reviewed(images, "run", "paintings") as review:
        assert review.value("state") == {"total": 18, "decided": 0, "next": 0, "undo": False}
        review.value("decide", {"place": 0, "label": "amsel"})
        code, _, err = review.interrupt()
    assert code == 130
    assert err == (
        "embasis: interrupted; 1 image decided in run/corrections.csv, 17 images left; the same command goes on\n"
    )
    with reviewed(images, "run", "paintings") as review:
        assert review.value("state") == {"total": 18, "decided": 1, "next": 1, "undo": False}
        assert review.value("item/0")["decision"] == {"label": "amsel", "unusable": False}
        review.process.send_signal(signal.SIGTERM)
        assert review.end()[0] == 143


def test_what_was_undone_is_as_it_was_before(tables: Path) -> None:
    with served("run", "judged.csv", output="mine.csv") as review:
        for label in ("c0", "c1"):
            review.value("decide", {"place": 4, "label": label})
        assert review.value("undo", {})["next"] == 4
        assert review.value("item/4")["decision"] == {"label": "c0", "unusable": False}
        assert review.value("undo", {})["decided"] == 0
        assert review.value("item/4")["decision"] is None
        assert review.value("undo", {})["next"] is None
    assert read_stored_table("mine.csv")["id"] == []
    assert not Path("run/corrections.csv").exists()


def test_corrections_of_several_runs_can_be_gathered_in_one_file(tables: Path) -> None:
    Path("all.csv").write_text("id,label,predicted,unusable\n999,c2,c1,\n")
    with served("run", "judged.csv", output="all.csv") as review:
        review.value("decide", {"place": 0, "label": "c0"})
    assert read_stored_table("all.csv")["id"] == ["999", *least_sure(1)]


def test_a_file_that_another_program_has_changed_meanwhile_is_left_alone(tables: Path) -> None:
    with served("run", "judged.csv") as review:
        review.value("decide", {"place": 0, "label": "c0"})
        Path("run/corrections.csv").write_text("mine")
        status, data, _ = review.ask("decide", {"place": 1, "label": "c0"})
    sentence = "run/corrections.csv was changed by another program since it was read; end the review and begin it again"
    assert (status, json.loads(data)) == (409, {"error": sentence})
    assert Path("run/corrections.csv").read_text() == "mine"


def test_images_are_shown_anew_encoded_and_without_their_folder_as_the_report_has_them(images: Path) -> None:
    (name, *_) = least_sure(1)
    with served("run", "paintings") as review:
        status, data, headers = review.ask("picture/0")
        assert (status, headers["Content-Type"]) == (200, "image/png")
        assert data != Path("paintings", name).read_bytes()
        Path("paintings", name).write_bytes(b"\x89PNG")
        status, data, _ = review.ask("picture/0")
        assert status == 409
        assert json.loads(data)["error"].startswith(f"{name}: ")
    with served("run") as review:
        assert review.value("state")["total"] == 18
        assert review.ask("picture/0")[0] == 200


def test_parts_of_a_label_map_get_their_class_and_the_next_fit_learns_from_the_map(maps: Path) -> None:
    with served("run", "streets") as review:
        item = review.value("item/0")
        part = item["parts"][0]
        other = next(name for name in map_folder_runs.NAMES if name != part["class"])
        review.value("decide", {"place": 0, "parts": {"1": other, "2": None}, "version": item["version"]})
        assert review.value("item/0")["decision"] is not None
        assert review.ask("map/0")[1].startswith(b"\x89PNG")
    (file,) = Path("run/corrections").rglob("*.png")
    assert file.relative_to("run/corrections").as_posix() == item["id"]
    before = np.asarray(Image.open(Path("run/labels/round-002/labels", item["id"])))
    after = np.asarray(Image.open(file))
    changed = before != after
    assert changed.mean() == pytest.approx(part["share"] + item["parts"][1]["share"])
    ids = dict(zip(map_folder_runs.NAMES, map_folder_runs.IDS, strict=True))
    assert {*after[changed].tolist()} == {ids[other], 255}
    result = embasis(*map_folder_runs.command(maps, maps / "new", "--corrections", str(maps / "run" / "corrections")))
    assert result.exit_code == 0, result.output
    assert read_newest("new").facts["corrected"] == 1
    assert item["id"] not in read_stored_table("new/labels/round-002/maps.parquet")["id"]


def test_a_map_of_which_nothing_is_left_is_not_saved(maps: Path) -> None:
    with served("run", "streets") as review:
        parts = {str(number): None for number in range(1, len(review.value("item/0")["parts"]) + 1)}
        status, data, _ = review.ask("decide", {"place": 0, "parts": parts, "version": ""})
        assert status == 409
        assert json.loads(data)["error"].startswith("nothing of the map is left")
        review.value("decide", {"place": 0, "parts": {}, "version": ""})
        review.value("undo", {})
    assert not list(Path("run/corrections").rglob("*.png"))


# --- nobody else is let in


def test_the_page_listens_on_the_loopback_alone_and_is_closed_without_its_token(tables: Path) -> None:
    with served("run", "judged.csv") as review:
        port = int(review.address.split(":")[2].split("/")[0])
        others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
        for address in others - {"127.0.0.1"}:
            with pytest.raises(OSError), socket.create_connection((str(address), port), 5):
                pass
        for path in ("/", "/state", f"/{'A' * 43}/", f"/{'A' * 43}/state", "//"):
            assert review.ask(path)[0] == 404, path
        assert review.ask("/x/decide", {"place": 0, "label": "c0"})[0] == 404
    assert not Path("run/corrections.csv").exists()


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "localhost@evil.example", "[", ""])
def test_a_strangers_name_for_this_machine_is_refused(tables: Path, host: str) -> None:
    with served("run", "judged.csv") as review:
        assert review.ask("state", Host=host)[0] == 403
        assert review.ask("state", Host="localhost:8000")[0] == 200  # a tunnel has another port


def test_answers_of_other_pages_and_of_no_sense_change_nothing(tables: Path) -> None:
    good = {"place": 0, "label": "c0"}
    with served("run", "judged.csv") as review:
        assert review.ask("decide", good, Origin="http://evil.example")[0] == 403
        assert review.ask("decide", good, Origin="null")[0] == 403
        assert review.ask("decide", good, **{"Content-Type": "text/plain"})[0] == 415
        assert review.ask("decide", b"x" * 70_000)[0] == 413
        assert review.ask("decide", good, **{"Content-Length": "-1"})[0] == 413
        for body in (b"{", b"[]", b"[" * 60_000, b"\xff"):
            assert review.ask("decide", body)[0] in (400, 409), body
        for body in ({"place": 60, "label": "c0"}, {"place": "x"}, {"place": "٣"}, {}):
            assert review.ask("decide", body)[0] == 404, body
        for label in ("c9", None, 1, {"a": 1}):
            assert review.ask("decide", {"place": 0, "label": label})[0] == 409
        for path in ("item/-1", "item/60", "item/1/2", "secret", "../state", "picture/0x1"):
            assert review.ask(path)[0] == 404, path
        assert review.value("state")["decided"] == 0
    assert not Path("run/corrections.csv").exists()


def test_every_answer_forbids_what_the_page_does_not_need(tables: Path) -> None:
    with served("run", "judged.csv") as review:
        status, page, headers = review.ask("")
    assert status == 200
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    wanted = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
    assert wanted.items() <= headers.items()
    assert b"http" not in page.replace(b"http-equiv", b"")  # nothing is asked for elsewhere


def test_a_review_writes_its_file_and_nothing_else(images: Path) -> None:
    def contents(root: Path) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}

    before = contents(images)
    with served("run", "paintings") as review:
        review.value("decide", {"place": 0, "label": "amsel"})
        review.ask("picture/1")
    after = contents(images)
    assert {*after} - {*before} == {str(images / "run" / "corrections.csv")}
    assert {name: after[name] for name in before} == before


# --- refused before the page is served


def test_what_cannot_be_reviewed_is_refused_with_a_sentence(tables: Path) -> None:
    whole = "a run keeps no values of your table, so name the table that it has labelled: embasis review run UNLABELLED"
    refused(2, whole, "review", "run")
    refused(3, "lost.csv: no such file", "review", "run", "lost.csv")
    lacking = "few.csv: 59 of 60 rows of the run are not there: '11', '12', '13' and 56 more; name the run's UNLABELLED"
    lines = Path("judged.csv").read_text().splitlines()
    Path("few.csv").write_text("\n".join(lines[:2]) + "\n")
    refused(3, lacking, "review", "run", "few.csv")
    inside = "output run/x.csv lies in the run folder run; name a place outside of it"
    refused(2, inside, "review", "run", "judged.csv", "-o", "run/x.csv")
    itself = "output judged.csv is the unlabelled side judged.csv itself; name another place"
    refused(2, itself, "review", "run", "judged.csv", "-o", "judged.csv")
    refused(2, "output must end in .csv, got 'x.txt'", "review", "run", "judged.csv", "-o", "x.txt")
    other = "output labelled.csv is no file of embasis review; name another one"
    refused(2, other, "review", "run", "judged.csv", "-o", "labelled.csv")
    Path("odd.csv").write_text("id,label,predicted,unusable\n10,dog,c1,\n")
    strange = "output odd.csv: has classes that the run has not: 'dog'; name another file"
    refused(2, strange, "review", "run", "judged.csv", "-o", "odd.csv")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sentence = f"port {port} of this machine cannot be had: Address already in use"
        refused(5, sentence, "review", "run", "judged.csv", "--port", str(port))


def test_maps_need_their_pictures_and_a_folder_of_their_own(maps: Path) -> None:
    whole = "a run keeps no pictures of yours, so name the folder that it has labelled: embasis review run UNLABELLED"
    refused(2, whole, "review", "run")
    Path("full").mkdir()
    Path("full/a.png").write_bytes(b"mine")
    rule = "output full holds files and is no folder of embasis review; name a new or an empty one"
    refused(2, rule, "review", "run", "streets", "-o", "full")
    around = "output . contains the run folder run; name another place"
    refused(2, around, "review", "run", "streets", "-o", ".")


def test_a_run_on_a_named_data_set_cannot_be_corrected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fit_without_page(tmp_path, "--dataset", "blobs", "count=60", "rounds=0")
    rule = "corrections are for data of your own, LABELLED and UNLABELLED, not for a named data set"
    refused(2, f"run: the run is on a named data set; {rule}", "review", "run")


def test_links_are_followed_only_when_that_is_wanted(images: Path) -> None:
    os.rename("paintings", "real")
    for file in sorted(path for path in Path("real").rglob("*") if path.is_file()):
        place = Path("paintings") / file.relative_to("real")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(file.absolute())

    def status(review: ServedReview) -> int:
        return review.ask("picture/0")[0]

    with served("run", "paintings") as review:
        assert status(review) == 409
    with served("run", "paintings", follow_links=True) as review:
        assert status(review) == 200
