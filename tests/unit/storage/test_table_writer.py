"""Tables written group by group: the same bytes however the rows come, whole or not at all."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from embasis.errors import ConfigError, ResourceError
from embasis.storage import atomic, encode_table, read_stored_table, table_writer
from embasis.storage.table_writer import TableWriter
from storage_runs import CALLS, Faulty

TYPES = {"id": "int64", "label": "string", "probability": "double", "trusted": "bool"}


def columns(count: int) -> dict[str, list[Any]]:
    labels = [None if row % 7 == 3 else ("=cat", 'a "b", c', "ö")[row % 3] for row in range(count)]
    return {
        "id": list(range(count)),
        "label": labels,
        "probability": [None if label is None else 1 / (row + 1) for row, label in enumerate(labels)],
        "trusted": [label == "ö" for label in labels],
    }


def write(path: Path, rows: dict[str, list[Any]], piece: int) -> bytes:
    with TableWriter(path, TYPES) as table:
        for first in range(0, len(rows["id"]), piece):
            table.add({name: column[first : first + piece] for name, column in rows.items()})
    return path.read_bytes()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_pieces_in_which_rows_come_change_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(table_writer, "GROUP_ROWS", 100)
    rows = columns(1234)
    whole = write(tmp_path / f"a{suffix}", rows, 5000)
    assert [write(tmp_path / f"b{suffix}", rows, piece) == whole for piece in (1, 99, 100, 101)] == [True] * 4
    if suffix == ".parquet":
        assert read_stored_table(tmp_path / "a.parquet") == rows


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("count", [1, 500])
def test_a_table_of_one_group_is_what_is_written_at_once(tmp_path: Path, suffix: str, count: int) -> None:
    rows = columns(count)
    assert write(tmp_path / f"a{suffix}", rows, 7) == encode_table(rows, suffix)


def test_a_failure_leaves_the_old_table_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("old")
    with pytest.raises(KeyError), TableWriter(path, TYPES) as table:
        table.add({"id": [1]})
    assert {entry.name: entry.read_text() for entry in tmp_path.iterdir()} == {"a.csv": "old"}


@pytest.mark.parametrize("nameless", [True, False])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_disk_that_fails_at_any_call_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, nameless: bool
) -> None:
    monkeypatch.setattr(table_writer, "NAMELESS", table_writer.NAMELESS if nameless else 0)
    monkeypatch.setattr(table_writer, "GROUP_ROWS", 50)
    path, rows = tmp_path / f"a{suffix}", columns(120)
    expected = write(path, rows, 30)
    failures = 0
    kinds = (*(call for call in CALLS if call != "unlink"), "link")  # a disk that does not let us delete keeps it
    for at in range(1, 100):
        path.write_bytes(b"old")
        disk = Faulty(at, errno.ENOSPC, kinds=kinds)
        monkeypatch.setattr(atomic, "disk", disk)
        said = ""
        try:
            write(path, rows, 30)
        except ResourceError as error:
            said, failures = str(error), failures + 1
        assert said in ("", f"cannot write {path}: No space left on device")
        assert path.read_bytes() in ((b"old", expected) if said else (expected,))
        assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
        if not disk.fired:
            break
    assert failures >= 5
    assert not disk.fired


def test_whatever_kills_the_process_nothing_is_left(tmp_path: Path) -> None:
    if not table_writer.can_name_later(tmp_path):
        pytest.skip("the file system has no files without a name")
    program = (
        "import os, signal, sys; from embasis.storage.table_writer import TableWriter\n"
        "with TableWriter(sys.argv[1], {'id': 'int64'}) as table:\n"
        "    table.add({'id': list(range(200_000))})\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "a.csv")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert os.listdir(tmp_path) == []


def test_places_that_cannot_have_a_table_are_refused_before_a_row_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^output must end in \.csv or \.parquet, got '\.txt'$"):
        TableWriter(tmp_path / "a.txt", TYPES)
    there = tmp_path / "gone" / "a.csv"
    with pytest.raises(ResourceError) as caught, TableWriter(there, TYPES):
        pass
    assert str(caught.value) == f"cannot write {there}: folder {there.parent} does not exist"
    (tmp_path / "link.csv").symlink_to(tmp_path / "a.csv")
    with pytest.raises(ResourceError, match=r"it is not a regular file$"), TableWriter(tmp_path / "link.csv", TYPES):
        pass
