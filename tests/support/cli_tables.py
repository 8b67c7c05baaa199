"""Small tables and calls for the tests of the command line."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from torch import Tensor

from embasis.cli import main
from embasis.data.datasets.digit_sets import blobs

FEATURES = tuple(f"f{number}" for number in range(8))
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
PROGRAM = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "signal.signal(signal.SIGHUP, signal.SIG_DFL); signal.signal(signal.SIGTERM, signal.SIG_DFL); "
    "import sys; sys.argv[0] = 'embasis'; from embasis.__main__ import main; main()",
]
"""The command in a process of its own; whoever started the tests may have signals ignored (nohup, CI)."""


def write_table(
    path: Path, x: Tensor, y: Sequence[int] | None, names: Sequence[str] = FEATURES, label: str = "label"
) -> None:
    """A CSV file with ids from 10 on; classes are c0, c1, …"""
    lines = [",".join(["id", *names, *([label] if y is not None else [])])]
    for number, row in enumerate(x.tolist()):
        cells = dict(zip(FEATURES, row, strict=True))
        end = [f"c{y[number]}"] if y is not None else []
        lines.append(",".join([str(number + 10), *(repr(cells[name]) for name in names), *end]))
    path.write_text("\n".join(lines) + "\n")


def write_tables(folder: Path) -> None:
    """labelled.csv; unlabelled.csv without and judged.csv with labels; turned.csv with its columns in another order."""
    problem = blobs(count=60)
    rows = problem.unlabelled.inputs(problem.unlabelled.ids)
    labelled = problem.labelled.inputs(problem.labelled.ids)
    write_table(folder / "labelled.csv", labelled, problem.labelled.labels.tolist())
    write_table(folder / "unlabelled.csv", rows, None)
    assert problem.hidden_labels is not None
    write_table(folder / "judged.csv", rows, problem.hidden_labels.tolist())
    write_table(folder / "turned.csv", rows, problem.hidden_labels.tolist(), FEATURES[::-1])


def fit_tables(folder: Path, *words: str, unlabelled: str = "judged.csv") -> Path:
    """Tables and a finished run on them in the folder `run`, without its page."""
    write_tables(folder)
    return fit_without_page(folder, folder / "labelled.csv", folder / unlabelled, *words)


def fit_without_page(folder: Path, *words: object) -> Path:
    """A finished run in the folder `run`; features are kept in the folder `cache`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMBASIS_CACHE", str(folder / "cache"))
        patch.setattr("embasis.runs.run.run_page", lambda view: "page")
        result = embasis("fit", *words, "-o", folder / "run")
    assert result.exit_code == 0, result.output
    return folder


def copied(made: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to spoil, as the current folder."""
    shutil.copytree(made, place)
    monkeypatch.chdir(place)
    return place


def refused(code: int, sentence: str, *words: object) -> None:
    """One sentence and the code."""
    result = embasis(*words)
    assert result.stderr == f"embasis: {sentence}\n"
    assert result.exit_code == code


def embasis(*words: object) -> Result:
    """The command in this process. Whatever it says, it never shows a traceback."""
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "--debug" in words or "Traceback" not in result.output
    return result
