"""Commands of embasis in processes of their own that start at once: forked from one that has imported everything.

A start of torch takes seconds, a fork none; so hundreds of commands can be killed, stopped and traced. Each child leads
a session and a process group of its own.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from embasis.terminal import handle_interrupts

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


class Child:
    """One command under way."""

    def __init__(self, zygote: Zygote, pid: int, log: Path) -> None:
        self.zygote, self.pid, self.log = zygote, pid, log
        self.code: int | None = None

    def wait(self, seconds: float) -> int | None:
        """Its exit code, −N after signal N; None if it still runs after so many seconds."""
        if self.code is None and (line := self.zygote.read(seconds)) is not None:
            self.code = int(line)
        return self.code

    def send(self, number: int, group: bool = False) -> None:
        """A signal, unless it has ended; the zygote may have waited for it at this moment, and its number is gone."""
        if self.code is None:
            with suppress(ProcessLookupError):
                (os.killpg if group else os.kill)(self.pid, number)

    def end(self) -> int:
        """Killed if need be, and waited for."""
        if self.wait(0) is None:
            self.send(signal.SIGKILL)
        code = self.wait(30)
        assert code is not None
        return code

    @property
    def stdout(self) -> str:
        return self._read(".out")

    @property
    def stderr(self) -> str:
        return self._read(".err")

    def _read(self, suffix: str) -> str:
        path = self.log.with_suffix(suffix)
        return path.read_text() if path.exists() else ""


class Zygote:
    """The process that forks; one command at a time."""

    def __init__(self, before: Sequence[str] = ()) -> None:
        command = [*before, sys.executable, __file__]  # `before`: a program that starts it as another user
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, env=ENVIRONMENT, bufsize=0, **pipes)
        self.last: Child | None = None
        assert self.read(120) == "ready"

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end_last()
        self.process.stdin.close()  # type: ignore[union-attr]
        self.process.wait(60)
        self.process.stdout.close()  # type: ignore[union-attr]

    def read(self, seconds: float) -> str | None:
        """A line, or None after so many seconds."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            return None
        line = b""
        while not line.endswith(b"\n"):
            byte = self.process.stdout.read(1)
            assert byte, "the process that forks is gone"
            line += byte
        return line.decode().strip()

    def start(self, log: Path, *words: object, code: str = "", paused: bool = False) -> Child:
        """`embasis words…`, or Python code that sees `words`; `paused`: it stops itself before it begins."""
        assert self.process.stdin is not None
        self._end_last()
        for suffix in (".out", ".err"):
            log.with_suffix(suffix).unlink(missing_ok=True)
        order = {"words": [str(word) for word in words], "log": str(log), "code": code, "paused": paused}
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        line = self.read(60)
        assert line is not None
        child = self.last = Child(self, int(line), log)
        while paused and stopped(child.pid) != "T":
            time.sleep(0.001)
        return child

    def know(self, *modules: str) -> Zygote:
        """Import these here, so that no child has to."""
        assert self.process.stdin is not None
        self._end_last()
        self.process.stdin.write(json.dumps({"modules": modules}).encode() + b"\n")
        assert self.read(120) == "ready"
        return self

    def _end_last(self) -> None:
        """A test that failed may have left its command."""
        if self.last is not None and self.last.code is None:
            self.last.end()

    def run(self, log: Path, *words: object, code: str = "", seconds: float = 120) -> Child:
        """The same, to its end."""
        child = self.start(log, *words, code=code)
        if child.wait(seconds) is None:
            child.end()
            raise AssertionError(f"{words} did not end in {seconds} s")
        return child


def stopped(pid: int) -> str:
    """The letter of a process's state."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def child_main(order: dict[str, Any], ready: int) -> None:
    """What the fork does; it never returns. `ready` is closed when it can be sent signals as any process can."""
    code = 1
    try:
        os.setsid()
        for name, number in ((".out", 1), (".err", 2)):
            handle = os.open(Path(order["log"]).with_suffix(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            os.dup2(handle, number)
            os.close(handle)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        handle_interrupts()  # a process of its own does so before anything can be said to have begun
        os.close(ready)
        if order["paused"]:
            os.kill(os.getpid(), signal.SIGSTOP)
        call(order)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def call(order: dict[str, Any]) -> None:
    """The command, or the code."""
    from embasis.__main__ import main

    if order["code"]:
        exec(compile(order["code"], "<child>", "exec"), {"__name__": "child", "words": order["words"]})
    else:
        sys.argv = ["embasis", *order["words"]]
        main()


def warm() -> None:
    """Import what a fit needs."""
    import pandas
    import pyarrow.parquet
    import safetensors.torch
    import torch

    import embasis.benchmark.compare
    import embasis.cli.fit
    import embasis.data.datasets.digit_sets
    import embasis.runs.run

    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)  # imports for seconds
    assert pandas  # pyarrow looks for it
    assert pyarrow.parquet
    assert safetensors.torch
    assert embasis


def serve(orders: Sequence[str] | Any) -> None:
    """Fork for each line; say the pid, wait, say how it ended."""
    warm()
    print("ready", flush=True)
    for line in orders:
        order = json.loads(line)
        if "modules" in order:
            for name in order["modules"]:
                importlib.import_module(name)
            print("ready", flush=True)
            continue
        begun, ready = os.pipe()
        pid = os.fork()
        if pid == 0:
            child_main(order, ready)
        os.close(ready)
        os.read(begun, 1)  # until then it is in this process's group, and ignores what this one ignores
        os.close(begun)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(sys.stdin)
