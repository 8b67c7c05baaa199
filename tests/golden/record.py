"""Record the goldens: the eight runs of golden_runs.py, written to goldens.json with the environment they hold for.

    python tests/golden/record.py            writes tests/golden/goldens.json, and says what has changed
    python tests/golden/record.py --check    writes nothing; code 1 if anything differs

A recording is right only if a change of results is meant: the commit then says which, and CHANGELOG has it under
"Changed results".
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from golden_runs import GOLDENS, RUNS, Golden, differences, environment, one_thread


def record() -> dict[str, Golden]:
    """The goldens of all runs, each in a folder of its own."""
    found: dict[str, Golden] = {}
    for name, run in RUNS.items():
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            found[name] = run(Path(folder))
        print(f"{name}: {time.monotonic() - began:.1f} s", file=sys.stderr)
    return found


def main() -> int:
    """Run, compare with what is there, write."""
    with one_thread():
        made = {"environment": environment(), "runs": record()}
    before = json.loads(GOLDENS.read_text(encoding="utf-8")) if GOLDENS.exists() else {}
    changed = differences(before, made)
    print("\n".join(changed[:40]) or "nothing has changed")
    if "--check" in sys.argv[1:]:
        return 1 if changed else 0
    GOLDENS.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
