"""What a worker is told of a file, as plain JSON, and what it makes of that: the file's bytes, or why not."""

from __future__ import annotations

import errno
import hashlib
from typing import Any

from embasis.data.image.decode import Unreadable
from embasis.data.image.files import ImageFile

Words = dict[str, Any]
"""As JSON has it."""


def asked_of(file: ImageFile) -> Words:
    """All that is needed to read the file."""
    return {"path": file.path, "digest": file.digest.hex(), "offset": file.offset, "length": file.length}


def content(asked: Words) -> bytes:
    """The bytes of a file; Unreadable when they are not those of the scan."""
    file = ImageFile("", asked["path"], bytes.fromhex(asked["digest"]), asked["offset"], asked["length"])
    data = file.read()
    if hashlib.blake2b(data, digest_size=16).digest() != file.digest:
        raise Unreadable("changed since the scan")
    return data


def why_not(error: Exception) -> str:
    """The reason in an error that a file led to, as part of a sentence."""
    if isinstance(error, Unreadable):
        return str(error)
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror} ({errno.errorcode.get(error.errno or 0, 'no number')})"
    if isinstance(error, MemoryError):
        return "needs more memory than there is"
    return f"unexpected {type(error).__name__}: {' '.join(str(error).split())[:200]}"
