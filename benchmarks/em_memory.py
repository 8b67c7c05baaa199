"""EM over a file that is larger than memory may be: peak memory and throughput.

    python -m benchmarks.em_memory [--gigabytes 10] [--width 512] [--components 64] [--folder /tmp]

A `.npy` file of float32 rows is written to a temporary folder outside the repository (a random block, turned by another
amount each time, so that no two blocks are equal) and deleted afterwards. A process of its own then makes one EM
iteration over it: `ArrayFile` reads chunk by chunk, the `EMStats` of the chunks are summed. Peak memory is the VmHWM of
that process, interpreter and libraries included. A file that was just written may still be in the page cache, so the
throughput is that of the sums, not of the disk. Goal: under 1 GB at 10 GB.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

GOAL = 1e9
BLOCK = 8192


def write(path: Path, rows: int, width: int) -> None:
    block = np.random.default_rng(0).normal(size=(BLOCK, width)).astype(np.float32)
    block /= np.linalg.norm(block, axis=1, keepdims=True)
    with path.open("wb") as stream:
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
        np.lib.format.write_array_header_2_0(stream, header)
        for number, first in enumerate(range(0, rows, BLOCK)):
            stream.write(np.roll(block, number, axis=1)[: rows - first].tobytes())


def one_iteration(path: Path, components: int) -> None:
    """The process that is measured; prints what it saw as JSON."""
    import torch

    from benchmarks.array_file import ArrayFile
    from embasis.functional.em import em_statistics, m_step
    from embasis.functional.sites import unit_rows
    from embasis.types import EMStats

    before = peak()
    file = ArrayFile(path)
    width = file.shape[1]
    mu = unit_rows(torch.randn(components, width, generator=torch.Generator().manual_seed(0)))
    total = EMStats(torch.zeros(components), torch.zeros(components, width), torch.zeros((), dtype=torch.float64))
    began = time.perf_counter()
    for rows in file:
        total = total + em_statistics(rows, mu, 20.0)
    mu, _ = m_step(total, mu, sphere=True)
    seconds = time.perf_counter() - began
    complete = bool(torch.isfinite(mu).all()) and abs(float(total.mass.sum()) / file.shape[0] - 1) < 1e-3
    print(json.dumps({"before": before, "peak": peak(), "seconds": seconds, "complete": complete}))


def peak() -> int:
    """Bytes of the largest resident set so far. (ru_maxrss would remember the parent's from before the exec.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--components", type=int, default=64)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure is not None:
        one_iteration(given.measure, given.components)
        return 0
    rows = int(given.gigabytes * 1e9 / given.width / 4)
    needed, free = rows * given.width * 4 + 2**30, shutil.disk_usage(given.folder).free
    if free < needed:
        print(f"{given.folder}: {needed / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free; give another --folder")
        return 1
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="embasis-memory-") as folder:
        path = Path(folder) / "rows.npy"
        write(path, rows, given.width)
        size = path.stat().st_size
        command = [sys.executable, "-m", "benchmarks.em_memory", "--measure", str(path)]
        command += ["--components", str(given.components)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(
        f"one EM iteration over a file of {size / 1e9:.1f} GB ({rows} × {given.width} float32), K = {given.components}"
    )
    print(f"peak memory {found['peak'] / 1e6:.0f} MB, of which {found['before'] / 1e6:.0f} MB before the first row")
    print(f"{found['seconds']:.1f} s, {size / 1e9 / found['seconds']:.2f} GB/s, {rows / found['seconds']:,.0f} rows/s")
    reached = found["peak"] < GOAL and found["complete"]
    print(f"goal (under {GOAL / 1e9:.0f} GB): {'reached' if reached else 'NOT reached'}")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
