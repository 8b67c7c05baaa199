"""From the variables of torchrun (or of srun with the same names) to a `World`.

torch keeps the keys of an earlier attempt in the launcher's store, and new processes would read addresses of dead ones.
So all keys of an attempt get a prefix that nobody has used before, agreed upon by a handshake:

| step | who | what |
| --- | --- | --- |
| 1 | each rank | writes a random token under its number, and waits for the answer to that token |
| 2 | rank 0 | answers every token that it sees, dead ones too, with the prefix; until all ranks have thanked |
| 3 | each rank | thanks under the prefix |
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from embasis.distributed.peers import Peers
from embasis.distributed.world import ALONE, World, current_world, enter_world
from embasis.errors import ConfigError, PeerFailure, require

WORLD_SIZE, RANK, ADDRESS, PORT = "WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT"
"""The variables in which torchrun says how many processes it has started, which one this is, and where they meet."""
AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"
"""The variable in which torchrun says that the store is its own."""
MEETING_SECONDS = 300.0
"""How long processes wait for each other in the beginning."""
COLLECTIVE_SECONDS = 1800.0
"""The longest that a process waits for the others within the work; a dead one is noticed long before."""
POLL_SECONDS = 0.05


def launched_size() -> int:
    """How many processes the launcher has started, or a group of torch.distributed has; 1 where there is neither."""
    given = os.environ.get(WORLD_SIZE, "")
    size = int(given) if given.isdecimal() else 1
    if dist.is_available() and dist.is_initialized():
        size = max(size, dist.get_world_size())
    return size


def require_alone() -> None:
    """A ConfigError where this process is one of several, for what is not shared among processes."""
    size = launched_size()
    rule = f"this is one of {size} processes (torchrun, or a group of torch.distributed), and this works in one"
    cure = "start it without torchrun, or with --nproc-per-node=1; embasis fit and embasis predict work in many"
    require(size <= 1, f"{rule}; {cure}", ConfigError)


def require_joined() -> None:
    """A ConfigError where this process is one of several that do not know of each other: each would do all the work."""
    if current_world().size == 1:
        require_alone()


@contextmanager
def join() -> Iterator[World]:
    """The processes that the launcher has started, for as long as the block runs; alone where it has started one."""
    size = launched_size()
    if size <= 1:
        yield ALONE
        return
    names = [name for name in (RANK, ADDRESS, PORT) if not os.environ.get(name)]
    rule = f"{WORLD_SIZE} is {size}, but {', '.join(names)} is not set; start the processes with torchrun"
    require(not names, rule, ConfigError)
    world = connect(int(os.environ[RANK]), size)
    with enter_world(world):
        yield world


def connect(rank: int, size: int) -> World:
    """Meet the others, and connect with each of them."""
    address, port, limit = os.environ[ADDRESS], int(os.environ[PORT]), timedelta(seconds=MEETING_SECONDS)
    hosts_store = rank == 0 and os.environ.get(AGENT_STORE) != "True"
    try:
        store = TCPStore(address, port, size, hosts_store, limit, wait_for_workers=False, multi_tenant=True)
        prefix = shake_hands(store, rank, size)
        keys = PrefixStore(prefix, store)
        keys.set(f"host/{rank}", socket.gethostname())
        group = PrefixStore("group", keys)
        wait = timedelta(seconds=COLLECTIVE_SECONDS)
        dist.init_process_group("gloo", store=group, rank=rank, world_size=size, timeout=wait)
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise PeerFailure(f"rank {rank} could not meet the others at {address}:{port}: {reason}") from error
    hosts = [keys.get(f"host/{number}").decode() for number in range(size)]
    beats, notes = (TCPStore(address, port, size, False, limit, wait_for_workers=False) for _ in range(2))
    peers = Peers(PrefixStore(prefix, beats), PrefixStore(prefix, notes), rank, hosts)
    peers.hosts_store = hosts_store
    peers.has_launcher = os.environ.get(AGENT_STORE) == "True"
    peers.watch()
    return World(rank, size, GroupLink(peers), peers)


def shake_hands(store: Store, rank: int, size: int) -> str:
    """The prefix of this attempt's keys, the same for all ranks."""
    token, deadline = secrets.token_hex(8), time.monotonic() + MEETING_SECONDS
    store.set(f"embasis/hello/{rank}", token)
    if rank:
        prefix = wait_for_key(store, f"embasis/answer/{token}", deadline, f"rank {rank} waited for rank 0")
        store.set(f"{prefix}/thanks/{rank}", "1")
        return prefix
    prefix, missing = f"embasis/{token}", set(range(1, size))
    while missing:
        for number in sorted(missing):
            hello = f"embasis/hello/{number}"
            if store.check([hello]):
                store.set(f"embasis/answer/{store.get(hello).decode()}", prefix)
            if store.check([f"{prefix}/thanks/{number}"]):
                missing.discard(number)
        late = f"rank 0 waited {MEETING_SECONDS:.0f} s for {describe_ranks(missing)} in vain"
        require(time.monotonic() < deadline, late, PeerFailure)
        time.sleep(POLL_SECONDS)
    return prefix


def describe_ranks(ranks: set[int]) -> str:
    """Ranks for a sentence."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, sorted(ranks)))}"


def wait_for_key(store: Store, key: str, deadline: float, who: str) -> str:
    """The value of a key as soon as it is there."""
    while not store.check([key]):
        require(time.monotonic() < deadline, f"{who} for {MEETING_SECONDS:.0f} s in vain", PeerFailure)
        time.sleep(POLL_SECONDS)
    return str(store.get(key).decode())


class GroupLink:
    """The group of torch.distributed; when a process of it is gone, the others find out which one."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    def add_up(self, value: Tensor) -> Tensor:
        """The sum over all processes."""
        total = value.clone()
        self._call(lambda: dist.all_reduce(total))
        return total

    def largest(self, value: Tensor) -> Tensor:
        """The largest value over all processes, entry by entry."""
        total = value.clone()
        self._call(lambda: dist.all_reduce(total, dist.ReduceOp.MAX))
        return total

    def collect(self, value: Tensor) -> list[Tensor]:
        """The value of each process, by rank."""
        values = [torch.empty_like(value) for _ in range(dist.get_world_size())]
        self._call(lambda: dist.all_gather(values, value))
        return values

    def collect_first(self, value: Tensor) -> list[Tensor]:
        """The value of each process, by rank, for the first one; nothing for the others."""
        is_first = dist.get_rank() == 0
        values = [torch.empty_like(value) for _ in range(dist.get_world_size())] if is_first else []
        self._call(lambda: dist.gather(value, values if is_first else None, 0))
        return values

    def _call(self, exchange: object) -> None:
        assert callable(exchange)
        try:
            exchange()
        except RuntimeError as error:
            raise self._peers.explain_break() from error


def leave(world: World) -> None:
    """The end of the work of all processes: each waits for the others, then none is watched any more.

    The group is not taken down, which torch may end by SIGABRT: its processes leave by `end_at_once`."""
    if world.peers is None:
        return
    world.agree(0)
    world.peers.stop()
