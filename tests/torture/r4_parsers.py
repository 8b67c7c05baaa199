"""R4: every reader against inputs that nobody would write; only documented errors, at most 2 s and 512 MB an input.

    python tests/torture/r4_parsers.py TARGET SECONDS SEED     one reader, in this process

`run` has a process for each reader, two at a time. The input that is being read lies in a file, so that one that kills
the process is known. Where atheris is installed (`pip install atheris`; nothing else needs it) half of the time goes to
it: it knows which parts of the code an input reached.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

from goals import Result  # noqa: E402

SECONDS = float(os.environ.get("EMBASIS_FUZZ_SECONDS", "20"))
"""For each reader; 24 of them, two at a time, take four to seven minutes with the starts of their processes."""
SEED = int(os.environ.get("EMBASIS_FUZZ_SEED", "0") or 0)
STUCK = 60.0
"""Seconds beyond its time after which a process is ended."""


def run(seconds: float = SECONDS, seed: int = SEED) -> Result:
    """All readers; the figure says how many inputs, the slowest, the largest, and what broke."""
    from fuzz_targets import MEGABYTES, TARGETS
    from fuzz_targets import SECONDS as LIMIT

    guided = importlib.util.find_spec("atheris") is not None
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda name: fuzz_apart(name, seconds, seed, guided), TARGETS))
    inputs = sum(one["inputs"] for one in found)
    slowest, largest = max(found, key=lambda one: one["seconds"]), max(found, key=lambda one: one["megabytes"])
    broken = [f"{one['target']}: {text}" for one in found for text in one["broken"]]
    figure = (
        f"{inputs:,} inputs to {len(found)} readers{', half of the time by atheris' if guided else ''}, seed {seed}: "
        f"{len(broken)} undocumented errors; slowest {slowest['seconds']:.2f} s ({slowest['target']}), "
        f"most memory {largest['megabytes']:.0f} MB ({largest['target']})" + "".join(f"; {text}" for text in broken[:5])
    )
    held = not broken and slowest["seconds"] <= LIMIT and largest["megabytes"] <= MEGABYTES
    return Result(held, figure)


def fuzz_apart(target: str, seconds: float, seed: int, guided: bool = False) -> dict[str, Any]:
    """One reader in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        current = Path(folder) / "input"
        words = [target, str(seconds / 2 if guided else seconds), str(seed), str(current)]
        found = _child(words, current, target, seconds)
        if guided:
            more = _child([*words, "--guided"], current, target, seconds)
            found = {
                **found,
                "inputs": found["inputs"] + more["inputs"],
                "broken": found["broken"] + more["broken"],
                **{key: max(found[key], more[key]) for key in ("seconds", "megabytes")},
            }
    return found


def _child(words: list[str], current: Path, target: str, seconds: float) -> dict[str, Any]:
    nothing = {"target": target, "inputs": 0, "seconds": 0.0, "megabytes": 0.0}
    try:
        command = [sys.executable, __file__, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + STUCK)
    except subprocess.TimeoutExpired:
        return {**nothing, "broken": [f"an input was not done after {STUCK:.0f} s, kept as {kept(current, target)}"]}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        words_said = (done.stderr.strip().splitlines() or [""])[-1][:200]
        text = f"ended with {done.returncode} ({words_said}), kept as {kept(current, target)}"
        return {**nothing, "broken": [text]}
    return json.loads(lines[-1])


def kept(current: Path, target: str) -> Path:
    """A copy of an input that must not be lost."""
    place = Path(tempfile.gettempdir()) / f"embasis-fuzz-{target}-{time.time_ns()}"
    place.write_bytes(current.read_bytes() if current.exists() else b"")
    return place


def fuzz(target: str, seconds: float, seed: int, current: Path) -> dict[str, Any]:
    """One reader in this process, until the time is over."""
    from fuzz_mutate import mutated
    from fuzz_targets import MEGABYTES, TARGETS, corpus, try_one
    from fuzz_targets import SECONDS as LIMIT

    draw, chosen, seeds = random.Random(f"{target} {seed}"), TARGETS[target], [data for _, data in corpus(target)]
    for data in seeds:
        try_one(chosen, data)  # what is imported and built once is no input's fault
    found: dict[str, Any] = {"target": target, "inputs": 0, "seconds": 0.0, "megabytes": 0.0, "broken": []}
    end = time.monotonic() + seconds
    while time.monotonic() < end and len(found["broken"]) < 20:
        data = mutated(draw, seeds, chosen.words)
        current.write_bytes(data)
        found["inputs"] += 1
        try:
            cost = try_one(chosen, data)
        except Exception as error:
            found["broken"].append(f"{type(error).__name__}: {str(error)[:100]}, kept as {kept(current, target)}")
            continue
        found["seconds"], found["megabytes"] = (
            max(found["seconds"], cost.seconds),
            max(found["megabytes"], cost.megabytes),
        )
        if cost.seconds > LIMIT or cost.megabytes > MEGABYTES:
            text = f"{cost.seconds:.1f} s, {cost.megabytes:.0f} MB"
            found["broken"].append(f"{text}, kept as {kept(current, target)}")
    return found


def fuzz_guided(target: str, seconds: float, seed: int, current: Path) -> None:
    """The same by atheris, which ends the process by itself; its last state is printed after each record of cost."""
    import atheris

    with atheris.instrument_imports(include=["embasis.data", "embasis.config", "embasis.storage", "embasis.networks"]):
        from fuzz_targets import TARGETS, corpus, try_one
    chosen = TARGETS[target]
    found: dict[str, Any] = {"target": target, "inputs": 0, "seconds": 0.0, "megabytes": 0.0, "broken": []}
    began = time.monotonic()

    def one(data: bytes) -> None:
        current.write_bytes(data)
        cost = try_one(chosen, data)
        found["inputs"] += 1
        if found["inputs"] > len(seeds):  # the first ones pay for imports
            found["seconds"] = max(found["seconds"], cost.seconds)
            found["megabytes"] = max(found["megabytes"], cost.megabytes)
        if time.monotonic() - began > seconds:
            print(json.dumps(found), flush=True)
            os._exit(0)

    with tempfile.TemporaryDirectory() as folder:
        seeds = corpus(target)
        for name, data in seeds:
            (Path(folder) / name).write_bytes(data)
        flags = [f"-seed={seed + 1}", "-max_len=65536", "-rss_limit_mb=4096", f"-artifact_prefix={folder}/"]
        atheris.Setup([sys.argv[0], *flags, folder], one)
        atheris.Fuzz()


if __name__ == "__main__":
    name, limit, number, place = sys.argv[1:5]
    if sys.argv[5:] == ["--guided"]:
        fuzz_guided(name, float(limit), int(number), Path(place))
    else:
        print(json.dumps(fuzz(name, float(limit), int(number), Path(place))))
