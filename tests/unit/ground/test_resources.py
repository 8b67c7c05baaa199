"""Memory and disk that are not there: said before long work where that can be known, else with what was being done."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from cli_tables import embasis, write_tables
from embasis.data.tables import read_table
from embasis.errors import ResourceError
from embasis.resources import (
    explain_memory_errors,
    format_bytes,
    free_memory,
    lacks_memory,
    require_disk,
    require_memory,
)
from embasis.runs.parts import build, require_run_room
from folder_runs import config as folder_config
from image_runs import WORDS, begun, settings, sides
from training_runs import toy


def test_a_table_that_does_not_fit_is_refused_from_its_header(tmp_path: Path) -> None:
    there = free_memory()
    path = tmp_path / "huge.npy"
    with open(path, "wb") as file:
        rows = there // 4 // 1000
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (rows, 1000)})
        file.truncate(file.tell() + rows * 4000)  # sparse: it takes no disk
    with pytest.raises(ResourceError) as caught:
        read_table(path, largest=2**62)
    assert str(caught.value).startswith(f"{path} needs {format_bytes(2 * rows * 4000)} of memory, ")
    assert str(caught.value).endswith(" is there; take fewer rows, or numbers of fewer bytes")


# --- what is there


def test_the_own_limit_of_a_process_counts_as_memory() -> None:
    code = (
        "import resource; from embasis.resources import free_memory; before = free_memory(); "
        "resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30)); print(before, free_memory())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = (int(word) for word in done.stdout.split())
    assert after < 2**30 < before
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY


def test_what_is_needed_and_what_is_there_are_both_said(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    require_disk(tmp_path / "not" / "yet", free // 2, "a run", "free some")
    with pytest.raises(ResourceError) as caught:
        require_disk(tmp_path / "not" / "yet", 1000 * free, "a run", "free some")
    start, _, end = str(caught.value).partition(" of disk, ")
    assert start == f"a run needs {format_bytes(1000 * free)}"
    assert end.endswith(f" is free in {tmp_path / 'not' / 'yet'}; free some")
    require_memory(2**20, "work", "do less")
    with pytest.raises(ResourceError, match=r"^work needs 1152921\.5 TB of memory, .* is there; do less$"):
        require_memory(2**60, "work", "do less")


def test_sizes_are_written_for_people() -> None:
    assert [format_bytes(count) for count in (0, 1500, 2_500_000, 3 * 10**9, 12 * 10**12)] == [
        "0 kB", "2 kB", "2.5 MB", "3.0 GB", "12.0 TB",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (MemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (ImportError("libtorch.so: failed to map segment from shared object"), True),
        (RuntimeError("can't start new thread"), True),
        (RuntimeError("shapes do not fit"), False),
        (OSError(28, "No space left on device"), False),
    ],
)
def test_errors_about_memory_are_known(error: Exception, short: bool) -> None:
    assert lacks_memory(error) is short
    with pytest.raises(ResourceError if short and not isinstance(error, ImportError) else type(error)):  # noqa: SIM117
        with explain_memory_errors("this", "do less"):
            raise error


def test_a_real_tensor_that_does_not_fit_is_said() -> None:
    with (
        pytest.raises(ResourceError, match=r"^not enough memory for this; do less$"),
        explain_memory_errors("this", "do less"),
    ):
        torch.empty(2**50)


# --- before long work


def test_a_feature_cache_that_does_not_fit_on_the_disk_is_refused_before_an_image_is_read(tmp_path: Path) -> None:
    config = settings(tmp_path / "cache", "partial")
    _, front = begun(sides(tmp_path), config)
    front.require_cache_room(36)
    with pytest.raises(ResourceError) as caught:
        front.require_cache_room(10**12)
    text = str(caught.value)
    assert text.startswith("the feature cache of 1,000,000,000,000 more images needs ")
    assert text.endswith("; images.depth=frozen keeps less, or images.cache=DIR names a folder on another disk")


def test_a_run_folder_that_does_not_fit_on_its_disk_is_refused(tmp_path: Path) -> None:
    require_run_room(build(toy(), folder_config()), tmp_path / "run")
    with pytest.raises(ResourceError) as caught:
        require_run_room(build(toy(), folder_config("rounds=1000000000000")), tmp_path / "run")
    assert str(caught.value).startswith("the run folder needs ")
    assert str(caught.value).endswith("; free some, or name a folder on another disk with -o")
    assert not (tmp_path / "run").exists()


def test_the_commands_ask_for_disk_before_long_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk with a kilobyte left: no image is read, and no run folder is made."""
    monkeypatch.chdir(sides(tmp_path))
    write_tables(tmp_path)
    usual = shutil.disk_usage
    monkeypatch.setattr("embasis.resources.shutil.disk_usage", lambda path: usual(path)._replace(free=1000))
    result = embasis("fit", "photos", "paintings", "-o", "run", *WORDS, f"images.cache={tmp_path / 'cache'}")
    words = "embasis: the feature cache of 36 more images needs "
    assert (result.exit_code, result.stderr[: len(words)]) == (5, words)
    result = embasis("fit", "labelled.csv", "unlabelled.csv", "-o", "run", "--backbone", "mlp")
    words = "embasis: the run folder needs "
    assert (result.exit_code, result.stderr[: len(words)]) == (5, words)
    assert result.stderr.endswith(
        " of disk, 1 kB is free in run; free some, or name a folder on another disk with -o\n"
    )
    assert not Path("run").exists()
