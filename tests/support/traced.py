"""A signal at the N-th write-class system call of a process, sent by strace."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

from forked import Child

CALLS = (
    "write", "pwrite64", "fsync", "fdatasync", "ftruncate", "rename", "renameat", "renameat2", "mkdir", "mkdirat",
    "rmdir", "unlink", "unlinkat", "symlink", "symlinkat",
)  # fmt: skip
"""Those that change a disk. What openat makes is there when the write after it is entered, and a signal comes as a call
is entered; so no state between two calls is left out."""


def why_not() -> str:
    """Why nothing can be traced here; empty if it can."""
    if shutil.which("strace") is None:
        return "strace is not installed: kills at system calls are not tried here"
    with subprocess.Popen(["sleep", "60"]) as process:
        found = attach(process.pid, "trace=none")
        process.kill()
        if found is not None:
            found.wait(10)
    return "" if found is not None else "strace may not trace here: kills at system calls are not tried"


def attach(pid: int, *words: str, log: Path | str = os.devnull) -> subprocess.Popen[bytes] | None:
    """strace on a process, in its place when this returns; None if it may not."""
    command = ["strace", "-qq", "-o", str(log), "-p", str(pid), *(part for word in words for part in ("-e", word))]
    tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while "\nTracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text():
        if tracer.poll() is not None:
            return None
        time.sleep(0.001)
    return tracer


def points(child: Child, step: int = 1) -> list[tuple[str, int]]:
    """Let a paused child run through; every step-th of its write-class calls, each by its kind and number."""
    log, kinds = child.log.with_suffix(".trace"), ",".join(CALLS)
    tracer = attach(child.pid, f"trace={kinds}", log=log)
    assert tracer is not None
    child.send(signal.SIGCONT)
    assert child.wait(120) == 0, child.stderr
    tracer.wait(30)
    found, numbers = list[tuple[str, int]](), Counter[str]()
    for line in log.read_text().splitlines():
        if (kind := line.partition("(")[0]) in CALLS:
            numbers[kind] += 1
            found.append((kind, numbers[kind]))
    return found[step - 1 :: step]


def signalled(child: Child, number: signal.Signals, point: tuple[str, int], seconds: float = 120) -> int:
    """Let a paused child go on, with this signal as it enters its call of that kind and number; its exit code."""
    call, at = point
    inject = f"inject={call}:signal={number.name.removeprefix('SIG')}:when={at}"
    tracer = attach(child.pid, f"trace={call}", inject)
    assert tracer is not None
    child.send(signal.SIGCONT)
    code = child.wait(seconds)
    if code is None:
        child.end()
        raise AssertionError(f"the process did not end in {seconds} s after {number.name} at {call} {at}")
    tracer.wait(30)
    return code
