"""The shelf of label distributions: whole or not there, quick to read, small on disk and in memory."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from embasis import storage
from embasis.errors import (
    CheckpointError,
    CorruptError,
    IncompatibleError,
    InputDataError,
    NumericalError,
    ResourceError,
    RunLockedError,
    UntrustedError,
)
from embasis.storage import RunFolder, atomic, label_store
from embasis.storage.label_store import DiskLabelStore
from embasis.types import PackedLabels
from storage_runs import Faulty, do_not_wait, run_with, sealed, temps, tree


@pytest.fixture(autouse=True)
def fsync_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    do_not_wait(monkeypatch)


def packed(row: int, grid: tuple[int, ...] = (3, 4), classes: int = 5) -> PackedLabels:
    sites = int(torch.tensor(grid).prod()) if grid else 1
    draw = torch.Generator().manual_seed(row)
    mean = torch.rand(sites, classes, generator=draw).softmax(1).half()
    between = torch.randint(256, (sites, classes), generator=draw, dtype=torch.uint8)
    network = torch.randint(classes, (sites,), generator=draw, dtype=torch.uint8)
    return PackedLabels(row, grid, mean, between, torch.rand(sites, generator=draw), network)


def parts(count: int, *grids: tuple[int, ...], classes: int = 5) -> Iterator[PackedLabels]:
    grids = grids or ((3, 4), (2, 7), (1, 1))
    return (packed(row, grids[row % len(grids)], classes) for row in range(count))


def assert_same(found: PackedLabels, wanted: PackedLabels) -> None:
    assert (found.row, found.grid) == (wanted.row, wanted.grid)
    for name in ("mean", "between", "uncertainty", "network"):
        a, b = getattr(found, name), getattr(wanted, name)
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


def home(run: Path, number: int) -> Path:
    return run / "sites" / f"round-{number:03d}"


def forge(run: Path, number: int, **changes: Any) -> None:
    """An index that is sealed correctly and yet not ours."""
    path = home(run, number) / "index.json"
    value = json.loads(path.read_bytes())
    del value["seal"]
    path.write_bytes(sealed({**value, **changes}))


# What is written is read


def test_rows_come_back_bit_by_bit_in_any_order_and_again_after_reopening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_store, "SHARD_BYTES", 700)
    written = DiskLabelStore(tmp_path).write(3, parts(30))
    opened = DiskLabelStore(tmp_path).read(3)
    wanted = list(parts(30))
    assert len(list(home(tmp_path, 3).glob("*.shard"))) > 4
    for store in (written, opened):
        assert len(store) == 30
        for row in random.Random(0).sample(range(30), 30):
            assert_same(store[row], wanted[row])
        for found, part in zip(store, wanted, strict=True):
            assert_same(found, part)
        assert_same(store[-1], wanted[29])
        assert [part.row for part in store[27:]] == [27, 28, 29]
        with pytest.raises(IndexError):
            store[30]


@pytest.mark.parametrize("grid", [(), (6,), (2, 3), (2, 3, 2)])
def test_any_grid_of_sites_can_be_kept(tmp_path: Path, grid: tuple[int, ...]) -> None:
    store = DiskLabelStore(tmp_path).write(1, parts(3, grid))
    assert_same(store[2], packed(2, grid))


def test_a_row_longer_than_a_shard_has_one_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_store, "SHARD_BYTES", 100)
    store = DiskLabelStore(tmp_path).write(1, parts(3, (9, 9), (1, 1), (1, 2)))
    assert store.shard.tolist() == [0, 1, 1]
    assert store.offset.tolist() == [0, 0, 20]


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        DiskLabelStore(tmp_path / name).write(1, parts(9))
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


def test_a_new_store_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    disk = DiskLabelStore(tmp_path)
    disk.write(1, parts(9))
    disk.write(1, parts(2))
    assert len(disk.read(1)) == 2
    assert not temps(tmp_path)


def test_only_the_named_rounds_are_kept_and_nothing_of_others_goes(tmp_path: Path) -> None:
    disk = DiskLabelStore(tmp_path)
    disk.keep([])
    for number in (1, 2, 3, 4, 1000):
        disk.write(number, parts(2))
    (home(tmp_path, 2) / "notes.txt").write_text("precious")
    (tmp_path / "sites" / "round-x").mkdir()
    disk.keep({3, 1000})
    assert sorted(os.listdir(tmp_path / "sites")) == ["round-002", "round-003", "round-1000", "round-x"]
    assert len(disk.read(3)) == len(disk.read(1000)) == 2


def test_a_run_folder_lets_only_its_owner_change_the_shelf(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as run:
        run.label_store().write(1, parts(2))
    sentence = f"run folder {tmp_path} is not locked by this process; use it in a with statement"
    for change in (lambda: run.label_store().write(2, parts(2)), lambda: run.label_store().keep([])):
        with pytest.raises(RunLockedError) as caught:
            change()
        assert str(caught.value) == sentence
    assert len(run.label_store().read(1)) == 2
    with RunFolder(tmp_path) as run, pytest.raises(UntrustedError) as denied:
        run.write_text("sites/round-001/index.json", "{}")
    assert str(denied.value) == "path is reserved in a run folder: 'sites/round-001/index.json'"


# Figures


@pytest.mark.parametrize(("stride", "most"), [(4, 4.0), (8, 1.0), (16, 0.25)])
def test_a_store_takes_at_most_4_bytes_a_pixel(tmp_path: Path, stride: int, most: float) -> None:
    height, width, count = 256, 512, 3
    DiskLabelStore(tmp_path).write(1, parts(count, (height // stride, width // stride), classes=19))
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert size / (count * height * width) <= most


PEAK = """
import resource, sys, torch
from embasis.storage.label_store import DiskLabelStore
from embasis.types import PackedLabels

