"""What a worker is told of a file, as plain JSON, and what it makes of that: the file's bytes, or why not."""

from __future__ import annotations

import errno
import hashlib
from typing import Any

from embasis.data.images.decode import UnreadableImage
from embasis.data.images.files import ImageFile

Json = dict[str, Any]
"""As JSON has it."""


def request_for(file: ImageFile) -> Json:
    """All that is needed to read the file."""
    return {"path": file.path, "digest": file.digest.hex(), "offset": file.offset, "length": file.length}


def read_checked(asked: Json) -> bytes:
    """The bytes of a file; UnreadableImage when they are not those of the scan."""
    file = ImageFile("", asked["path"], bytes.fromhex(asked["digest"]), asked["offset"], asked["length"])
    data = file.read()
    if hashlib.blake2b(data, digest_size=16).digest() != file.digest:
        raise UnreadableImage("changed since the scan")
    return data


def failure_reason(error: Exception) -> str:
    """The reason in an error that a file led to, as part of a sentence."""
    if isinstance(error, UnreadableImage):
        return str(error)
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror} ({errno.errorcode.get(error.errno or 0, 'no number')})"
    if isinstance(error, MemoryError):
        return "needs more memory than there is"
    return f"unexpected {type(error).__name__}: {' '.join(str(error).split())[:200]}"
