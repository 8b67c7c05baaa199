"""A command in a terminal of 24 × 80 characters, and what a person would see there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Sequence

WIDTH, HEIGHT = 80, 24
CONTROL = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|\r|\n|[^\x1b\r\n]")


def run_in_terminal(command: Sequence[str], **variables: str) -> tuple[str, int]:
    """Everything that the command wrote to its terminal, and its exit code."""
    keyboard, screen = pty.openpty()
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    own = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    environment = {**own, "TERM": "xterm-256color", "OMP_NUM_THREADS": "1", **variables}
    with subprocess.Popen(command, stdin=screen, stdout=screen, stderr=screen, env=environment) as process:
        os.close(screen)
        written = b""
        while piece := read_piece(keyboard):
            written += piece
    os.close(keyboard)
    return written.decode(), process.returncode


def read_piece(descriptor: int) -> bytes:
    """What comes next; nothing when everybody has closed the other end."""
    try:
        return os.read(descriptor, 2**16)
    except OSError:
        return b""


def seen_lines(written: str) -> list[list[str]]:
    """For each line of the screen what stood there, one text after the other; the last one stays.

    A text is what stood there when it was cleared, or when the end was reached."""
    lines, row, column = [[""]], 0, 0
    for found in CONTROL.finditer(written):
        sign, kind = found[0], found[2]
        if kind is None and sign not in "\r\n":
            row, column = (row + 1, 0) if column == WIDTH else (row, column)
            lines += [[""] for _ in range(len(lines), row + 1)]
            text = lines[row][-1].ljust(column)
            lines[row][-1] = text[:column] + sign + text[column + 1 :]
            column += 1
        elif sign == "\n":
            row += 1
            lines += [[""] for _ in range(len(lines), row + 1)]
        elif sign == "\r":
            column = 0
        elif kind == "A":
            row -= int(found[1] or 1)
        elif kind == "K":
            lines[row].append("")
        else:
            assert kind in "mhl", f"the screen does not know {sign!r}"
    return lines