torch.set_num_threads(1)
grid, wide = (128, 128), (128 * 128, 19)
small = torch.zeros(wide, dtype=torch.uint8)
for count in (40, 160):
    folder = f"FOLDER/{count}"
    rows = (
        PackedLabels(row, grid, torch.full(wide, 1 / 19).half(), small, torch.ones(wide[0]), small[:, 0])
        for row in range(count)
    )
    DiskLabelStore(folder).write(1, rows)
    store = DiskLabelStore(folder).read(1)
    for row in torch.randperm(count, generator=torch.Generator().manual_seed(0)).tolist():
        store[row]
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_peak_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PEAK.replace("FOLDER", str(tmp_path))]
    few, many = map(int, subprocess.run(command, capture_output=True, check=True).stdout.split())
    assert sum(path.stat().st_size for path in home(tmp_path / "160", 1).iterdir()) > 160_000_000
    assert many < 1.1 * few


def test_asking_for_a_row_costs_less_than_a_millisecond(tmp_path: Path) -> None:
    store = DiskLabelStore(tmp_path).write(1, parts(500, (8, 8), classes=19))
    took = []
    for row in torch.randperm(500, generator=torch.Generator().manual_seed(0)).tolist():
        start = time.perf_counter()
        store[row]
        took.append(time.perf_counter() - start)
    assert sorted(took)[250] < 0.001


# Damage


def expect_corrupt(run: Path) -> str:
    with pytest.raises(CorruptError) as caught:
        DiskLabelStore(run).read(1)
    return str(caught.value)


NAMES = ("000000.shard", "000001.shard", "grids.bin", "index.json")


