"""Several processes are refused in one sentence: shared work is not built, and split rows would get wrong labels."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli_tables import embasis

CURE = "and embasis works in one; start it without torchrun, or with --nproc-per-node=1"
SENTENCE = "this is one of {} processes (torchrun, or a group of torch.distributed), " + CURE
FIT = ("fit", "--dataset", "blobs", "data.count=24", "rounds=0", "--backbone", "linear", "source_epochs=1")
RANK = """
import sys
import torch.distributed as dist
from embasis import config, self_train
from embasis.data import DATASETS
from embasis.errors import ConfigError
from embasis.runs.parts import build

dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=2)
built = build(DATASETS["blobs"](count=24), config.load(None, ("plan.rounds=0", "network.name=linear")))
try:
    list(self_train(built.problem, built.network, built.method, built.plan))
except ConfigError as error:
    print(error)
"""


def test_a_launcher_with_two_processes_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    result = embasis(*FIT, "-o", tmp_path / "run")
    assert (result.exit_code, result.stderr) == (2, f"embasis: {SENTENCE.format(2)}\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", ["1", "", "no number"])
def test_one_process_is_no_launch_of_many(size: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", size)
    assert embasis(*FIT, "-o", tmp_path / "run").exit_code == 0


def test_a_group_of_two_processes_is_refused_in_python(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RANK, str(tmp_path / "meet")]
    ranks = [subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, text=True) for rank in range(2)]
    assert [rank.communicate(timeout=120)[0] for rank in ranks] == [SENTENCE.format(2) + "\n"] * 2
