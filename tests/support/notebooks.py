"""The code of a notebook: its code cells in their order, as one program that is run in a folder of its own.

python tests/support/notebooks.py examples/vectors.ipynb    # run a notebook, show what it prints
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def read_cells(notebook: Path) -> list[dict[str, Any]]:
    """The cells of a notebook."""
    cells: list[dict[str, Any]] = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return cells


def code_of(notebook: Path) -> str:
    """The code cells as one program."""
    return "\n\n".join("".join(cell["source"]) for cell in read_cells(notebook) if cell["cell_type"] == "code")


def run_notebook(notebook: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the cells in one process; temporary files of the notebook lie in the folder, and warnings are errors."""
    place = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
    command = [sys.executable, "-W", "error::UserWarning", "-c", code_of(notebook)]
    return subprocess.run(command, cwd=folder, env=place, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        done = run_notebook(Path(sys.argv[1]), Path(home))
    print(done.stdout + done.stderr, f"processor time {sum(os.times()[2:4]):.1f} s", sep="")
