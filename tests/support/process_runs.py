"""Commands of embasis in several real processes on this machine, as a launcher starts them."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from embasis.runs.checkpoint import read_run


@dataclass(frozen=True)
class Ended:
    """How a process has ended."""

    code: int
    stdout: str
    stderr: str


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_ranks(
    size: int, *words: object, cwd: Path | None = None, each: Sequence[Mapping[str, str]] = ()
) -> list[subprocess.Popen[str]]:
    """Processes of `python -m embasis WORDS`, one for each rank; `each` are more variables of the ranks."""
    common = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(size),
        "OMP_NUM_THREADS": "1",
    }
    ranks = []
    for rank in range(size):
        own = dict(each[rank]) if each else {}
        environment = {**os.environ, **common, "RANK": str(rank), **own}
        command = [sys.executable, "-m", "embasis", *(str(word) for word in own.pop("WORDS", "").split() or words)]
        ranks.append(
            subprocess.Popen(
                command, cwd=cwd, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        )
    return ranks


def wait_for(ranks: Sequence[subprocess.Popen[str]], seconds: float = 180) -> list[Ended]:
    """How they have ended; whoever has not by then is killed."""
    ended = []
    try:
        for rank in ranks:
            out, err = rank.communicate(timeout=seconds)
            ended.append(Ended(rank.returncode, out, err))
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
                rank.communicate()
    return ended


def run_ranks(size: int, *words: object, **more: Any) -> list[Ended]:
    return wait_for(start_ranks(size, *words, **more))


def fingerprint_of(run: Path) -> dict[str, str]:
    """The hash of every tensor, of the records, and of every file of labels of a run."""
    newest = read_run(run)
    prints = {name: hash_tensor(value) for name, value in newest.tensors.items()}
    prints["records"] = hashlib.sha256(repr(newest.facts["records"]).encode()).hexdigest()
    for path in sorted((run / "labels").rglob("*")):
        if path.is_file():
            prints[str(path.relative_to(run))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return prints


def hash_tensor(value: torch.Tensor) -> str:
    data = value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(f"{value.dtype} {tuple(value.shape)}".encode() + data).hexdigest()


def wait_for_log(run: Path, words: str, ranks: Sequence[subprocess.Popen[str]], times: int = 1) -> bool:
    """Whether the log of a run comes to have these words so many times before its processes end."""
    path = run / "log.txt"
    while True:
        ended = any(rank.poll() is not None for rank in ranks)
        if path.exists() and path.read_text(errors="replace").count(words) >= times:
            return True
        if ended:
            return False
        time.sleep(0.05)


def time_survivors(ranks: Sequence[subprocess.Popen[str]], lost: int, limit: float) -> tuple[list[Ended], float]:
    """How the other ranks have ended, and the seconds until the last of them had; whoever has not by then is killed."""
    began = time.monotonic()
    survivors = [rank for number, rank in enumerate(ranks) if number != lost]
    while any(rank.poll() is None for rank in survivors) and time.monotonic() - began < limit:
        time.sleep(0.02)
    seconds = time.monotonic() - began
    return wait_for(survivors, 1.0 if seconds < limit else 0.1), seconds
