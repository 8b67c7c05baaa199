"""Damaged and hostile run folders: what is not as published is refused."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from embasis import storage
from embasis.errors import CorruptError, EmbasisWarning, IncompatibleError, UntrustedError
from embasis.storage import RunFolder, checkpoints, read_newest
from storage_runs import FILES, do_not_wait, forge, forge_file, home, run_with, state, tree


@pytest.fixture(autouse=True)
def fsync_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    do_not_wait(monkeypatch)


# Damage


def expect_fall_back(run: Path, message: str | None = None) -> None:
    with pytest.warns(EmbasisWarning) as caught:
        found = read_newest(run)
    assert found.number == 1
    assert found.facts == {"value": 1}
    assert len(caught) == 1
    assert str(caught[0].message).endswith("; generation 1 is used")
    if message:
        assert str(caught[0].message) == message


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_detected_at_every_length(tmp_path: Path, name: str) -> None:
    path = home(run_with(tmp_path, 1, 2), 2) / name
    whole = path.read_bytes()
    for length in {*range(0, len(whole), 7), len(whole) - 1}:
        path.write_bytes(whole[:length])
        expect_fall_back(tmp_path)
    path.unlink()
    expect_fall_back(tmp_path, f"cannot read {path}: No such file or directory; generation 1 is used")


@pytest.mark.parametrize("name", FILES)
def test_a_single_flipped_bit_is_detected(tmp_path: Path, name: str) -> None:
    path = home(run_with(tmp_path, 1, 2), 2) / name
    whole = path.read_bytes()
    for bit in range(0, 8 * len(whole), 1 if name == "facts.json" else 3):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(CorruptError):
            checkpoints.load_generation(tmp_path, 2)
        if bit % 101 == 0:
            expect_fall_back(tmp_path)


def test_a_hash_that_is_not_looked_at_lets_a_flipped_bit_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof that the test above can fail: without hashes most flips are not seen."""
    monkeypatch.setattr(checkpoints, "sha256", lambda data: "0" * 64)
    path = home(run_with(tmp_path, 1, 2), 2) / "tensors.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert checkpoints.load_generation(tmp_path, 2).number == 2


def test_a_flipped_bit_of_head_is_detected_and_the_newest_generation_found(tmp_path: Path) -> None:
    run_with(tmp_path, 1, 2)
    head = tmp_path / "HEAD"
    whole = head.read_bytes()
    for bit in range(0, 8 * len(whole), 3):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        head.write_bytes(flipped)
        with pytest.warns(EmbasisWarning, match="HEAD is missing or damaged; generation 2 is used"):
            assert read_newest(tmp_path).number == 2
    head.unlink()
    with RunFolder(tmp_path) as run:
        assert run.ignored == 0
        with pytest.warns(EmbasisWarning, match="HEAD is missing or damaged"):
            newest = run.newest()
    assert newest is not None
    assert newest.number == 2


def test_damage_says_file_and_reason(tmp_path: Path) -> None:
    path = home(run_with(tmp_path, 1, 2), 2) / "tensors.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    expect_fall_back(tmp_path, f"{path}: 100 of {len(whole):,} bytes; generation 1 is used")
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    expect_fall_back(tmp_path, f"{path}: sha256 differs; generation 1 is used")
    (home(tmp_path, 1) / "facts.json").unlink()
    with pytest.raises(CorruptError) as caught:
        read_newest(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} holds no whole generation: {path}: sha256 differs; "
        f"cannot read {home(tmp_path, 1) / 'facts.json'}: No such file or directory"
    )


@pytest.mark.parametrize("name", [*FILES, "."])
def test_files_swapped_between_generations_are_refused(tmp_path: Path, name: str) -> None:
    run_with(tmp_path, 1, 2)
    a, b, spare = home(tmp_path, 1) / name, home(tmp_path, 2) / name, tmp_path / "spare"
    a.resolve().rename(spare)
    b.resolve().rename(a.parent / a.name)
    spare.rename(b.parent / b.name)
    with pytest.raises(CorruptError, match="holds no whole generation"):
        read_newest(tmp_path)


def test_a_publish_after_a_fall_back_takes_a_new_number(tmp_path: Path) -> None:
    run_with(tmp_path, 1, 2)
    (home(tmp_path, 2) / "facts.json").unlink()
    with RunFolder(tmp_path) as run:
        assert run.publish(state(3), {"value": 3}) == 3
    assert read_newest(tmp_path).facts == {"value": 3}


# Hostile artefacts


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "start", [b"\x80\x02}q\x00.", b"\x80\x04\x95\x0a\x00\x00\x00\x00\x00\x00\x00.", b"PK\x03\x04\x00\x00"]
)
def test_a_pickle_is_refused_by_name_even_if_the_manifest_vouches_for_it(
    tmp_path: Path, name: str, start: bytes
) -> None:
    path = home(run_with(tmp_path, 1, 2), 2) / name
    if name != "manifest.json":
        forge_file(tmp_path, 2, name, start + bytes(50))
    path.write_bytes(start + bytes(50))
    with pytest.raises(UntrustedError) as caught:
        read_newest(tmp_path)
    assert str(caught.value) == f"{path} is a pickle; only safetensors and JSON are read"


