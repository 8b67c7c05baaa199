"""R3: no code from artefacts, and no crash. The whole corpus of hostile files at every entry point, under an audit
hook; every file of finished runs changed in ten ways; a thousand flipped bits in what a run hands out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from goals import Result

TESTS = Path(__file__).parents[1]


def half(first: int) -> dict[str, Any]:
    """Every second file, in a process of its own."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, str(TESTS / "support" / "audited.py"), str(Path(folder) / "audit"), "2", str(first)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        fault = f"the harness ended with {done.returncode}: {done.stderr[-300:]}"
        return {"files": 0, "calls": 0, "faults": [fault], "broken": {"none": []}}
    return dict(json.loads(done.stdout))


def mutate(*kinds: str) -> dict[str, Any]:
    """All changes of finished runs of these kinds, in a process of its own."""
    command = [sys.executable, str(Path(__file__).parent / "mutated.py"), *kinds]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        fault = f"the changes ended with {done.returncode}: {done.stderr[-300:]}"
        return {"tried": 0, "crashed": [fault], "flipped": 0, "unseen": []}
    return dict(json.loads(done.stdout))


def run() -> Result:
    """All files, and the breakages that must be seen."""
    with ThreadPoolExecutor(2) as pool:
        changes = [pool.submit(mutate, "maps"), pool.submit(mutate, "table", "images")]
        halves = list(pool.map(half, (0, 1)))
    changed = [change.result() for change in changes]
    faults = [fault for found in halves for fault in found["faults"]]
    for fault in faults:
        print(fault, file=sys.stderr)
    files, calls = (sum(found[name] for found in halves) for name in ("files", "calls"))
    seen = [all(found["broken"].get(name) for found in halves) for name in halves[0]["broken"]]
    tried, flipped = (sum(found[name] for found in changed) for name in ("tried", "flipped"))
    crashed, unseen = ([line for found in changed for line in found[name]] for name in ("crashed", "unseen"))
    for line in (*crashed, *unseen):
        print(line, file=sys.stderr)
    counts = f"{files:,} hostile files in {calls:,} calls: {len(faults)} faults"
    counts += f"; {tried:,} changed files and values of runs: {len(crashed)} crashes"
    counts += f"; {flipped - len(unseen):,} of {flipped:,} flipped bits seen"
    figure = f"{counts}; {sum(seen)} of {len(seen)} deliberate breakages seen"
    whole = files >= 200 and tried >= 2000 and flipped >= 1000
    return Result(not (faults or crashed or unseen) and all(seen) and whole, figure)
