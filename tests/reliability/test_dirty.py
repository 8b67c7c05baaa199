"""Trees of images with every kind of damage: never a crash, a ledger exact to the file, the input never written (R5).

The long version, with a million files, is tests/torture/r5_dirty.py.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from cli_tables import embasis
from dirty_tree import KINDS, Line, plant_payloads, plant_tree, sound, state_of
from embasis.data.images import files, header
from embasis.data.images.files import unescape_name
from embasis.data.images.folders import ImageOptions, load_images
from embasis.data.images.samples import Images
from embasis.data.images.scan import scan_folder
from embasis.data.problem import Account, account_for_files
from embasis.errors import EmbasisError, InputDataError
from embasis.storage import read_stored_table
from folder_runs import go
from image_runs import WORDS, begun, picture, read, settings, sides
from image_trees import plant

ALL = ImageOptions(budget=1)
Key = tuple[str, ...]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[Line]]]:
    """Two sides of 5 folders with 20 files each, 8 of them damaged; the lines that the ledger must have."""
    monkeypatch.chdir(tmp_path)
    pool = tmp_path / "pool"
    plant_payloads(pool, 40)
    expected = {
        "labelled": plant_tree(Path("labelled"), pool, range(12), 5, 20, 8),
        "unlabelled": plant_tree(Path("unlabelled"), pool, range(12, 40), 5, 20, 8),
    }
    before = state_of(tmp_path / "labelled") + state_of(tmp_path / "unlabelled")
    yield expected
    assert state_of(tmp_path / "labelled") + state_of(tmp_path / "unlabelled") == before


def wanted(expected: dict[str, list[Line]]) -> Counter[Key]:
    return Counter((side, *vars(line).values()) for side, lines in expected.items() for line in lines)


def checked(*words: str) -> Counter[Key]:
    """The ledger that `embasis check` writes."""
    result = embasis("check", "labelled", "unlabelled", "--budget", "1", "-o", "ledger.jsonl", *words)
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in Path("ledger.jsonl").read_text().splitlines()]
    return Counter((row["side"], row["name"], row["reason"], row["phase"], row["kind"]) for row in lines)


# --- the ledger


def test_check_lists_every_damaged_file_of_twenty_kinds_with_its_reason(tree: dict[str, list[Line]]) -> None:
    assert len(KINDS) == 20
    assert checked() == wanted(tree)


def test_files_of_the_same_bytes_are_decoded_once_and_all_are_named(
    tree: dict[str, list[Line]], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = []
    monkeypatch.setattr("embasis.data.reader.request_for", lambda file: decoded.append(file) or usual(file))
    found = checked("--workers", "0")
    assert found == wanted(tree)
    assert len(decoded) == 40 + 2 * 4  # the payloads of both sides, and the four kinds that only decoding finds


def usual(file: files.ImageFile) -> dict[str, Any]:
    return {"path": file.path, "digest": file.digest.hex(), "offset": file.offset, "length": file.length}


def test_fit_accounts_for_every_file(tree: dict[str, list[Line]], tmp_path: Path) -> None:
    words = [*WORDS, "rounds=1", "data.budget=1", f"images.cache={tmp_path / 'cache'}"]
    result = embasis("fit", "labelled", "unlabelled", "-o", "run", *words)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in Path("run/quarantine.jsonl").read_text().splitlines()]
    assert Counter((row["side"], row["name"], row["reason"], row["phase"], row["kind"]) for row in rows) == wanted(tree)
    accounts = {name: Account(**account) for name, account in json.loads(Path("run/ledger.json").read_text()).items()}
    trusted = sum(read_stored_table("run/labels/round-001.parquet")["trusted"])
    damaged = Counter((line.kind, side) for side, lines in tree.items() for line in lines)
    assert accounts == {
        "labelled": Account(100, 60, 0, damaged["quarantined", "labelled"], damaged["refused", "labelled"]),
        "unlabelled": Account(
            100, trusted, 60 - trusted, damaged["quarantined", "unlabelled"], damaged["refused", "unlabelled"]
        ),
    }
    assert all(account.is_even for account in accounts.values())


def test_an_account_that_is_not_even_is_an_error_in_words(tree: dict[str, list[Line]]) -> None:
    problem = load_images("labelled", "unlabelled", options=ALL)
    assert problem.files_seen == {"labelled": 100, "unlabelled": 100}
    lost = Images(problem.unlabelled.files[1:], problem.unlabelled.labels[1:], problem.unlabelled.ids[1:])
    broken = type(problem)(
        problem.labelled, lost, problem.schema, rejected=problem.rejected, files_seen=problem.files_seen
    )
    with pytest.raises(EmbasisError) as caught:
        account_for_files(broken, {}, 7)
    scanned = [line for line in tree["unlabelled"] if line.phase == "scan"]
    quarantined = sum(line.kind == "quarantined" for line in scanned)
    used = 100 - len(scanned) - 1 - 7
    assert str(caught.value) == (
        "the ledger of the unlabelled side does not add up: 100 seen = 7 used + "
        f"{used} unselected + {quarantined} quarantined + {len(scanned) - quarantined} refused"
    )


# --- deliberate breakages that the tests above must notice (mutation checks)


def test_a_refusal_that_is_not_written_down_is_noticed(
    tree: dict[str, list[Line]], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = files.Collector.reject

    def forgetful(self: files.Collector, name: str, reason: str, kind: str = "quarantined") -> None:
        if "format PSD" not in reason:
            usual(self, name, reason, kind)

    monkeypatch.setattr(files.Collector, "reject", forgetful)
    assert checked("--workers", "0") != wanted(tree)
    with pytest.raises(EmbasisError, match="does not add up"):
        account_for_files(load_images("labelled", "unlabelled", options=ALL), {}, None)


def test_a_limit_of_pixels_that_is_gone_is_noticed(
    tree: dict[str, list[Line]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(header, "LARGEST_PIXELS", 10**18)
    wrong = wanted(tree) - checked("--workers", "0")
    assert {reason for _, _, reason, _, _ in wrong} == {"60000×60000 exceeds 64 Mpx", "1048576×1048576 exceeds 64 Mpx"}


def test_a_link_that_is_followed_is_noticed(tmp_path: Path) -> None:
    plant(tmp_path / "a", {"1.png": sound(0)})
    plant(tmp_path / "outside", {"2.png": sound(2)})
    (tmp_path / "a" / "out").symlink_to(tmp_path / "outside")
    kept, followed = scan_folder(tmp_path / "a"), scan_folder(tmp_path / "a", follow_links=True)
    assert ([file.name for file in kept.files], kept.seen) == (["1.png"], 2)
    assert [(item.name, item.reason, item.kind) for item in kept.rejected] == [("out", files.IS_LINK, "refused")]
    assert ([file.name for file in followed.files], followed.seen) == (["1.png", "out/2.png"], 2)


@pytest.mark.parametrize("change", ["touch", "write", "mode", "add", "remove"])
def test_every_change_of_the_input_tree_is_noticed(tmp_path: Path, change: str) -> None:
    plant(tmp_path / "a", {"b/1.png": sound(0), "b/2.png": sound(2)})
    before, path = state_of(tmp_path / "a"), tmp_path / "a" / "b" / "1.png"
    if change == "touch":
        os.utime(path)
    elif change == "write":
        path.write_bytes(sound(1))
    elif change == "mode":
        path.chmod(0o600)
    elif change == "add":
        (path.parent / ".cache").touch()
    else:
        path.unlink()
    assert state_of(tmp_path / "a") != before


# --- names, files that go away, few descriptors

NAMES = [
    b"plain.png",
    b"new\nline.png",
    b"quote\"'.png",
    "\u202eright to left.png".encode(),
    b"not \xff\xfe utf8.png",
    b"back\\slash \\x41.png",
    b"n" * 251 + b".png",
    "caf\u00e9.png".encode(),
    "cafe\u0301.png".encode(),
    b"-rf *.png",
]


def test_odd_names_go_all_the_way_and_come_back_as_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(sides(tmp_path))
    os.mkdir("odd")
    for number, name in enumerate(NAMES):
        Path(os.fsdecode(b"odd/" + name)).write_bytes(picture(number % 3, number, 40))
        Path(os.fsdecode(b"odd/bad" + name[3:])).write_bytes(b"")
    words = [*WORDS, "rounds=1", "data.budget=1", f"images.cache={tmp_path / 'cache'}"]
    result = embasis("fit", "photos", "odd", "-o", "run", *words)
    assert result.exit_code == 0, result.output
    assert {unescape_name(name) for name in read_stored_table("run/labels/round-001.parquet")["id"]} == set(NAMES)
    rows = [json.loads(line) for line in Path("run/quarantine.jsonl").read_text().splitlines()]
    assert {unescape_name(row["name"]) for row in rows} == {b"bad" + name[3:] for name in NAMES}
    assert {row["reason"] for row in rows} == {"the file is empty"}


LAST = {"Möwe/bild 9.png"}
"""Of its class, in the order of names."""


def vanishing(tmp_path: Path, count: int) -> Any:
    """A run of full depth, from whose files `count` go away after the first moment."""
    config = settings(tmp_path / "cache", "full", plan={"source_epochs": 2})
    problem, front = begun(sides(tmp_path, each=12), config)
    ready = read(problem, front)
    for path in sorted((tmp_path / "photos").rglob("*.png"))[:count]:
        path.unlink()
    front.reader._rejected.clear()
    return go(tmp_path / "run", config, None, ready, front)


def test_files_that_vanish_while_training_are_written_down_and_have_no_class(tmp_path: Path) -> None:
    run = vanishing(tmp_path, 3)
    rows = [json.loads(line) for line in (tmp_path / "run" / "quarantine.jsonl").read_text().splitlines()]
    assert [(row["side"], row["phase"], row["kind"]) for row in rows] == [("labelled", "train", "quarantined")] * 3
    assert {row["reason"] for row in rows} == {"cannot be read: No such file or directory (ENOENT)"}
    account = json.loads((tmp_path / "run" / "ledger.json").read_text())["labelled"]
    assert account == {"seen": 36, "used": 33, "unselected": 0, "quarantined": 3, "refused": 0}
    gone = [row for row, file in enumerate(run.problem.labelled.files) if not Path(file.path).exists()]
    views = run.problem.labelled.stream([torch.tensor(gone)])
    assert next(views).y.tolist() == [-1, -1, -1]


def test_more_vanished_files_than_the_budget_allows_end_the_run_and_what_is_saved_is_kept(tmp_path: Path) -> None:
    with pytest.raises(InputDataError) as caught:
        vanishing(tmp_path, 11)
    assert str(caught.value).startswith("11 of 72 files unreadable (15.3 %), 10 are tolerated; first: ")
    assert str(caught.value).endswith("data.budget=0.1528 (check: --budget) allows more")
    lines = (tmp_path / "run" / "quarantine.jsonl").read_text().splitlines()
    assert {json.loads(line)["name"] for line in lines} == {f"Möwe/bild {number}.png" for number in range(12)} - LAST


def test_sixty_four_descriptors_are_enough_for_ten_thousand_files(tmp_path: Path) -> None:
    plant_payloads(tmp_path / "pool", 30)
    for side, numbers in (("labelled", range(10)), ("unlabelled", range(10, 30))):
        plant_tree(tmp_path / side, tmp_path / "pool", numbers, 10, 500, 0)
    done = subprocess.run(
        [sys.executable, "-m", "embasis", "check", "labelled", "unlabelled"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "note: labelled: 5,000 of 5,000 images can be used" in done.stdout.splitlines()
    assert "note: unlabelled: 5,000 of 5,000 images can be used" in done.stdout.splitlines()
