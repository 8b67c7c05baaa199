"""How long the page of a finished digits run takes, and how large pages are: `python -m benchmarks.report_speed`.

| figure | target |
| --- | --- |
| page of a finished run on digits | under 5 s |
| page of 10,000 images | under 10 MB |
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from embasis.config import load
from embasis.data import DATASETS
from embasis.report.page import run_page
from embasis.runs.checkpoint import read_run_view
from embasis.runs.run import TrainingRun
from embasis.storage import RunFolder


def finished(path: Path) -> None:
    """A run of two rounds on digits."""
    with RunFolder(path) as folder:
        for _ in TrainingRun(DATASETS["digits"](), load(None, ("rounds=2",)), folder).events():
            pass


def main(path: Path) -> None:
    started, spent = time.perf_counter(), time.process_time()
    view = read_run_view(path)
    read = time.process_time()
    page = run_page(view).encode()
    done, cpu = time.perf_counter(), time.process_time()
    print(
        f"read {read - spent:.2f} and drawn {cpu - read:.2f} CPU s, {done - started:.2f} s in all, {len(page):,} bytes"
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as home:
            finished(Path(home) / "run")
            main(Path(home) / "run")
