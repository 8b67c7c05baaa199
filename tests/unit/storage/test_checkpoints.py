"""Generations: what was published is there, the newest two stay, left-overs go."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from embasis.errors import CorruptError, IncompatibleError, NumericalError
from embasis.storage import RunFolder, read_newest
from storage_runs import do_not_wait, forge, home, present, run_with, sealed, state, temps, tree


@pytest.fixture(autouse=True)
def fsync_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    do_not_wait(monkeypatch)


# Round trips


def test_every_dtype_shape_and_layout_comes_back_bit_for_bit(tmp_path: Path) -> None:
    base = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    tensors = {
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "empty": torch.zeros(0, 3),
        "bool": torch.tensor([True, False]),
        "uint8": torch.arange(256).to(torch.uint8),
        "int64": torch.tensor([-(2**63), 2**63 - 1]),
        "float32": torch.tensor([1e-45, -0.0, 3.4e38]),
        "bfloat16": base.bfloat16(),
        "transposed": base.T,
        "strided": base[:, ::2],
        "view a": base[:2],
        "view b": base[1:3],
        "tied": base,
        "parameter": torch.nn.Parameter(base),
    }
    with RunFolder(tmp_path / "run") as run:
        assert run.publish(tensors, {"round": 3, "names": ["a", "é", "\udcff"], "none": None}) == 1
        found = run.newest()
    assert found is not None
    assert found.number == 1
    assert found.facts == {"round": 3, "names": ["a", "é", "\udcff"], "none": None}
    assert set(found.tensors) == set(tensors)
    for name, tensor in tensors.items():
        back = found.tensors[name]
        assert back.dtype == tensor.dtype, name
        assert back.shape == tensor.shape, name
        bits = (t.detach().contiguous().flatten().view(torch.uint8) for t in (back, tensor) if t.numel())
        assert len({b.numpy().tobytes() for b in bits}) <= 1, name


def test_no_tensors_and_no_facts_are_a_generation_too(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as run:
        run.publish({}, {})
    assert read_newest(tmp_path).tensors == {}
    assert read_newest(tmp_path).facts == {}


def test_the_same_state_gives_the_same_bytes_and_names_no_host_or_home(tmp_path: Path) -> None:
    a, b = run_with(tmp_path / "a", 1, 2), run_with(tmp_path / "b", 1, 2)
    assert tree(a) == tree(b)
    assert str(tmp_path).encode() not in b"".join(tree(a).values())


def test_a_loaded_tensor_can_be_changed_in_place(tmp_path: Path) -> None:
    tensors = read_newest(run_with(tmp_path / "run", 1)).tensors
    tensors["network/weight"] += 1
    assert tensors["network/weight"].tolist() == [[2.0, 2.0]] * 3


def test_before_the_first_publish_there_is_nothing(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "a" / "run")
    assert not (tmp_path / "a").exists()
    with run:
        assert run.newest() is None
        with pytest.raises(CorruptError) as caught:
            read_newest(run.path)
    assert str(caught.value) == f"{run.path}: nothing of its run is saved yet; go on with embasis fit"
    with pytest.raises(CorruptError, match="is it a run folder"):
        read_newest(tmp_path / "nowhere")


def test_non_finite_tensors_are_refused_and_the_last_generation_is_kept(tmp_path: Path) -> None:
    bad = {"count": torch.tensor(1), "network/weight": torch.tensor([1.0, float("nan"), float("inf"), -float("inf")])}
    with RunFolder(tmp_path) as run:
        with pytest.raises(NumericalError) as caught:
            run.publish({"w": torch.tensor(float("nan"))}, {})
        assert str(caught.value) == "tensor 'w' holds 1 non-finite value; no generation exists yet"
        run.publish(state(1), {})
        before = tree(tmp_path)
        with pytest.raises(NumericalError) as caught:
            run.publish(bad, {})
        assert str(caught.value) == "tensor 'network/weight' holds 3 non-finite values; generation 1 is kept"
        with pytest.raises(NumericalError):
            run.publish({}, {"loss": float("nan")})
        assert tree(tmp_path) == before


def test_a_tmpdir_that_does_not_exist_has_no_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    assert read_newest(run_with(tmp_path, 1)).facts == {"value": 1}


def test_importing_storage_imports_neither_torch_nor_numpy() -> None:
    code = "import sys, embasis.storage; print(sorted({'torch', 'numpy', 'pyarrow', 'safetensors'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"[]\n"


def test_a_copy_without_package_metadata_publishes_as_an_unknown_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    run_with(tmp_path, 1)
    assert json.loads((home(tmp_path, 1) / "manifest.json").read_bytes())["version"] == "0+unknown"
    forge(tmp_path, 1, schema=5)
    with pytest.raises(IncompatibleError, match=r"this is 0\+unknown \(schema up to 1\)"):
        read_newest(tmp_path)


# Rotation


@pytest.mark.parametrize("last", [9, 99, 999_999])
def test_rotation_is_numeric_and_keeps_two(tmp_path: Path, last: int) -> None:
    run_with(tmp_path, 1)
    home(tmp_path, 1).rename(home(tmp_path, last))
    forge(tmp_path, last, generation=last)
    (tmp_path / "HEAD").write_bytes(sealed({"generation": last}))
    with RunFolder(tmp_path) as run:
        assert run.publish(state(2), {}) == last + 1
        assert {int(name) for name in present(tmp_path)} == {last, last + 1}
        assert run.publish(state(3), {}) == last + 2
        assert {int(name) for name in present(tmp_path)} == {last + 1, last + 2}


def test_rotation_deletes_only_what_is_ours(tmp_path: Path) -> None:
    run_with(tmp_path, 1)
    outside = tmp_path.parent / "outside"
    outside.mkdir()
    (outside / "facts.json").write_text("precious")
    (tmp_path / "generations" / "000000").symlink_to(outside)
    (tmp_path / "generations" / "notes").mkdir()
    (home(tmp_path, 1) / "mine.txt").write_text("precious")
    run_with(tmp_path, 2, 3, 4)
    assert present(tmp_path) == ["000000", "000001", "000003", "000004", "notes"]
    assert (outside / "facts.json").read_text() == "precious"


def test_a_damaged_generation_does_not_count_as_kept(tmp_path: Path) -> None:
    run_with(tmp_path, 1, 2)
    (home(tmp_path, 2) / "facts.json").write_text("{}")
    run_with(tmp_path, 3)
    assert present(tmp_path) == ["000001", "000003"]


# Left-overs of crashes


def test_left_overs_are_ignored_by_readers_and_cleaned_by_the_owner(tmp_path: Path) -> None:
    run_with(tmp_path, 1, 2)
    temp = tmp_path / "generations" / ".embasis-tmp-0123456789abcdef"
    temp.mkdir()
    (temp / "facts.json").write_text("{")
    (tmp_path / ".embasis-tmp-fedcba9876543210").write_text("half")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / ".embasis-tmp-0000000000000000").write_text("half")
    for keep in (".embasis-tmp-notes", "x.tmp", "tmp"):
        (tmp_path / keep).write_text("precious")
    assert read_newest(tmp_path).number == 2
    with RunFolder(tmp_path) as run:
        assert run.ignored == 3
        assert run.publish(state(3), {}) == 3
    assert {path.name for path in temps(tmp_path)} == {".embasis-tmp-notes", "x.tmp", "tmp"}


@pytest.mark.parametrize("missing", [None, "facts.json"])
def test_a_generation_that_head_never_named_is_an_unfinished_publish(tmp_path: Path, missing: str | None) -> None:
    run_with(tmp_path, 1)
    head = (tmp_path / "HEAD").read_bytes()
    run_with(tmp_path, 2)
    (tmp_path / "HEAD").write_bytes(head)
    if missing:
        (home(tmp_path, 2) / missing).unlink()
    assert read_newest(tmp_path).number == 1
    with RunFolder(tmp_path) as run:
        assert run.ignored == 1
        assert run.publish(state(3), {"value": 3}) == 2
    assert read_newest(tmp_path).facts == {"value": 3}
