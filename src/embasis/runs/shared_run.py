"""A run that several processes work on: one of them writes its folder, and all of them must see the same.

Before the first step the processes compare what their results depend on (same_everywhere.py).
"""

from __future__ import annotations

import json
import secrets
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from embasis.config import Config, upgrade_config
from embasis.distributed import current_world
from embasis.engine.state import TrainState
from embasis.errors import CheckpointError, ConfigError, require
from embasis.runs.checkpoint import read_run
from embasis.runs.run import TrainingRun
from embasis.runs.same_everywhere import compare_facts, name_process
from embasis.storage import RunFolder, read_json
from embasis.storage.followed_folder import FollowedFolder

MEETING_FILE = "processes.json"
"""Written by the first process; the others must see it."""
SEEING_SECONDS = 10.0
"""How long a shared disk may take to show a new file."""
PARTS = "accumulate_steps"


def open_run_folder(path: Path) -> RunFolder:
    """The folder as this process has it: the first one writes, the others read."""
    return RunFolder(path) if current_world().is_first else FollowedFolder(path)


def keep_parts(config: Config, path: Path) -> Config:
    """The config with the parts of a step that the folder's run was begun with, unless it names others: so another
    number of processes goes on without a word."""
    if PARTS in config.plan:
        return config
    with suppress(CheckpointError):
        stored = upgrade_config(read_run(path).facts["config"])["plan"]
        if PARTS in stored:
            return msgspec.structs.replace(config, plan={**config.plan, PARTS: stored[PARTS]})
    return config


def compare_processes(run: TrainingRun) -> None:
    """An error of all processes where one of them has other settings, data or versions than the first."""
    free = {"save_seconds": None, "data": None}
    compare_facts(json.dumps({**run.prepare().resolved, **free}, sort_keys=True), run.data)


def open_together(run: TrainingRun) -> TrainState:
    """Where the run stands: the first process opens it, the others then read the same generation."""
    world = current_world()
    if world.size == 1:
        return run.open()
    nonce = secrets.token_hex(16)
    if world.is_first:
        run.open()
        hosts = 1 if world.peers is None else len(set(world.peers.hosts))
        run.folder.write_json(MEETING_FILE, {"processes": world.size, "hosts": hosts, "nonce": nonce})
    nonce = world.collect_texts(nonce)[0]
    seen = world.collect_texts("yes" if sees_nonce(run.folder.path / MEETING_FILE, nonce) else "no")
    for rank, answer in enumerate(seen):
        rule = f"{name_process(world, rank)} cannot see {run.folder.path}: is the folder shared?"
        require(answer == "yes", rule, ConfigError)
    state = run.open()
    generations = world.collect_texts(str(run.saved))
    require(len(set(generations)) == 1, f"the processes read different generations: {generations}", CheckpointError)
    return state


def sees_nonce(path: Path, nonce: str) -> bool:
    """Whether the file has the number that the first process has just written."""
    deadline = time.monotonic() + SEEING_SECONDS
    while True:
        with suppress(CheckpointError, OSError, AttributeError):
            if read_json(path).get("nonce") == nonce:
                return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)


def describe_hosts() -> str:
    """How many processes there are, and where; nothing for one."""
    world = current_world()
    if world.size == 1 or world.peers is None:
        return ""
    hosts = len(set(world.peers.hosts))
    return f"{world.size} processes on {hosts} {'host' if hosts == 1 else 'hosts'}"


def describe_processes(plan_parts: int) -> str:
    """Who works on a run, for its log; nothing for one process."""
    if not (where := describe_hosts()):
        return ""
    if plan_parts == 1:
        return f"{where}: features and labels are shared, training is not (plan.accumulate_steps=8 shares it)"
    return f"{where}, {plan_parts} parts a step, results do not depend on either"
