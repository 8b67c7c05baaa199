"""A world of threads: the ranks of a run in one process, one of which runs at a time.

torch's global generator is shared by all threads, so a rank gives the word to the others only where it waits for them:
in an exchange. Draws inside of `seeded` are then those of a process of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from embasis.distributed import World, enter_world

T = TypeVar("T")


class ThreadLink:
    """Exchanges of one rank with the others, through a list that all share."""

    def __init__(self, rank: int, slots: list[Tensor], barrier: threading.Barrier, baton: threading.Lock) -> None:
        self.rank, self.slots, self.barrier, self.baton = rank, slots, barrier, baton

    def collect(self, value: Tensor) -> list[Tensor]:
        self.slots[self.rank] = value.clone()
        self._wait()
        values = [slot.clone() for slot in self.slots]
        self._wait()
        return values

    def collect_first(self, value: Tensor) -> list[Tensor]:
        values = self.collect(value)
        return [] if self.rank else values

    def add_up(self, value: Tensor) -> Tensor:
        total, *rest = self.collect(value)
        for each in rest:
            total = total + each
        return total

    def largest(self, value: Tensor) -> Tensor:
        return torch.stack(self.collect(value)).amax(0)

    def _wait(self) -> None:
        self.baton.release()
        try:
            self.barrier.wait(120)
        finally:
            self.baton.acquire()


def run_world(size: int, work: Callable[[World], T]) -> list[T]:
    """What each rank of a world of so many returns; the first error that is one of its own is raised."""
    slots, barrier, baton = [torch.empty(0)] * size, threading.Barrier(size), threading.Lock()
    results, errors = dict[int, T](), list[BaseException]()

    def run(rank: int) -> None:
        world = World(rank, size, ThreadLink(rank, slots, barrier, baton) if size > 1 else None)
        try:
            with baton, enter_world(world):
                results[rank] = work(world)
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    own = [error for error in errors if not isinstance(error, threading.BrokenBarrierError)]
    if errors:
        raise (own or errors)[0]
    return [results[rank] for rank in range(size)]
