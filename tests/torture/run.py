"""The long versions of the reliability tests: one line for each goal of docs/reliability.md, with its figure.

    python tests/torture/run.py [GOAL ...]

A goal is a module `rN_name.py` here with a function `run() -> Result`; each runs in a process of its own. Those that
measure no time run two at a time, so that no core is idle; those with a stop-watch run alone.
"""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

TIMELESS = ("R2", "R10", "R6", "R1", "R7")
"""Goals that measure no time, the longest first."""
HERE = Path(__file__).parent
TESTS = HERE.parent


def goals() -> dict[str, str]:
    """Goal → module, in the order of their numbers."""
    names = sorted((path.stem for path in HERE.glob("r*_*.py")), key=lambda name: int(name.split("_")[0][1:]))
    return {name.split("_")[0].upper(): name for name in names}


def run_here(module: str) -> int:
    """One goal, in this process: its line, and 0 if it held."""
    sys.path[:0] = [str(HERE), str(TESTS / "support")]
    began = time.monotonic()
    result = import_module(module).run()
    goal, word = module.split("_")[0].upper(), "held" if result.held else "MISSED"
    print(f"{goal:4} {word:6} {result.figure} ({time.monotonic() - began:.0f} s)", flush=True)
    return 0 if result.held else 1


def main(wanted: list[str]) -> int:
    """The goals of these names, or all of them."""
    known = goals()
    unknown = [name for name in wanted if name.upper() not in known]
    if unknown:
        print(f"unknown goal {unknown[0]!r}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    chosen = [name.upper() for name in wanted] or list(known)
    began = time.monotonic()
    beside = [known[goal] for goal in TIMELESS if goal in chosen]
    with ThreadPoolExecutor(2) as lanes:
        codes = list(lanes.map(run_apart, beside))
    codes += [run_apart(known[goal]) for goal in chosen if goal not in TIMELESS]
    failed = sum(code != 0 for code in codes)
    print(f"{len(codes) - failed} passed, {failed} failed ({time.monotonic() - began:.0f} s)")
    return int(failed > 0)


def run_apart(module: str) -> int:
    """One goal in a process of its own; it says its line itself, unless it came to no end."""
    code = subprocess.run([sys.executable, __file__, "--here", module], check=False).returncode
    if code > 1 or code < 0:
        print(f"{module.split('_')[0].upper():4} MISSED ended with {code}", flush=True)
    return code


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(run_here(words[1]) if words[:1] == ["--here"] else main(words))