@pytest.fixture
def two_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(label_store, "SHARD_BYTES", 540)
    DiskLabelStore(tmp_path).write(1, parts(4))
    assert sorted(os.listdir(home(tmp_path, 1))) == sorted(NAMES)
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_a_flipped_bit_is_found(two_shards: Path, name: str) -> None:
    path = home(two_shards, 1) / name
    whole = path.read_bytes()
    for bit in range(0, 8 * len(whole), 11):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        expect_corrupt(two_shards)
    path.write_bytes(whole)
    assert len(DiskLabelStore(two_shards).read(1)) == 4


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_another_length_is_found_before_it_is_read(two_shards: Path, name: str) -> None:
    path = home(two_shards, 1) / name
    whole = path.read_bytes()
    for length in {*range(0, len(whole), 7), len(whole) - 1}:
        path.write_bytes(whole[:length])
        expect_corrupt(two_shards)
    path.write_bytes(whole + b"x")
    expect_corrupt(two_shards)
    path.unlink()
    assert expect_corrupt(two_shards) == f"cannot read {path}: No such file or directory"


def test_the_sentences_about_damage(two_shards: Path) -> None:
    path = home(two_shards, 1) / "000001.shard"
    whole = path.read_bytes()
    assert len(whole) == 240
    store = DiskLabelStore(two_shards).read(1)
    path.write_bytes(bytes(240))
    assert expect_corrupt(two_shards) == f"{path}: sha256 differs"
    path.write_bytes(whole[:9])
    assert expect_corrupt(two_shards) == f"{path}: 9 of 240 bytes"
    with pytest.raises(CorruptError) as caught:
        store[3]
    assert str(caught.value) == f"{path}: the file is cut off"
    path.unlink()
    with pytest.raises(CorruptError) as caught:
        store[3]
    assert str(caught.value) == f"cannot read {path}: No such file or directory"
    with pytest.raises(CorruptError) as caught:
        DiskLabelStore(two_shards).read(2)
    assert str(caught.value) == f"cannot read {home(two_shards, 2) / 'index.json'}: No such file or directory"


def test_a_store_under_the_name_of_another_round_is_refused(tmp_path: Path) -> None:
    DiskLabelStore(tmp_path).write(1, parts(2))
    home(tmp_path, 1).rename(home(tmp_path, 2))
    with pytest.raises(CorruptError) as caught:
        DiskLabelStore(tmp_path).read(2)
    assert str(caught.value) == f"{home(tmp_path, 2) / 'index.json'} belongs to round 1"


def test_a_store_of_a_later_release_is_refused_with_its_version(tmp_path: Path) -> None:
    DiskLabelStore(tmp_path).write(1, parts(2))
    forge(tmp_path, 1, schema=2, version="9.0")
    with pytest.raises(IncompatibleError, match=r"was written by embasis 9\.0 \(schema 2\), this is "):
        DiskLabelStore(tmp_path).read(1)


ENTRY = {"rows": 4, "bytes": 780, "sha256": "0" * 64}
HOSTILE: list[dict[str, Any]] = [
    {"rows": 10**9},
    {"rows": 0, "shards": []},
    {"rows": True},
    {"rows": "4"},
    {"classes": 10**9},
    {"classes": 0},
    {"classes": -1},
    {"classes": 6},
    {"dimensions": 10**9},
    {"dimensions": -1},
    {"dimensions": 1},
    {"schema": 0},
    {"schema": None},
    {"round": "../1"},
    {"shards": {}},
    {"shards": [[]]},
    {"shards": [{**ENTRY, "path": "/etc/passwd"}]},
    {"shards": [{**ENTRY, "rows": 3}]},
    {"shards": [{**ENTRY, "rows": -1}, {**ENTRY, "rows": 5}]},
    {"shards": [{**ENTRY, "bytes": 10**15}]},
    {"shards": [{**ENTRY, "bytes": None}]},
    {"shards": [{**ENTRY, "sha256": ["x"]}]},
    {"grids": None},
    {"grids": "0" * 64},
]


@pytest.mark.parametrize("changes", HOSTILE, ids=lambda changes: "-".join(changes))
def test_a_sealed_index_with_hostile_values_is_refused(two_shards: Path, changes: dict[str, Any]) -> None:
    forge(two_shards, 1, **changes)
    expect_corrupt(two_shards)


