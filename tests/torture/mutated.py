"""R3, second half: every file of finished runs changed in ten ways, a thousand flipped bits, under an audit hook."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import audit_hook
import mutated_runs
from audit_hook import Watch

FLIPS = {"table": 334, "images": 333, "maps": 333}


def mutate(kinds: list[str]) -> dict[str, object]:
    """All changes of runs of these kinds: how many, which crashed, how many bits were flipped, which went unseen."""
    tried, flipped, crashed, unseen = 0, 0, list[str](), list[str]()
    mutated_runs.hurry(pytest.MonkeyPatch())
    for kind in kinds:
        with TemporaryDirectory() as folder:
            Watch.inside, Watch.learning, audit_hook.HERE = os.path.realpath(folder), True, folder
            run = mutated_runs.finish_run(Path(folder) / kind, kind) / "run"
            for words in mutated_runs.COMMANDS[kind]:  # names of code that appear without a change are learned
                assert mutated_runs.call(*words)[0] == 0, words
            Watch.learning = False
            Watch.deeds.clear()
            unseen += mutated_runs.unseen_flips(run, FLIPS[kind])
            flipped += FLIPS[kind]
            count, found = mutated_runs.crashes(run, kind)
            tried, crashed = tried + count, crashed + found + [f"deed: {deed}" for deed in Watch.deeds]
            os.chdir("/")
            Watch.inside = ""
    return {"tried": tried, "crashed": crashed, "flipped": flipped, "unseen": unseen}


if __name__ == "__main__":
    sys.addaudithook(audit_hook.watch)
    Watch.learning = True
    print(json.dumps(mutate(sys.argv[1:])))
