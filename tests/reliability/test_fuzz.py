"""Every reader answers every input with a value or with a documented error, in bounded time and memory (goal R4).

The long version is tests/torture/r4_parsers.py.
"""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embasis.errors import InputDataError
from fuzz_mutate import mutated
from fuzz_targets import CORPUS, MEGABYTES, SECONDS, TARGETS, Target, corpus, try_one
from paths import ROOT

MOST_BYTES = 300_000
SRC = ROOT / "src" / "embasis"
OPENS = re.compile(
    r"\bopen\(|os\.open\(|read_bytes\(|read_text\(|ParquetFile\(|load_file\(|tarfile\.open|ZipFile\(|Image\.open"
)
READ_BY = {
    "config.py": ("toml", "json", "words"),
    "data/datasets/domain_sets.py": ("mat",),
    "data/images/files.py": ("image", "map", "visda"),
    "data/images/scan.py": ("tar",),
    "data/images/header.py": ("image",),
    "data/images/tar_members.py": ("tar_shard",),
    "data/images/saved_images.py": ("arrow",),
    "data/arrow_stream.py": ("arrow",),
    "data/saved_dataset.py": ("arrow", "saved_info"),
    "data/segmentation/classes.py": ("classes",),
    "data/segmentation/cvat.py": ("cvat",),
    "data/formats.py": (
        "npy",
        "npz",
        "pack",
        "rows",
        "csv",
        "parquet",
        "parquet_shard",
        "list",
        "corrections",
        "label_studio",
        "toml",
        "classes",
    ),
    "weights/torch_import.py": ("foreign",),
    "weights/sandbox.py": (),  # how much memory this process has
    "weights/files.py": ("weights",),
    "data/shards.py": (),  # the bytes of a shard, for its hash
    "data/worker.py": (),  # the pipe to our own process: test_loading.py sends nonsense through it
    "storage": ("head", "manifest", "facts", "tensors", "lines", "labels"),
}
"""Which targets reach the files that each module opens."""
USERS = ("data", "networks", "weights", "config.py")
"""Where files of the user are opened; all else reads what embasis wrote or brought along."""


@pytest.mark.parametrize("name", TARGETS)
def test_every_kept_input_is_read_or_refused_as_documented(name: str) -> None:
    for file, data in corpus(name):
        try_one(TARGETS[name], data)  # what is imported once is no input's fault
        cost = try_one(TARGETS[name], data)
        assert cost.seconds <= SECONDS, file
        assert cost.megabytes <= MEGABYTES, file


@pytest.mark.parametrize("name", TARGETS)
@given(number=st.integers(0, 2**32))
@settings(max_examples=60)
def test_inputs_that_nobody_would_write_are_read_or_refused_as_documented(name: str, number: int) -> None:
    data = mutated(random.Random(number), [data for _, data in corpus(name)], TARGETS[name].words)
    cost = try_one(TARGETS[name], data)
    assert cost.seconds <= SECONDS
    assert cost.megabytes <= MEGABYTES


def test_the_corpus_is_small_and_every_reader_has_some_of_it() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
    sizes = [path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()]
    assert sum(sizes) < MOST_BYTES
    assert all(corpus(name) for name in TARGETS)


def test_most_kept_inputs_can_be_read_so_that_their_changes_reach_far() -> None:
    for name, target in TARGETS.items():
        sound = [not try_one(target, data).error for file, data in corpus(name) if not file.startswith("bug-")]
        assert sum(sound) >= 1, name


def test_the_page_of_reliability_names_every_reader() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text()
    found = re.search(r"`tests/support/fuzz_targets.py` is the list: (.*?): ([0-9]+) readers\.", text, re.DOTALL)
    assert found is not None
    named = re.sub(r"\(.*?\)", "", found[1], flags=re.DOTALL).replace("\n", " ").split(",")
    assert {name.strip() for name in named} == {*TARGETS}
    assert int(found[2]) == len(TARGETS)


# --- what the harness itself would notice (mutation checks)


def test_an_undocumented_error_is_not_swallowed() -> None:
    def broken(data: bytes, _: Path) -> object:
        return {}[data]

    with pytest.raises(KeyError):
        try_one(Target(broken, (InputDataError,)), b"x")


def test_a_slow_reader_and_a_greedy_one_are_measured() -> None:
    assert try_one(Target(lambda data, _: time.sleep(0.3), ()), b"").seconds >= 0.3
    greedy = try_one(Target(lambda data, _: len(b"\x01" * (600 * 2**20)), ()), b"")
    assert greedy.megabytes > MEGABYTES
    assert try_one(Target(lambda data, _: data, ()), b"").megabytes < 1  # measured anew each time


def test_every_module_that_opens_files_has_a_target() -> None:
    names = [path.relative_to(SRC).as_posix() for path in SRC.rglob("*.py") if OPENS.search(path.read_text())]
    opening = {name for name in names if name.startswith(USERS)}
    assert opening - set(READ_BY) == set()
    assert {target for targets in READ_BY.values() for target in targets} == set(TARGETS)
