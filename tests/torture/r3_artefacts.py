"""R3: no code from artefacts. The whole corpus of hostile files at every entry point, under an audit hook."""

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
        command = [sys.executable, str(TESTS / "audited.py"), str(Path(folder) / "audit"), "2", str(first)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        fault = f"the harness ended with {done.returncode}: {done.stderr[-300:]}"
        return {"files": 0, "calls": 0, "faults": [fault], "broken": {"none": []}}
    return dict(json.loads(done.stdout))


def run() -> Result:
    """All files, and the breakages that must be seen."""
    with ThreadPoolExecutor(2) as pool:
        halves = list(pool.map(half, (0, 1)))
    faults = [fault for found in halves for fault in found["faults"]]
    for fault in faults:
        print(fault, file=sys.stderr)
    files, calls = (sum(found[name] for found in halves) for name in ("files", "calls"))
    seen = [all(found["broken"].get(name) for found in halves) for name in halves[0]["broken"]]
    counts = f"{files:,} hostile files in {calls:,} calls: {len(faults)} faults"
    figure = f"{counts}; {sum(seen)} of {len(seen)} deliberate breakages seen"
    return Result(not faults and all(seen) and files >= 200, figure)
