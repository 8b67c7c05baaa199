"""A process of several that gets a signal, or is lost: all end alike, quickly, and any number of them goes on."""

from __future__ import annotations

import json
import signal
import socket
import time
from pathlib import Path

import pytest

from cli_tables import embasis
from process_runs import fingerprint_of, start_ranks, time_survivors, wait_for, wait_for_log

WORDS = ("data.count=300", "rounds=1", "--backbone", "linear", "source_epochs=40", "plan.epochs=8", "save_seconds=0.1")
FIT = ("fit", "--dataset", "blobs", *WORDS, "plan.accumulate_steps=3")
BEGUN = "processes on 1 host"


def test_a_signal_to_one_saves_all_and_a_kill_of_one_ends_all_and_one_process_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    ranks = start_ranks(2, *FIT, "-o", run)
    assert wait_for_log(run, BEGUN, ranks)
    while not (run / "HEAD").exists() and ranks[0].poll() is None:  # until then one of them may not train yet
        time.sleep(0.02)
    ranks[1].send_signal(signal.SIGTERM)
    first, second = wait_for(ranks)
    assert (first.code, second.code) == (143, 143), first.stderr + second.stderr
    assert first.stderr.rstrip("\n").rpartition("\n")[2].startswith("embasis: interrupted; saved round ")
    assert "embasis:" not in second.stderr

    ranks = start_ranks(3, *FIT, "-o", run)
    assert wait_for_log(run, BEGUN, ranks, 2)
    ranks[1].kill()
    (survivor, other), seconds = time_survivors(ranks, 1, 60)
    wait_for(ranks[1:2])
    assert (survivor.code, other.code) == (8, 8), survivor.stderr + other.stderr
    assert "embasis:" not in other.stderr
    sentence = survivor.stderr.rstrip("\n").rpartition("\n")[2]
    assert sentence.startswith(f"embasis: rank 1 on host {socket.gethostname()} was lost in round ")
    assert sentence.endswith(" is kept; the same command goes on")
    assert seconds < 20  # 3 to 5 s on an idle machine
    facts = json.loads((run / "error.json").read_text())
    assert (facts["exit_code"], facts["kind"]) == (8, "PeerFailure")
    assert facts["message"].startswith("rank 1 was lost in round ")  # a run folder names no host

    assert embasis(*FIT, "-o", run).exit_code == 0
    assert embasis(*FIT, "-o", tmp_path / "alone").exit_code == 0
    assert fingerprint_of(run) == fingerprint_of(tmp_path / "alone")


@pytest.mark.slow
def test_a_process_that_is_stopped_ends_the_others_with_8_and_one_that_is_slow_does_not(tmp_path: Path) -> None:
    run = tmp_path / "run"
    ranks = start_ranks(2, *FIT, "-o", run)
    assert wait_for_log(run, BEGUN, ranks)
    ranks[1].send_signal(signal.SIGSTOP)
    (survivor,), seconds = time_survivors(ranks, 1, 60)
    ranks[1].send_signal(signal.SIGCONT)
    (stopped,) = wait_for(ranks[1:])
    assert (survivor.code, stopped.code) == (8, 8)
    assert 10 < seconds < 25
