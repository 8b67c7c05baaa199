"""Commands with hardly any memory, and files that would take a lot of it: one sentence, and code 5 or 3."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cli_tables import ENVIRONMENT, PROGRAM, write_tables
from image_trees import picture, plant

ROWS, FEATURES = 6000, 8


def limited(megabytes: int, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command in a process that may have so much address space beyond what it has after its imports."""
    code = (
        "import resource, sys, torch, pyarrow.csv, embasis.cli, embasis.runs.run, embasis.data.table_pair\n"
        "held = next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmSize'))\n"
        f"limit = (held + {megabytes} * 1024) * 1024\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "embasis.cli.main(sys.argv[1:], prog_name='embasis')\n"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables of 6,000 rows."""
    root, draw = tmp_path_factory.mktemp("home"), np.random.default_rng(0)
    x = draw.normal(size=(ROWS, FEATURES)).astype(np.float32)
    y = np.arange(ROWS) % 2
    np.savez(root / "labelled.npz", x=x + y[:, None], y=y)
    np.savez(root / "unlabelled.npz", x=x + 0.5)
    return root


FIT = ("fit", "labelled.npz", "unlabelled.npz", "-o", "run", "--backbone", "mlp", "plan.batch_size=0", "rounds=1")


def test_a_batch_that_does_not_fit_is_said_with_its_shape_and_what_needs_less(home: Path) -> None:
    """6,000 × 20,000 activations take 480 MB, several times over."""
    done = limited(400, *FIT, "hidden=20000", "source_epochs=1", cwd=home)
    assert done.returncode == 5, done.stderr
    assert done.stderr == (
        "embasis: not enough memory for a batch of 6,000 labelled rows of shape 8 in round 0 epoch 0 step 0; "
        "plan.accumulate_steps=2 takes it in parts, plan.batch_size=64 takes fewer rows; the last saved state is kept\n"
    )
    assert (home / "run" / "error.json").exists()
    shutil.rmtree(home / "run")


def test_weights_that_cannot_be_trained_are_refused_before_the_folder_is_made(home: Path) -> None:
    done = limited(500, *FIT, "hidden=4000000", cwd=home)
    assert done.returncode == 5, done.stderr
    words = "embasis: training 176,000,008 bytes of weights by adam needs 528.0 MB of memory, "
    assert done.stderr.startswith(words)
    assert done.stderr.endswith(" is there; take a smaller network, or plan.optimiser=sgd, which keeps less\n")
    assert not (home / "run").exists()


@pytest.mark.parametrize("megabytes", [0, 20])
def test_a_process_with_hardly_any_memory_ends_with_one_sentence_and_code_5(home: Path, megabytes: int) -> None:
    done = limited(megabytes, *FIT, "hidden=20000", cwd=home)
    assert done.returncode == 5, done.stderr
    assert done.stderr.startswith("embasis: ")
    assert "Traceback" not in done.stderr
    shutil.rmtree(home / "run", ignore_errors=True)


# --- a line without an end


def most_memory(*words: object) -> tuple[int, int, str]:
    """Exit code, largest memory in MB and stderr of a command."""
    # Not by wait4: what it says begins with the memory of the process that forks, which is this one.
    peak = "re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]"
    note = f"import atexit, re; atexit.register(lambda: open('peak', 'w').write({peak})); "
    command = [PROGRAM[0], PROGRAM[1], note + PROGRAM[2], *map(str, words)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    return done.returncode, int(Path("peak").read_text()) // 1024, done.stderr


RULE = "a row has at most 8,388,608 characters, this one has more"
HINT = "is it a .csv file, with a line for each row and every quotation mark closed?"


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("", ("fit", "x.csv", "x.csv")),
        ("a,label\n", ("fit", "x.csv", "labelled.csv")),
        ("path,label\n", ("fit", "x.csv", "paintings")),
        ("id,label\n", ("fit", "labelled.csv", "unlabelled.csv", "--corrections", "x.csv")),
    ],
)
def test_a_csv_file_without_a_line_end_takes_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str, words: tuple[str, ...]
) -> None:
    """1.5 GB that take no room on the disk took 3.3 GB of memory."""
    monkeypatch.chdir(tmp_path)
    write_tables(tmp_path)
    plant(tmp_path / "paintings", {"a.png": picture()})
    Path("x.csv").write_text(header)
    os.truncate("x.csv", 1_500_000_000)
    code, megabytes, text = most_memory(*words, "-o", "run")
    assert (code, text) == (3, f"embasis: x.csv: line {2 if header else 1}: {RULE}; {HINT}\n")
    assert megabytes < 700
