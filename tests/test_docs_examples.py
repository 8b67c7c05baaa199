"""The examples of the documentation run as they stand, and say what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[1] / "docs"


def run_blocks(page: Path, home: Path) -> list[str]:
    """What each block of Python or shell prints, run one after the other in one folder."""
    place = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    said = []
    for kind, code in re.findall(r"^```(python|sh)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        command = [sys.executable, "-c", code] if kind == "python" else ["sh", "-ec", code]
        done = subprocess.run(command, cwd=home, env=place, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    return said


@pytest.mark.skipif(not (PAGES / "trust.md").is_file(), reason="needs the docs of the repository")
def test_the_page_on_trust_keeps_its_promise(tmp_path: Path) -> None:
    said = run_blocks(PAGES / "trust.md", tmp_path)
    assert len(said) == 3
    assert re.search(r"trusted \(\d+%\) for a precision of 0.95: about [\d,]+ errors expected among them", said[1])
    accuracy, expected, share, right = (float(value) for value in re.findall(r"0\.\d{3}", said[2])[:4])
    assert abs(accuracy - expected) < 0.05
    assert share > 0.1
    assert abs(right - 0.95) < 0.03