@pytest.mark.parametrize("length", [0x280, 0x480, 0x4B50])
def test_a_safetensors_header_whose_length_looks_like_a_pickle_is_read(tmp_path: Path, length: int) -> None:
    for size in range(length - 200, length):
        data = storage.RunFolder(tmp_path).tensor_bytes({"n" * size: torch.zeros(1)})
        if int.from_bytes(data[:8], "little") == length:
            break
    with RunFolder(tmp_path) as run:
        run.publish({"n" * size: torch.zeros(1)}, {})
    assert list(read_newest(tmp_path).tensors) == ["n" * size]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        (1 << 40).to_bytes(8, "little") + b"{}",
        b"\x02\0\0\0\0\0\0\0{}trailing",
        (62).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4]}}',
        b"not safetensors at all",
    ],
)
def test_malformed_safetensors_with_a_valid_manifest_are_corrupt(tmp_path: Path, data: bytes) -> None:
    run_with(tmp_path, 1, 2)
    forge_file(tmp_path, 2, "tensors.safetensors", data)
    expect_fall_back(tmp_path)


@pytest.mark.parametrize("data", [b"[]", b"{", b"[" * 100_000, b'{"a": NaN}', b'{"a": 1e999}', b"\xff", b""])
def test_malformed_facts_with_a_valid_manifest_are_corrupt(tmp_path: Path, data: bytes) -> None:
    run_with(tmp_path, 1, 2)
    forge_file(tmp_path, 2, "facts.json", data)
    expect_fall_back(tmp_path)


ENTRY = {"bytes": 1, "sha256": "0"}


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": "1"},
        {"files": []},
        {"files": {}},
        {"files": {"facts.json": 3}},
        {"files": {"facts.json": {"bytes": "3"}}},
        {"files": {"facts.json": {"bytes": 10**12, "sha256": "0"}}},
        {"files": {"else.json": ENTRY}},
        {"tensors": 10**9},
        {"tensors": None},
        {"generation": 1},
    ],
)
def test_a_manifest_with_senseless_values_is_corrupt(tmp_path: Path, changes: dict[str, Any]) -> None:
    run_with(tmp_path, 1, 2)
    forge(tmp_path, 2, **changes)
    expect_fall_back(tmp_path)


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/b", "..", ""])
def test_a_manifest_cannot_name_a_file_elsewhere(tmp_path: Path, name: str) -> None:
    forge(run_with(tmp_path, 1, 2), 2, files={name: ENTRY})
    with pytest.raises(UntrustedError) as caught:
        read_newest(tmp_path)
    assert str(caught.value) == f"path escapes run folder: {name!r}"


def test_a_newer_schema_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    forge(run_with(tmp_path, 1, 2, 3), 3, schema=5, version="0.9.0", files="elsewhere")
    before = tree(tmp_path)
    with RunFolder(tmp_path) as run, pytest.raises(IncompatibleError) as caught:
        run.newest()
    assert str(caught.value) == (
        "generation 3 was written by embasis 0.9.0 (schema 5), "
        f"this is {importlib.metadata.version('embasis')} (schema up to 1)"
    )
    assert tree(tmp_path) == before


def test_planted_links_are_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "victim"
    target.write_text("precious")
    run = run_with(tmp_path / "run", 1, 2)
    (run / "notes.txt").symlink_to(target)
    (run / "sub").symlink_to(tmp_path)
    with RunFolder(run) as folder:
        folder.write_text("notes.txt", "ours")
        with pytest.raises(UntrustedError, match="path escapes run folder: 'sub/victim'"):
            folder.write_text("sub/victim", "ours")
    assert (run / "notes.txt").read_text() == "ours"
    assert not (run / "notes.txt").is_symlink()
    for name in ("lock", "generations", "generations/000002", "generations/000002/facts.json", "HEAD"):
        path = run / name
        path.rename(tmp_path / "moved")
        path.symlink_to(tmp_path / "moved")
        with pytest.raises(UntrustedError) as caught, RunFolder(run) as folder:
            folder.newest()
        assert str(caught.value) == f"{path} is a symbolic link; links are not followed"
        path.unlink()
        (tmp_path / "moved").rename(path)
    assert target.read_text() == "precious"
    assert read_newest(run).number == 2


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "", ".", "a\0b"])
def test_a_name_outside_the_run_folder_is_refused(tmp_path: Path, name: str) -> None:
    with RunFolder(tmp_path / "run") as run, pytest.raises(UntrustedError) as caught:
        run.write_text(name, "x")
    assert str(caught.value) == f"path escapes run folder: {name!r}"
    assert os.listdir(tmp_path) == ["run"]


@pytest.mark.parametrize("name", ["HEAD", "lock", "generations/000001/facts.json", "./HEAD"])
def test_the_run_folders_own_names_are_reserved(tmp_path: Path, name: str) -> None:
    with RunFolder(tmp_path) as run, pytest.raises(UntrustedError) as caught:
        run.write_text(name, "x")
    assert str(caught.value) == f"path is reserved in a run folder: {name!r}"
