"""A process that reads images for another: `python worker.py`; what is on the pipes is in `worker_process.py`.

It never outlives the process that started it: where the kernel can, it is killed with it; a thread waits for its
standard input to close, even while a decoder works; and a timer of processor time ends a decoder that never lets go.
Started as a file, not with -m: that would import the packages above, and torch with them, before the first line here.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
from contextlib import suppress
from typing import Any

PR_SET_PDEATHSIG = 1


def serve_requests() -> None:
    """Answer requests until there are no more."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the parent decides when we end
    _die_with_parent()
    requests, answers = _private_pipes()
    threading.Thread(target=_end_with_parent, args=(requests,), daemon=True).start()
    # Both take seconds, in which the parent may end: what watches for that stands before them.
    import torch

    from embasis.data.reader import load_one, make_loader

    def answer(request: dict[str, Any]) -> None:
        load = make_loader(request)
        for row in request["files"]:
            # The parent's watch is stricter; this one holds when there is no parent any more.
            signal.setitimer(signal.ITIMER_PROF, 2 * request["seconds"] + 5)
            result = load_one(load, row)
            signal.setitimer(signal.ITIMER_PROF, 0)
            if isinstance(result, str):
                _send(answers, {"reason": result})
            else:
                _send(answers, {"reason": None}, *(tensor.flatten().numpy().data for tensor in result))

    torch.set_num_threads(1)
    try:
        _send(answers, {"ready": True})
        with open(requests, "rb") as lines:
            for line in lines:
                answer(json.loads(line))
    except (BrokenPipeError, KeyboardInterrupt):
        pass
    sys.stderr.flush()
    os._exit(0)  # nothing is left to tidy up, and the other thread may still wait


def _die_with_parent() -> None:
    """Killed with the thread that started us, even while an import or a decoder lets no other thread run.

    That thread is the one that serves this worker (`reader.py`); it ends the worker before it ends itself.
    """
    with suppress(ImportError, OSError, AttributeError):  # elsewhere than on Linux
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    poll = select.poll()
    poll.register(0, 0)  # a closed pipe is reported whatever one registers for
    if poll.poll(0):
        os._exit(0)  # it was gone before the kernel knew


def _private_pipes() -> tuple[int, int]:
    """The two pipes under new numbers; whoever prints on 1 now prints on standard error, and 0 is empty."""
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, answers


def _end_with_parent(requests: int) -> None:
    poll = select.poll()
    poll.register(requests, 0)
    poll.poll()
    os._exit(0)


def _send(answers: int, head: dict[str, Any], *tensors: memoryview) -> None:
    text = json.dumps(head).encode("ascii")
    blocks: list[bytes | memoryview] = [len(text).to_bytes(4, "big") + text, *tensors]
    for block in blocks:
        rest = memoryview(block).cast("B")
        while rest:
            rest = rest[os.write(answers, rest) :]


if __name__ == "__main__":
    serve_requests()
