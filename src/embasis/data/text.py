"""Files of the user that are opened here and not by a library; small texts: settings, names of classes.

A pipe is never waited for, whatever stood in its place a moment ago."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader

LARGEST_TEXT = 2**20
"""Bytes of such a file."""


def read_text(path: str | os.PathLike[str], encoding: str = "utf-8") -> str:
    """The text of a regular file; OSError or UnicodeDecodeError when there is none."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_TEXT:
            raise OSError(errno.EFBIG, f"{size:,} bytes, at most {LARGEST_TEXT:,} are read")
        return file.read(LARGEST_TEXT + 1).decode(encoding)


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """A regular file to be read; OSError when it is none, even if it was one when somebody looked."""
    # Without O_NONBLOCK a pipe would be waited for until somebody writes into it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Is a directory" if stat.S_ISDIR(mode) else "not a regular file")
    return open(descriptor, "rb")
