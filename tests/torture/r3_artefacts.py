"""R3: no code from artefacts. The whole corpus of hostile files at every entry point, under an audit hook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from goals import Result

TESTS = Path(__file__).parents[1]


def run() -> Result:
    """All files, and the breakages that must be seen."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, str(TESTS / "audited.py"), str(Path(folder) / "audit"), "1"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        return Result(False, f"the harness ended with {done.returncode}: {done.stderr[-300:]}")
    found = json.loads(done.stdout)
    for fault in found["faults"]:
        print(fault, file=sys.stderr)
    faults, unseen = len(found["faults"]), [name for name, seen in found["broken"].items() if not seen]
    counts = f"{found['files']:,} hostile files in {found['calls']:,} calls: {faults} faults"
    seen = f"{len(found['broken']) - len(unseen)} of {len(found['broken'])} deliberate breakages seen"
    return Result(not faults and not unseen and found["files"] >= 200, f"{counts}; {seen}")
