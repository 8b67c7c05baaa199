"""A process that reads images for another: `python -m embasis.data.image.worker`; `link.py` says what is on the pipes.

It ends when its standard input closes, so it never outlives the process that started it: a thread waits for that even
while a decoder works, and a timer of processor time ends a decoder that never lets go.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
from typing import Any

import torch

from embasis.data.image.loading import load_one, loader_of


def main() -> None:
    """Answer requests until there are no more."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the parent decides when we end
    requests, answers = _private_pipes()
    threading.Thread(target=_end_with_parent, args=(requests,), daemon=True).start()
    torch.set_num_threads(1)
    try:
        _send(answers, {"ready": True})
        with open(requests, "rb") as lines:
            for line in lines:
                _answer(json.loads(line), answers)
    except (BrokenPipeError, KeyboardInterrupt):
        pass
    sys.stderr.flush()
    os._exit(0)  # nothing is left to tidy up, and the other thread may still wait


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
    poll.register(requests, 0)  # a closed pipe is reported whatever one asks for
    poll.poll()
    os._exit(0)


def _answer(request: dict[str, Any], answers: int) -> None:
    load = loader_of(request)
    for asked in request["files"]:
        # The parent's watch is stricter; this one holds when there is no parent any more.
        signal.setitimer(signal.ITIMER_PROF, 2 * request["seconds"] + 5)
        found = load_one(load, asked)
        signal.setitimer(signal.ITIMER_PROF, 0)
        if isinstance(found, str):
            _send(answers, {"reason": found})
        else:
            _send(answers, {"reason": None}, *(tensor.flatten().numpy().data for tensor in found))


def _send(answers: int, head: dict[str, Any], *tensors: memoryview) -> None:
    text = json.dumps(head).encode("ascii")
    blocks: list[bytes | memoryview] = [len(text).to_bytes(4, "big") + text, *tensors]
    for block in blocks:
        rest = memoryview(block).cast("B")
        while rest:
            rest = rest[os.write(answers, rest) :]


if __name__ == "__main__":
    main()