@pytest.mark.parametrize("sides", [(0, 4), (-3, -4), (2**31 - 1, 2**31 - 1), (12, 2), (65536, 65536)])
def test_grids_that_do_not_fit_the_shards_are_refused_without_allocating_them(
    two_shards: Path, sides: tuple[int, int]
) -> None:
    path = home(two_shards, 1) / "grids.bin"
    data = bytearray(path.read_bytes())
    data[8:16] = b"".join(side.to_bytes(4, "little", signed=True) for side in sides)
    path.write_bytes(data)
    forge(two_shards, 1, grids=hashlib.sha256(data).hexdigest())
    assert "is malformed" in expect_corrupt(two_shards)


def test_links_are_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    DiskLabelStore(elsewhere).write(1, parts(2))
    before = tree(elsewhere)
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    (one / "sites").symlink_to(elsewhere / "sites")
    (two / "sites").mkdir(parents=True)
    home(two, 1).symlink_to(home(elsewhere, 1))
    for run, link in ((one, one / "sites"), (two, home(two, 1))):
        with pytest.raises(UntrustedError) as caught:
            DiskLabelStore(run).read(1)
        assert str(caught.value) == f"{link} is a symbolic link; links are not followed"
        with pytest.raises(UntrustedError) as caught:
            DiskLabelStore(run).write(1, parts(3))
        assert str(caught.value) == f"{link} is a symbolic link; links are not followed"
    DiskLabelStore(two).keep([])
    shard = home(elsewhere, 1) / "000000.shard"
    shard.rename(tmp_path / "moved")
    shard.symlink_to(tmp_path / "moved")
    with pytest.raises(CheckpointError):
        DiskLabelStore(elsewhere).read(1)
    shard.unlink()
    (tmp_path / "moved").rename(shard)
    assert tree(elsewhere) == before


# What cannot be kept


def test_rows_that_cannot_be_kept_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    good, other = packed(0), packed(1)

    def but(**changes: Any) -> PackedLabels:
        return PackedLabels(**{**vars(other), **changes})

    nan = other.mean.clone()
    nan[2, 1], nan[0, 0] = torch.nan, torch.inf
    cases: list[tuple[list[PackedLabels], type[Exception], str]] = [
        ([], InputDataError, "round 7: there are no rows to keep"),
        ([other], InputDataError, "round 7, row 1: row 0 is due"),
        ([good, good], InputDataError, "round 7, row 0: row 1 is due"),
        ([good, but(mean=nan)], NumericalError, "round 7, row 1: 2 non-finite values"),
        ([good, but(uncertainty=torch.full((12,), torch.nan))], NumericalError, "round 7, row 1: 12 non-finite values"),
        ([good, but(grid=(3, 5))], InputDataError, "round 7, row 1: not the packed labels of a grid (3, 5)"),
        (
            [good, but(mean=other.mean.float())],
            InputDataError,
            "round 7, row 1: not the packed labels of a grid (3, 4)",
        ),
        ([good, packed(1, (3, 4), 6)], InputDataError, "round 7, row 1: other classes or another grid than in row 0"),
        ([good, packed(1, (12,))], InputDataError, "round 7, row 1: other classes or another grid than in row 0"),
    ]
    for rows, kind, sentence in cases:
        with pytest.raises(kind) as caught:
            DiskLabelStore(tmp_path).write(7, iter(rows))
        assert str(caught.value) == sentence
        assert tree(tmp_path) == {}
        assert os.listdir(tmp_path / "sites") == []


def test_an_error_of_the_rows_themselves_is_not_said_to_be_one_of_the_store(tmp_path: Path) -> None:
    def broken() -> Iterator[PackedLabels]:
        yield packed(0)
        raise OSError(errno.EIO, "picture 1 cannot be read")

    with pytest.raises(OSError, match="picture 1 cannot be read") as caught:
        DiskLabelStore(tmp_path).write(1, broken())
    assert not isinstance(caught.value, ResourceError)
    assert os.listdir(tmp_path / "sites") == []


# Faults of the disk


