"""R5: a million files, one in a hundred of them damaged in one of 20 ways: no crash, and a ledger exact to the file.

The tree is made of hard links to 1,000 payloads in a temporary folder (TMPDIR) and removed afterwards.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

from goals import Result  # noqa: E402

from dirty_tree import KINDS, Line, plant_payloads, plant_tree, state_of  # noqa: E402

FILES = int(os.environ.get("EMBASIS_DIRTY_FILES", "1000000"))
EACH, DAMAGED = 1000, 10
"""Files in a folder, and how many of them are damaged."""
PAYLOADS, LABELLED = 1000, 100
"""Sound images, and how many of those are the labelled side's."""
MEGABYTES, RATE = 500, 5000
BYTES = 64 * 2**20
"""Disk for payloads and folders; a link takes a few bytes of its folder."""


def run(files: int = FILES) -> Result:
    """Check the whole tree by the command line, as a user would."""
    place = Path(tempfile.gettempdir())
    disk = os.statvfs(place)
    if disk.f_bavail * disk.f_frsize < BYTES + 100 * files or (
        disk.f_files and disk.f_favail < 2 * files // EACH + 2000
    ):
        return Result(False, f"not run: {place} has no room for {files:,} links")
    top = Path(tempfile.mkdtemp(prefix="embasis-r5-", dir=place))
    try:
        return measured(top, files)
    finally:
        shutil.rmtree(top)


def measured(top: Path, files: int) -> Result:
    """Make the tree, check it, compare."""
    folders = files // EACH
    first = max(1, folders // 10)
    plant_payloads(top / "pool", PAYLOADS)
    expected = {
        "labelled": plant_tree(top / "labelled", top / "pool", range(LABELLED), first, EACH, DAMAGED),
        "unlabelled": plant_tree(
            top / "unlabelled", top / "pool", range(LABELLED, PAYLOADS), folders - first, EACH, DAMAGED
        ),
    }
    before = state_of(top)
    rate = scan_rate(top / "unlabelled")
    began = time.monotonic()
    done = check(top)
    seconds = time.monotonic() - began
    megabytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    wrong = difference(expected, top / "ledger.jsonl") + missing_counts(done.stdout, expected, folders, first)
    os.unlink(top / "ledger.jsonl") if (top / "ledger.jsonl").exists() else None
    if done.returncode or done.stderr:
        wrong.append(f"exit code {done.returncode}: {(done.stderr or done.stdout).strip().splitlines()[-1][:300]}")
    if state_of(top) != before:
        wrong.append("the input tree has changed")
    damaged = sum(len(lines) for lines in expected.values())
    figure = (
        f"{folders * EACH:,} files, {damaged:,} damaged in {len(KINDS)} ways: {len(wrong)} differences in the ledger; "
        f"scan {rate:,.0f} files/s, check of all with each content decoded in {seconds:.0f} s, {megabytes:.0f} MB"
        + "".join(f"; {text}" for text in wrong[:5])
    )
    return Result(not wrong and megabytes < MEGABYTES and rate >= RATE, figure)


def scan_rate(root: Path) -> float:
    """Files a second of the scan alone (hash and header of each), in a process of its own."""
    code = (
        "import sys, time; from embasis.data.images.scan import scan_folder; began = time.monotonic()\n"
        "print(scan_folder(sys.argv[1]).seen / (time.monotonic() - began))"
    )
    return float(subprocess.run([sys.executable, "-c", code, root], capture_output=True, text=True, check=True).stdout)


def check(top: Path) -> subprocess.CompletedProcess[str]:
    """`embasis check`: every file is scanned and every image decoded; the ledger of all refusals is written."""
    command = [sys.executable, "-m", "embasis", "check", "labelled", "unlabelled"]
    options = ["--budget", "1", "--workers", "2", "-o", "ledger.jsonl"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([*command, *options], cwd=top, env=environment, capture_output=True, text=True, check=False)


def difference(expected: dict[str, list[Line]], path: Path) -> list[str]:
    """What the written ledger says otherwise than it must, file by file."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    found = Counter((row["side"], row["name"], row["reason"], row["phase"], row["kind"]) for row in lines)
    wanted = Counter((side, *vars(line).values()) for side, group in expected.items() for line in group)
    return [f"missing {item}" for item in wanted - found] + [f"unexpected {item}" for item in found - wanted]


def missing_counts(printed: str, expected: dict[str, list[Line]], folders: int, first: int) -> list[str]:
    """seen = used + refused, as the command says it for both sides."""
    sizes = {"labelled": first * EACH, "unlabelled": (folders - first) * EACH}
    lines = printed.splitlines()
    wanted = [
        f"note: {side}: {seen - len(expected[side]):,} of {seen:,} images can be used" for side, seen in sizes.items()
    ]
    return [f"not said: {line}" for line in wanted if line not in lines]


if __name__ == "__main__":
    print(run().figure)
