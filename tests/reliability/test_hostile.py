"""Hostile files at every entry point, watched by an audit hook: a part of the corpus; all of it is in torture R3."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import audited
import hostile_files as hostile
from paths import SUPPORT

EVERY = 41
"""So many files of the corpus are left out for each one that is taken."""


@cache
def outcome() -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        command = [sys.executable, str(SUPPORT / "audited.py"), str(Path(folder) / "audit"), str(EVERY), "0"]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_hostile_files_run_nothing_change_nothing_and_are_refused_by_their_codes() -> None:
    found = outcome()
    assert found["faults"] == []
    assert found["files"] >= 30
    assert found["calls"] >= 60


@pytest.mark.parametrize("name", audited.BREAKAGES)
def test_the_watch_sees_an_embasis_that_is_broken_on_purpose(name: str) -> None:
    found = " ".join(outcome()["broken"][name])
    seen = {
        "pickled arrays are loaded": "pickle.find_class",
        "pickled arrays in packs are loaded": "pickle.find_class",
        "refused weights get another loader": "pickle.find_class",
        "facts are unpickled": "pickle.find_class",
        "foreign weights are loaded in this process": "pickle.find_class",
        "names in settings are evaluated": "compiled a hostile text",
    }
    assert seen[name] in found


def test_the_corpus_has_more_than_two_hundred_files_of_every_kind() -> None:
    found = list(audited.cases(Path("/canary"), b"", {"a": {"b": 1}}))
    assert sum(case.files for case in found) > 600
    assert len({case.name for case in found}) == len(found)
    kinds = {case.name.split(" ")[0] for case in found}
    assert {
        "table",
        "run",
        "weights",
        "weights.pt",
        "import",
        "config",
        "pictures",
        "label",
        "lie",
        "tasks",
        "masks",
    } <= kinds
    commands = {command[0] for case in found for command in case.commands}
    assert commands == {
        "fit", "predict", "report", "export", "check", "compare", "ablate", "import-weights", "import-maps", "review",
        "python",
    }  # fmt: skip


def test_a_payload_that_is_unpickled_makes_its_canary(tmp_path: Path) -> None:
    """Else its absence would say nothing."""
    import pickle

    made = []
    for name in ("builtins exec", "text protocol", "stack global", "inst", "frame"):
        pickle.loads(hostile.payloads(tmp_path / "canary")[name])
        made.append((tmp_path / "canary").exists())
        (tmp_path / "canary").unlink()
    assert made == [True] * 5
