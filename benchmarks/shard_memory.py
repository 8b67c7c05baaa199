"""Memory of `embasis predict` on a table in Parquet shards, for two sizes of the pool (criterion A6).

    python -m benchmarks.shard_memory [--rows 1000000 10000000] [--width 64] [--classes 10] [--group 65536]
                                      [--folder /tmp]

A run is fitted on 2,000 + 2,000 rows. Shards of 100,000 rows (float32, random, in row groups of `--group`) are written
to a temporary folder outside the repository and deleted afterwards; ten are different, the others are further names of
these (hard links): what is read is as many rows as is said. `embasis predict` labels each pool in a process of its own,
one thread; memory is the most that the kernel saw of that process (ru_maxrss), interpreter and libraries included. The
output is a .csv file, whose ids must be all row numbers in their order. Goal: at most 50 MB more for the larger pool,
and at most 1 GB in all.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

MOST_GROWTH, MOST = 50e6, 1e9
SHARD_ROWS, DIFFERENT = 100_000, 10


def draw(rows: int, width: int, classes: int, seed: int, shift: float) -> pa.Table:
    """Rows around the centres of their classes, moved by `shift`; with their labels."""
    centres = np.random.default_rng(0).normal(size=(classes, width)) * 1.5
    noise = np.random.default_rng(seed + 1)
    labels = noise.integers(0, classes, rows)
    x = (centres[labels] + noise.normal(size=(rows, width)) + shift).astype(np.float32)
    columns = {f"f{number}": x[:, number] for number in range(width)}
    return pa.table({**columns, "label": [f"c{label}" for label in labels]})


def run(words: list[str]) -> tuple[float, float]:
    """A command in a process of its own: seconds, and the most memory in bytes."""
    began = time.monotonic()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    child = os.posix_spawn(sys.executable, [sys.executable, "-m", "embasis", *words], environment)
    _, status, used = os.wait4(child, 0)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"embasis {' '.join(words)}: exit code {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - began, used.ru_maxrss * 1024.0


def write_shards(folder: Path, rows: int, args: argparse.Namespace) -> Path:
    """A pool of so many rows."""
    pool = folder / f"pool-{rows}"
    pool.mkdir()
    for number in range(rows // SHARD_ROWS):
        first = folder / f"shard-{number % DIFFERENT}.parquet"
        if not first.exists():
            table = draw(SHARD_ROWS, args.width, args.classes, number, 0.3).drop_columns("label")
            pq.write_table(table, first, row_group_size=args.group)
        os.link(first, pool / f"{number:06d}.parquet")
    return pool


def require_all_rows(path: Path, rows: int) -> None:
    """Every row is there, once, in its place."""
    with path.open() as stream:
        next(stream)
        count = 0
        for count, line in enumerate(stream, 1):
            if int(line.partition(",")[0]) != count - 1:
                raise SystemExit(f"{path}: line {count + 1} is not row {count - 1}")
    if count != rows:
        raise SystemExit(f"{path}: {count:,} of {rows:,} rows")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs=2, default=(10**6, 10**7))
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--group", type=int, default=65536)
    parser.add_argument("--folder", default="/tmp")
    args = parser.parse_args()
    folder, peaks = Path(tempfile.mkdtemp(dir=args.folder)), list[float]()
    try:
        pq.write_table(draw(2000, args.width, args.classes, 98, 0.0), folder / "labelled.parquet")
        pq.write_table(draw(2000, args.width, args.classes, 99, 0.3), folder / "unlabelled.parquet")
        run(
            [
                "fit",
                *(str(folder / f"{side}.parquet") for side in ("labelled", "unlabelled")),
                "-o",
                str(folder / "run"),
            ]
        )
        for rows in args.rows:
            pool, output = write_shards(folder, rows, args), folder / "labels.csv"
            seconds, peak = run(["predict", str(folder / "run"), str(pool), "-o", str(output)])
            require_all_rows(output, rows)
            peaks.append(peak)
            print(
                f"{rows:>12,} rows  {peak / 1e6:7.1f} MB  {seconds:7.1f} s  {rows / seconds:9,.0f} rows/s", flush=True
            )
    finally:
        shutil.rmtree(folder)
    grown = peaks[1] - peaks[0]
    held = grown <= MOST_GROWTH and max(peaks) <= MOST
    print(
        f"{'held' if held else 'missed'}: {grown / 1e6:.1f} MB more (goal 50), {max(peaks) / 1e6:.1f} MB (goal 1,000)"
    )


if __name__ == "__main__":
    main()
