"""Threads over chunks, not inside them: each chunk is computed by one thread, with products of one thread.

Where a product is shared by threads, each of its operations waits for the slowest of them; on a machine that others use
too, that is nearly all of the time. Chunks are independent, and their results come in the order of the chunks, so that
sums over them have the same bits with any number of threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

LARGE_WORK = 1 << 26
"""Multiplications from which on threads are worth their start."""

ThreadInput = TypeVar("ThreadInput")
ThreadOutput = TypeVar("ThreadOutput")


def map_in_threads(
    function: Callable[[ThreadInput], ThreadOutput], chunks: Iterable[ThreadInput], work: int
) -> Iterator[ThreadOutput]:
    """The function of each chunk, in order; `work` says how many multiplications that is in all.

    As many threads as torch has; hardly more chunks are computed ahead than there are threads."""
    threads = torch.get_num_threads()
    if threads == 1 or work < LARGE_WORK:
        yield from map(function, chunks)
        return
    waiting: deque[Future[ThreadOutput]] = deque()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for chunk in chunks:
                waiting.append(pool.submit(function, chunk))
                if len(waiting) > 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    finally:
        torch.set_num_threads(threads)
