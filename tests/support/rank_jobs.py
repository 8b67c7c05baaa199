"""Many runs one after the other in the same real processes, so that their start is paid once.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 python tests/support/rank_jobs.py jobs.json

A job is a fit, `{"out": …, "words": [KEY=VALUE …], "data": {…}}`, or a call of predict, `{"out": …, "run": …,
"source": …}`; both by the functions of the commands themselves.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from embasis import config as settings
from embasis.cli import console
from embasis.cli.fit import train
from embasis.cli.predict import predict_labels
from embasis.distributed import join
from embasis.distributed.meeting import leave
from embasis.inputs.load import load_problem
from embasis.terminal import end_at_once


def do_job(job: dict[str, Any]) -> None:
    """Train, or label."""
    if "run" in job:
        predict_labels(
            job["run"], job["source"], job["out"], None, None, None, None, 0, False, None, (1.0,), False, None
        )
        return
    problem, config = load_problem(settings.load(None, tuple(job["words"]), data=job["data"]))
    train(problem, config, Path(job["out"]))


def main(place: str) -> None:
    """All jobs of the file; the first process says the seconds that each has taken, by the clock and the processor."""
    with join() as world:
        for job in json.loads(Path(place).read_text()):
            began, used = time.monotonic(), time.process_time()
            with console.silence():
                do_job(job)
            if world.is_first:
                seconds = {"clock": time.monotonic() - began, "processor": time.process_time() - used}
                print(json.dumps({"out": job["out"], **seconds}), flush=True)
        leave(world)


if __name__ == "__main__":
    main(sys.argv[1])
    end_at_once(0)