def test_a_store_is_named_when_all_of_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    handles: dict[int, str] = {}

    class Recorder(storage.Disk):
        def open(self, path: Any, *args: Any) -> int:  # type: ignore[override]
            handle = os.open(path, *args)
            handles[handle] = Path(path).name
            return handle

        def fsync(self, handle: int) -> None:  # type: ignore[override]
            calls.append(f"fsync {re.sub('tmp-.*', 'TEMP', handles[handle])}")

        def rename(self, old: Path, new: Path) -> None:  # type: ignore[override]
            calls.append(f"rename {new.name}")
            os.rename(old, new)

    (tmp_path / "sites").mkdir()
    monkeypatch.setattr(atomic, "disk", Recorder())
    DiskLabelStore(tmp_path).write(1, parts(2))
    shards = ["fsync 000000.shard", "fsync grids.bin", "fsync index.json", "fsync .embasis-TEMP"]
    assert calls == [*shards, "rename round-001", "fsync sites"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES])
def test_any_failing_call_leaves_no_store_no_trace_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(label_store, "SHARD_BYTES", 300)
    for at in range(1, 100):
        path = run_with(tmp_path / f"{at}", 1)
        with RunFolder(path) as run:
            monkeypatch.setattr(atomic, "disk", faulty := Faulty(at, code))
            failed = None
            try:
                run.label_store().write(2, parts(6))
            except ResourceError as error:
                failed = error
            monkeypatch.setattr(atomic, "disk", storage.Disk())
            if not faulty.fired:
                assert len(run.label_store().read(2)) == 6
                break
            assert str(failed) == (
                f"cannot write {home(path, 2)}: {os.strerror(code)}; the last good generation 1 is kept"
            )
            assert failed is not None
            assert failed.exit_code == 5
            assert not temps(path)
            assert not home(path, 2).exists()
            run.label_store().write(2, parts(6))
    assert at > 25


def test_a_full_disk_is_noticed_before_a_shard_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Small(storage.Disk):
        def statvfs(self, path: Path) -> os.statvfs_result:  # type: ignore[override]
            return os.statvfs_result((4096, 512, 10**9, 10**9, 2_000, 0, 0, 0, 0, 255))

    monkeypatch.setattr(atomic, "disk", Small())
    with pytest.raises(ResourceError) as caught:
        DiskLabelStore(tmp_path).write(2, parts(2, (200, 300), classes=19))
    room = "No space left on device (need 9 MB, free 1 MB)"
    assert str(caught.value) == f"cannot write {home(tmp_path, 2)}: {room}"
    assert os.listdir(tmp_path / "sites") == []


def test_a_disk_that_lies_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Liar(storage.Disk):
        write = staticmethod(lambda handle, data: os.write(handle, bytes(len(data))))

    monkeypatch.setattr(atomic, "disk", Liar())
    with pytest.raises(ResourceError) as caught:
        DiskLabelStore(tmp_path).write(1, parts(2))
    assert str(caught.value) == f"cannot write {home(tmp_path, 1)}: read back wrong"
    assert os.listdir(tmp_path / "sites") == []


def test_a_killed_write_is_no_store_and_the_next_owner_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_store, "SHARD_BYTES", 300)
    with RunFolder(tmp_path) as run:
        run.label_store().write(1, parts(4))
        run.label_store().write(2, parts(4))
    pid = os.fork()
    if pid == 0:  # a process that dies in the middle of the rows of round 2

        def dying() -> Iterator[PackedLabels]:
            yield from parts(5)
            os._exit(9)

        with RunFolder(tmp_path) as run:
            run.label_store().write(2, dying())
    os.waitpid(pid, 0)
    assert len(temps(tmp_path)) == 1
    assert len(DiskLabelStore(tmp_path).read(1)) == 4
    with pytest.raises(CorruptError):
        DiskLabelStore(tmp_path).read(2)
    with RunFolder(tmp_path) as run:
        assert run.ignored == 1
        assert not temps(tmp_path)
        assert len(run.label_store().write(2, parts(6))) == 6
