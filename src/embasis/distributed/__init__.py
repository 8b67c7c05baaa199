"""Processes that work together on one run: each computes some parts, all know all results.

A *part* is the unit of work and of adding up; how many processes there are only decides who computes it. Whatever the
parts are added up by does not depend on the order (`exact_sum`: whole numbers) or keeps it (`World.in_order`), so that
one process and many end with the same bits. Only tensors of numbers and bytes are sent, never a pickle.

| file | what |
| --- | --- |
| world.py | `World`: who this process is, and what it exchanges with the others; `current_world`, `work_alone` |
| exact_sum.py | sums of floating-point numbers that do not depend on how they are grouped |
| meeting.py | `join`: from the variables of torchrun to a `World` |
| peers.py | what became of the other processes: heartbeats, and the first failure |
"""

from embasis.distributed.exact_sum import exact_sum
from embasis.distributed.meeting import join, require_alone, require_joined
from embasis.distributed.peers import Peers
from embasis.distributed.world import World, current_world, enter_world, iterate_alone, work_alone

__all__ = [
    "Peers",
    "World",
    "current_world",
    "enter_world",
    "exact_sum",
    "iterate_alone",
    "join",
    "require_alone",
    "require_joined",
    "work_alone",
]
