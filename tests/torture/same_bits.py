"""A1, A11, A12: fits and calls of predict end with the same bits in 1, 2, 3 and 4 real processes, with several seeds;
every row is accounted for alike; and no process reads or writes a pickle.

    python tests/torture/same_bits.py [SEEDS [SIZE,SIZE…]]      # 3 seeds, 2,3,4 processes

| case | optimiser | what is shared |
| --- | --- | --- |
| table, linear | L-BFGS | features, labels, parts of a step, predict |
| table, mlp | Adam, with dropout | the same |
| table, mlp, sgd | SGD | the same |
| images frozen, images partial | of the plan | reading of images, too |
| label maps | of the plan | pictures |
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jinja2

HERE = Path(__file__).resolve().parent
SUPPORT = HERE.parent / "support"
if __name__ == "__main__":
    sys.path[:0] = [str(HERE), str(SUPPORT)]

import image_runs  # noqa: E402
import map_folder_runs  # noqa: E402
from process_runs import fingerprint_of, free_port  # noqa: E402

COMMON = ("plan.rounds=1", "plan.accumulate_steps=6", "plan.holdout=0.1", "save_seconds=600")
TABLE = ("data.count=500", "plan.epochs=2", "plan.source_epochs=2", "plan.max_sites=1024")
IMAGES = ("network.name=timm:test_efficientnet", "network.pretrained=false", "network.size=32", "images.workers=0")
MAPS = ("network.name=small_fcn", "network.width=16", "maps.size=32", "maps.crop_height=32", "maps.crop_width=48",
        "maps.workers=0", "plan.source_epochs=2", "plan.epochs=2", "plan.batch_size=6")  # fmt: skip
CASES: dict[str, tuple[str, ...]] = {
    "table, linear": (*TABLE, "network.name=linear"),
    "table, mlp": (*TABLE, "network.name=mlp"),
    "table, mlp, sgd": (*TABLE, "network.name=mlp", "plan.optimiser=sgd"),
    "images frozen": (*IMAGES, "images.depth=frozen"),
    "images partial": (*IMAGES, "images.depth=partial", "plan.source_epochs=2", "plan.epochs=1", "plan.batch_size=8"),
    "label maps": MAPS,
}
CONSTANTS = "pickle.dumps " + "/".join(Path(jinja2.__file__).parts[:-1]).replace("//", "/") + "/bccache.py:"
"""When it is imported jinja2 pickles two constants, which nobody reads."""
DATA: dict[str, dict[str, Any]] = {
    "table": {"dataset": "blobs"},
    "images": {"labelled": "photos", "unlabelled": "paintings"},
    "label maps": {"labelled": "drawn", "unlabelled": "streets"},
}


def make_jobs(home: Path, size: int, seeds: int) -> list[dict[str, Any]]:
    """All fits, and a call of predict with the first run of each of images and label maps."""
    jobs = []
    for case, words in CASES.items():
        kind = next(name for name in DATA if case.startswith(name))
        data = {key: value if key == "dataset" else str(home / value) for key, value in DATA[kind].items()}
        cache = (f"images.cache={home / f'cache {size} {case}'}",) if kind == "images" else ()
        runs = [str(home / f"{size} {case} {seed}") for seed in range(seeds)]
        jobs += [
            {"out": run, "words": [*COMMON, *words, *cache, f"seed={seed}"], "data": data}
            for seed, run in enumerate(runs)
        ]
        suffix = "" if kind == "label maps" else ".csv"
        source = data.get("unlabelled", str(home / "rows.csv"))
        jobs.append({"out": str(home / f"{size} {case} labels{suffix}"), "run": runs[0], "source": source})
    return jobs


def run_jobs(home: Path, size: int, jobs: list[dict[str, Any]]) -> str:
    """Do them in so many processes; what went wrong, if anything did."""
    place = home / f"jobs {size}.json"
    place.write_text(json.dumps(jobs))
    paths = [str(SUPPORT / "pickle_watch"), str(SUPPORT), os.environ.get("PYTHONPATH", "")]
    common = {
        **os.environ, "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths), "PICKLE_WATCH": str(home / f"pickles {size}"),
    }  # fmt: skip
    command = [sys.executable, str(SUPPORT / "rank_jobs.py"), str(place)]
    ranks = [
        subprocess.Popen(command, env={**common, "RANK": str(rank)}, text=True, stderr=subprocess.PIPE,
                         stdout=subprocess.DEVNULL)
        for rank in range(size)
    ]  # fmt: skip
    faults = [f"rank {number}: {rank.communicate()[1][-500:]}" for number, rank in enumerate(ranks)]
    return "; ".join(fault for fault, rank in zip(faults, ranks, strict=True) if rank.returncode)


def hash_output(path: Path) -> dict[str, str]:
    """The bits of a run, with its ledger; or of what predict has written."""
    if (path / "generations").is_dir():
        ledger = hashlib.sha256((path / "ledger.json").read_bytes()).hexdigest()
        return {**fingerprint_of(path), "ledger": ledger}
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def count_pickles(home: Path, sizes: tuple[int, ...]) -> tuple[int, list[str]]:
    """How many processes were watched, and what they did with pickles."""
    lines = [line for size in sizes for line in (home / f"pickles {size}").read_text().splitlines()]
    events = [line for line in lines if not line.endswith(" watches") and CONSTANTS not in line]
    return sum(line.endswith(" watches") for line in lines), events


def compare(seeds: int, sizes: tuple[int, ...]) -> tuple[bool, str]:
    """Whether all ended with the bits of one process, and the figure."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        image_runs.sides(home, each=8)
        map_folder_runs.sides(home, 6)
        draws = [
            f"{row}," + ",".join(str(row * 37 % 101 / 50 - 1 + place / 9) for place in range(8)) for row in range(3000)
        ]
        (home / "rows.csv").write_text("\n".join(["id," + ",".join(f"x{place}" for place in range(8)), *draws]) + "\n")
        faults = {size: run_jobs(home, size, make_jobs(home, size, seeds)) for size in (1, *sizes)}
        wrong, same = [f"{size} processes: {fault}" for size, fault in faults.items() if fault], 0
        for size in sizes if not wrong else ():
            for one, many in zip(make_jobs(home, 1, seeds), make_jobs(home, size, seeds), strict=True):
                equal = hash_output(Path(one["out"])) == hash_output(Path(many["out"]))
                same += equal
                wrong += [] if equal else [f"{Path(many['out']).name}: other bits"]
        watched, pickles = count_pickles(home, (1, *sizes)) if not faults[1] else (0, [])
    count = len(CASES) * (seeds + 1) * len(sizes)
    named = f"{len(CASES)} kinds of run with {seeds} seeds and a call of predict each in {', '.join(map(str, sizes))}"
    figure = f"{named} processes: {same} of {count} have the bits of one; {len(pickles)} pickles in {watched} processes"
    return not wrong and not pickles, "; ".join([figure, *wrong[:5], *pickles[:5]])


if __name__ == "__main__":
    began = time.monotonic()
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    sizes = tuple(int(word) for word in (sys.argv[2] if len(sys.argv) > 2 else "2,3,4").split(","))
    held, line = compare(seeds, sizes)
    print(f"{'held' if held else 'MISSED'} {line} ({time.monotonic() - began:.0f} s)")
    sys.exit(not held)
