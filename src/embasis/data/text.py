"""Small text files of the user: settings, names of classes. Never waited for, never more than fits a page of memory."""

from __future__ import annotations

import errno
import os
import stat

MOST = 2**20
"""Bytes of such a file."""


def read_text(path: str | os.PathLike[str], encoding: str = "utf-8") -> str:
    """The text of a regular file; OSError or UnicodeDecodeError when there is none."""
    # Without O_NONBLOCK a pipe would be waited for until somebody writes into it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise OSError(errno.EINVAL, "Is a directory" if stat.S_ISDIR(state.st_mode) else "not a regular file")
        if state.st_size > MOST:
            raise OSError(errno.EFBIG, f"{state.st_size:,} bytes, at most {MOST:,} are read")
        return file.read(MOST + 1).decode(encoding)
