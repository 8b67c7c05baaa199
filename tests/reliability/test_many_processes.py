"""Several processes work on one run: same bits, one writer, one that talks; what cannot be shared is refused."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cli_tables import embasis
from process_runs import Ended, fingerprint_of, run_ranks

HOST = socket.gethostname()
SUPPORT = Path(__file__).resolve().parents[1] / "support"
CURE = "start it without torchrun, or with --nproc-per-node=1; embasis fit and embasis predict work in many"
SENTENCE = "this is one of {} processes (torchrun, or a group of torch.distributed), and this works in one; " + CURE
SMALL = ("data.count=600", "rounds=1", "--backbone", "mlp", "source_epochs=2", "plan.epochs=1")
FIT = ("fit", "--dataset", "blobs", *SMALL)
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


def last_line(ended: Ended) -> str:
    return ended.stderr.rstrip("\n").rpartition("\n")[2]


def watch_pickles(place: Path) -> dict[str, str]:
    """The variables that make a process note each pickle in that file (support/pickle_watch)."""
    paths = [str(SUPPORT / "pickle_watch"), *(path for path in sys.path if path)]
    return {"PYTHONPATH": os.pathsep.join(paths), "PICKLE_WATCH": str(place)}


def noted_pickles(place: Path) -> list[str]:
    """What was noted, without the two constants that jinja2 pickles when it is imported."""
    lines = [line for line in place.read_text().splitlines() if "/jinja2/bccache.py:" not in line]
    return [line.split(" ")[1] for line in lines]


def test_two_processes_end_with_the_bits_of_one_and_one_of_them_talks(tmp_path: Path) -> None:
    watched = watch_pickles(tmp_path / "pickles")
    first, second = run_ranks(2, *FIT, "-o", tmp_path / "two", each=[watched, watched])
    assert (first.code, second.code) == (0, 0), first.stderr + second.stderr
    assert (second.stdout, second.stderr) == ("", "")
    assert "2 processes on 1 host, 8 parts a step, results do not depend on either\n" in first.stdout
    alone = embasis(*FIT, "plan.accumulate_steps=8", "-o", tmp_path / "one")
    assert alone.exit_code == 0
    assert fingerprint_of(tmp_path / "two") == fingerprint_of(tmp_path / "one")
    ledgers = [(tmp_path / run / "ledger.json").read_bytes() for run in ("two", "one")]
    assert ledgers[0] == ledgers[1]
    assert noted_pickles(tmp_path / "pickles") == ["watches"] * 2
    assert "2 processes on 1 host" in (tmp_path / "two" / "log.txt").read_text()
    facts = json.loads((tmp_path / "two" / "processes.json").read_text())
    assert (facts["processes"], facts["hosts"]) == (2, 1)
    # the same command with one process needs no flag, and finds nothing left to do
    again = embasis(*FIT, "-o", tmp_path / "two")
    assert (again.exit_code, "nothing is left to train" in again.stdout) == (0, True)


def test_an_object_that_torch_sends_is_a_pickle_so_that_the_test_above_can_fail(tmp_path: Path) -> None:
    code = """
import sys
import torch.distributed as dist
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
dist.all_gather_object([None], ["a list of one text, which names no class"])
"""
    watched = watch_pickles(tmp_path / "pickles")
    subprocess.run([sys.executable, "-c", code, tmp_path / "meet"], env={**os.environ, **watched}, check=True)
    noted = noted_pickles(tmp_path / "pickles")
    assert {"pickle.Pickler", "pickle.Unpickler"} <= {*noted}


def test_a_command_that_is_not_shared_refuses_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    result = embasis("compare", "blobs")
    assert (result.exit_code, result.stderr) == (2, f"embasis: {SENTENCE.format(2)}\n")


def test_a_number_of_processes_that_cannot_meet_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    result = embasis(*FIT, "-o", tmp_path / "run")
    rule = "WORLD_SIZE is 2, but RANK, MASTER_ADDR, MASTER_PORT is not set; start the processes with torchrun"
    assert (result.exit_code, result.stderr) == (2, f"embasis: {rule}\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", ["1", "", "no number"])
def test_one_process_is_no_launch_of_many(size: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", size)
    words = ("data.count=24", "rounds=0", "--backbone", "linear", "source_epochs=1")
    assert embasis("fit", "--dataset", "blobs", *words, "-o", tmp_path / "run").exit_code == 0


def test_a_group_of_two_processes_that_did_not_join_is_refused_in_python(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RANK, str(tmp_path / "meet")]
    ranks = [subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, text=True) for rank in range(2)]
    assert [rank.communicate(timeout=120)[0] for rank in ranks] == [SENTENCE.format(2) + "\n"] * 2


def test_an_error_of_one_process_ends_all_with_its_code_and_is_printed_once(tmp_path: Path) -> None:
    """Rank 1 cannot read a file that rank 0 can: all end with 3, and rank 0 says why."""
    table = tmp_path / "rows.csv"
    table.write_text("a,b,label\n" + "".join(f"{row % 7},{row % 5},{row % 2}\n" for row in range(60)))
    each = [
        {"WORDS": f"fit {table} {other} rounds=0 -o {tmp_path / 'run'}"} for other in (table, tmp_path / "missing.csv")
    ]
    first, second = run_ranks(2, each=each)
    assert (first.code, second.code) == (3, 3), first.stderr + second.stderr
    assert last_line(first).startswith(f"embasis: rank 1 on host {HOST}: {tmp_path / 'missing.csv'}")
    assert first.stderr.count("embasis:") == 1
    assert "embasis:" not in second.stderr
    assert not (tmp_path / "run").exists()
