"""Faults of the disk: what failed leaves no trace."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from embasis import storage
from embasis.errors import ResourceError
from embasis.storage import RunFolder, atomic, checkpoints, read_newest
from storage_runs import CALLS, FILES, Faulty, do_not_wait, home, present, run_with, state, temps, tree


@pytest.fixture(autouse=True)
def fsync_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    do_not_wait(monkeypatch)


def test_nothing_is_named_before_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_with(tmp_path, 1, 2)
    calls: list[str] = []
    handles: dict[int, str] = {}

    def short(path: Any) -> str:
        name = str(Path(path).relative_to(tmp_path))
        return re.sub(r"\.embasis-tmp-\w+", "TEMP", name)

    class Recorder(storage.Disk):
        def __getattribute__(self, name: str) -> Any:
            call = super().__getattribute__(name)
            if name not in CALLS:
                return call

            def record(*args: Any) -> Any:
                if name == "open":
                    handle = call(*args)
                    handles[handle] = short(args[0])
                    return handle
                what = [handles[args[0]]] if isinstance(args[0], int) else [short(a) for a in args]
                if name != "close":
                    calls.append(" ".join([name, *what]))
                return call(*args)

            return record

    with RunFolder(tmp_path) as run:
        monkeypatch.setattr(atomic, "disk", Recorder())
        run.publish(state(3), {})
        monkeypatch.setattr(atomic, "disk", storage.Disk())
    *publish, a, b, c, last = calls
    assert publish == [
        "mkdir generations/TEMP",
        "write generations/TEMP/tensors.safetensors",
        "fsync generations/TEMP/tensors.safetensors",
        "write generations/TEMP/facts.json",
        "fsync generations/TEMP/facts.json",
        "write generations/TEMP/manifest.json",
        "fsync generations/TEMP/manifest.json",
        "fsync generations/TEMP",
        "rename generations/TEMP generations/000003",
        "fsync generations",
        "write TEMP",
        "fsync TEMP",
        "replace TEMP HEAD",
        "fsync .",
        "rename generations/000001 generations/TEMP",
    ]
    assert {a, b, c} == {f"unlink generations/TEMP/{name}" for name in FILES}
    assert last == "rmdir generations/TEMP"


def sweep(monkeypatch: pytest.MonkeyPatch, code: int, forever: bool, base: Path, act: Any, check: Any) -> int:
    """Fail call 1, 2, 3 … of `act` until it runs through; `check` looks at what each failure left."""
    for at in range(1, 200):
        path = run_with(base / f"{code}-{at}", 1, 2)
        faulty = Faulty(at, code, forever)
        failed = None
        with RunFolder(path) as run:
            monkeypatch.setattr(atomic, "disk", faulty)
            try:
                act(run)
            except ResourceError as error:
                failed = str(error)
            monkeypatch.setattr(atomic, "disk", storage.Disk())
        assert (failed is not None) == faulty.fired
        if failed is None:
            return at - 1
        check(path, failed)
    raise AssertionError("the sweep never ran through")


@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES, errno.EDQUOT])
def test_any_failing_call_of_a_publish_keeps_a_good_generation_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, forever: bool
) -> None:
    said = set()

    def check(path: Path, failed: str) -> None:
        assert f": {os.strerror(code)}; the last good generation " in failed
        said.add(failed.removeprefix(str(path)).split("; ")[1])
        kept = int(failed.split()[-3])
        assert checkpoints.load_generation(path, kept).facts == {"value": kept}
        found = read_newest(path)
        assert found.number >= kept
        assert found.facts == {"value": found.number}
        assert forever or not temps(path)
        with RunFolder(path) as run:
            number = run.publish(state(4), {"value": 4})
            assert number == found.number + 1
        assert not temps(path)
        assert len(present(path)) == 2

    calls = sweep(monkeypatch, code, forever, tmp_path, lambda run: run.publish(state(3), {"value": 3}), check)
    assert calls > 25
    assert said == {f"the last good generation {n} is kept" for n in (2, 3)}


def test_the_sentence_of_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_with(tmp_path, 1, 2)
    with RunFolder(tmp_path) as run:
        monkeypatch.setattr(atomic, "disk", Faulty(1, errno.ENOSPC, kinds=("write",)))
        with pytest.raises(ResourceError) as caught:
            run.publish(state(3), {})
    assert str(caught.value) == (
        f"cannot write {home(tmp_path, 3)}: No space left on device; the last good generation 2 is kept"
    )


class Small(storage.Disk):
    """A file system of 512-byte blocks with so many bytes free for us, and more for root."""

    def __init__(self, free: int, blocks: int = 10**9) -> None:
        self.free, self.blocks, self.asked = free, blocks, 0

    def statvfs(self, path: Path) -> os.statvfs_result:  # type: ignore[override]
        self.asked += 1
        return os.statvfs_result((4096, 512, self.blocks, 10**9, self.free // 512, 0, 0, 0, 0, 255))


def test_a_publish_that_will_not_fit_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunFolder(tmp_path) as run:
        monkeypatch.setattr(atomic, "disk", Small(12_999_680))
        with pytest.raises(ResourceError) as caught:
            run.publish({"w": torch.zeros(3_000_000)}, {})
        room = "No space left on device (need 15 MB, free 12 MB)"
        assert str(caught.value) == f"cannot write {home(tmp_path, 1)}: {room}; no generation exists yet"
        run.publish(state(1), {"value": 1})
        before = tree(tmp_path)
        with pytest.raises(ResourceError) as caught:
            run.publish({"w": torch.zeros(3_000_000)}, {})
        assert str(caught.value) == f"cannot write {home(tmp_path, 2)}: {room}; the last good generation 1 is kept"
        assert tree(tmp_path) == before
        assert not temps(tmp_path)
        assert run.publish(state(2), {"value": 2}) == 2


def test_room_is_the_bytes_and_a_fifth_more(tmp_path: Path) -> None:
    Small(512 * 6).expect_room(tmp_path, 512 * 5)
    with pytest.raises(OSError, match=r"\(need 1 MB, free 0 MB\)") as caught:
        Small(512 * 6).expect_room(tmp_path, 512 * 5 + 1)
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match=r"\(need 310 MB, free 12 MB\)"):
        Small(12_288_000).expect_room(tmp_path, 258_333_333)
    with pytest.raises(OSError, match=r"\(need 12,000 MB, free 1,024 MB\)"):
        Small(1_024_000_000).expect_room(tmp_path, 10**10)


def test_a_disk_that_does_not_know_its_room_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, unsure in enumerate((Small(0, blocks=0), Faulty(1, errno.ENOSYS, kinds=("statvfs",))), 1):
        monkeypatch.setattr(atomic, "disk", unsure)
        run_with(tmp_path, number)
        assert getattr(unsure, "asked", 0) or getattr(unsure, "fired", False)
        assert read_newest(tmp_path).number == number


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_any_failing_call_of_a_text_file_keeps_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def check(path: Path, failed: str) -> None:
        target = path / "sub" / "notes.txt"
        assert failed == f"cannot write {target}: {os.strerror(code)}; the last good generation 2 is kept"
        assert not target.exists() or target.read_text() == "new"
        assert not temps(path)

    assert sweep(monkeypatch, code, False, tmp_path, lambda run: run.write_text("sub/notes.txt", "new"), check) >= 9


def test_any_failing_call_of_opening_a_run_folder_releases_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(1, 50):
        path = tmp_path / f"{at}"
        monkeypatch.setattr(atomic, "disk", faulty := Faulty(at, errno.ENOSPC))
        failed = None
        try:
            with RunFolder(path):
                faulty.left = 0
        except ResourceError as error:
            failed = str(error)
        wanted = f"cannot write {path}: No space left on device; no generation exists yet"
        assert failed == (wanted if faulty.fired else None)
        monkeypatch.setattr(atomic, "disk", storage.Disk())
        assert not temps(path)
        run_with(path, 1)
        if not faulty.fired:
            break
    assert at > 10
    assert not faulty.fired


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "disk", faulty := Faulty(1, 0, forever=True, kinds=("write",)))
    run_with(tmp_path, 1)
    assert faulty.fired
    assert read_newest(tmp_path).facts == {"value": 1}


def test_a_write_of_nothing_ends_and_a_disk_that_lies_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_with(tmp_path, 1)

    class Stuck(storage.Disk):
        write = staticmethod(lambda handle, data: 0)

    class Liar(storage.Disk):
        write = staticmethod(lambda handle, data: os.write(handle, bytes(len(data))))

    with RunFolder(tmp_path) as run:
        for broken, reason in ((Stuck(), "the system wrote nothing"), (Liar(), "read back wrong")):
            monkeypatch.setattr(atomic, "disk", broken)
            with pytest.raises(ResourceError) as caught:
                run.publish(state(2), {})
            assert str(caught.value).startswith(f"cannot write {home(tmp_path, 2)}: {reason}")
            assert str(caught.value).endswith("; the last good generation 1 is kept")
            assert present(tmp_path) == ["000001"]
            assert not temps(tmp_path)
    assert read_newest(tmp_path).number == 1


def test_an_interrupt_inside_a_publish_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_with(tmp_path, 1)

    class Interrupting(storage.Disk):
        def rename(self, *_: Any) -> None:  # type: ignore[override]
            raise KeyboardInterrupt

    with RunFolder(tmp_path) as run:
        monkeypatch.setattr(atomic, "disk", Interrupting())
        with pytest.raises(KeyboardInterrupt):
            run.publish(state(2), {})
    assert present(tmp_path) == ["000001"]


def test_a_full_disk_keeps_the_old_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "labels.csv"
    storage.write_output(path, "old")
    for at in range(1, 6):
        monkeypatch.setattr(atomic, "disk", Faulty(at, errno.ENOSPC))
        with pytest.raises(ResourceError) as caught:
            storage.write_output(path, "new")
        assert str(caught.value) == f"cannot write {path}: No space left on device"
        assert tree(tmp_path) == {"labels.csv": b"old"}
