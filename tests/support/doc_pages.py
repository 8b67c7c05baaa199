"""The code blocks of a page: run in their order in one folder, and compared with what the page says they print.

    python tests/support/doc_pages.py docs/tutorials/tables.md    # run a page in a new folder, show what it prints

A block ```python or ```sh is run, each in a process of its own. A block ```text behind it is what the page claims that
it prints. Numbers, true and false may differ, and a line … stands for any lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"^```(python|sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\d+(?:[.,:-]\d+)*|\b(?:true|false|True|False)\b")


@dataclass(frozen=True)
class Block:
    """A block that can be run, and what the page says that it prints; None where it says nothing."""

    kind: str
    code: str
    claim: str | None = None


def read_blocks(page: Path) -> list[Block]:
    """The blocks of a page that can be run, in their order."""
    blocks: list[Block] = []
    for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind != "text":
            blocks.append(Block(kind, text))
        elif blocks and blocks[-1].claim is None:
            blocks[-1] = Block(blocks[-1].kind, blocks[-1].code, text)
    return blocks


def run_block(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run one block in a folder, with the programs of this environment on the path and one thread."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    place = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    command = [sys.executable, "-c", block.code] if block.kind == "python" else ["sh", "-ec", block.code]
    return subprocess.run(command, cwd=folder, env=place, capture_output=True, text=True, check=False)


def shape_of(text: str) -> list[str]:
    """The lines of a text with # for each number, true and false, and one space for several; empty lines left out."""
    lines = (re.sub(r"\s+", " ", NUMBER.sub("#", line)).strip() for line in text.splitlines())
    return [line for line in lines if line]


def has_shape(printed: str, claim: str) -> bool:
    """Whether a text has the lines of a claim, in which … stands for any lines, or for any words of a line."""
    parts = [r"(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in shape_of(claim)]
    return re.fullmatch("".join(parts), "".join(f"{line}\n" for line in shape_of(printed))) is not None


def show_page(page: Path) -> None:
    """Run a page in a new folder and print what each block prints, and whether the page says so."""
    with tempfile.TemporaryDirectory() as home:
        for block in read_blocks(page):
            done = run_block(block, Path(home))
            print(f"--- {block.kind}\n{done.stdout}", end="")
            if done.returncode:
                raise SystemExit(f"exit code {done.returncode}\n{done.stderr}")
            if block.claim is not None and not has_shape(done.stdout, block.claim):
                print("--- but the page says\n" + block.claim, end="")
    print(f"--- processor time {sum(os.times()[2:4]):.1f} s")


if __name__ == "__main__":
    show_page(Path(sys.argv[1]))
